/* One worker process: joins the team, does the job, leaves its last words on the board. */
#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/signals.h"
#include "host/launch.h"
#include "run/layout.h"
#include "run/server.h"

int sh_threads_each(const sh_config *config, int workers, int cores) {
    if (config->threads > 0) return (int)config->threads;
    return cores > workers ? cores / workers : 1;
}

void sh_worker_note(const sh_worker *worker, const sh_note *note) {
    // The parent reads as long as it lives; without it this process is ended by the kernel.
    ssize_t written = write(worker->notes_fd, note, sizeof *note);
    (void)written;
}

static void send_text(const sh_worker *worker, sh_note_kind kind, int level, const char *text) {
    sh_note note = {.kind = kind, .rank = worker->rank, .level = level};
    snprintf(note.text, sizeof note.text, "%s", text);
    sh_worker_note(worker, &note);
}

/* Rank 0 speaks for all; the others only warn. */
static void worker_line(void *user, shoal_log_level level, const char *text) {
    const sh_worker *worker = user;
    if (worker->rank == 0 || level >= SHOAL_LOG_WARNING)
        send_text(worker, SH_NOTE_LINE, (int)level, text);
}

static void worker_progress(void *user, const shoal_progress *progress) {
    const sh_worker *worker = user;
    if (worker->rank != 0) return;
    sh_worker_note(worker, &(sh_note){.kind = SH_NOTE_PROGRESS, .progress = *progress});
}

static void worker_folder(void *user, const char *folder) {
    send_text(user, SH_NOTE_FOLDER, 0, folder);
}

static bool worker_stop(void *user) {
    const sh_worker *worker = user;
    // Relaxed: a step earlier or later makes no difference, the ranks agree among themselves.
    return atomic_load_explicit(worker->stop, memory_order_relaxed) != 0;
}

void sh_take_cores(int rank, int ranks) {
    cpu_set_t all, mine;
    // With fewer cores than workers a fixed division is worse than what the scheduler does.
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < ranks) return;
    int cores = CPU_COUNT(&all), low = cores * rank / ranks, high = cores * (rank + 1) / ranks;
    CPU_ZERO(&mine);
    for (int core = 0, index = 0; core < CPU_SETSIZE && index < high; core++) {
        if (!CPU_ISSET(core, &all)) continue;
        if (index >= low) CPU_SET(core, &mine);
        index++;
    }
    sched_setaffinity(0, sizeof mine, &mine);
}

/* The board is in shared memory and outlives the process: the parent reads the error there once
 * this worker has ended. */
static void leave_last_words(sh_rank_status *board, sh_status status) {
    const sh_error *error = sh_error_last();
    board->status = (int32_t)status;
    snprintf(board->error, sizeof board->error, "%.*s", SH_BOARD_TEXT - 1, error->text);
    snprintf(board->hint, sizeof board->hint, "%.*s", SH_BOARD_TEXT - 1, error->hint);
    sh_board_phase(board, SH_PHASE_END, sh_clock_now_ns(&sh_clock_real));
}

/* Hook of the env: the mail of the generation that the worker is in when it asks. */
static sh_status open_mail(void *self, int endpoint, sh_transport **mail_out) {
    const sh_worker *worker = self;
    sh_shm *mail = sh_generation_mail(worker->generations, worker->now.generation);
    SH_TRY(sh_shm_attach(mail, endpoint, worker->cores, mail_out));
    // The parent watches over one board: the worker's waits for mail belong there.
    if (endpoint == worker->rank) (*mail_out)->board = worker->board;
    return SH_OK;
}

/* Hook of a server: its generation is over, so it ends and leaves its snapshot to the next one. */
static bool server_quits(void *user) {
    const sh_worker *worker = user;
    return sh_generation_is_over(worker->generations, worker->now.generation);
}

/* Somebody has left: the parent will say so, or there is another reason to fail. */
static bool generation_ends(sh_worker *worker) {
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int tries = 0; tries < 5000 && !server_quits(worker); tries++) nanosleep(&moment, NULL);
    return server_quits(worker);
}

/* One generation long. When somebody dies in it, what the server holds is in its snapshot, and the
 * parent starts others for the next. */
static sh_status serve(sh_worker *worker) {
    bool survives = sh_generations_survive(worker->generations);
    sh_server server = {.config = worker->config,
                        .index = worker->slot - worker->slots,
                        .workers = sh_generation_ranks(worker->generations, worker->now.generation),
                        .stops = worker_stop,
                        .quits = survives ? server_quits : NULL,
                        .user = worker};
    SH_TRY(open_mail(worker, worker->rank, &server.mail));
    omp_set_num_threads(1);
    sh_status status = sh_server_run(&server);
    if (status == SH_OK) sh_transport_close(server.mail);
    return status == SH_E_PEER && survives && generation_ends(worker) ? SH_OK : status;
}

static sh_status work(sh_worker *worker) {
    worker->cores = sh_cores();
    if (worker->slot >= worker->slots) return serve(worker);
    cpu_set_t all;
    bool known = sched_getaffinity(0, sizeof all, &all) == 0;
    sh_take_cores(worker->slot, worker->slots);
    shoal_run *run = NULL;
    // A worker that joins a team under way gets its engine when it regroups.
    if (!worker->joins) SH_TRY(sh_worker_enter(worker, 0));
    shoal_hooks hooks = *worker->job->hooks;
    hooks.user = worker;
    hooks.line = worker_line;
    hooks.environment = NULL;
    hooks.progress = worker_progress;
    hooks.folder = worker_folder;
    hooks.stop = worker_stop;
    sh_worker_env env = {.engine = worker->now.engine,
                         .board = worker->board,
                         .slot = worker->slot,
                         .slots = worker->slots,
                         .planned = (int)worker->job->config->workers,
                         .threads = sh_threads_each(worker->config, worker->slots, worker->cores),
                         .cores = known ? &all : NULL,
                         .open_mail = sh_config_mails(worker->config) ? open_mail : NULL,
                         .regroup = worker->job->restarts ? &sh_worker_regroup : NULL,
                         .self = worker};
    SH_TRY(sh_run_open(worker->config, &hooks, &env, &run));
    sh_status status = worker->job->body(run, worker->job->argument);
    if (worker->rank == 0 && worker->job->timing != NULL)
        sh_worker_note(worker, &(sh_note){.kind = SH_NOTE_TIMING, .timing = *worker->job->timing});
    if (status != SH_OK) return status;  // the error's record stays; the process ends anyway
    SH_TRY(sh_servers_release(run));
    shoal_run_close(run);
    sh_worker_leave(&worker->now);
    return SH_OK;
}

/* A worker that has not joined yet has no place on the board. */
static sh_rank_status *first_board(sh_worker *worker) {
    static sh_rank_status own;
    if (worker->rank < 0) return &own;
    return &sh_generation_board(worker->generations, worker->now.generation)->rank[worker->rank];
}

void sh_die_with(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // it died before the line above
}

_Noreturn void sh_worker_main(sh_worker *worker) {
    sh_die_with(worker->parent);
    signal(SIGINT, SIG_IGN);  // the parent takes it and tells us
    // A terminal or batch system may signal the whole group: the parent alone decides what it means
    // for the run.
    signal(SIGTERM, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sh_signals_reset();
    char name[16];
    snprintf(name, sizeof name, "shoal-%d", worker->slot);
    prctl(PR_SET_NAME, name);
    int generation = worker->now.generation;
    worker->rank =
        worker->joins ? -1 : sh_generation_rank(worker->generations, generation, worker->slot);
    worker->board = first_board(worker);
    worker->board->pid = getpid();
    sh_board_phase(worker->board, SH_PHASE_START, sh_clock_now_ns(&sh_clock_real));
    sh_status status = work(worker);
    if (status != SH_OK && worker->rank < 0)
        send_text(worker, SH_NOTE_LINE, SH_LOG_WARN, sh_error_last()->text);
    if (status != SH_OK)
        leave_last_words(worker->board, status);
    else
        sh_board_phase(worker->board, SH_PHASE_END, sh_clock_now_ns(&sh_clock_real));
    _exit(status == SH_OK ? 0 : 1);
}
