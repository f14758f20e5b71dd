#include "sim/spec.h"

#include <stdlib.h>
#include <string.h>

#include "data/number.h"
#include "explain/units.h"

/* ---- Pieces of text: each moves past what it took, and is false where that is not there --------
 */

static bool take_sign(const char **at, char sign) {
    if (**at != sign) return false;
    (*at)++;
    return true;
}

/* Seven digits at most, so that atoi stays within an int; callers check the range. */
static bool take_count(const char **at, int *count_out) {
    size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || digits > 7) return false;
    *count_out = atoi(*at);
    *at += digits;
    return true;
}

/* The number must fill the text up to the next separator of the grammar: "4y" is refused, not
 * read as 4. */
static bool take_number(const char **at, double *number_out) {
    const uint8_t *rest = (const uint8_t *)*at, *end = rest + strcspn(*at, ",:@x");
    if (!sh_number_take(&rest, end, number_out) || rest != end) return false;
    *at = (const char *)rest;
    return true;
}

/* A '-' ends a time, as in "5s-9s": no time of a fault is negative. */
static bool take_time(const char **at, double *seconds_out) {
    const char *end = *at + strcspn(*at, ",-+@");
    if (!sh_seconds_take(*at, end, seconds_out)) return false;
    *at = end;
    return true;
}

/* "@5s-9s" */
static bool take_span(const char **at, double *from_out, double *until_out) {
    return take_sign(at, '@') && take_time(at, from_out) && take_sign(at, '-') &&
           take_time(at, until_out) && *until_out > *from_out;
}

/* ---- Lists -------------------------------------------------------------------------------------
 */

static void refuse_rest(const char *flag, const char *text, const char *at, int ranks) {
    if (*at == '\0')
        SH_FAIL(SH_E_USAGE, "--%s '%.60s' ends too early", flag, text);
    else
        SH_FAIL(SH_E_USAGE, "--%s '%.60s' is not understood from '%.20s' on (ranks are 0 to %d)",
                flag, text, at, ranks - 1);
}

/* One entry of a list, number `index`; false: it is malformed. */
typedef bool (*take_entry)(const char **at, int ranks, sh_sim_spec *spec, int index);

/* A list with commas, into an array of `spec` with SH_SPEC_MOST places. A longer list is
 * refused and never cut short. */
static sh_status take_list(const char *text, const char *flag, const char *example, int ranks,
                           take_entry take, sh_sim_spec *spec, int *count_out) {
    if (text == NULL) return SH_OK;
    const char *at = text;
    do {
        if (*count_out < SH_SPEC_MOST && take(&at, ranks, spec, *count_out)) {
            ++*count_out;
            continue;
        }
        refuse_rest(flag, text, at, ranks);
        return sh_error_hint("--%s %s; several with commas, %d at most", flag, example,
                             SH_SPEC_MOST);
    } while (take_sign(&at, ','));
    if (*at == '\0') return SH_OK;
    SH_FAIL(SH_E_USAGE, "--%s '%.60s': '%.20s' does not belong there", flag, text, at);
    return sh_error_hint("--%s %s", flag, example);
}

/* "3:4x", "*:2x@10s-20s" */
static bool take_slow(const char **at, int ranks, sh_sim_spec *spec, int index) {
    sh_sim_slow slow = {.rank = -1};
    bool named = take_sign(at, '*') || (take_count(at, &slow.rank) && slow.rank < ranks);
    if (!named || !take_sign(at, ':') || !take_number(at, &slow.factor) || !take_sign(at, 'x') ||
        slow.factor <= 0)
        return false;
    if (**at == '@' && !take_span(at, &slow.from_s, &slow.until_s)) return false;
    spec->slow[index] = slow;
    return true;
}

/* "0-1@5s-9s", "0-*@5s-9s" */
static bool take_cut(const char **at, int ranks, sh_sim_spec *spec, int index) {
    sh_sim_cut cut = {.b = -1};
    if (!take_count(at, &cut.a) || cut.a >= ranks || !take_sign(at, '-')) return false;
    if (!take_sign(at, '*') && (!take_count(at, &cut.b) || cut.b >= ranks)) return false;
    if (!take_span(at, &cut.from_s, &cut.until_s)) return false;
    spec->cuts[index] = cut;
    return true;
}

/* "3@5s-7s" */
static bool take_stop(const char **at, int ranks, sh_sim_spec *spec, int index) {
    sh_sim_stop stop = {0};
    double until_s;
    if (!take_count(at, &stop.rank) || stop.rank >= ranks || !take_span(at, &stop.at_s, &until_s))
        return false;
    stop.for_s = until_s - stop.at_s;
    spec->stops[index] = stop;
    return true;
}

/* "3@12s", "3@12s+5s" */
static bool take_death(const char **at, int ranks, sh_sim_spec *spec, int index) {
    sh_sim_death death = {0};
    if (!take_count(at, &death.rank) || death.rank >= ranks || !take_sign(at, '@') ||
        !take_time(at, &death.at_s))
        return false;
    if (take_sign(at, '+') && (!take_time(at, &death.back_s) || death.back_s <= 0)) return false;
    spec->deaths[index] = death;
    return true;
}

/* ---- Single things ------------------------------------------------------------------------------
 */

/* "20ms", "exp:20ms", "lognormal:20ms,0.5" */
static sh_status parse_compute(const char *text, sh_sim_compute *compute) {
    static const char *const laws[] = {[SH_LAW_CONSTANT] = "constant:",
                                       [SH_LAW_EXPONENTIAL] = "exp:",
                                       [SH_LAW_LOGNORMAL] = "lognormal:"};
    const char *at = text;
    for (size_t i = 0; i < SH_COUNT(laws); i++) {
        if (strncmp(text, laws[i], strlen(laws[i])) != 0) continue;
        compute->law = (sh_sim_law)i;
        at = text + strlen(laws[i]);
    }
    bool good = take_time(&at, &compute->mean_s);
    if (compute->law == SH_LAW_LOGNORMAL)
        good = good && take_sign(&at, ',') && take_number(&at, &compute->sigma) &&
               compute->sigma >= 0 && compute->sigma <= 5;
    if (good && *at == '\0') return SH_OK;
    SH_FAIL(SH_E_USAGE, "--compute '%.60s' is no time of a step", text);
    return sh_error_hint("--compute 20ms, exp:20ms or lognormal:20ms,0.5 (sigma of the logarithm)");
}

/* "8,10Gbit,20us" */
static sh_status parse_level(const char *text, const char *flag, int *count_out,
                             sh_link *link_out) {
    if (text == NULL) return SH_OK;
    const char *at = text;
    if (!take_count(&at, count_out) || *count_out < 1 || !take_sign(&at, ',')) {
        SH_FAIL(SH_E_USAGE, "--%s '%.60s' does not begin with a number and a comma", flag, text);
        return sh_error_hint("--%s 8,10Gbit,20us: how many share it, then rate and latency", flag);
    }
    return sh_link_parse(at, flag, link_out);
}

static sh_status parse_jitter(const char *text, double *seconds_out) {
    if (text == NULL) return SH_OK;
    if (sh_seconds_take(text, text + strlen(text), seconds_out)) return SH_OK;
    SH_FAIL(SH_E_USAGE, "--jitter '%.60s' is no time", text);
    return sh_error_hint("--jitter 50us: the mean of an exponential delay of every message");
}

static sh_status refuse_pairs(const char *text, const char *at, int hosts) {
    refuse_rest("pairs", text, at, hosts);
    return sh_error_hint("--pairs 0-3:100Mbit,5ms; several with '/', %d at most", SH_SPEC_MOST);
}

/* "0-3:100Mbit,5ms/1-2:1Gbit,1ms" */
static sh_status parse_pairs(const char *text, int hosts, sh_sim_spec *spec) {
    char link[64];
    int *count = &spec->options.links.pair_count;
    for (const char *at = text; at != NULL && *at != '\0'; ++*count) {
        const char *entry = at;
        sh_sim_pair *pair = &spec->pairs[*count];
        bool named = *count < SH_SPEC_MOST && take_count(&at, &pair->a) && take_sign(&at, '-') &&
                     take_count(&at, &pair->b) && take_sign(&at, ':') && pair->a != pair->b;
        size_t length = strcspn(at, "/");
        if (!named || pair->a >= hosts || pair->b >= hosts || length >= sizeof link)
            return refuse_pairs(text, entry, hosts);
        memcpy(link, at, length);
        link[length] = '\0';
        SH_TRY(sh_link_parse(link, "pairs", &pair->link));
        at += length;
        if (take_sign(&at, '/') && *at == '\0') return refuse_pairs(text, entry, hosts);
    }
    return SH_OK;
}

/* Sites without racks are refused here, where the flag can be named, rather than by
 * sh_network_init. */
static sh_status parse_links(const sh_sim_texts *texts, sh_sim_links *links) {
    if (texts->link != NULL) SH_TRY(sh_link_parse(texts->link, "link", &links->rank));
    SH_TRY(parse_level(texts->racks, "racks", &links->rack_ranks, &links->rack));
    SH_TRY(parse_level(texts->sites, "sites", &links->site_racks, &links->site));
    if (links->site_racks == 0 || links->rack_ranks > 0) return SH_OK;
    SH_FAIL(SH_E_USAGE, "--sites are made of racks, and there are none");
    return sh_error_hint("give --racks too: --racks 8,10Gbit,20us");
}

sh_status sh_sim_spec_parse(const sh_sim_texts *texts, int ranks, int servers, sh_sim_spec *spec) {
    int hosts = ranks + servers;
    *spec = (sh_sim_spec){.options = {.ranks = ranks}};
    sh_sim_compute *compute = &spec->options.compute;
    sh_sim_faults *faults = &spec->options.faults;
    SH_TRY(parse_links(texts, &spec->options.links));
    SH_TRY(parse_pairs(texts->pairs, hosts, spec));
    if (texts->compute != NULL) SH_TRY(parse_compute(texts->compute, compute));
    SH_TRY(parse_jitter(texts->jitter, &faults->delay_s));
    SH_TRY(take_list(texts->straggler, "straggler", "3:4x", ranks, take_slow, spec,
                     &compute->slow_count));
    SH_TRY(take_list(texts->cut, "cut", "0-1@5s-9s", hosts, take_cut, spec, &faults->cut_count));
    SH_TRY(
        take_list(texts->pause, "pause", "3@5s-7s", hosts, take_stop, spec, &faults->stop_count));
    SH_TRY(take_list(texts->die, "die", "3@12s+5s", hosts, take_death, spec, &faults->death_count));
    // The options point into `spec` from now on, so the caller must not move it.
    spec->options.links.pairs = spec->pairs;
    compute->slow = spec->slow;
    faults->cuts = spec->cuts;
    faults->stops = spec->stops;
    faults->deaths = spec->deaths;
    return SH_OK;
}
