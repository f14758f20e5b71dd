/* How long OpenMP's threads spin for each other before they sleep. Left alone, GCC's run-time lets
 * them spin for milliseconds: on idle cores nothing is gained over some microseconds, and on busy
 * ones each wait takes the core from the very thread that is waited for. */
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "cli/common.h"

/* About 10 us: longer than what lies between two kernels of a step, and as long as it takes to wake
 * a thread that sleeps. */
#define SPINS "1000"

/* The run-time reads its environment before main, so that a setting needs a program started anew.
 * Where that fails, the program goes on as it is. */
void sh_bound_spinning(char **argv) {
    if (getenv("OMP_WAIT_POLICY") != NULL || getenv("GOMP_SPINCOUNT") != NULL) return;
    if (getauxval(AT_BASE) == 0) return;  // the dynamic linker was called with this program's name
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program);
    if (length <= 0 || (size_t)length == sizeof program) return;
    program[length] = '\0';
    if (setenv("GOMP_SPINCOUNT", SPINS, 0) == 0) execv(program, argv);
}
