/* The simulator as a transport: waiting, memory, and the row of functions. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "sim/sim_internal.h"

/* ---- Waiting --------------------------------------------------------------------------------- */

static const int64_t look_ns = 4000000;  // at first; twice as long each time, for nothing
/* LOOKS_LONGEST bounds the doublings of look_ns; VAIN_MOST idles of a dead rank, and POLLS_MOST
 * polls at one virtual time, are let pass before the caller is blocked. */
enum { LOOKS_LONGEST = 8, VAIN_MOST = 1000, POLLS_MOST = 1000 };

void sh_sim_news(sh_sim_rank *rank) {
    rank->news = true;
    if (rank->waiter == NULL) return;
    sh_sim *sim = rank->sim;
    // A rank that stands still is woken by one event at the end of its stop, however many messages
    // come.
    if (sim->options.faults.stop_count > 0 && !rank->dead) {
        double now_s = sh_sim_seconds(sim);
        double resume_s = sh_faults_resume_s(&sim->options.faults, rank->host, now_s);
        if (resume_s > now_s) {
            if (rank->resume.order == 0)
                sh_sim_queue(sim, &rank->resume, SH_SIM_RESUMES,
                             sim->now_ns + sh_sim_to_ns(resume_s - now_s));
            return;
        }
    }
    sh_fiber_wake(rank->waiter);
}

static void idle(sh_transport *transport);

/* Who only polls would stop the clock for ever, so after many looks at one time it waits. */
static void count_poll(sh_sim_rank *rank) {
    if (rank->polls.at_ns != rank->sim->now_ns) rank->polls.count = 0;
    rank->polls.at_ns = rank->sim->now_ns;
    if (++rank->polls.count < POLLS_MOST || sh_fiber_self() == NULL) return;
    rank->polls.count = 0;
    idle(&rank->base);
}

/* Progress itself moves nothing, as events deliver messages; it tells whether any came since
 * the last call. */
static bool progress(sh_transport *transport) {
    sh_sim_rank *rank = (sh_sim_rank *)transport;
    if (!rank->news) count_poll(rank);
    bool moved = rank->news;
    rank->news = false;
    if (moved) rank->look.fruitless = 0;
    return moved;
}

/* A look is queued once per rank and pushed on when it fires too early: ranks that wait for
 * thousands of messages a millisecond do not queue thousands of looks. */
void sh_sim_looks(sh_sim_rank *rank) {
    rank->look.queued = false;
    if (rank->waiter == NULL) return;
    if (rank->look.at_ns > rank->sim->now_ns) {
        rank->look.queued = true;
        sh_sim_queue(rank->sim, &rank->look.event, SH_SIM_LOOKS, rank->look.at_ns);
        return;
    }
    if (rank->look.fruitless < LOOKS_LONGEST) rank->look.fruitless++;
    sh_fiber_wake(rank->waiter);
}

/* Blocks the calling task until news or a look. One task at a time waits for an endpoint. */
static void idle(sh_transport *transport) {
    sh_sim_rank *rank = (sh_sim_rank *)transport;
    sh_sim *sim = rank->sim;
    if (rank->news) return;
    SH_ASSERT(sh_fiber_self() != NULL && rank->waiter == NULL);
    bool ends = rank->dead || sim->stuck;
    if (ends && ++rank->vain < VAIN_MOST) return;  // its calls fail: it should notice soon
    rank->waiter = sh_fiber_self();
    rank->look.at_ns = sim->now_ns + (look_ns << rank->look.fruitless);
    if (!rank->look.queued && !ends) {
        rank->look.queued = true;
        sh_sim_queue(sim, &rank->look.event, SH_SIM_LOOKS, rank->look.at_ns);
    }
    sh_fiber_block("a message");
    rank->waiter = NULL;
}

sh_sleep *sh_sim_sleep(sh_sim_rank *rank, sh_fiber *fiber, sh_sim_kind kind, int64_t until_ns) {
    sh_sleep *sleep = sh_pool_take(&rank->sim->sleeps);
    SH_ASSERT(sleep != NULL);
    *sleep = (sh_sleep){.fiber = fiber, .next = rank->sleeps};
    if (sleep->next != NULL) sleep->next->before = sleep;
    rank->sleeps = sleep;
    sh_sim_queue(rank->sim, &sleep->event, kind, until_ns);
    return sleep;
}

void sh_sim_wakes(sh_sleep *sleep) {
    sh_sim_rank *rank = sh_fiber_mark(sleep->fiber);
    if (sleep->before != NULL)
        sleep->before->next = sleep->next;
    else
        rank->sleeps = sleep->next;
    if (sleep->next != NULL) sleep->next->before = sleep->before;
    sh_fiber_wake(sleep->fiber);
    sh_pool_give(&rank->sim->sleeps, sleep);
}

void sh_sim_wake_early(sh_sim *sim, sh_sleep *sleep) {
    bool soft = sleep->event.kind >= SH_SIM_LOOKS;
    sh_events_take_back(soft ? &sim->looks : &sim->events, &sleep->event);
    sh_sim_wakes(sleep);
}

void sh_sim_wake_all(sh_sim_rank *rank) {
    while (rank->sleeps != NULL) sh_sim_wake_early(rank->sim, rank->sleeps);
}

/* Rings a peer of the same set of transports. Its bell is news without a message. */
static void wake(sh_transport *transport, int peer) {
    const sh_sim_rank *rank = (const sh_sim_rank *)transport;
    SH_ASSERT(peer >= 0 && peer < rank->peers);
    sh_sim_news(&rank->sim->ranks[rank->first + peer]);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Physical memory in bytes; SIZE_MAX where the system does not say, so that nothing is refused. */
static size_t machine_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX;
}

/* Pages without reservation cost memory only once they are touched: most of what thousands of
 * simulated ranks map never is. */
static void *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

/* Each rank has its own; nobody's is mapped by others, as if each were a machine. The list of all
 * ranks' is mapped too: of its pages only the one with the rank's own entry takes memory. */
static sh_status share(sh_transport *transport, size_t bytes, sh_shared *shared_out) {
    const sh_sim *sim = ((const sh_sim_rank *)transport)->sim;
    size_t ranks = (size_t)sim->endpoints;
    bool fits = bytes <= machine_bytes();
    char *memory = fits ? map(bytes > 0 ? bytes : 1) : NULL;
    char **base = memory != NULL ? map(ranks * sizeof *base) : NULL;
    if (base == NULL) {
        if (memory != NULL) munmap(memory, bytes);
        SH_FAIL(SH_E_MEMORY,
                "not enough memory on this machine: %zu simulated workers use %zu MiB "
                "each",
                ranks, bytes >> 20);
        return sh_error_hint("use fewer workers or a smaller model, or --numerics off");
    }
    base[transport->rank] = memory;
    *shared_out = (sh_shared){.bytes = bytes, .base = base, .own = memory};
    return SH_OK;
}

static void unshare(sh_transport *transport, sh_shared *shared) {
    if (shared == NULL || shared->own == NULL) return;
    const sh_sim *sim = ((const sh_sim_rank *)transport)->sim;
    munmap(shared->own, shared->bytes > 0 ? shared->bytes : 1);
    munmap(shared->base, (size_t)sim->endpoints * sizeof *shared->base);
    *shared = (sh_shared){0};
}

/* ---- The row --------------------------------------------------------------------------------- */

static void close_rank(sh_transport *transport) {
    sh_sim_rank *rank = (sh_sim_rank *)transport;
    // Whoever opens it again starts afresh; receives of a task that is gone must not be filled.
    sh_post_recall_all(rank);
    rank->posted = NULL;
    rank->posted_end = &rank->posted;
    rank->news = false;
    rank->base.on_arrival = NULL;
}

const sh_transport_ops sh_sim_ops = {
    .name = "sim",
    .send = sh_sim_send,
    .receive = sh_sim_receive,
    .cancel = sh_sim_cancel,
    .progress = progress,
    .idle = idle,
    .health = sh_sim_health,
    .share = share,
    .unshare = unshare,
    .wake = wake,
    .close = close_rank,
};
