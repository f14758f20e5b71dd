/* The watchdog: notices when no worker gets on, and says who waits for whom. */
#ifndef SH_TRAIN_WATCH_H
#define SH_TRAIN_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/board.h"

enum { SH_PHASES = SH_PHASE_END + 1 };

typedef struct sh_watch {
    double limit_s;               // asked for; 0: from the measured times
    double longest_s[SH_PHASES];  // the longest silence of a phase that ended well
    int64_t beat_ns;              // the newest sign of life seen
} sh_watch;

/* Looks at the board; true once no rank has moved for too long. */
bool sh_watch_hangs(sh_watch *watch, const sh_board *board, int64_t now_ns);
/* How long the silence may be in a phase, by what was measured so far. */
double sh_watch_limit(const sh_watch *watch, int phase);
/* Who does not answer, in one sentence. */
void sh_watch_blame(const sh_board *board, int64_t now_ns, char *text_out, size_t size);
/* A line per rank: what it does and whom it waits for. */
void sh_watch_tell(const sh_board *board, int64_t now_ns,
                   void (*line)(void *user, const char *text), void *user);
/* flight.txt in `folder` (NULL: nowhere): the last operations of every rank. */
void sh_watch_record(const sh_board *board, int64_t now_ns, const char *folder);

#endif
