/* A wait that lasts is mentioned while it lasts: a link that is cut for some seconds ends nothing,
 * and without a word it would look like a run that is slow. */
#ifndef SH_COMM_MENTION_H
#define SH_COMM_MENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sh_mention {
    void (*line)(void *user, const char *text);  // on the thread that waits; NULL: nothing is said
    void *user;
    int64_t after_ns;  // of waiting; then after twice as long, and so on; 0: not now
} sh_mention;

/* Whether a wait of `waited_ns` so far, mentioned `told` times, is to be mentioned now. `mention`
 * may be NULL. Beyond ten doublings of five seconds every watchdog has spoken. */
static inline bool sh_mention_is_due(const sh_mention *mention, int64_t waited_ns, int told) {
    return mention != NULL && mention->line != NULL && mention->after_ns > 0 && told < 10 &&
           waited_ns >= mention->after_ns << told;
}
/* Mentions it. `ranks`: whom it is for, bit r for rank r; 0: unknown. */
void sh_mention_wait(const sh_mention *mention, int64_t waited_ns, uint64_t ranks,
                     const char *what);

/* "rank 3", "ranks 0, 3"; "the others" for none. Of the first 64 ranks. */
enum { SH_RANKS_TEXT = 256 };
const char *sh_ranks_text(uint64_t ranks, char text_out[SH_RANKS_TEXT]);

#endif
