/* Signals that ask a command to stop, and the terminal it speaks to. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"

static volatile sig_atomic_t caught;  // the signal that asks to stop, 0: none

static void catch_signal(int number) { caught = number; }

/* Each handler serves once: a second Ctrl-C ends the process at once. What the parent chose to
 * ignore (a script's background job, nohup) stays ignored. SIGUSR1 is what batch systems send
 * before the time is up, and what mpirun passes on to all ranks; SIGHUP comes when the terminal or
 * the connection to it goes. */
void sh_catch_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
    for (size_t i = 0; i < SH_COUNT(numbers); i++) {
        struct sigaction before, action = {.sa_handler = catch_signal};
        action.sa_flags = (int)SA_RESETHAND;
        if (sigaction(numbers[i], NULL, &before) != 0 || before.sa_handler == SIG_IGN) continue;
        sigaction(numbers[i], &action, NULL);
    }
}

bool sh_wants_stop(void *user) {
    (void)user;
    return caught != 0;
}

int sh_caught_signal(void) { return caught; }

bool sh_is_terminal(void) {
    const char *kind = getenv("TERM");
    return isatty(STDERR_FILENO) && kind != NULL && strcmp(kind, "dumb") != 0;
}
