/* Waiting under MPI. Nothing wakes a rank when a message comes, so it polls; but the threads that
 * compute need the core more, so it polls politely:
 *
 *   traffic is fresh    poll and yield, for as long as yielding returns at once
 *   somebody else ran   sleep 50 us between polls
 *   quiet for longer    sleep an eighth of the quiet time, at most 1 ms (100 us while long messages
 *                       are under way: MPI moves them only inside of polls)
 *
 * The sleep is a futex on the rank's wake-up word, which ranks of the node change, and other tasks
 * of this rank when they have work for the task that waits. */
#include <linux/futex.h>
#include <limits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/transports/mpi_internal.h"

enum {
    POLL_NS = 100000,      // at most so long in one call
    FRESH_NS = 2000000,    // traffic is fresh for so long
    CONTENDED_NS = 10000,  // a yield that takes longer let somebody run
    SLEEP_MIN_NS = 50000,
    SLEEP_MOVING_NS = 100000,
    SLEEP_MAX_NS = 1000000,
    SLACK_NS = 1000,  // how late the kernel may end a sleep
};

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout) {
    return syscall(SYS_futex, (uint32_t *)word, operation, value, timeout, NULL, 0);
}

void sh_mpi_wake(sh_transport *transport, int peer) {
    sh_mpi *mpi = (sh_mpi *)transport;
    sh_mpi_wake_rank(mpi, mpi->first + peer);
}

void sh_mpi_wake_rank(sh_mpi *mpi, int rank) {
    if (mpi->node[rank] != mpi->node[mpi->world.rank]) return;
    sh_mpi_wakeup *wakeup = &mpi->wakeups[rank];
    // Sequential: either the sleeper sees the change, or the waker sees the sleeper.
    atomic_fetch_add(&wakeup->wakes, 1);
    if (atomic_load(&wakeup->sleeps) != 0) futex(&wakeup->wakes, FUTEX_WAKE, INT_MAX, NULL);
}

static bool was_woken(sh_mpi *mpi) {
    uint32_t wakes = atomic_load(&mpi->wakeups[mpi->world.rank].wakes);
    bool changed = wakes != mpi->wakes_seen;
    mpi->wakes_seen = wakes;
    return changed;
}

static void sleep_until_woken(sh_mpi *mpi, int64_t sleep_ns) {
    sh_mpi_wakeup *wakeup = &mpi->wakeups[mpi->world.rank];
    struct timespec timeout = {.tv_nsec = (long)sleep_ns};
    atomic_store(&wakeup->sleeps, 1);
    if (atomic_load(&wakeup->wakes) == mpi->wakes_seen)
        futex(&wakeup->wakes, FUTEX_WAIT, mpi->wakes_seen, &timeout);
    atomic_store(&wakeup->sleeps, 0);
}

/* True once something changed; false when the time is up or the core is wanted. */
static bool poll(sh_mpi *mpi, int64_t until_ns) {
    const sh_clock *clock = mpi->base.clock;
    for (;;) {
        if (was_woken(mpi) || sh_mpi_progress(&mpi->base)) return true;
        int64_t before_ns = sh_clock_now_ns(clock);
        if (before_ns >= until_ns) return false;
        sched_yield();
        if (sh_clock_now_ns(clock) - before_ns > CONTENDED_NS) return false;
    }
}

void sh_mpi_idle(sh_transport *transport) {
    sh_mpi *mpi = (sh_mpi *)transport;
    if (!mpi->is_slack_set) prctl(PR_SET_TIMERSLACK, SLACK_NS);
    mpi->is_slack_set = true;
    int64_t now_ns = sh_clock_now_ns(transport->clock), quiet_ns = now_ns - mpi->active_ns;
    if (poll(mpi, quiet_ns < FRESH_NS ? now_ns + POLL_NS : now_ns)) return;
    int64_t most_ns = mpi->moving > 0 ? SLEEP_MOVING_NS : SLEEP_MAX_NS;
    int64_t sleep_ns = quiet_ns / 8;
    if (sleep_ns < SLEEP_MIN_NS) sleep_ns = SLEEP_MIN_NS;
    sleep_until_woken(mpi, sleep_ns < most_ns ? sleep_ns : most_ns);
}
