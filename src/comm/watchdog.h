/* The watchdog: notices when no worker makes progress, and says who waits for whom. Two readers of
 * the same measured times: the parent of processes watches the board (sh_watch), and a rank that no
 * parent watches limits its own waits (sh_wait_limits). Before a limit is reached, a wait that is
 * longer than usual is reported (sh_wait_report): a link that is cut for some seconds ends nothing,
 * and without a line it would look like a slow run. */
#ifndef SH_COMM_WATCHDOG_H
#define SH_COMM_WATCHDOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/board.h"

enum { SH_PHASES = SH_PHASE_END + 1 };

/* Where long waits are reported. */
typedef struct sh_wait_report {
    void (*line)(void *user, const char *text);  // on the thread that waits; NULL: no reports
    void *user;
    int64_t after_ns;  // first report after this long, then after twice as long each; 0: none now
} sh_wait_report;

/* Whether a wait of `waited_ns`, reported `told` times so far, is due for a report. `report` may be
 * NULL. Ten doublings of five seconds exceed every watchdog's limit. */
static inline bool sh_wait_report_is_due(const sh_wait_report *report, int64_t waited_ns,
                                         int told) {
    return report != NULL && report->line != NULL && report->after_ns > 0 && told < 10 &&
           waited_ns >= report->after_ns << told;
}
/* Reports a wait in `what` ("allreduce (step 7)"). `ranks`: the ranks waited for, bit r for rank r;
 * 0: unknown. */
void sh_wait_report_tell(const sh_wait_report *report, int64_t waited_ns, uint64_t ranks,
                         const char *what);

/* "rank 3", "ranks 0, 3"; "the others" for none. Names the first 64 ranks only. */
enum { SH_RANKS_TEXT = 256 };
const char *sh_ranks_text(uint64_t ranks, char text_out[SH_RANKS_TEXT]);

typedef struct sh_watch {
    double limit_s;               // set by the user; 0: derived from the measured times
    double longest_s[SH_PHASES];  // the longest silence of a phase that ended well
    int64_t beat_ns;              // the newest sign of life seen
    int64_t looked_ns;            // the last look at the board
    int64_t awake_ns;             // since when the watcher itself has not been stopped
} sh_watch;

/* How long a rank that no parent watches may wait for the others (under MPI). */
typedef struct sh_wait_limits {
    sh_watch watch;
    bool writes;       // rank 0 still writes a checkpoint, for which steps may have to wait
    int phase;         // the phase being timed
    int64_t since_ns;  // begin of the phase; 0: no phase has begun
    double limit_s;    // the limit last returned; at first that of the start phase
    double typical_s[SH_PHASES];  // running mean of a phase's duration; 0: none has ended
    sh_wait_report wait_report;   // of waits longer than is usual in the phase
} sh_wait_limits;

/* A phase begins, so the one before ended well. Returns the limit of a wait in seconds, or 0 where
 * it stays much as it was. */
double sh_wait_limits_turn(sh_wait_limits *wait_limits, int phase, int64_t now_ns);

/* Looks at the board; true once no rank has moved for too long. */
bool sh_watch_hangs(sh_watch *watch, const sh_status_board *board, int64_t now_ns);
/* How long the silence may be in a phase, by what was measured so far. */
double sh_watch_limit(const sh_watch *watch, int phase);
/* Who does not answer: its rank, and one sentence. */
int sh_watch_blame(const sh_status_board *board, int64_t now_ns, char *text_out, size_t size);
/* A line per rank: what it does and whom it waits for. */
void sh_watch_tell(const sh_status_board *board, int64_t now_ns,
                   void (*line)(void *user, const char *text), void *user);
/* flight.txt in `folder` (NULL: nowhere): the last operations of every rank. */
void sh_watch_record(const sh_status_board *board, int64_t now_ns, const char *folder);
/* flight-RANK.txt: those of one rank, where the others may be on other machines. */
void sh_watch_record_rank(const sh_rank_status *board, int rank, int64_t now_ns,
                          const char *folder);

#endif
