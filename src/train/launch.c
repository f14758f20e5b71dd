#include "train/launch.h"

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
#include "train/server.h"
#include "train/watch.h"

/* One attempt: from the first fork to the last wait. */
typedef struct attempt {
    const sh_job *job;
    const sh_config *config;
    sh_shm *fabric;
    sh_shm *mail;  // of the scheme, with its services behind the workers; NULL: it has none
    int services;
    int servers;  // services with processes of their own, behind the workers
    sh_board *board;
    _Atomic int *stop;
    pid_t *pids;  // per process, workers before servers; 0: has ended
    int ranks, left;
    int notes_fd;
    sh_outcome *outcome;
    sh_watch watch;
    bool failed;     // nobody needs to go on
    bool died;       // a worker left without a word, or hung: worth another attempt
    sh_error error;  // of the first that failed; code SH_OK: none yet
} attempt;

enum { PROCESSES_MOST = 4096 };

static int64_t now(void) { return sh_clock_now_ns(&sh_clock_real); }

static void show_note(attempt *a, const sh_note *note) {
    const shoal_hooks *hooks = a->job->hooks;
    char text[sizeof note->text + 32];
    switch ((sh_note_kind)note->kind) {
        case SH_NOTE_LINE:
            if (hooks->line == NULL) return;
            snprintf(text, sizeof text, "rank %d: %s", note->rank, note->text);
            hooks->line(hooks->user, note->level, note->rank == 0 ? note->text : text);
            return;
        case SH_NOTE_PROGRESS:
            if (hooks->progress != NULL) hooks->progress(hooks->user, &note->progress);
            return;
        case SH_NOTE_FOLDER:
            sh_free(a->outcome->folder);
            a->outcome->folder = sh_strdup(note->text);
            return;
        case SH_NOTE_TIMING:
            a->outcome->timing = note->timing;
            return;
    }
}

static void read_notes(attempt *a, int wait_ms) {
    struct pollfd wait = {.fd = a->notes_fd, .events = POLLIN};
    if (poll(&wait, 1, wait_ms) <= 0) return;
    sh_note note;
    while (read(a->notes_fd, &note, sizeof note) == (ssize_t)sizeof note) show_note(a, &note);
}

static void fail(attempt *a, sh_status code, const char *text, const char *hint) {
    if (a->error.code != SH_OK) return;
    a->error.code = code;
    snprintf(a->error.text, sizeof a->error.text, "%s", text);
    snprintf(a->error.hint, sizeof a->error.hint, "%s", hint);
}

/* A rank that only suffered from another's end is not the cause. */
static bool is_cause(const sh_board_rank *board) { return board->status != (int32_t)SH_E_PEER; }

/* All workers stop after the same step; rank 0 says where to go on. */
static bool is_stop(const sh_board_rank *board) {
    return board->status == (int32_t)SH_E_INTERRUPTED;
}

static void take_last_words(attempt *a, int rank) {
    const sh_board_rank *board = &a->board->rank[rank];
    if (!is_cause(board)) return;
    char text[SH_BOARD_TEXT + 32];
    snprintf(text, sizeof text, "rank %d: %s", rank, board->error);
    fail(a, (sh_status)board->status, rank == 0 ? board->error : text, board->hint);
}

static void take_death(attempt *a, int rank, int status) {
    const sh_board_rank *board = &a->board->rank[rank];
    char line[SH_BOARD_TEXT], text[2 * SH_BOARD_TEXT], name[SH_BOARD_NAME];
    sh_board_line(board, rank, now(), line, sizeof line);
    sh_board_name(a->board, rank, name);
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "%s (pid %d) was ended by signal %d (%s); %s", name, board->pid,
                 WTERMSIG(status), strsignal(WTERMSIG(status)), line);
    else
        snprintf(text, sizeof text, "%s (pid %d) ended with code %d and no word; %s", name,
                 board->pid, WEXITSTATUS(status), line);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    fail(a, SH_E_PEER, text,
         killed ? "if nobody killed it, the system ran out of memory: 'dmesg' tells" : "");
    a->died = true;
}

static void warn(void *user, const char *text) {
    const attempt *a = user;
    if (a->job->hooks->line != NULL) a->job->hooks->line(a->job->hooks->user, SH_LOG_WARN, text);
}

/* Every rank's state is told while it can still be read. */
static void take_hang(attempt *a) {
    char text[1024];
    sh_watch_tell(a->board, now(), warn, a);
    sh_watch_blame(a->board, now(), text, sizeof text);
    fail(a, SH_E_PEER, text, "flight.txt in the run's folder has the last operations of each");
    a->died = a->failed = true;
}

static int processes(const attempt *a) { return a->ranks + a->servers; }

static void kill_rest(attempt *a) {
    for (int r = 0; r < processes(a); r++)
        if (a->pids[r] != 0) kill(a->pids[r], SIGKILL);
}

/* A worker's services die with it. */
static void mark_mail_dead(attempt *a, int rank) {
    sh_shm_mark_dead(a->mail, rank);
    for (int index = rank; a->servers == 0 && index < a->services; index += a->ranks)
        sh_shm_mark_dead(a->mail, a->ranks + index);
}

static void reap(attempt *a, bool expected) {
    int status;
    pid_t pid;
    while (a->left > 0 && (pid = waitpid(-1, &status, expected ? 0 : WNOHANG)) > 0) {
        int rank = 0;
        while (rank < processes(a) && a->pids[rank] != pid) rank++;
        if (rank == processes(a)) continue;  // a child of somebody else's
        a->pids[rank] = 0;
        a->left--;
        const sh_board_rank *board = &a->board->rank[rank];
        if (expected || (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || is_stop(board))))
            continue;
        if (rank < a->ranks) sh_shm_mark_dead(a->fabric, rank);
        if (a->mail != NULL) mark_mail_dead(a, rank);
        a->failed = true;
        if (WIFEXITED(status) && board->status != SH_OK)
            take_last_words(a, rank);
        else
            take_death(a, rank, status);
    }
}

/* After a failure the others get a moment to say what they know, then they are ended. */
static void end_attempt(attempt *a) {
    if (a->died) sh_watch_record(a->board, now(), a->outcome->folder);
    int64_t until = now() + 2000000000;
    while (a->left > 0 && !a->died && a->error.code == SH_OK && now() < until) {
        read_notes(a, 50);
        reap(a, false);
    }
    kill_rest(a);
    read_notes(a, 0);
    reap(a, true);
    if (a->error.code == SH_OK)
        fail(a, SH_E_PEER, "the workers gave up waiting for each other",
             "see flight.txt in the run's folder");
}

static sh_status supervise(attempt *a) {
    const shoal_hooks *hooks = a->job->hooks;
    while (a->left > 0 && !a->failed) {
        read_notes(a, 100);
        reap(a, false);
        if (hooks->stop != NULL && hooks->stop(hooks->user)) atomic_store(a->stop, 1);
        if (!a->failed && sh_watch_hangs(&a->watch, a->board, now())) take_hang(a);
    }
    read_notes(a, 0);
    if (a->failed) end_attempt(a);
    if (is_stop(&a->board->rank[0])) take_last_words(a, 0);
    return a->error.code == SH_OK ? SH_OK : sh_error_adopt(&a->error);
}

static sh_status fork_workers(attempt *a, int notes_fd) {
    for (int r = 0; r < processes(a); r++) {
        pid_t pid = fork();
        if (pid < 0) {
            char name[SH_BOARD_NAME];
            sh_status status = SH_FAIL(SH_E_IO, "cannot start %s: %s",
                                       sh_board_name(a->board, r, name), strerror(errno));
            kill_rest(a);
            reap(a, true);
            return status;
        }
        if (pid == 0) {
            close(a->notes_fd);
            sh_worker_main(&(sh_worker){.job = a->job,
                                        .config = a->config,
                                        .fabric = a->fabric,
                                        .mail = a->mail,
                                        .board = a->board,
                                        .rank = r,
                                        .ranks = a->ranks,
                                        .notes_fd = notes_fd,
                                        .stop = a->stop});
        }
        a->pids[r] = pid;
        a->left++;
    }
    return SH_OK;
}

static sh_status create_mail(attempt *a) {
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(a->config->scheme.name, &scheme));
    if (!scheme.kind->mails) return SH_OK;
    a->services = sh_scheme_services(scheme, &a->config->scheme, a->ranks);
    return sh_shm_create(a->ranks + a->services, &a->mail);
}

static sh_status run_attempt(attempt *a) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return SH_FAIL(SH_E_IO, "cannot make a pipe to the workers: %s", strerror(errno));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    a->notes_fd = ends[0];
    sh_status status = sh_shm_create(a->ranks, &a->fabric);
    if (status == SH_OK) status = create_mail(a);
    if (status == SH_OK) {
        a->board = sh_shm_board(a->servers > 0 ? a->mail : a->fabric);
        a->board->servers = a->servers;
        status = fork_workers(a, ends[1]);
    }
    close(ends[1]);
    if (status == SH_OK) status = supervise(a);
    close(ends[0]);
    sh_shm_destroy(a->mail);
    sh_shm_destroy(a->fabric);
    return status;
}

static sh_status one_attempt(const sh_job *job, const sh_config *config, sh_outcome *outcome,
                             bool *died_out) {
    attempt a = {.job = job,
                 .config = config,
                 .ranks = (int)config->workers,
                 .servers = sh_servers_apart(config, (int)config->workers),
                 .outcome = outcome,
                 .watch = {.limit_s = config->watchdog}};
    a.pids = sh_alloc((size_t)processes(&a), sizeof *a.pids);
    a.stop = mmap(NULL, sizeof *a.stop, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sh_status status = SH_OK;
    if (a.pids == NULL || a.stop == MAP_FAILED)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for %d workers", a.ranks);
    else
        status = run_attempt(&a);
    if (a.stop != MAP_FAILED) munmap(a.stop, sizeof *a.stop);
    sh_free(a.pids);
    *died_out = a.died;
    return status;
}

static void say(const sh_job *job, int level, const char *text) {
    if (job->hooks->line != NULL) job->hooks->line(job->hooks->user, level, text);
}

/* Goes on from the newest checkpoint, or from the start where there is none yet. */
static sh_status prepare_restart(sh_config *config, const sh_outcome *outcome) {
    char *manifest = NULL;
    bool found = outcome->folder != NULL &&
                 sh_checkpoint_find(outcome->folder, NULL, &manifest, NULL) == SH_OK;
    sh_free(manifest);
    if (outcome->folder != NULL)
        SH_TRY(sh_options_set(sh_config_table, "out", outcome->folder, config));
    if (found) return sh_options_set(sh_config_table, "resume", "auto", config);
    return sh_options_set(sh_config_table, "overwrite", "true", config);
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
    SH_TRY(sh_config_copy(job->config, &config));
    sh_status status;
    for (int64_t attempts = 0;; attempts++) {
        bool died = false;
        status = one_attempt(job, &config, outcome, &died);
        if (status == SH_OK || !died || !job->restarts || attempts >= config.restarts) break;
        if (job->hooks->stop != NULL && job->hooks->stop(job->hooks->user)) break;
        sh_error error = *sh_error_last();
        if (config.elastic && config.workers > 1) config.workers--;
        if (prepare_restart(&config, outcome) != SH_OK) break;
        char text[1400];
        snprintf(text, sizeof text, "%s", error.text);
        say(job, SH_LOG_WARN, text);
        snprintf(text, sizeof text, "restart %ld of %ld, %s, with %ld worker%s", (long)attempts + 1,
                 (long)config.restarts,
                 config.resume != NULL ? "from the last checkpoint" : "from the beginning",
                 (long)config.workers, config.workers == 1 ? "" : "s");
        say(job, SH_LOG_WARN, text);
    }
    sh_config_fini(&config);
    return status;
}
