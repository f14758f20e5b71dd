#include "sim/sim.h"

#include <string.h>

#include "base/memory.h"
#include "sim/sim_internal.h"

/* Virtual time that a yield takes. Were it 0, tasks that yield to each other would stop the
 * clock. */
static const int64_t yield_ns = 1000;
/* Virtual seconds without anything but looks and yields, after which a simulation counts as
 * deadlocked. */
static const double default_patience_s = 60;

/* ---- Tasks ----------------------------------------------------------------------------------- */

/* What a task starts with. On the heap, as the task runs after sh_sim_spawn has returned;
 * run_job frees it. */
typedef struct job {
    sh_sim_rank *rank;
    sh_task_body body;
    void *argument;
} job;

/* The body of every simulated task. A failure without a planned death kills the rank, so that
 * its peers fail with SH_E_PEER instead of waiting for ever. */
static void run_job(void *pointer) {
    job taken = *(job *)pointer;
    sh_free(pointer);
    sh_sim_rank *rank = taken.rank;
    sh_status status = taken.body(taken.argument);
    rank->tasks--;
    if (status == SH_OK || rank->planned) return;
    sh_sim_keep_cause(rank->sim, status);
    sh_sim_kill(rank->sim, (int)(rank - rank->sim->ranks));
}

sh_status sh_sim_spawn(sh_sim *sim, int rank, const char *name, sh_task_body body, void *argument) {
    SH_ASSERT(rank >= 0 && rank < sim->endpoints);
    job *given = sh_alloc(1, sizeof *given);
    if (given == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for task '%s'", name);
    *given = (job){&sim->ranks[rank], body, argument};
    sh_status status = sh_world_spawn(sim->world, name, given->rank, run_job, given, NULL);
    if (status == SH_OK)
        sim->ranks[rank].tasks++;
    else
        sh_free(given);
    return status;
}

/* Hook of the fiber world. Yields are soft events: tasks that only give way to each other do
 * not count as progress when deadlocks are looked for. */
static void yield(void *owner, sh_fiber *fiber) {
    sh_sim *sim = owner;
    sh_sim_sleep(sh_fiber_mark(fiber), fiber, SH_SIM_YIELDS, sim->now_ns + yield_ns);
}

/* When a task of the rank that computes for `ns` from now on has done so. */
static int64_t computed_ns(const sh_sim *sim, const sh_sim_rank *rank, int64_t ns) {
    int64_t until_ns = sim->now_ns + (ns > 0 ? ns : 0), zero = SH_SIM_START_NS;
    const sh_sim_faults *faults = &sim->options.faults;
    if (faults->stop_count == 0) return until_ns;
    return zero +
           sh_sim_to_ns(sh_faults_computed_s(faults, rank->host, sh_sim_to_s(sim->now_ns - zero),
                                             sh_sim_to_s(until_ns - zero)));
}

/* The rank of the calling task. Time passes for tasks of the simulation only; anybody else is a
 * programmer's error. */
static sh_sim_rank *own_rank(void) {
    SH_ASSERT(sh_fiber_self() != NULL);
    return sh_fiber_mark(sh_fiber_self());
}

/* A task may wake because its rank was killed, or because the simulation is stuck. */
static sh_status still_lives(sh_sim_rank *rank) {
    return rank->dead || rank->sim->stuck ? sh_sim_health(&rank->base) : SH_OK;
}

sh_status sh_sim_spend(sh_sim *sim, int64_t ns) {
    sh_sim_rank *rank = own_rank();
    if (!rank->dead && ns > 0) {
        sh_sim_sleep(rank, sh_fiber_self(), SH_SIM_WAKES, computed_ns(sim, rank, ns));
        sh_fiber_block("its own computing");
    }
    return still_lives(rank);
}

/* Sleeps until then, or until there is news for the endpoint. */
static void sleep_until_news(sh_sim *sim, sh_sim_rank *endpoint, int64_t end_ns) {
    sh_sim_rank *rank = own_rank();
    SH_ASSERT(endpoint->waiter == NULL);
    endpoint->waiter = sh_fiber_self();
    sh_sim_sleep(rank, endpoint->waiter, SH_SIM_WAKES, end_ns);
    sh_fiber_block("its own computing");
    for (sh_sleep *at = rank->sleeps, *next; at != NULL; at = next) {
        next = at->next;
        if (at->fiber == endpoint->waiter) sh_sim_wake_early(sim, at);
    }
    endpoint->waiter = NULL;
}

sh_status sh_sim_spend_unless(sh_sim *sim, int64_t ns, sh_transport *transport,
                              bool (*ends)(void *self), void *self) {
    sh_sim_rank *rank = own_rank(), *endpoint = (sh_sim_rank *)transport;
    int64_t end_ns = computed_ns(sim, rank, ns);
    // News may be of no concern to the work: it sleeps again unless `ends` says that the work is
    // void.
    while (!rank->dead && !sim->stuck && sim->now_ns < end_ns && !ends(self)) {
        if (!endpoint->news) sleep_until_news(sim, endpoint, end_ns);
        sh_transport_progress(transport);
    }
    return still_lives(rank);
}

int64_t sh_sim_compute_ns(const sh_sim *sim, int rank, int64_t step) {
    double seconds = sh_compute_seconds(&sim->options.compute, sim->options.seed, rank, step,
                                        sh_sim_seconds(sim));
    return sh_sim_to_ns(seconds);
}

/* ---- Time ------------------------------------------------------------------------------------ */

static int64_t now_ns(void *self) { return ((const sh_sim *)self)->now_ns; }

const sh_clock *sh_sim_clock(const sh_sim *sim) { return &sim->clock; }
double sh_sim_seconds(const sh_sim *sim) { return sh_sim_to_s(sim->now_ns - SH_SIM_START_NS); }
sh_sim_counts sh_sim_counted(const sh_sim *sim) { return sim->counts; }
sh_status_board *sh_sim_board(sh_sim *sim) { return sim->board; }

void sh_sim_queue(sh_sim *sim, sh_event *event, sh_sim_kind kind, int64_t at_ns) {
    event->kind = kind;
    sh_events *queue = kind >= SH_SIM_LOOKS ? &sim->looks : &sim->events;
    if (sh_events_push(queue, event, at_ns, ++sim->order) || sim->stuck) return;
    SH_FAIL(SH_E_MEMORY, "out of memory for %zu events of a simulation", queue->count);
    sim->cause = *sh_error_last();
    sim->stuck = true;
}

/* ---- The loop -------------------------------------------------------------------------------- */

/* Whoever takes its place may die, too; one that is dead already cannot, and leaves no place. */
static void die(sh_sim *sim, sh_death *death) {
    bool lives = false;
    for (int r = 0; r < sim->endpoints; r++) {
        if (sim->ranks[r].host != death->rank || sim->ranks[r].dead) continue;
        sim->ranks[r].planned = lives = true;
    }
    if (!lives) return;
    sh_sim_kill(sim, death->rank);
    if (sim->options.died != NULL) sim->options.died(sim->options.who, death->rank);
    if (death->back_ns > 0)
        sh_sim_queue(sim, &death->event, SH_SIM_RETURNS, sim->now_ns + death->back_ns);
}

/* The successor's tasks run on `home`, an endpoint kept for this death. The dead endpoint stays
 * dead, so messages to it still fail. */
static void come_back(sh_sim *sim, const sh_death *death) {
    sh_sim_place(sim, death->home, death->rank);
    if (sim->options.returns != NULL)
        sim->options.returns(sim->options.who, death->rank, death->home);
}

/* Events are embedded in what they concern: first members are cast back, the two events inside
 * a rank by their offset. */
static void fire(sh_sim *sim, sh_event *event) {
    switch ((sh_sim_kind)event->kind) {
        case SH_SIM_LANDS:
            sh_post_lands(sim, (sh_flight *)event);
            break;
        case SH_SIM_ARRIVES:
            sh_post_arrives(sim, (sh_flight *)event);
            break;
        case SH_SIM_WAKES:
        case SH_SIM_YIELDS:
            sh_sim_wakes((sh_sleep *)event);
            break;
        case SH_SIM_LOOKS: {
            size_t offset = offsetof(sh_sim_rank, look.event);
            sh_sim_looks((sh_sim_rank *)(void *)((char *)event - offset));
            break;
        }
        case SH_SIM_RESUMES: {
            size_t offset = offsetof(sh_sim_rank, resume);
            sh_sim_news((sh_sim_rank *)(void *)((char *)event - offset));
            break;
        }
        case SH_SIM_DIES:
            die(sim, (sh_death *)event);
            break;
        case SH_SIM_RETURNS:
            come_back(sim, (const sh_death *)event);
            break;
    }
}

/* The next event in time; those of the looks only keep waiting ranks awake, and when nothing else
 * has happened for long, nothing will. */
static bool take_event(sh_sim *sim, sh_event **event_out) {
    int64_t hard = INT64_MAX, soft = INT64_MAX;
    bool moves = sh_events_next(&sim->events, &hard), looks = sh_events_next(&sim->looks, &soft);
    int64_t wait_limits = sh_sim_to_ns(sim->options.patience_s);
    if (!moves && (!looks || soft - sim->moved_ns > wait_limits)) return false;
    bool first = hard <= soft;
    if (first) sim->moved_ns = hard;
    sim->now_ns = first ? hard : soft;
    *event_out = sh_events_pop(first ? &sim->events : &sim->looks);
    return true;
}

sh_status sh_sim_run(sh_sim *sim) {
    sh_event *event = NULL;
    while (true) {
        // Virtual time stands still while any task can run.
        while (sh_world_step(sim->world)) continue;
        if (sh_world_fibers(sim->world) == 0) break;
        if (!take_event(sim, &event)) {
            if (sim->stuck) break;  // some do not end even so
            sh_sim_stuck(sim);
            continue;
        }
        sim->counts.events++;
        fire(sim, event);
    }
    return sim->cause.code == SH_OK ? SH_OK : sh_error_adopt(&sim->cause);
}

/* ---- Set-up ---------------------------------------------------------------------------------- */

/* Deaths are queued before the first task runs, so they strike at their time whatever the tasks
 * do. */
static sh_status plan_deaths(sh_sim *sim) {
    const sh_sim_faults *faults = &sim->options.faults;
    if (faults->death_count == 0) return SH_OK;
    sim->deaths = sh_alloc((size_t)faults->death_count, sizeof *sim->deaths);
    if (sim->deaths == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a simulation");
    for (int i = 0; i < faults->death_count; i++) {
        const sh_sim_death *death = &faults->deaths[i];
        SH_ASSERT(death->rank >= 0 && death->rank < sh_sim_main_endpoints(sim));
        sim->deaths[i] = (sh_death){.rank = death->rank,
                                    .home = sh_sim_home(sim, i),
                                    .back_ns = sh_sim_to_ns(death->back_s)};
        sh_sim_queue(sim, &sim->deaths[i].event, SH_SIM_DIES,
                     SH_SIM_START_NS + sh_sim_to_ns(death->at_s));
    }
    return SH_OK;
}

static sh_status set_up(sh_sim *sim) {
    const sh_sim_options *options = &sim->options;
    size_t count = (size_t)sim->endpoints;
    SH_TRY(sh_network_init(&sim->network, &options->links, sim->endpoints, NULL));
    sh_world_options world = {.stack_bytes = options->stack_bytes, .yield = yield, .owner = sim};
    SH_TRY(sh_world_create(&world, &sim->world));
    sim->ranks = sh_alloc(count, sizeof *sim->ranks);
    sim->node = sh_alloc(count, sizeof *sim->node);
    if (sim->ranks == NULL || sim->node == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %d simulated ranks", sim->endpoints);
    SH_TRY(sh_arena_init(&sim->memory, "the simulator's board", sh_board_bytes(sim->endpoints)));
    sim->board = sh_arena_take(&sim->memory, sh_board_bytes(sim->endpoints));
    sim->board->ranks = sim->endpoints;
    sh_sim_set_up_endpoints(sim);
    SH_TRY(sh_places_create(sim->node, options->ranks, &sim->places));
    for (int r = 0; r < options->ranks; r++) sim->ranks[r].base.places = sim->places;
    return plan_deaths(sim);
}

sh_status sh_sim_create(const sh_sim_options *options, sh_sim **sim_out) {
    if (options->ranks < 1 || options->services < 0 || options->mail < 0 || options->teams < 0)
        return SH_FAIL(SH_E_USAGE, "a simulation of %d ranks and %d services", options->ranks,
                       options->services);
    sh_sim *sim = sh_alloc(1, sizeof *sim);
    if (sim == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a simulation");
    sim->options = *options;
    sim->endpoints = sh_sim_endpoints(options);
    sim->now_ns = sim->moved_ns = SH_SIM_START_NS;
    sim->clock = (sh_clock){.now_ns = now_ns, .self = sim};
    sim->reorders = sh_faults_reorder(&options->faults);
    if (options->patience_s <= 0) sim->options.patience_s = default_patience_s;
    sim->flights.bytes = sizeof(sh_flight);
    sim->sleeps.bytes = sizeof(sh_sleep);
    // One pool per size class of eager payloads (class_of in post.c).
    for (int i = 0; i < SH_SIM_CLASSES; i++) sim->payloads[i].bytes = (size_t)64 << i;
    sh_status status = set_up(sim);
    if (status != SH_OK) {
        sh_sim_destroy(sim);
        return status;
    }
    *sim_out = sim;
    return SH_OK;
}

void sh_sim_destroy(sh_sim *sim) {
    if (sim == NULL) return;
    // Fibers go first: their stacks may point into all that follows.
    sh_world_destroy(sim->world);
    sh_network_fini(&sim->network);
    sh_events_fini(&sim->events);
    sh_events_fini(&sim->looks);
    sh_pool_fini(&sim->flights);
    sh_pool_fini(&sim->sleeps);
    for (int i = 0; i < SH_SIM_CLASSES; i++) sh_pool_fini(&sim->payloads[i]);
    sh_places_destroy(sim->places);
    sh_free(sim->deaths);
    sh_arena_fini(&sim->memory);
    sh_free(sim->node);
    sh_free(sim->ranks);
    sh_free(sim);
}
