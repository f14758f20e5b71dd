/* Limits are learnt: a phase may be silent for LIMIT_FACTOR times its longest silence so far,
 * never less than a floor that slow disks need. So a run on a loaded machine is not ended, and a
 * hang in a fast run is noticed in half a minute. */
#include "comm/watchdog.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

/* Before anything was measured: starting may fetch data and measure kernels, an evaluation or a
 * checkpoint may be the first of its kind. */
static const double first_limit_s[SH_PHASES] = {600, 300, 900, 900, 900};
/* A disk that others keep busy may take a thousand times as long as it did for the last checkpoint.
 */
static const double least_limit_s[SH_PHASES] = {30, 30, 30, 300, 30};
enum { LIMIT_FACTOR = 20, REPORT_FACTOR = 3, REPORT_LEAST_S = 5 };
static const double TYPICAL_WEIGHT = 0.1;  // of the newest time in the mean

double sh_watch_limit(const sh_watch *watch, int phase) {
    if (watch->limit_s > 0) return watch->limit_s;
    double longest = watch->longest_s[phase];
    if (longest == 0) return first_limit_s[phase];
    double limit = LIMIT_FACTOR * longest;
    return limit > least_limit_s[phase] ? limit : least_limit_s[phase];
}

/* The time that it took counts for the phase that ends. */
static void end_phase(sh_wait_limits *wait_limits, int64_t now_ns) {
    if (wait_limits->since_ns == 0) return;
    double *longest_s = &wait_limits->watch.longest_s[wait_limits->phase];
    double *typical_s = &wait_limits->typical_s[wait_limits->phase];
    double took_s = (double)(now_ns - wait_limits->since_ns) * 1e-9;
    if (took_s > *longest_s) *longest_s = took_s;
    *typical_s += (took_s - *typical_s) * (*typical_s == 0 ? 1 : TYPICAL_WEIGHT);
}

/* While rank 0 writes, and before anything was measured, a long wait is nothing unusual. */
static int64_t report_after_ns(const sh_wait_limits *wait_limits, int phase) {
    double typical_s = wait_limits->typical_s[phase];
    if (wait_limits->writes || typical_s <= 0) return 0;
    return (int64_t)(fmax(REPORT_LEAST_S, REPORT_FACTOR * typical_s) * 1e9);
}

double sh_wait_limits_turn(sh_wait_limits *wait_limits, int phase, int64_t now_ns) {
    // Steps that are taken meanwhile are within the checkpoint, which ends when it is written.
    bool writes = phase == SH_PHASE_STEP && wait_limits->writes;
    if (!writes) {
        end_phase(wait_limits, now_ns);
        wait_limits->phase = phase;
        wait_limits->since_ns = now_ns;
    }
    wait_limits->wait_report.after_ns = report_after_ns(wait_limits, phase);
    double limit_s = sh_watch_limit(&wait_limits->watch, phase);
    if (writes) limit_s = fmax(limit_s, sh_watch_limit(&wait_limits->watch, SH_PHASE_CHECKPOINT));
    if (limit_s <= wait_limits->limit_s && limit_s > wait_limits->limit_s / 2) return 0;
    return wait_limits->limit_s = limit_s;
}

static int64_t newest_beat(const sh_status_board *board, int *phase_out) {
    int64_t newest = 0;
    *phase_out = SH_PHASE_START;
    for (int r = 0; r < board->ranks; r++) {
        const sh_rank_status *rank = &board->rank[r];
        int64_t beat = atomic_load_explicit(&rank->beat_ns, memory_order_relaxed);
        int phase = atomic_load_explicit(&rank->phase, memory_order_relaxed);
        // The most patient phase counts: rank 0 may write a checkpoint (only then is that its
        // phase) while the others wait.
        if (phase != SH_PHASE_END && phase > *phase_out) *phase_out = phase;
        if (beat > newest) newest = beat;
    }
    return newest;
}

bool sh_watch_hangs(sh_watch *watch, const sh_status_board *board, int64_t now_ns) {
    int phase;
    int64_t newest = newest_beat(board, &phase);
    if (sh_was_stopped(watch->looked_ns, now_ns)) watch->awake_ns = now_ns;
    watch->looked_ns = now_ns;
    if (newest == 0) return false;
    if (watch->beat_ns > watch->awake_ns && newest > watch->beat_ns) {
        double silence = (double)(newest - watch->beat_ns) * 1e-9;
        if (silence > watch->longest_s[phase]) watch->longest_s[phase] = silence;
    }
    watch->beat_ns = newest;
    int64_t since_ns = newest > watch->awake_ns ? newest : watch->awake_ns;
    return (double)(now_ns - since_ns) * 1e-9 > sh_watch_limit(watch, phase);
}

/* The state letter of /proc/PID/stat: T stopped, D in the kernel, Z gone; '?' unknown. */
static char process_state(int pid) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return '?';
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    const char *end = strrchr(text, ')');  // the name before it may hold anything
    return end != NULL && end[1] == ' ' && end[2] != '\0' ? end[2] : '?';
}

static const char *state_text(char state) {
    switch (state) {
        case 'T':
        case 't':
            return "is stopped";
        case 'D':
            return "hangs in the operating system";
        default:
            return "does not answer";
    }
}

/* How much a rank looks like the cause: stopped from outside, waiting for nobody, waited for by
 * many. A rank may have been stopped while it waited itself. */
static int suspicion(const sh_status_board *board, int rank) {
    const sh_rank_status *entry = &board->rank[rank];
    if (atomic_load_explicit(&entry->phase, memory_order_relaxed) == SH_PHASE_END) return -1;
    char state = process_state(entry->pid);
    int points = state == 'T' || state == 't' ? 1000 : 0;
    if (sh_board_waits(entry) == 0) points += 100;
    for (int r = 0; r < board->ranks && rank < SH_BOARD_WAITS; r++) {
        uint64_t waits = sh_board_waits(&board->rank[r]);
        points += (int)(waits >> rank & 1);
    }
    return points;
}

int sh_watch_blame(const sh_status_board *board, int64_t now_ns, char *text_out, size_t size) {
    int cause = 0, most = -1;
    for (int r = 0; r < board->ranks; r++) {
        int points = suspicion(board, r);
        if (points > most) cause = r;
        if (points > most) most = points;
    }
    const sh_rank_status *entry = &board->rank[cause];
    int64_t beat = atomic_load_explicit(&entry->beat_ns, memory_order_relaxed);
    char name[SH_BOARD_NAME];
    sh_snprintf(
        text_out, size,
        "%s (pid %d) %s: no sign of life for %.1f s, in %s %lld, and the others wait for it",
        sh_board_name(board, cause, name), entry->pid, state_text(process_state(entry->pid)),
        (double)(now_ns - beat) * 1e-9,
        sh_phase_name(atomic_load_explicit(&entry->phase, memory_order_relaxed)),
        (long long)atomic_load_explicit(&entry->step, memory_order_relaxed));
    return cause;
}

void sh_watch_tell(const sh_status_board *board, int64_t now_ns,
                   void (*line)(void *user, const char *text), void *user) {
    for (int r = 0; r < board->ranks; r++) {
        char text[SH_BOARD_TEXT];
        sh_board_line(&board->rank[r], r, now_ns, text, sizeof text);
        line(user, text);
    }
}

/* NULL: the lines on the terminal must do. */
static FILE *open_record(const char *folder, const char *name) {
    char *path = folder != NULL ? sh_path_join(folder, name) : NULL;
    FILE *file = path != NULL ? fopen(path, "w") : NULL;
    sh_free(path);
    return file;
}

void sh_watch_record_rank(const sh_rank_status *board, int rank, int64_t now_ns,
                          const char *folder) {
    char name[32];
    snprintf(name, sizeof name, "flight-%d.txt", rank);
    FILE *file = open_record(folder, name);
    if (file == NULL) return;
    sh_board_print(board, rank, now_ns, file);
    fclose(file);
}

void sh_watch_record(const sh_status_board *board, int64_t now_ns, const char *folder) {
    FILE *file = open_record(folder, "flight.txt");
    if (file == NULL) return;
    for (int r = 0; r < board->ranks; r++) sh_board_print(&board->rank[r], r, now_ns, file);
    fclose(file);
}

/* ---- Reports of long waits ------------------------------------------------------------------- */

const char *sh_ranks_text(uint64_t ranks, char text_out[SH_RANKS_TEXT]) {
    const char *before = __builtin_popcountll(ranks) > 1 ? "ranks " : "rank ";
    size_t used = 0;
    snprintf(text_out, SH_RANKS_TEXT, "the others");
    for (int i = 0; i < SH_BOARD_WAITS && used + 16 < SH_RANKS_TEXT; i++) {
        if ((ranks >> i & 1) == 0) continue;
        used += (size_t)snprintf(text_out + used, SH_RANKS_TEXT - used, "%s%d", before, i);
        before = ", ";
    }
    return text_out;
}

void sh_wait_report_tell(const sh_wait_report *report, int64_t waited_ns, uint64_t ranks,
                         const char *what) {
    char text[512], names[SH_RANKS_TEXT];
    sh_snprintf(text, sizeof text, "waiting for %s in %s for %.0f s", sh_ranks_text(ranks, names),
                what, (double)waited_ns * 1e-9);
    report->line(report->user, text);
}
