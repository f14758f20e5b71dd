/* The watchdog: notices when no worker gets on, and says who waits for whom. */
#ifndef SH_COMM_WATCHDOG_H
#define SH_COMM_WATCHDOG_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/board.h"
#include "comm/mention.h"

enum { SH_PHASES = SH_PHASE_END + 1 };

typedef struct sh_watch {
    double limit_s;               // asked for; 0: from the measured times
    double longest_s[SH_PHASES];  // the longest silence of a phase that ended well
    int64_t beat_ns;              // the newest sign of life seen
    int64_t looked_ns;            // the last look at the board
    int64_t awake_ns;             // since when the watcher itself has not been stopped
} sh_watch;

/* The wait_limits of a rank that no parent watches: how long it may wait for the others. */
typedef struct sh_wait_limits {
    sh_watch watch;
    bool writes;       // rank 0 still writes a checkpoint, for which steps may have to wait
    int phase;         // whose time this is
    int64_t since_ns;  // when it began; 0: none has
    double limit_s;    // as last returned; at first that of the start
    double typical_s[SH_PHASES];  // a running mean; 0: none has ended
    sh_mention mention;           // of waits that last longer than is usual in the phase
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
