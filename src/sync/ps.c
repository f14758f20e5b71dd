/* Synchronous parameter servers: the servers take the gradients of all workers, and their mean is
 * the update of the step (Li et al. 2014). With sums in the order of ranks, so a run repeats. */
#include "sync/cost.h"
#include "sync/ps.h"

#include <string.h>

#include "sync/list.h"

bool sh_ps_staleness(const sh_sync_options *options, bool usual) {
    return strcmp(options->staleness, "auto") == 0 ? usual : strcmp(options->staleness, "on") == 0;
}

int sh_ps_services(sh_scheme scheme, const sh_sync_options *options, int workers) {
    (void)scheme;
    if (options->servers > 0) return (int)options->servers;
    return workers < SH_PS_SERVERS_USUAL ? workers : SH_PS_SERVERS_USUAL;
}

static sh_status check_optim(sh_scheme scheme, const sh_sync_options *options,
                             const sh_sync_terms *terms) {
    if (scheme.kind == &sh_sync_easgd) return SH_OK;  // workers step, with whole tensors
    if (!terms->optim->adaptive || strcmp(options->placement, "variable") == 0 ||
        sh_ps_services(scheme, options, terms->workers) == 1)
        return SH_OK;
    SH_FAIL(SH_E_USAGE, "%s needs the norms of whole tensors, and servers of ranges have parts",
            terms->optim->name);
    return sh_error_hint("use --placement variable, or one server (--servers 1)");
}

static sh_status check_codec(sh_scheme scheme, const sh_sync_terms *terms) {
    const sh_codec_kind *kind = terms->codec->kind;
    if (kind == NULL) return SH_OK;
    const char *why = NULL;
    if (kind->rounds > 1) why = "needs the sum over all workers in two rounds";
    if (kind->owns_momentum) why = "keeps the momentum that the servers have";
    if (kind->owns_momentum && scheme.kind == &sh_sync_easgd)
        why = "keeps the momentum of gradients, and weights travel";
    if (why == NULL) return SH_OK;
    SH_FAIL(SH_E_USAGE, "codec '%s' does not go with scheme '%s': it %s", kind->name,
            scheme.kind->name, why);
    return sh_error_hint("use another codec, or none");
}

static sh_status check_periods(sh_scheme scheme, const sh_sync_options *options) {
    bool every_step = options->fetch_every <= 1 && options->push_every <= 1;
    if (every_step || scheme.kind == &sh_sync_async) return SH_OK;
    SH_FAIL(SH_E_USAGE, "scheme '%s' fetches and pushes in its own rhythm", scheme.kind->name);
    return sh_error_hint("leave out --fetch-every and --push-every, or use --sync async");
}

static sh_status check_exact(sh_scheme scheme, const sh_sync_terms *terms) {
    if (!terms->exact || !terms->clips) return SH_OK;
    SH_FAIL(SH_E_USAGE,
            "scheme '%s' does not clip in an exact run: the sum is clipped there, and "
            "each server has a part of it",
            scheme.kind->name);
    return sh_error_hint("leave out clipping or --exact, or use --sync bsp");
}

sh_status sh_ps_check(sh_scheme scheme, const sh_sync_options *options, const sh_sync_terms *terms,
                      bool stale) {
    if (!sh_sync_acts(options, terms->workers)) return SH_OK;
    SH_TRY(check_codec(scheme, terms));
    SH_TRY(check_exact(scheme, terms));
    SH_TRY(check_optim(scheme, options, terms));
    SH_TRY(check_periods(scheme, options));
    if (options->compensation == 0 || stale) return SH_OK;
    SH_FAIL(SH_E_USAGE, "in scheme '%s' no gradient is late: there is no delay to compensate",
            scheme.kind->name);
    return sh_error_hint("leave out --compensation");
}

sh_status sh_ps_check_amount(sh_scheme scheme, const sh_sync_options *options,
                             const sh_sync_terms *terms, int spare) {
    int workers = terms->planned > 0 ? terms->planned : terms->workers, most = workers - spare;
    if (!sh_sync_acts(options, terms->workers) || scheme.amount <= most) return SH_OK;
    SH_FAIL(SH_E_USAGE, "scheme '%s:%.0f' is too much for %d worker%s", scheme.kind->name,
            scheme.amount, workers, workers == 1 ? "" : "s");
    if (most < 1) return sh_error_hint("use more workers (-n %d), or another scheme", 1 + spare);
    return sh_error_hint("give %s from 1 to %d", scheme.kind->amount, most);
}

static sh_status check(sh_scheme scheme, const sh_sync_options *options,
                       const sh_sync_terms *terms) {
    return sh_ps_check(scheme, options, terms, false);
}

static sh_ps_policy policy_of(sh_scheme scheme, const sh_sync_options *options, int workers) {
    (void)options;
    (void)scheme;
    return (sh_ps_policy){
        .group = workers, .rounds = true, .slack = -1, .rate = 1, .per = 1, .period = 1};
}

/* A push and a pull in a step or a period of some; what a worker has to do with the server beside
 * it takes no link. The servers' links are shared by all workers. */
static sh_sync_cost ps_cost(const sh_sync_load *load) {
    const struct sh_ps_policy policy =
        load->scheme.kind->policy(load->scheme, load->options, load->workers);
    int servers = sh_ps_services(load->scheme, load->options, load->workers);
    const sh_codec pull_codec = sh_ps_pull_codec(load->codec);
    double model = sh_codec_message_bytes(&pull_codec, load->params);
    double push = sh_codec_message_bytes(load->codec, load->params);
    double pulls = 1.0 / (policy.period > 1 ? (double)policy.period : 1);
    double pushes = policy.elastic > 0      ? pulls
                    : policy.push_every > 1 ? 1.0 / (double)policy.push_every
                                            : 1;
    double per_worker = push * pushes + model * pulls;
    double workers_per_server = (double)load->workers / servers;
    return (sh_sync_cost){
        .sent_bytes = load->workers * per_worker,
        .seconds =
            (pushes + pulls) * load->link.alpha_s +
            per_worker * (workers_per_server > 1 ? workers_per_server : 1) * load->link.beta_s};
}

const sh_sync_family sh_ps_family = {
    .free = true,
    .mails = true,
    .services = sh_ps_services,
    .create = sh_ps_create,
    .destroy = sh_ps_destroy,
    .step = sh_ps_step,
    .meet = sh_ps_meet,
    .serve = sh_ps_serve,
    .snapshot_bytes = sh_ps_snapshot_bytes,
    .restore = sh_ps_restore,
    .cost = ps_cost,
};

const sh_sync_kind sh_sync_ps = {
    .name = "ps",
    .help = "parameter servers, in step: every update is the mean over all workers, as in bsp",
    .exact = true,
    .reads = SH_PS_READS,
    .states = SH_PS_STATES,
    .family = &sh_ps_family,
    .check = check,
    .policy = policy_of,
};
