/* How a rank waits where memory is shared: it spins for about as long as a sleep would cost, then
 * sleeps on its futex. Ranks that share cores yield instead of spinning, because a peer may need
 * the core to make the awaited thing happen.
 *
 * A sleep ends by itself after SLEEP_NS, so a lost wake-up costs milliseconds and never a hang,
 * and callers get to look at their watchdogs. */
#include "comm/transports/shm_internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPIN_NS = 50 * 1000,        // about what a sleep and a wake-up cost
    SPINS_PER_LOOK = 32,        // looks at the rings between two looks at the clock
    YIELDS = 32,                // where ranks share cores
    SLEEP_NS = 5 * 1000 * 1000  // callers look at their watchdogs this often
};

/* Tells the processor that this is a spin loop: the sibling thread gets the execution units. */
static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* All sleepers: a rank has one task here, but several threads of it may use the endpoint. */
static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Returns when the word is no longer `seen`, when woken, after SLEEP_NS, or on a signal. */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
    struct timespec limit = {.tv_nsec = SLEEP_NS};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

/* Of several wakers only the one that takes the flag pays for the system call. */
static bool takes_sleeper(shm_wakeup *wakeup) {
    return atomic_load(&wakeup->sleeps) != 0 && atomic_exchange(&wakeup->sleeps, 0) != 0;
}

/* The wake-up counter changes only where somebody sleeps: a rank that is awake pays nothing. */
void shm_wake(sh_shm *fabric, int rank) {
    shm_wakeup *wakeup = &fabric->wakeups[rank];
    if (!takes_sleeper(wakeup)) return;
    atomic_fetch_add(&wakeup->wakes, 1);
    futex_wake(&wakeup->wakes);
}

/* Changes the counter always: who looks at shared memory itself learns that something was written.
 */
void shm_notify(sh_shm *fabric, int rank) {
    shm_wakeup *wakeup = &fabric->wakeups[rank];
    atomic_fetch_add(&wakeup->wakes, 1);
    if (takes_sleeper(wakeup)) futex_wake(&wakeup->wakes);
}

/* Something happened since the last progress. */
static bool is_ready(shm_transport *shm) {
    return atomic_load(&shm->wakeup->wakes) != shm->wakes_seen ||
           atomic_load(&shm->fabric->control->deaths) != shm->deaths_seen ||
           shm_receive_ready(shm) || shm_send_ready(shm);
}

/* The spin before the sleep; false: it was in vain. */
static bool becomes_ready_soon(shm_transport *shm) {
    if (shm->base.ranks_per_core > 1) {
        for (int i = 0; i < YIELDS; i++) {
            if (is_ready(shm)) return true;
            sched_yield();
        }
        return false;
    }
    int64_t end_ns = 0;  // the clock is slow beside a message: it is read late
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (is_ready(shm)) return true;
            relax();
        }
        int64_t now_ns = sh_clock_now_ns(shm->base.clock);
        if (end_ns == 0) end_ns = now_ns + SPIN_NS;
        if (now_ns >= end_ns) return false;
    } while (true);
}

/* The last look comes after `sleeps` is set: whoever publishes later sees it and wakes this rank.
 */
void shm_idle(sh_transport *transport) {
    shm_transport *shm = shm_of(transport);
    if (becomes_ready_soon(shm)) return;
    atomic_store(&shm->wakeup->sleeps, 1);
    if (!is_ready(shm)) futex_wait(&shm->wakeup->wakes, shm->wakes_seen);
    atomic_store(&shm->wakeup->sleeps, 0);
}
