/* Signals that ask a command to stop, and the terminal it speaks to. */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/signals.h"
#include "cli/common.h"

static _Atomic int caught;  // the signal that asks to stop, 0: none; relaxed: it guards nothing

/* Waits for the signals in `argument`. There is no handler, which could interrupt a computing
 * thread (base/signals.h), and all other signals do here what they do by default. Each signal is
 * taken once: a second Ctrl-C ends the process at once. Allocates nothing, as the main thread
 * forks. */
static void *take_signals(void *argument) {
    sigset_t waited = *(const sigset_t *)argument;
    pthread_setname_np(pthread_self(), "signals");
    for (int number; sigwait(&waited, &number) == 0;) {
        sigset_t taken;
        sigemptyset(&taken);
        sigaddset(&taken, number);
        atomic_store_explicit(&caught, number, memory_order_relaxed);
        sigdelset(&waited, number);
        signal(number, SIG_DFL);  // MPI may have set a handler of its own meanwhile
        pthread_sigmask(SIG_UNBLOCK, &taken, NULL);
    }
    return NULL;
}

/* What the parent chose to ignore (a script's background job, nohup) stays ignored. SIGUSR1 is what
 * batch systems send before the time is up, and what mpirun passes on to all ranks; SIGHUP comes
 * when the terminal or the connection to it goes. */
static void choose_signals(sigset_t *set_out) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
    sigemptyset(set_out);
    for (size_t i = 0; i < SH_COUNT(numbers); i++) {
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaddset(set_out, numbers[i]);
    }
}

/* Where there is no room for a thread, signals end the process. */
void sh_catch_signals(void) {
    static sigset_t waited;  // read by the thread
    enum { STACK_BYTES = 256 << 10 };
    sigset_t before;
    pthread_t thread;
    pthread_attr_t attributes;
    choose_signals(&waited);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_BLOCK, &waited, &before);
    if (pthread_create(&thread, &attributes, take_signals, &waited) == 0)
        sh_signals_block();
    else
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

bool sh_wants_stop(void *user) {
    (void)user;
    return sh_caught_signal() != 0;
}

int sh_caught_signal(void) { return atomic_load_explicit(&caught, memory_order_relaxed); }

bool sh_is_terminal(void) {
    const char *kind = getenv("TERM");
    return isatty(STDERR_FILENO) && kind != NULL && strcmp(kind, "dumb") != 0;
}
