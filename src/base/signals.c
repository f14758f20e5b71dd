/* Which thread takes signals. Only the program's main thread does: tasks block them, and while
 * OpenMP starts its threads they are held back, since those inherit the mask. So a handler never
 * interrupts a thread of the library, whatever the embedding program installs. */
#include "base/signals.h"

#include <omp.h>
#include <pthread.h>

#include "base/status.h"

static _Thread_local bool is_safe;  // no handler interrupts this thread

/* Signals that come from outside of the thread, at any time: all but those that its own
 * instructions cause. */
static sigset_t foreign_signals(void) {
    static const int own[] = {SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,
                              SIGABRT, SIGPIPE, SIGXFSZ, SIGTTIN, SIGTTOU};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < SH_COUNT(own); i++) sigdelset(&set, own[i]);
    return set;
}

/* At the start of each task. */
void sh_signals_block(void) {
    sigset_t foreign = foreign_signals();
    pthread_sigmask(SIG_BLOCK, &foreign, NULL);
    is_safe = true;
}

/* In a forked worker: handlers of the parent would act on what is not theirs. */
void sh_signals_reset(void) {
    sigset_t foreign = foreign_signals();
    for (int number = 1; number <= SIGRTMAX; number++) {
        struct sigaction action;
        if (sigismember(&foreign, number) != 1 || sigaction(number, NULL, &action) != 0) continue;
        if (action.sa_handler == SIG_IGN || action.sa_handler == SIG_DFL) continue;
        action = (struct sigaction){.sa_handler = SIG_DFL};
        sigaction(number, &action, NULL);
    }
    pthread_sigmask(SIG_UNBLOCK, &foreign, NULL);
    is_safe = true;
}

/* False: this thread takes none anyway, and nothing is to be released. */
bool sh_signals_hold(sigset_t *before_out) {
    if (is_safe) return false;
    sigset_t foreign = foreign_signals();
    pthread_sigmask(SIG_BLOCK, &foreign, before_out);
    return true;
}

void sh_signals_release(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

/* The first parallel region of a thread creates its OpenMP team. */
void sh_signals_start_team(int threads) {
    sigset_t before;
    bool held = sh_signals_hold(&before);
    omp_set_num_threads(threads);
    int started = 0;
#pragma omp parallel reduction(+ : started)
    started++;
    SH_ASSERT(started >= 1);
    if (held) sh_signals_release(&before);
}
