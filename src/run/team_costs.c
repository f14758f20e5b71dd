/* Costs of messages between the workers of a run. They decide which algorithm a sum takes, hence in
 * which order it is summed: so rank 0 decides, everybody gets the same figures, and a resumed run
 * gets those of its manifest. The tuner keeps them, as it keeps kernel choices.
 *
 * Machines of the same names may be joined by another network than last time. So remembered figures
 * are probed, and where the probe contradicts them everything is measured again. What was
 * remembered gives way only if that contradicts it as well: a probe may have been disturbed. */
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "explain/units.h"
#include "run/costs.h"
#include "run/run.h"

static sh_engine *engine_of(const sh_team *team) { return sh_group_engine(team->group); }

/* Costs are those between all ranks of an engine, which all of them measure together. */
static bool measures(const sh_team *team) {
    return team->group != NULL && team->group == sh_engine_world(engine_of(team));
}

/* Machines are told apart by their names; the sum is the same in any order of the ranks. */
static double hash_host(void) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    // FNV-1a. At 32 bits, sums over the ranks are exact in a double.
    uint32_t hash = 2166136261u;
    for (const char *at = name; *at != '\0'; at++) hash = (hash ^ (unsigned char)*at) * 16777619u;
    return (double)hash;
}

enum { KEY_MOST = SH_COSTS_KEY + 32 };

/* The key of these workers, and whether rank 0 may measure. */
static sh_status identify(shoal_run *run, char key_out[KEY_MOST], bool *measures_out) {
    sh_team *team = &run->team;
    double sums[] = {hash_host(), sh_team_leads(team) && sh_tuner_measures(run->model.tuner)};
    SH_TRY(sh_team_sum(team, sums, SH_COUNT(sums)));
    sh_costs_key(sh_engine_transport(engine_of(team)), team->ranks,
                 sh_engine_nodes(engine_of(team)), key_out);
    sh_snprintf(key_out + strlen(key_out), 32, "%.0f", sums[0]);
    *measures_out = sums[1] > 0;
    return SH_OK;
}

/* In a run on several nodes the links between them matter most, and are the ones told. */
static void log_costs(shoal_run *run, const sh_costs *costs, const char *how) {
    char link[3 * SH_UNIT_TEXT];
    bool between = sh_engine_nodes(engine_of(&run->team)) > 1;
    SH_INFO(&run->log, "links %s: %s %s%s%s", how,
            sh_link_text(between ? &costs->link : &costs->node_link, link),
            between ? "between nodes" : "between workers",
            costs->large != NULL ? ", long sums by " : "",
            costs->large != NULL ? costs->large->name : "");
}

/* Rank 0's figures, "" where it has none, to all.
 * Collective. All ranks parse rank 0's text, so that all choose the same algorithms; the text
 * is kept for later generations. */
static sh_status agree(shoal_run *run, const char *known, sh_costs *costs_out, bool *sound_out) {
    char *text = NULL;
    SH_TRY(sh_team_tell(&run->team, known, &text));
    *sound_out = sh_costs_parse(text, costs_out);
    sh_free(run->team.costs);
    run->team.costs = text;
    return *sound_out ? sh_engine_set_costs(engine_of(&run->team), costs_out) : SH_OK;
}

/* Whether the network is another one than that of the figures.
 * Collective: rank 0 decides whether the figures are probed, and then all ranks take part. */
static sh_status contradicts(shoal_run *run, const char *key, const sh_costs *costs, bool *out) {
    sh_team *team = &run->team;
    double doubts = sh_team_leads(team) && sh_tuner_measured(run->model.tuner, key) &&
                    sh_engine_nodes(engine_of(team)) > 1;
    SH_TRY(sh_team_sum(team, &doubts, 1));
    sh_link link = costs->link;
    if (doubts > 0) SH_TRY(sh_engine_probe(engine_of(team), &link));
    *out = sh_links_differ(&link, &costs->link);
    return SH_OK;
}

/* `*costs` are what was remembered, if that is sound.
 * Collective. Rank 0 remembers the new figures only where they contradict the old ones. */
static sh_status measure(shoal_run *run, const char *key, sh_costs *costs, bool sound) {
    sh_costs found;
    char text[SH_COSTS_TEXT];
    SH_TRY(sh_engine_calibrate(engine_of(&run->team), &found));
    bool stays = sound && !sh_links_differ(&found.link, &costs->link);
    sh_costs_print(stays ? costs : &found, text);
    SH_TRY(agree(run, text, costs, &sound));
    if (!sh_team_leads(&run->team) || !sound) return SH_OK;
    log_costs(run, costs, stays ? "measured again, as remembered" : "measured");
    return stays ? SH_OK : sh_tuner_keep(run->model.tuner, key, text);
}

sh_status sh_team_take_costs(shoal_run *run) {
    sh_team *team = &run->team;
    if (!measures(team)) return SH_OK;
    char key[KEY_MOST];
    bool measures, sound, stale = false;
    SH_TRY(identify(run, key, &measures));
    const char *known = sh_team_leads(team) ? sh_tuner_recall(run->model.tuner, key) : NULL;
    sh_costs costs;
    SH_TRY(agree(run, known != NULL ? known : "", &costs, &sound));
    if (sound && measures) SH_TRY(contradicts(run, key, &costs, &stale));
    if (measures && (!sound || stale)) return measure(run, key, &costs, sound);
    if (sound && sh_team_leads(team)) log_costs(run, &costs, "as remembered");
    return SH_OK;
}

sh_status sh_team_keep_costs(shoal_run *run) {
    if (!measures(&run->team)) return SH_OK;
    char *known = run->team.costs;  // told anew, and freed by then
    sh_costs costs;
    bool sound;
    run->team.costs = NULL;
    sh_status status = agree(run, known != NULL ? known : "", &costs, &sound);
    sh_free(known);
    return status;
}
