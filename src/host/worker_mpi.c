/* One rank under MPI: joins the others, does the job, and says what went wrong.
 *
 * There is no parent. Rank 0 speaks for all and the others only warn; each watches its own waits.
 * A rank that fails ends the whole job, as nobody could go on without it, but not before the others
 * had a moment to say what they know: the cause may be with one of them. */
#include <omp.h>
#include <string.h>
#include <time.h>

#include "comm/transports/mpi.h"
#include "host/launch.h"
#include "run/layout.h"
#include "run/server.h"

enum {
    SUFFERER_MS = 2000,  // a rank that waited in vain leaves the last word to the others
    LEADER_MS = 300,     // rank 0 speaks first where all ranks fail alike
    NEXT_MS = 25,        // then the ranks in their order
    NEXT_MOST = 40,
};

/* How long shoal_abort waits before it ends the job. A process is one rank, once. */
static int abort_after_ms;

typedef struct rank_side {
    const sh_job *job;
    sh_config config;  // the job's, with the launcher's number of workers
    sh_transport *transport;
    int rank;     // among all that the launcher started
    int servers;  // so many of the last are parameter servers
    sh_engine *engine;
    shoal_run *run;
    sh_wait_limits wait_limits;
    int *hosts;  // per endpoint of the scheme's mail; NULL: it has none
    int endpoints;
} rank_side;

static int64_t now(void) { return sh_clock_now_ns(&sh_clock_real); }

static void rest_ms(int ms) {
    struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&rest, NULL);
}

/* ---- hooks of a rank ---- */

/* Hook of the run: rank 0 speaks for all, the others only warn, and say who they are. */
static void rank_line(void *user, shoal_log_level level, const char *text) {
    const rank_side *side = user;
    const shoal_hooks *hooks = side->job->hooks;
    int rank = side->rank;
    if (hooks->line == NULL || (rank > 0 && level < SHOAL_LOG_WARNING)) return;
    char prefixed[SH_BOARD_TEXT + 1024];
    snprintf(prefixed, sizeof prefixed, "rank %d: %s", rank, text);
    hooks->line(hooks->user, level, rank > 0 ? prefixed : text);
}

static void rank_progress(void *user, const shoal_progress *progress) {
    const rank_side *side = user;
    const shoal_hooks *hooks = side->job->hooks;
    if (hooks->progress != NULL && side->rank == 0) hooks->progress(hooks->user, progress);
}

static void rank_folder(void *user, const char *folder) {
    const rank_side *side = user;
    if (side->job->hooks->folder != NULL) side->job->hooks->folder(side->job->hooks->user, folder);
}

/* Into the run's log, too, once there is one. */
static void report_wait(void *user, const char *text) {
    const rank_side *side = user;
    if (side->run != NULL)
        SH_WARN(&side->run->log, "%s", text);
    else
        rank_line(user, SHOAL_LOG_WARNING, text);
}

static bool rank_stop(void *user) {
    const rank_side *side = user;
    const shoal_hooks *hooks = side->job->hooks;
    return hooks->stop != NULL && hooks->stop(hooks->user);
}

/* ---- the job ---- */

/* Servers with ranks of their own are the last of those that were started. */
static sh_status count_servers(rank_side *side) {
    int ranks = sh_mpi_world_ranks(side->transport);
    if (!sh_sync_apart(&side->config.scheme)) return SH_OK;
    if (side->config.scheme.servers == 0) {
        SH_FAIL(SH_E_USAGE, "how many of the %d ranks are to be servers is not said", ranks);
        return sh_error_hint("give --servers S: the last S ranks serve, the others work");
    }
    side->servers = (int)side->config.scheme.servers;
    if (side->servers < ranks) return SH_OK;
    SH_FAIL(SH_E_USAGE, "%d ranks were started, and %d of them are to be servers: none would work",
            ranks, side->servers);
    return sh_error_hint("start more ranks than --servers, or leave out --server-ranks own");
}

/* The launcher decides how many workers there are. */
static sh_status take_count(rank_side *side) {
    SH_TRY(count_servers(side));
    int64_t asked = side->config.workers;
    int64_t workers = sh_mpi_world_ranks(side->transport) - side->servers;
    side->config.workers = workers;
    if (asked == workers || asked == 1) return SH_OK;  // what a run file says that says nothing
    char text[128], servers[32] = "";
    if (side->servers > 0)
        snprintf(servers, sizeof servers, " beside %d server%s", side->servers,
                 side->servers == 1 ? "" : "s");
    snprintf(text, sizeof text, "%ld workers are asked for, and the launcher started %ld%s: those",
             (long)asked, (long)workers, servers);
    rank_line(side, SHOAL_LOG_INFO, text);
    return SH_OK;
}

/* A launcher that binds ranks to cores has divided them already. */
static int thread_count(const rank_side *side) {
    int ranks = 1, cores = 1, own = sh_cores();
    sh_mpi_place(side->transport, &ranks, &cores);
    int threads = sh_threads_each(&side->config, ranks, cores);
    return side->config.threads == 0 && threads > own ? own : threads;
}

/* Collective over all ranks that the launcher started, servers included. */
static sh_status join(rank_side *side) {
    bool apart = sh_sync_apart(&side->config.scheme);
    side->wait_limits.watch.limit_s = side->config.watchdog;
    side->wait_limits.limit_s = sh_watch_limit(&side->wait_limits.watch, SH_PHASE_START);
    SH_TRY(sh_launcher_join(side->job->hooks, apart ? (int)side->config.scheme.servers : 0,
                            side->wait_limits.limit_s, &side->transport));
    side->rank = sh_mpi_world_rank(side->transport);
    sh_board_phase(side->transport->board, SH_PHASE_START, now());
    SH_TRY(take_count(side));
    sh_engine_options options = {.algorithm = side->config.allreduce,
                                 .task = true,
                                 .timeout_ns = (int64_t)(side->wait_limits.limit_s * 1e9),
                                 .wait_report = &side->wait_limits.wait_report};
    side->wait_limits.wait_report = (sh_wait_report){.line = report_wait, .user = side};
    // Until the team stands a failure may be this rank's alone, and closing waits for nobody.
    side->transport->board->status = (int32_t)SH_E_PEER;
    SH_TRY(sh_engine_create(side->transport, &options, &side->engine));
    side->transport->board->status = SH_OK;
    return SH_OK;
}

/* ---- mail ---- */

/* The host of every endpoint of the scheme's mail. Each rank computes the same list from the
 * options, so none is sent. */
static sh_status place_mail(rank_side *side) {
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(side->config.scheme.name, &scheme));
    if (!sh_config_mails(&side->config)) return SH_OK;
    int workers = (int)side->config.workers;
    side->endpoints = workers + sh_scheme_services(scheme, &side->config.scheme, workers);
    side->hosts = sh_alloc((size_t)side->endpoints, sizeof *side->hosts);
    if (side->hosts == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %d endpoints", side->endpoints);
    for (int i = 0; i < side->endpoints; i++)
        side->hosts[i] = sh_mail_host(i, workers, side->servers > 0);
    return SH_OK;
}

static sh_status open_mail(void *self, int endpoint, sh_transport **mail_out) {
    const rank_side *side = self;
    // Mail comes unasked, so from now on the comm task polls also while no collective runs.
    SH_TRY(sh_engine_keep_polling(side->engine, sh_mpi_start_mail));
    SH_TRY(sh_mpi_open_mail(side->transport, side->hosts, side->endpoints, endpoint, mail_out));
    // What the worker waits for belongs on the board that peers look at.
    if (endpoint == side->rank) (*mail_out)->board = side->transport->board;
    return SH_OK;
}

/* A rank that is a parameter server. One thread, as a service computes little and may share its
 * machine with workers. */
static sh_status serve(rank_side *side) {
    sh_server server = {.config = &side->config,
                        .workers = (int)side->config.workers,
                        .index = side->rank - (int)side->config.workers,
                        .stops = rank_stop,
                        .user = side};
    SH_TRY(open_mail(side, side->rank, &server.mail));
    omp_set_num_threads(1);
    SH_TRY(sh_server_run(&server));
    sh_transport_close(server.mail);
    return SH_OK;
}

static sh_status train_or_serve(rank_side *side) {
    SH_TRY(join(side));
    SH_TRY(sh_config_check(&side->config));  // a server opens no run that would
    SH_TRY(place_mail(side));
    if (side->rank >= (int)side->config.workers) return serve(side);
    shoal_hooks hooks = *side->job->hooks;
    hooks.user = side;
    hooks.line = rank_line;
    hooks.environment = NULL;
    hooks.progress = rank_progress;
    hooks.folder = rank_folder;
    hooks.stop = rank_stop;
    sh_worker_env env = {.engine = side->engine,
                         .board = side->transport->board,
                         .threads = thread_count(side),
                         .wait_limits = &side->wait_limits,
                         .open_mail = side->hosts != NULL ? open_mail : NULL,
                         .self = side};
    SH_TRY(sh_run_open(&side->config, &hooks, &env, &side->run));
    SH_TRY(side->job->body(side->run, side->job->argument));
    return sh_servers_release(side->run);
}

/* ---- how it ends ---- */

static void warn(void *user, const char *text) {
    const rank_side *side = user;
    const shoal_hooks *hooks = side->job->hooks;
    if (hooks->line != NULL) hooks->line(hooks->user, SHOAL_LOG_WARNING, text);
}

/* Something is under way and will not end. Whom it waits for is known of the first 64 ranks only.
 */
static bool hangs(const sh_rank_status *board) {
    uint64_t count = atomic_load_explicit(&board->count, memory_order_acquire);
    for (uint64_t i = 0; i < count && i < SH_BOARD_OPERATIONS; i++)
        if (board->operations[i].end_ns == 0) return true;
    return sh_board_waits(board) != 0;
}

/* Staggers ranks that fail alike, so that the lowest of them is heard first; the wait is
 * bounded by NEXT_MOST ranks. */
static void rest_after_lower_ranks(int rank) {
    rest_ms(LEADER_MS + NEXT_MS * (rank < NEXT_MOST ? rank : NEXT_MOST));
}

/* One rank tells for all of its node: the lowest that has noticed, which is not rank 0 if that is
 * the one that hangs. */
static bool speaks(const rank_side *side) {
    if (side->rank > 0) rest_after_lower_ranks(side->rank);
    for (int r = 0; r < side->rank; r++)
        if (side->transport->boards->rank[r].status != SH_OK) return false;
    return true;
}

/* Who waits for whom. On one node a rank can read every rank's board, also of one that hangs, and
 * writes the last operations of those that have not failed themselves. */
static void tell_waits(rank_side *side) {
    const sh_transport *transport = side->transport;
    const sh_status_board *boards = transport->boards;
    const char *folder = side->run != NULL ? side->run->files.folder : NULL;
    char text[1024];
    if (!hangs(transport->board)) return;
    sh_watch_record_rank(transport->board, side->rank, now(), folder);
    if (boards == NULL) {
        sh_board_line(transport->board, side->rank, now(), text, sizeof text);
        warn(side, text);
    } else if (speaks(side)) {
        for (int r = 0; r < boards->ranks; r++)
            if (boards->rank[r].status == SH_OK)
                sh_watch_record_rank(&boards->rank[r], r, now(), folder);
        sh_watch_tell(boards, now(), warn, side);
        sh_watch_blame(boards, now(), text, sizeof text);
        warn(side, text);
    }
}

/* The error's record gets the rank's name, if it has none yet. */
static sh_status sign(int rank, const sh_error *error) {
    char name[32];
    snprintf(name, sizeof name, "rank %d", rank);
    sh_error signed_error = *error;
    if (rank > 0 && strncmp(error->text, name, strlen(name)) != 0)
        snprintf(signed_error.text, sizeof signed_error.text, "%s: %.*s", name,
                 (int)(sizeof error->text - sizeof name - 2), error->text);
    return sh_error_adopt(&signed_error);
}

/* MPI stays open: the caller reports, then ends the job. */
static sh_status fail(rank_side *side, sh_status status) {
    const sh_error error = *sh_error_last();
    if (side->transport == NULL) return status;
    int rank = side->rank;
    sh_rank_status *board = side->transport->board;
    board->status = (int32_t)status;
    snprintf(board->error, sizeof board->error, "%.*s", SH_BOARD_TEXT - 1, error.text);
    if (status == SH_E_PEER) {
        tell_waits(side);
        abort_after_ms = SUFFERER_MS;
    } else if (rank > 0) {
        rest_after_lower_ranks(rank);
    }
    return sign(rank, &error);
}

static sh_status close_rank(rank_side *side, sh_outcome *outcome, sh_status status) {
    const sh_error error = *sh_error_last();
    bool leads = side->rank == 0;
    const char *folder = leads ? shoal_run_folder(side->run) : NULL;
    if (folder != NULL) outcome->folder = sh_strdup(folder);
    if (!leads) outcome->timing = (shoal_timing){0};
    sh_board_phase(side->transport->board, SH_PHASE_END, now());
    shoal_run_close(side->run);
    sh_mpi_limit_end(side->transport, side->wait_limits.limit_s);
    sh_engine_destroy(side->engine);
    SH_TRY(sh_mpi_ended());
    // Rank 0 says where to go on; launchers take a second failure for a crash.
    return status == SH_OK || !leads ? SH_OK : sh_error_adopt(&error);
}

sh_status sh_rank_run(const sh_job *job, sh_outcome *outcome) {
    rank_side *side = sh_alloc(1, sizeof *side);
    if (side == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a rank");
    side->job = job;
    sh_status status = sh_config_copy(job->config, &side->config);
    if (status == SH_OK) status = train_or_serve(side);
    bool in_order = status == SH_OK || status == SH_E_INTERRUPTED;
    if (!in_order) return fail(side, status);  // tasks of the run may still look at it
    status = close_rank(side, outcome, status);
    sh_config_fini(&side->config);
    sh_free(side->hosts);
    sh_free(side);
    return status;
}

/* The delay lets the rank that knows the cause speak before the launcher kills it with the job. */
void shoal_abort(int exit_code) {
    if (abort_after_ms > 0) rest_ms(abort_after_ms);
    sh_mpi_abort(exit_code);
}
