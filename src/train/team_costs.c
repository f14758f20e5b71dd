/* Costs of messages between the workers of a run. They decide which algorithm a sum takes, hence in
 * which order it is summed: so rank 0 decides, everybody gets the same figures, and a resumed run
 * gets those of its manifest. The tuner keeps them, as it keeps kernel choices. */
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "plan/units.h"
#include "train/costs.h"
#include "train/run.h"

/* Machines are told apart by their names; the sum is the same in any order of the ranks. */
static sh_status hash_hosts(sh_team *team, double *hash_out) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    uint32_t hash = 2166136261u;
    for (const char *at = name; *at != '\0'; at++) hash = (hash ^ (unsigned char)*at) * 16777619u;
    *hash_out = (double)hash;
    return sh_team_sum(team, hash_out, 1);
}

static void log_costs(shoal_run *run, const sh_costs *costs, bool measured) {
    char link[3 * SH_UNIT_TEXT];
    bool between = sh_engine_nodes(run->team.engine) > 1;
    SH_INFO(&run->log, "links %s: %s %s%s%s", measured ? "measured" : "as remembered",
            sh_link_text(between ? &costs->link : &costs->node_link, link),
            between ? "between nodes" : "between workers",
            costs->large != NULL ? ", long sums by " : "",
            costs->large != NULL ? costs->large->name : "");
}

/* Rank 0's figures, "" where it has none, to all. */
static sh_status agree(shoal_run *run, const char *known, sh_costs *costs_out, bool *sound_out) {
    char *text = NULL;
    SH_TRY(sh_team_tell(&run->team, known, &text));
    *sound_out = sh_costs_parse(text, costs_out);
    sh_free(run->team.costs);
    run->team.costs = text;
    return *sound_out ? sh_engine_set_costs(run->team.engine, costs_out) : SH_OK;
}

sh_status sh_team_take_costs(shoal_run *run) {
    sh_team *team = &run->team;
    if (team->engine == NULL) return SH_OK;
    double hosts, measures = sh_tuner_measures(run->model.tuner) && sh_team_leads(team);
    SH_TRY(hash_hosts(team, &hosts));
    SH_TRY(sh_team_sum(team, &measures, 1));
    char key[SH_COSTS_KEY + 32], text[SH_COSTS_TEXT] = "";
    sh_costs_key(sh_engine_transport(team->engine), team->ranks, sh_engine_nodes(team->engine),
                 key);
    snprintf(key + strlen(key), 32, "%.0f", hosts);
    const char *known = sh_team_leads(team) ? sh_tuner_recall(run->model.tuner, key) : NULL;
    sh_costs costs;
    bool sound = false;
    SH_TRY(agree(run, known != NULL ? known : "", &costs, &sound));
    bool measured = !sound && measures > 0;
    if (measured) {
        SH_TRY(sh_engine_calibrate(team->engine, &costs));
        SH_TRY(agree(run, sh_costs_print(&costs, text), &costs, &sound));
        if (sound && sh_team_leads(team)) SH_TRY(sh_tuner_keep(run->model.tuner, key, text));
    }
    if (sound && sh_team_leads(team)) log_costs(run, &costs, measured);
    return SH_OK;
}

sh_status sh_team_keep_costs(shoal_run *run) {
    if (run->team.engine == NULL) return SH_OK;
    char *known = run->team.costs;  // told anew, and freed by then
    sh_costs costs;
    bool sound;
    run->team.costs = NULL;
    sh_status status = agree(run, known != NULL ? known : "", &costs, &sound);
    sh_free(known);
    return status;
}
