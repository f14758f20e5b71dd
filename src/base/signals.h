/* Which threads take signals. oneDNN's AVX-512 product (dnnl_sgemm) keeps values below its stack
 * pointer, where the frame of a signal handler goes: a handler on the stack of a thread that is in
 * it corrupts the product and the heap. So threads of the library take no signals, a forked worker
 * has no handlers, and whoever calls oneDNN holds signals back for the length of the call.
 *
 * Signals that a thread raises by its own doing (SIGSEGV, SIGPIPE) are left alone everywhere. */
#ifndef SH_BASE_SIGNALS_H
#define SH_BASE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* From now on the calling thread takes no signals, and those that it starts take none either. */
void sh_signals_block(void);
/* A forked child, before its first thread: it loses the handlers of its parent and takes signals
 * whether or not the parent's thread did. What is ignored stays so. */
void sh_signals_reset(void);

/* Holds signals back until the release, which restores the mask in `before_out`. Costs two system
 * calls, and none (false: nothing to release) on a thread that no handler can interrupt. */
bool sh_signals_hold(sigset_t *before_out);
void sh_signals_release(const sigset_t *before);

/* Sets the size of the calling thread's OpenMP team, and starts its threads: they take no signals.
 */
void sh_signals_start_team(int threads);

#endif
