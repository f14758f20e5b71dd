#include "host/launch_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "obs/run_log.h"
#include "run/server.h"

/* More workers than this are refused before the first fork, and the user is pointed to mpirun
 * or the simulator. */
enum { PROCESSES_MOST = 4096 };

static int64_t now(void) { return sh_clock_now_ns(&sh_clock_real); }

/* What only the parent knows is in the run's log too. Rank 0 may be writing there: both append. */
static void write_log(const sh_job *job, const sh_outcome *outcome, sh_log_level level,
                      const char *text) {
    const sh_error error = *sh_error_last();  // a log that cannot be written is not what failed
    sh_run_log *log = NULL;
    char *path = outcome->folder != NULL ? sh_path_join(outcome->folder, "log.txt") : NULL;
    if (path != NULL && sh_file_exists(path)) {
        int64_t unix_ns = job->hooks->unix_ns + (now() - outcome->begin_ns);
        sh_run_log_options options = {.path = path, .clock = &sh_clock_real, .unix_ns = unix_ns};
        if (sh_run_log_open(&options, &log) == SH_OK) sh_run_log_note(log, level, text);
        sh_run_log_close(log);
    }
    sh_free(path);
    sh_error_adopt(&error);
}

/* To the user alone; warn() writes the text into the run's log, too. */
static void show_warning(const sh_job *job, const char *text) {
    if (job->hooks->line != NULL) job->hooks->line(job->hooks->user, SHOAL_LOG_WARNING, text);
}

static void warn(const sh_job *job, const sh_outcome *outcome, const char *text) {
    write_log(job, outcome, SH_LOG_WARN, text);
    show_warning(job, text);
}

void launch_warn(void *user, const char *text) {
    const launch_attempt *a = user;
    warn(a->job, a->outcome, text);
}

/* Turns a worker's note into a call of the user's hooks. They run in the parent alone, so the
 * user's program is called from one process. */
static void show_note(launch_attempt *a, const sh_note *note) {
    const shoal_hooks *hooks = a->job->hooks;
    char text[sizeof note->text + 32];
    switch ((sh_note_kind)note->kind) {
        case SH_NOTE_LINE:
            if (hooks->line == NULL) return;
            snprintf(text, sizeof text, "rank %d: %s", note->rank, note->text);
            hooks->line(hooks->user, (shoal_log_level)note->level,
                        note->rank == 0 ? note->text : text);
            return;
        case SH_NOTE_PROGRESS:
            if (hooks->progress != NULL) hooks->progress(hooks->user, &note->progress);
            return;
        case SH_NOTE_FOLDER:
            sh_free(a->outcome->folder);
            a->outcome->folder = sh_strdup(note->text);
            if (hooks->folder != NULL) hooks->folder(hooks->user, note->text);
            return;
        case SH_NOTE_TIMING:
            a->outcome->timing = note->timing;
            return;
        case SH_NOTE_STATE:
            return;
    }
}

/* The pipe does not block, and notes are written whole: a read gets a whole note or nothing. */
static void read_notes(launch_attempt *a, int wait_ms) {
    struct pollfd wait = {.fd = a->notes_fd, .events = POLLIN};
    if (poll(&wait, 1, wait_ms) <= 0) return;
    sh_note note;
    while (read(a->notes_fd, &note, sizeof note) == (ssize_t)sizeof note) show_note(a, &note);
}

/* The first failure is kept: those after it are mostly its consequences. */
void launch_fail(launch_attempt *a, sh_status code, const char *text, const char *hint) {
    if (a->error.code != SH_OK) return;
    a->error.code = code;
    snprintf(a->error.text, sizeof a->error.text, "%s", text);
    snprintf(a->error.hint, sizeof a->error.hint, "%s", hint);
}

/* A rank that only suffered from another's end is not the cause. */
static bool is_cause(const sh_rank_status *board) { return board->status != (int32_t)SH_E_PEER; }

/* All workers stop after the same step; rank 0 says where to go on. */
static bool is_stop(const sh_rank_status *board) {
    return board->status == (int32_t)SH_E_INTERRUPTED;
}

/* It had begun, so it is the machine that has no more memory now, not the run that asks too much.
 */
static bool is_starved(const sh_rank_status *board) {
    return board->status == (int32_t)SH_E_MEMORY &&
           atomic_load_explicit(&board->step, memory_order_relaxed) > 0;
}

/* The error that a worker left on its board becomes that of the attempt, unless the worker only
 * suffered from another's end. */
static void take_last_words(launch_attempt *a, int rank) {
    const sh_rank_status *board = &launch_board(a)->rank[rank];
    if (!is_cause(board)) return;
    char text[SH_BOARD_TEXT + 32];
    snprintf(text, sizeof text, "rank %d: %s", rank, board->error);
    // Settings that are refused are those of all, whoever says so first.
    bool of_all = rank == 0 || board->status == (int32_t)SH_E_USAGE;
    launch_fail(a, (sh_status)board->status, of_all ? board->error : text, board->hint);
}

/* SIGKILL, since workers ignore the signals of a terminal and one that hangs handles none. */
static void kill_rest(launch_attempt *a) {
    for (int slot = 0; slot < launch_processes(a); slot++)
        if (a->pids[slot] != 0) kill(a->pids[slot], SIGKILL);
}

/* ---- Ends ---- */

static void describe_death(launch_attempt *a, int slot, int status, char *text_out, size_t size) {
    int rank = launch_rank(a, slot);
    char line[SH_BOARD_TEXT] = "it had not joined yet", name[SH_BOARD_NAME];
    int pid = (int)a->pids[slot];
    launch_name(a, slot, name);
    if (rank >= 0) sh_board_line(&launch_board(a)->rank[rank], rank, now(), line, sizeof line);
    if (WIFSIGNALED(status))
        snprintf(text_out, size, "%s (pid %d) was ended by signal %d (%s); %s", name, pid,
                 WTERMSIG(status), strsignal(WTERMSIG(status)), line);
    else if (rank >= 0 && is_starved(&launch_board(a)->rank[rank]))
        snprintf(text_out, size, "%s (pid %d) ran out of memory: %.300s; %s", name, pid,
                 launch_board(a)->rank[rank].error, line);
    else
        snprintf(text_out, size, "%s (pid %d) ended with code %d and no word; %s", name, pid,
                 WEXITSTATUS(status), line);
}

static void take_death(launch_attempt *a, int slot, int status) {
    char text[2 * SH_BOARD_TEXT];
    bool member = launch_rank(a, slot) >= 0;
    describe_death(a, slot, status, text, sizeof text);
    a->pids[slot] = 0;
    if (member) {
        sh_watch_record(launch_board(a), now(), a->outcome->folder);
        sh_generation_mark_dead(a->generations, launch_newest(a), slot);
        // Peers may still be leaving the generation before, and wait there for this worker.
        sh_generation_mark_dead(a->generations, launch_newest(a) - 1, slot);
    }
    launch_read_boards(a);
    if (sh_membership_died(&a->team, slot) && !a->failed) {
        launch_warn(a, text);
        launch_replace(a, slot);
        launch_tend(a);
        return;
    }
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    launch_fail(a, SH_E_PEER, text,
                killed ? "if nobody killed it, the system ran out of memory: 'dmesg' tells" : "");
    a->died = a->failed = true;
}

/* Every rank's state is told while it can still be read. */
static void take_hang(launch_attempt *a) {
    char text[1024];
    sh_status_board *board = launch_board(a);
    sh_watch_tell(board, now(), launch_warn, a);
    int rank = sh_watch_blame(board, now(), text, sizeof text);
    int slot = sh_generation_slot(a->generations, launch_newest(a), rank);
    launch_read_boards(a);
    if (sh_membership_can_lose(&a->team, slot)) {
        launch_warn(a, text);
        a->ending = a->pids[slot];
        kill(a->ending, SIGKILL);
        return;
    }
    launch_fail(a, SH_E_PEER, text,
                "flight.txt in the run's folder has the last operations of each");
    a->died = a->failed = true;
}

/* An end is in order, expected (the parent wanted it), explained by an error on the board, or
 * else a death. */
static void take_end(launch_attempt *a, int slot, int status, bool expected) {
    int rank = launch_rank(a, slot);
    const sh_rank_status *board = rank >= 0 ? &launch_board(a)->rank[rank] : NULL;
    bool well =
        WIFEXITED(status) && (WEXITSTATUS(status) == 0 || (board != NULL && is_stop(board)));
    bool speaks = WIFEXITED(status) && board != NULL && board->status != SH_OK;
    expected = expected || (a->over && rank < 0);
    a->left--;
    if (a->pids[slot] == a->ending) a->ending = 0;
    if (!expected && !well && (!speaks || is_starved(board))) {
        take_death(a, slot, status);
        return;
    }
    a->pids[slot] = 0;
    sh_membership_ended(&a->team, slot);
    if (expected || well) return;
    sh_generation_mark_dead(a->generations, launch_newest(a), slot);
    a->failed = true;
    take_last_words(a, rank);
}

/* Children of somebody else's in this process are left to them. */
static void reap(launch_attempt *a, bool expected) {
    for (int slot = 0; slot < launch_processes(a); slot++) {
        int status;
        pid_t pid = a->pids[slot] > 0 ? -1 : 0;
        while (pid < 0) {
            pid = waitpid(a->pids[slot], &status, expected ? 0 : WNOHANG);
            if (pid < 0 && errno != EINTR) break;
        }
        if (pid > 0) take_end(a, slot, status, expected);
    }
}

/* The cause is known, and rank 0 has said in the run's files how it ended. */
static bool all_is_said(const launch_attempt *a) {
    int slot = sh_generation_slot(a->generations, launch_newest(a), 0);
    return a->error.code != SH_OK && a->pids[slot] == 0;
}

/* After a failure the others get a moment to say what they know, then they are ended. */
static void end_attempt(launch_attempt *a) {
    if (a->died) sh_watch_record(launch_board(a), now(), a->outcome->folder);
    int64_t until = now() + 2000000000;
    while (a->left > 0 && !a->died && !all_is_said(a) && now() < until) {
        read_notes(a, 50);
        reap(a, false);
    }
    kill_rest(a);
    read_notes(a, 0);
    reap(a, true);
    if (a->error.code == SH_OK)
        launch_fail(a, SH_E_PEER, "the workers gave up waiting for each other",
                    "see flight.txt in the run's folder");
    const char *known = launch_board(a)->rank[0].error;  // to rank 0, which wrote it itself
    if (*known == '\0' || strstr(a->error.text, known) == NULL)
        write_log(a->job, a->outcome, SH_LOG_ERROR, a->error.text);
}

static sh_status supervise(launch_attempt *a) {
    const shoal_hooks *hooks = a->job->hooks;
    while (a->left > 0 && !a->failed) {
        read_notes(a, 100);
        reap(a, false);
        if (!a->failed) launch_tend(a);
        if (hooks->stop != NULL && hooks->stop(hooks->user)) atomic_store(a->stop, 1);
        bool watches = !a->failed && a->ending == 0 && a->over_ns == 0;
        if (watches && sh_watch_hangs(&a->watch, launch_board(a), now())) take_hang(a);
    }
    read_notes(a, 0);
    if (a->failed) end_attempt(a);
    if (is_stop(&launch_board(a)->rank[0])) take_last_words(a, 0);
    return a->error.code == SH_OK ? SH_OK : sh_error_adopt(&a->error);
}

void launch_take_saved(launch_attempt *a) {
    const sh_rank_status *leader = &launch_board(a)->rank[0];
    int64_t saved = atomic_load_explicit(&leader->saved, memory_order_relaxed);
    if (saved > 0) a->outcome->saved = saved;
}

static sh_status make_team(launch_attempt *a) {
    sh_membership_options options = {
        .slots = a->slots,
        .servers = a->servers,
        .generations_most = sh_generations_most(a->generations),
        .restarts_most = a->job->restarts ? a->config->restarts : 0,
        .elastic = a->config->elastic,
    };
    SH_TRY(sh_membership_init(&a->team, &options));
    a->team.restarts = *a->restarts;  // of earlier attempts
    return SH_OK;
}

/* Starts generation 0. If a fork fails, the workers forked so far are killed and waited for,
 * and its error is kept. */
static sh_status fork_workers(launch_attempt *a) {
    sh_generations_publish(a->generations, a->team.roll, a->team.ranks);
    for (int slot = 0; slot < launch_processes(a); slot++) {
        sh_status status = launch_fork(a, slot, false);
        if (status == SH_OK) continue;
        const sh_error error = *sh_error_last();
        kill_rest(a);
        reap(a, true);
        return sh_error_adopt(&error);
    }
    return SH_OK;
}

/* Everything of an attempt lives from here to the return, generations included: the next
 * attempt begins with new shared memory. */
static sh_status run_attempt(launch_attempt *a) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return SH_FAIL(SH_E_IO, "cannot make a pipe to the workers: %s", strerror(errno));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    a->notes_fd = ends[0];
    a->notes_write_fd = ends[1];
    sh_status status = sh_generations_create(a->config, &a->generations);
    if (status == SH_OK) status = make_team(a);
    if (status == SH_OK) status = fork_workers(a);
    if (status == SH_OK) status = supervise(a);
    if (a->generations != NULL) launch_take_saved(a);
    close(ends[1]);
    close(ends[0]);
    sh_generations_destroy(a->generations);
    sh_membership_fini(&a->team);
    return status;
}

/* `*died_out`: a worker died or hung, so another attempt from the last checkpoint may succeed. */
static sh_status one_attempt(const sh_job *job, const sh_config *config, int64_t *restarts,
                             sh_outcome *outcome, bool *died_out) {
    launch_attempt a = {.job = job,
                        .config = config,
                        .slots = (int)config->workers,
                        .servers = sh_servers_apart(config, (int)config->workers),
                        .restarts = restarts,
                        .outcome = outcome,
                        .watch = {.limit_s = config->watchdog}};
    a.pids = sh_alloc((size_t)launch_processes(&a), sizeof *a.pids);
    a.stop = mmap(NULL, sizeof *a.stop, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sh_status status = SH_OK;
    if (a.pids == NULL || a.stop == MAP_FAILED)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for %d workers", a.slots);
    else
        status = run_attempt(&a);
    if (a.stop != MAP_FAILED) munmap(a.stop, sizeof *a.stop);
    sh_free(a.pids);
    *died_out = a.died;
    return status;
}

/* Log of the search for a checkpoint: receives which damaged ones it skips. */
typedef struct search {
    const sh_job *job;
    const sh_outcome *outcome;
} search;

static void tell_skipped(void *self, sh_log_level level, const char *text) {
    const search *s = self;
    if (level >= SH_LOG_WARN) warn(s->job, s->outcome, text);
}

/* The manifest of the newest whole checkpoint up to the one that this launch has written last:
 * newer ones are of an older run, or of the branch that this run left. sh_free it. */
static sh_status find_saved(const sh_job *job, const sh_outcome *outcome, char **manifest_out) {
    search s = {job, outcome};
    const sh_log log = {.line = tell_skipped, .self = &s};
    return sh_checkpoint_find_before(outcome->folder, outcome->saved, &log, manifest_out);
}

/* Goes on from the last checkpoint, or begins as the run was begun where it has written none yet.
 * What cannot be read stays where it is, so then the run ends. */
static sh_status prepare_restart(sh_config *config, const sh_job *job, const sh_outcome *outcome) {
    if (outcome->folder != NULL)
        SH_TRY(sh_options_set(sh_config_table(), "out", outcome->folder, config));
    if (outcome->saved == 0) {
        if (config->resume != NULL) return SH_OK;
        return sh_options_set(sh_config_table(), "overwrite", "true", config);
    }
    char *manifest = NULL;
    sh_status status = find_saved(job, outcome, &manifest);
    if (status == SH_OK) status = sh_options_set(sh_config_table(), "resume", manifest, config);
    sh_free(manifest);
    if (status != SH_OK) write_log(job, outcome, SH_LOG_ERROR, sh_error_last()->text);
    return status;
}

/* Nobody restarts it any more; what it has done is not lost. */
static sh_status tell_how_to_go_on(const sh_job *job, const sh_outcome *outcome) {
    const sh_error error = *sh_error_last();
    bool goes_on = outcome->saved > 0 || job->config->resume != NULL;
    char *manifest = NULL;
    bool found = goes_on && outcome->folder != NULL &&
                 sh_checkpoint_find(outcome->folder, NULL, &manifest, NULL) == SH_OK;
    sh_free(manifest);
    sh_status status = sh_error_adopt(&error);
    if (!found) return status;
    return sh_error_hint("%s%s'shoal train %s --resume' goes on from the last checkpoint",
                         error.hint, *error.hint != '\0' ? "; " : "", outcome->folder);
}

sh_status sh_launch(const sh_job *job, sh_outcome *outcome) {
    sh_config config;
    int64_t workers = job->config->workers;
    if (workers > PROCESSES_MOST ||
        workers + sh_servers_apart(job->config, (int)workers) > PROCESSES_MOST) {
        SH_FAIL(SH_E_USAGE, "%ld workers are too many processes for one machine", (long)workers);
        return sh_error_hint(
            "mpirun starts them on many machines, 'shoal simulate' simulates them");
    }
    // Attempts change this copy (resume, overwrite, workers); the caller's config stays as it is.
    SH_TRY(sh_config_copy(job->config, &config));
    sh_servers_settle(&config);
    outcome->begin_ns = now();
    sh_status status;
    bool died;
    for (int64_t restarts = 0;; restarts++) {
        died = false;
        status = one_attempt(job, &config, &restarts, outcome, &died);
        if (status == SH_OK || !died || !job->restarts || restarts >= config.restarts) break;
        if (job->hooks->stop != NULL && job->hooks->stop(job->hooks->user)) break;
        sh_error error = *sh_error_last();
        if (config.elastic && config.workers > 1) config.workers--;
        show_warning(job, error.text);  // the log has it
        status = prepare_restart(&config, job, outcome);
        died = status == SH_OK;
        if (!died) break;
        char text[160];
        snprintf(text, sizeof text, "restart %ld of %ld, %s, with %ld worker%s", (long)restarts + 1,
                 (long)config.restarts,
                 config.resume != NULL ? "from the last checkpoint" : "from the beginning",
                 (long)config.workers, config.workers == 1 ? "" : "s");
        warn(job, outcome, text);
    }
    sh_config_fini(&config);
    return status != SH_OK && died && job->restarts ? tell_how_to_go_on(job, outcome) : status;
}
