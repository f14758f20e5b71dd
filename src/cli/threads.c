/* Bounds how long OpenMP's threads spin for each other before they sleep. GCC's run-time lets them
 * spin for milliseconds by default. On idle cores that gains nothing over microseconds; on busy
 * ones every wait takes the core away from the very thread that is waited for. */
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "cli/common.h"

/* GOMP_SPINCOUNT, in iterations: about 10 us. That is longer than the time between two kernels of
 * a step, and about as long as it takes to wake a sleeping thread. */
#define SPINS "1000"

/* OpenMP's run-time reads its environment before main begins, so a new setting takes effect only
 * in a program that is started anew. The variable that is set also ends the recursion: the second
 * start returns at the first line. Where exec fails the program goes on with the default, which is
 * slower and no less correct. */
void sh_bound_spinning(char **argv) {
    if (getenv("OMP_WAIT_POLICY") != NULL || getenv("GOMP_SPINCOUNT") != NULL) return;
    if (getauxval(AT_BASE) == 0) return;  // run as `ld.so shoal`: /proc/self/exe is the linker
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program);
    if (length <= 0 || (size_t)length == sizeof program) return;
    program[length] = '\0';
    if (setenv("GOMP_SPINCOUNT", SPINS, 0) == 0) execv(program, argv);
}
