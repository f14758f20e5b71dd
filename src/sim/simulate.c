#include "sim/simulate.h"

#include <string.h>

#include "base/text.h"
#include "run/scheme.h"
#include "run/server.h"
#include "run/need.h"
#include "shoal/tools.h"

/* Stacks of a worker that computes, and of one that only lets time pass and calls no kernels. */
enum { STACK_BYTES = 1 << 20, SMALL_STACK_BYTES = 64 << 10 };

/* ---- A worker -------------------------------------------------------------------------------- */

/* Rank 0 speaks for all; the others only warn. */
static void worker_line(void *user, shoal_log_level level, const char *text) {
    const sh_simulated_worker *worker = user;
    const shoal_hooks *hooks = worker->simulation->hooks;
    if (hooks->line != NULL && (worker->rank == 0 || level >= SHOAL_LOG_WARNING))
        hooks->line(hooks->user, level, text);
}

static void worker_progress(void *user, const shoal_progress *progress) {
    const sh_simulated_worker *worker = user;
    const shoal_hooks *hooks = worker->simulation->hooks;
    if (hooks->progress != NULL && worker->rank == 0) hooks->progress(hooks->user, progress);
}

static void worker_folder(void *user, const char *folder) {
    const sh_simulated_worker *worker = user;
    const shoal_hooks *hooks = worker->simulation->hooks;
    if (hooks->folder != NULL && worker->rank == 0) hooks->folder(hooks->user, folder);
}

static bool worker_stop(void *user) {
    const sh_simulated_worker *worker = user;
    const shoal_hooks *hooks = worker->simulation->hooks;
    return hooks->stop != NULL && hooks->stop(hooks->user);
}

/* Hook of the env: the mail of the team that the worker is in when it asks, as regrouping
 * changes it. */
static sh_status open_mail(void *self, int endpoint, sh_transport **mail_out) {
    const sh_simulated_worker *worker = self;
    return sh_sim_attach_team_mail(worker->simulation->sim, worker->team, endpoint, mail_out);
}

/* A step's time is drawn once: slow phases look at the clock, so its forward and backward would
 * otherwise be parts of different times. */
static int64_t step_ns(sh_simulated_worker *worker, int64_t step) {
    if (worker->drawn != step + 1) {
        worker->drawn = step + 1;
        worker->step_ns = sh_sim_compute_ns(worker->simulation->sim, worker->slot, step);
    }
    return worker->step_ns;
}

/* A failure (the rank was killed) shows in the worker's next message. */
static void spend(void *self, int64_t step, double part) {
    sh_simulated_worker *worker = self;
    double ns = (double)step_ns(worker, step) * part;
    (void)sh_sim_spend(worker->simulation->sim, (int64_t)(ns + 0.5));
}

static void spend_unless(void *self, int64_t step, sh_transport *mail, bool (*ends)(void *who),
                         void *who) {
    sh_simulated_worker *worker = self;
    int64_t ns = step_ns(worker, step);
    (void)sh_sim_spend_unless(worker->simulation->sim, ns, mail, ends, who);
}

/* Simulated workers compute in turns, each for a moment: a team of threads per step costs more than
 * it saves, so that only --threads asks for one. */
static int thread_count(const sh_config *config) {
    return config->threads > 0 ? (int)config->threads : 1;
}

sh_worker_env sh_simulated_env(sh_simulated_worker *worker) {
    sh_simulation *s = worker->simulation;
    return (sh_worker_env){.engine = worker->engine,
                           .planned = (int)s->config.workers,
                           .threads = thread_count(&s->config),
                           .board = &sh_sim_board(s->sim)->rank[worker->home],
                           .clock = sh_sim_clock(s->sim),
                           .data = &s->data,
                           .open_mail = s->scheme.kind->family->mails ? open_mail : NULL,
                           .spend = spend,
                           .spend_unless = spend_unless,
                           .timing_only = s->timing_only,
                           .regroup = s->teams != NULL ? &sh_simulated_regroup : NULL,
                           .self = worker};
}

/* A worker with numerics, from opening its run to closing it. Rank 0 leaves the figures of the
 * result. */
static sh_status train(sh_simulated_worker *worker) {
    sh_simulation *s = worker->simulation;
    shoal_hooks hooks = *s->hooks;
    hooks.user = worker;
    hooks.line = worker_line;
    hooks.environment = NULL;
    hooks.progress = worker_progress;
    hooks.folder = worker_folder;
    hooks.stop = worker_stop;
    sh_worker_env env = sh_simulated_env(worker);
    shoal_run *run = NULL;
    SH_TRY(sh_run_open(&s->config, &hooks, &env, &run));
    sh_status status = (sh_status)shoal_run_train(run);
    if (status == SH_OK) status = sh_servers_release(run);
    sh_error error = *sh_error_last();
    bool dead = sh_sim_is_dead(s->sim, worker->home);
    if (worker->rank == 0 && !dead) {
        const char *folder = shoal_run_folder(run);
        s->folder = folder != NULL ? sh_strdup(folder) : NULL;
        s->steps = run->at.step - run->at.first_step;
        s->seconds = (double)(sh_run_now(run) - run->stats.start_ns) * 1e-9;
    }
    if (dead) sh_scheme_leave(run);
    // After a failure services may still look at the run; as with real workers, it stays.
    if (status == SH_OK || !sh_scheme_serves(run)) shoal_run_close(run);
    return status == SH_OK ? SH_OK : sh_error_adopt(&error);
}

sh_status sh_simulated_enter(sh_simulated_worker *worker, int team, int ranks) {
    sh_simulation *s = worker->simulation;
    sh_transport *transport = NULL;
    worker->team = team;
    worker->engine = NULL;
    if (ranks == 1 && team > 0 && s->spec.options.services == 0) return SH_OK;
    SH_TRY(sh_sim_attach_team(s->sim, team, worker->rank, &transport));
    sh_engine_options options = {.algorithm = s->config.allreduce};
    const sh_sim_links *links = &s->spec.options.links;
    options.costs.node_link = links->rank;
    options.costs.link = links->rack_ranks > 0 ? links->rack : links->rank;
    return sh_engine_create(transport, &options, &worker->engine);
}

void sh_simulated_leave(sh_simulated_worker *worker) {
    sh_engine_destroy(worker->engine);
    sh_engine_destroy(worker->before);
    worker->engine = worker->before = NULL;
}

/* The task of a worker. One that comes back has rank -1 until it is in a team, and gets its
 * engine by regrouping. */
static sh_status work(void *argument) {
    sh_simulated_worker *worker = argument;
    sh_simulation *s = worker->simulation;
    if (worker->rank >= 0) SH_TRY(sh_simulated_enter(worker, 0, (int)s->config.workers));
    sh_status status = s->timing_only ? sh_simulate_timing(worker) : train(worker);
    sh_error error = *sh_error_last();
    bool dead = sh_sim_is_dead(s->sim, worker->home);
    s->done = s->done || (status == SH_OK && !dead);
    // After a failure services may still use the engine; it goes once all coroutines have ended.
    if (status == SH_OK || dead) sh_simulated_leave(worker);
    if (status == SH_E_INTERRUPTED && worker->rank < 0) return SH_OK;  // it came too late
    return status == SH_OK ? SH_OK : sh_error_adopt(&error);
}

/* ---- How long a step computes here -------------------------------------------------------------
 */

/* One worker alone with its share of the batch, on the real clock; half a second or so. */
static sh_status measure(const sh_simulation *s, double *seconds_out) {
    sh_config config;
    SH_TRY(sh_config_copy(&s->config, &config));
    int64_t ranks = config.workers;
    config.batch = config.batch > ranks ? config.batch / ranks : 1;
    config.workers = 1;
    config.threads = thread_count(&config);
    shoal_hooks hooks = {.data_folder = s->hooks->data_folder,
                         .cache_folder = s->hooks->cache_folder,
                         .unix_ns = s->hooks->unix_ns};
    shoal_run *run = NULL;
    shoal_timing timing = {0};
    sh_status status = sh_options_set(sh_config_table(), "sync", "bsp", &config);
    if (status == SH_OK)
        status = sh_options_set(sh_config_table(), "sync.server_ranks", "shared", &config);
    if (status == SH_OK) status = sh_run_open(&config, &hooks, NULL, &run);
    if (status == SH_OK) status = (sh_status)shoal_run_bench(run, 3, 40, 0.5, &timing);
    if (run != NULL) shoal_run_close(run);
    sh_config_fini(&config);
    *seconds_out = timing.median_ms * 1e-3;
    return status;
}

static void say(const sh_simulation *s, const char *text) {
    if (s->hooks->line != NULL) s->hooks->line(s->hooks->user, SHOAL_LOG_INFO, text);
}

static sh_status find_compute(sh_simulation *s, bool given) {
    if (given) return SH_OK;
    double *seconds = &s->spec.options.compute.mean_s;
    SH_TRY(measure(s, seconds));
    char text[160];
    sh_snprintf(
        text, sizeof text,
        "a step of one worker takes %.3f ms here; --compute %.0fus makes this run repeatable",
        *seconds * 1e3, *seconds * 1e6);
    say(s, text);
    // Whole microseconds, as the line above prints them: a run with that --compute repeats this
    // one.
    *seconds = (double)(int64_t)(*seconds * 1e6 + 0.5) * 1e-6;
    return SH_OK;
}

/* ---- The simulation ----------------------------------------------------------------------------
 */

static void hook_line(void *self, sh_log_level level, const char *text) {
    const sh_simulation *s = self;
    if (s->hooks->line != NULL) s->hooks->line(s->hooks->user, (shoal_log_level)level, text);
}

/* One copy of the data for all workers, which only read it. */
static sh_status open_data(sh_simulation *s) {
    sh_data_options options = s->config.data;
    options.folder = (char *)(uintptr_t)s->hooks->data_folder;
    options.seed = (uint64_t)s->config.seed;
    options.ignore = &s->config.loss.ignore_index;
    options.parts = 1;
    sh_log log = {.line = hook_line, .self = s};
    SH_TRY(sh_data_open(&options, &log, &s->data));
    if (s->data.train->parts.ranks == 0) return SH_OK;
    SH_FAIL(SH_E_UNSUPPORTED, "simulated workers share one memory, and this data is in parts");
    return sh_error_hint("join the parts to one file");
}

static bool server_quits(void *user) { return sh_simulated_regroup.moved(user); }

/* A parameter server with wires of its own, in one team. */
static sh_status serve(void *argument) {
    sh_simulated_worker *self = argument;
    sh_simulation *s = self->simulation;
    int slots = (int)s->config.workers, index = self->slot - slots;
    sh_server server = {.config = &s->config,
                        .index = index,
                        .workers = self->rank - index,
                        .stops = worker_stop,
                        .quits = s->teams != NULL ? server_quits : NULL,
                        .user = self};
    sh_status status = open_mail(self, self->rank, &server.mail);
    if (status == SH_OK) status = sh_server_run(&server);
    return s->teams != NULL ? sh_simulated_served(self, status) : status;
}

sh_status sh_simulated_start(sh_simulated_worker *worker) {
    bool works = worker->slot < (int)worker->simulation->config.workers;
    return sh_sim_spawn(worker->simulation->sim, worker->home, works ? "worker" : "server",
                        works ? work : serve, worker);
}

static sh_status run_workers(sh_simulation *s) {
    int ranks = (int)s->config.workers, all = ranks + s->spec.options.services;
    sh_simulated_worker *workers = sh_alloc((size_t)all, sizeof *workers);
    if (workers == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %d workers", all);
    sh_status status = SH_OK;
    for (int rank = 0; status == SH_OK && rank < all; rank++) {
        workers[rank] =
            (sh_simulated_worker){.simulation = s, .slot = rank, .rank = rank, .home = rank};
        status = sh_simulated_start(&workers[rank]);
    }
    if (status == SH_OK) status = sh_sim_run(s->sim);
    sh_error error = *sh_error_last();
    // Only after sh_sim_run, when no service can use a worker's engine any more.
    for (int rank = 0; rank < all; rank++) sh_simulated_leave(&workers[rank]);
    sh_free(workers);
    if (status != SH_OK) return sh_error_adopt(&error);
    if (s->done) return SH_OK;
    SH_FAIL(SH_E_PEER, "all workers who had the model have died");
    return sh_error_hint("leave one of them out of --die");
}

/* The number of endpoints depends on scheme, servers and planned deaths, so those are settled
 * before the simulator is made. */
static sh_status simulate(sh_simulation *s, bool compute_given) {
    SH_TRY(sh_config_check(&s->config));
    SH_TRY(sh_scheme_parse(s->config.scheme.name, &s->scheme));
    SH_TRY(open_data(s));
    SH_TRY(find_compute(s, compute_given));
    if (s->timing_only) SH_TRY(sh_simulate_timing_open(s));
    sh_sim_options *options = &s->spec.options;
    int services = sh_scheme_services(s->scheme, &s->config.scheme, options->ranks);
    options->mail = s->scheme.kind->family->mails ? options->ranks + services : 0;
    options->services = sh_servers_apart(&s->config, options->ranks);
    options->seed = (uint64_t)s->config.seed;
    options->stack_bytes = s->timing_only ? SMALL_STACK_BYTES : STACK_BYTES;
    SH_TRY(sh_simulated_teams_open(s));
    SH_TRY(sh_sim_create(options, &s->sim));
    return run_workers(s);
}

static shoal_simulation_result figures(const sh_simulation *s) {
    sh_sim_counts counts = sh_sim_counted(s->sim);
    return (shoal_simulation_result){
        .seconds = s->timing_only ? sh_sim_seconds(s->sim) : s->seconds,
        .compute_s = s->spec.options.compute.mean_s,
        .steps = s->steps,
        .messages = (int64_t)counts.messages,
        .bytes = (int64_t)counts.bytes,
        .events = (int64_t)counts.events};
}

shoal_status shoal_simulate(const shoal_config *config, const shoal_hooks *hooks,
                            const shoal_simulation *simulation, char **folder_out,
                            shoal_simulation_result *result_out) {
    SHOAL_NEED(config);
    if (result_out != NULL) SHOAL_TRY(sh_struct_check(result_out, "shoal_simulation_result"));
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    SHOAL_TAKE(shoal_simulation, world, simulation);
    sh_simulation *s = sh_alloc(1, sizeof *s);
    if (s == NULL) return (shoal_status)SH_FAIL(SH_E_MEMORY, "out of memory for a simulation");
    s->hooks = &whole;
    s->timing_only = world.timing_only;
    sh_sim_texts texts = {.link = world.link,
                          .pairs = world.pairs,
                          .racks = world.racks,
                          .sites = world.sites,
                          .compute = world.compute,
                          .straggler = world.straggler,
                          .jitter = world.jitter,
                          .cut = world.cut,
                          .pause = world.pause,
                          .die = world.die};
    sh_status status = sh_config_copy(&config->config, &s->config);
    if (status == SH_OK)
        status = sh_options_set(sh_config_table(), "kernels", "default", &s->config);
    sh_servers_settle(&s->config);
    int workers = (int)s->config.workers;
    if (status == SH_OK)
        status =
            sh_sim_spec_parse(&texts, workers, sh_servers_apart(&s->config, workers), &s->spec);
    if (status == SH_OK) status = simulate(s, world.compute != NULL);
    sh_error error = *sh_error_last();
    if (s->sim != NULL && result_out != NULL) {
        const shoal_simulation_result result = figures(s);
        sh_struct_give(&result, sizeof result, result_out);
    }
    if (folder_out != NULL)
        *folder_out = s->folder;
    else
        sh_free(s->folder);
    sh_simulated_teams_close(s);
    sh_sim_destroy(s->sim);
    sh_simulate_timing_close(s);
    if (s->data.train != NULL) sh_data_close(&s->data);
    sh_config_fini(&s->config);
    sh_free(s);
    return (shoal_status)(status == SH_OK ? SH_OK : sh_error_adopt(&error));
}
