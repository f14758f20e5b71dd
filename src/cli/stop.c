/* Signals that ask a command to stop, and whether stderr is a terminal.
 *
 * A thread waits for the signals with sigwait and sets a flag; the library polls the flag through
 * shoal_hooks.stop after every step, writes a checkpoint and returns SHOAL_E_INTERRUPTED. There is
 * no signal handler: one that runs on a computing thread's stack would corrupt a product in
 * progress (base/signals.h says why). */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/signals.h"
#include "cli/common.h"

static _Atomic int caught;  // signal that asks to stop; 0: none; relaxed: it guards no data

/* Body of the signal thread; `argument` is the set of signals to wait for. Each is taken once and
 * then gets its default action back, so that a second Ctrl-C ends a command that hangs. All other
 * signals keep their default here too. Must not allocate: the main thread forks workers, and a
 * child would inherit a locked heap. */
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

/* Signals that mean "stop": SIGINT is Ctrl-C; SIGTERM comes from kill and from batch systems at
 * the end of the time; SIGUSR1 from batch systems that warn before it, and mpirun passes it to all
 * ranks; SIGHUP when the terminal or its connection goes. One that the parent process has set to
 * be ignored (nohup, a script's background job) stays ignored. */
static void choose_signals(sigset_t *set_out) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
    sigemptyset(set_out);
    for (size_t i = 0; i < SH_COUNT(numbers); i++) {
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaddset(set_out, numbers[i]);
    }
}

/* The signals are blocked before the thread starts, which inherits the mask that sigwait needs; no
 * signal can fall between. If no thread can be made, the old mask returns, and signals end the
 * process as they would have without this call. */
void sh_catch_signals(void) {
    static sigset_t waited;            // static: the thread reads it after this function returned
    enum { STACK_BYTES = 256 << 10 };  // the thread calls nothing deep; the default is 8 MiB
    sigset_t before;
    pthread_t thread;
    pthread_attr_t attributes;
    choose_signals(&waited);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_BLOCK, &waited, &before);
    // From here on this thread takes no signal at all, nor do OpenMP's threads, which inherit its
    // mask.
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
