/* Federated training with simulated clients: the server's state machine, and clients that train one
 * after the other in this process. */
#include <math.h>

#include "base/memory.h"
#include "fed/simulate_internal.h"
#include "run/need.h"

/* Options that mean something only to a run of its own workers. */
static sh_status check_config(const sh_config *config) {
    const char *other = NULL;
    if (config->workers > 1) other = "several workers (-n)";
    if (config->exact) other = "--exact";
    if (config->resume != NULL) other = "--resume";
    if (config->sync_batchnorm) other = "--sync-batchnorm";
    if (other == NULL) return SH_OK;
    SH_FAIL(SH_E_USAGE, "simulated clients do not go with %s", other);
    return sh_error_hint("leave that out");
}

/* All clients are known from the start; they are numbered from 0. */
static sh_status make_server(sh_fed_simulation *s) {
    const shoal_run *run = s->run;
    size_t params = run->model.net->params.total, count = sh_fed_count(run);
    SH_TRY(sh_fed_server_create(&s->settings.server, params, count, sh_fed_simulate_report, s,
                                &s->server));
    for (size_t c = 0; c < s->settings.clients; c++)
        if (sh_fed_server_add(s->server) < 0)
            return SH_FAIL(SH_E_MEMORY, "out of memory for %zu clients", s->settings.clients);
    sh_fed_local_get(run, sh_fed_server_model(s->server));
    sh_fed_server_begin(s->server);
    return SH_OK;
}

/* fedbuff: as many clients train at the same time as the fraction says. */
static sh_status make_flights(sh_fed_simulation *s) {
    double wanted = ceil(s->settings.server.fraction * (double)s->settings.clients);
    // 0: rounds, not flights.
    s->flight_count = s->settings.server.rule.rule->buffered ? (size_t)wanted : 0;
    s->flights = sh_alloc(s->flight_count + 1, sizeof *s->flights);
    bool complete = s->flights != NULL;
    for (size_t i = 0; complete && i < s->flight_count; i++) {
        s->flights[i].values = sh_alloc(sh_fed_server_values(s->server), sizeof(float));
        complete = s->flights[i].values != NULL;
    }
    return complete ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for updates under way");
}

/* Control variates themselves are allocated for a client when it is first asked. */
static sh_status make_room(sh_fed_simulation *s) {
    s->values = sh_alloc(sh_fed_server_values(s->server), sizeof *s->values);
    s->controls = sh_alloc(s->settings.clients, sizeof *s->controls);
    s->changes = sh_alloc(s->settings.clients, sizeof *s->changes);
    if (s->values == NULL || s->controls == NULL || s->changes == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu clients", s->settings.clients);
    return make_flights(s);
}

/* Safe after a failure half way. */
static void fini(sh_fed_simulation *s) {
    for (size_t c = 0; s->controls != NULL && c < s->settings.clients; c++) {
        sh_free(s->controls[c]);
        if (s->changes != NULL) sh_free(s->changes[c]);
    }
    for (size_t i = 0; s->flights != NULL && i < s->flight_count; i++)
        sh_free(s->flights[i].values);
    sh_free(s->controls);
    sh_free(s->changes);
    sh_free(s->flights);
    sh_free(s->values);
    sh_fed_server_destroy(s->server);
    sh_fed_partition_fini(&s->partition);
}

/* The folder is opened last: a wrong option leaves no trace on disk. */
static sh_status begin(sh_fed_simulation *s) {
    shoal_run *run = s->run;
    run->stats.start_ns = run->stats.loop_ns = sh_run_now(run);
    SH_TRY(sh_data_need_targets(run->data.test, "test"));
    SH_TRY(sh_fed_local_prepare(run, s->settings.server.rounds));
    if (s->settings.personalise != SH_FED_SHARED_ONLY && s->settings.held_out == 0) {
        SH_FAIL(SH_E_USAGE, "personal models are measured on what clients hold out");
        return sh_error_hint("add --held-out 0.2");
    }
    SH_TRY(sh_fed_partition_make(run->data.train, s->settings.partition, s->settings.clients,
                                 (uint64_t)run->config.seed, &s->partition));
    SH_TRY(make_server(s));
    SH_TRY(make_room(s));
    SH_TRY(sh_run_open_folder(run));
    SH_TRY(sh_run_begin_files(run));
    SH_INFO(&run->log,
            "%s: %zu parameters, %zu samples on %zu clients (%s), %s, %lld rounds, in %s",
            run->config.name != NULL ? run->config.name : "run", run->model.net->params.total,
            run->data.train->info.count, s->settings.clients, s->settings.partition,
            s->settings.server.rule.rule->name, (long long)s->settings.server.rounds,
            run->files.folder);
    return SH_OK;
}

/* Each call lets virtual time pass, until the server says that it is over or the target is reached.
 */
static sh_status train(sh_fed_simulation *s) {
    SH_TRY(begin(s));
    // A target ends the simulation early.
    while (!sh_fed_server_view(s->server, s->now_ms).over && !s->reached) {
        if (s->settings.secure)
            SH_TRY(sh_fed_simulate_secure(s));
        else if (s->flight_count > 0)
            SH_TRY(sh_fed_simulate_arrival(s));
        else
            SH_TRY(sh_fed_simulate_round(s));
    }
    return sh_fed_simulate_end(s);
}

/* One process, one model in memory: clients train one after the other on it. */
shoal_status shoal_fed_simulate(const shoal_config *config, const shoal_hooks *hooks,
                                const shoal_fed_options *options, char **folder_out,
                                shoal_fed_result *result_out) {
    SHOAL_NEED(config);
    SHOAL_NEED(options);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    sh_fed_simulation s = {.result = {.test_loss = NAN,
                                      .test_accuracy = NAN,
                                      .shared_accuracy = NAN,
                                      .personal_accuracy = NAN}};
    if (folder_out != NULL) *folder_out = NULL;
    SHOAL_TRY(check_config(&config->config));
    SHOAL_TRY(sh_fed_settings_make(options, (uint64_t)config->config.seed, &s.settings));
    SHOAL_TRY(sh_run_open(&config->config, &whole, NULL, &s.run));
    sh_status status = train(&s);
    if (folder_out != NULL && s.run->files.folder != NULL)
        *folder_out = sh_strdup(s.run->files.folder);
    if (result_out != NULL) *result_out = s.result;
    fini(&s);
    shoal_run_close(s.run);
    return (shoal_status)status;
}
