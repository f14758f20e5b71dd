/* Ranks that leave, and simulations in which nothing can happen any more. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "sim/sim_internal.h"

/* The first failure is the cause, but SH_E_PEER gives way to any other: it only says that
 * somebody else has left. */
void sh_sim_keep_cause(sh_sim *sim, sh_status status) {
    sh_error *cause = &sim->cause;
    if (cause->code == SH_OK || (cause->code == SH_E_PEER && status != SH_E_PEER && !sim->stuck))
        *cause = *sh_error_last();
}

/* ---- Deaths ---------------------------------------------------------------------------------- */

bool sh_sim_is_dead(const sh_sim *sim, int rank) { return sim->ranks[rank].dead; }

sh_status sh_sim_health(sh_transport *transport) {
    const sh_sim_rank *rank = (const sh_sim_rank *)transport;
    const sh_sim *sim = rank->sim;
    if (sim->stuck) return sh_error_adopt(&sim->cause);
    if (rank->dead)
        return SH_FAIL(SH_E_INTERRUPTED, "rank %d was killed at %.3f s", transport->rank,
                       sh_sim_to_s(rank->died_ns - SH_SIM_START_NS));
    if (rank->over) return SH_FAIL(SH_E_PEER, "rank %d: the team is over", transport->rank);
    if (sim->dead == 0) return SH_OK;
    for (int peer = 0; peer < rank->peers; peer++)
        if (sim->ranks[rank->first + peer].dead)
            return SH_FAIL(SH_E_PEER, "rank %d: rank %d has left", transport->rank, peer);
    return SH_OK;
}

void sh_sim_silence(sh_sim *sim, int endpoint) {
    int first = sim->ranks[endpoint].first, peers = sim->ranks[endpoint].peers;
    for (int r = first; r < first + peers; r++) sh_post_fail_from(&sim->ranks[r], endpoint - first);
}

/* Whoever waits looks at the health of its endpoint: what it waits for may be void. */
static void wake_all(sh_sim *sim) {
    for (int r = 0; r < sim->endpoints; r++) sh_sim_news(&sim->ranks[r]);
}

void sh_sim_end_team(sh_sim *sim, int team) {
    int first = sh_sim_team_first(sim, team);
    for (int r = first; r < first + sim->options.ranks; r++) sim->ranks[r].over = true;
    wake_all(sim);
}

/* Whatever its tasks sleep in or wait for ends now. What it had sent arrives. */
static void end_endpoint(sh_sim *sim, int endpoint) {
    sh_sim_rank *dead = &sim->ranks[endpoint];
    dead->dead = true;
    dead->died_ns = sim->now_ns;
    sim->dead++;
    atomic_store_explicit(&sim->board->rank[endpoint].dead, true, memory_order_relaxed);
    sh_post_abandon(dead);
    sh_post_recall_all(dead);
    sh_sim_wake_all(dead);
    if (dead->air_count == 0) sh_sim_silence(sim, endpoint);
}

void sh_sim_kill(sh_sim *sim, int rank) {
    int host = sim->ranks[rank].host, ended = 0;
    for (int r = 0; r < sim->endpoints; r++) {
        if (sim->ranks[r].dead || (r != rank && sim->ranks[r].host != host)) continue;
        end_endpoint(sim, r);
        ended++;
    }
    if (ended > 0) wake_all(sim);
}

/* ---- Deadlocks ------------------------------------------------------------------------------- */

/* Tasks that the text of a deadlock names; more would not fit into an error's record. */
enum { NAMED_MOST = 6 };

static void append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends to a text in a buffer of `size` bytes; what does not fit is cut off. */
static void append(char *text, size_t size, const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    sh_vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

/* "rank 2 (worker) waits for rank 0 in allreduce ring of step 7, bucket 3" */
static void name_task(const sh_fiber *fiber, char *text, size_t size) {
    const sh_sim_rank *rank = sh_fiber_mark(fiber);
    append(text, size, "%s  rank %d (%s) waits for ", *text != '\0' ? "\n" : "", rank->base.rank,
           sh_fiber_name(fiber));
    const sh_sim *sim = rank->sim;
    for (int r = 0; r < sim->endpoints; r++)  // a task may wait for mail, or be a service
        if (sim->ranks[r].waiter == fiber) rank = &sim->ranks[r];
    const sh_message *posted = rank->posted;
    if (rank->waiter != fiber)
        append(text, size, "%s", sh_fiber_waits(fiber));
    else if (posted == NULL)
        append(text, size, "a message that it sent to be taken");
    else if (posted->peer == SH_ANY_RANK)
        append(text, size, "any rank, tag %" PRIx64, posted->tag);
    else
        append(text, size, "rank %d, tag %" PRIx64, posted->peer, posted->tag);
    const sh_rank_status *board = rank->base.board;
    uint64_t count = atomic_load_explicit(&board->count, memory_order_relaxed);
    if (count == 0) return;
    const sh_operation *last = &board->operations[(count - 1) % SH_BOARD_OPERATIONS];
    if (last->end_ns != 0) return;
    append(text, size, " in %s of step %" PRId64, last->what, last->step);
    if (last->bucket >= 0) append(text, size, ", bucket %d", last->bucket);
}

void sh_sim_stuck(sh_sim *sim) {
    char text[900] = "";
    int tasks = sh_world_fibers(sim->world), named = 0;
    for (sh_fiber *at = sh_world_first(sim->world); at != NULL; at = sh_fiber_next(at)) {
        if (named++ == NAMED_MOST) break;
        name_task(at, text, sizeof text);
    }
    if (tasks > NAMED_MOST) append(text, sizeof text, "\n  and %d more", tasks - NAMED_MOST);
    SH_FAIL(SH_E_PEER, "deadlock at %.6f s of virtual time: %d tasks wait\n%s",
            sh_sim_to_s(sim->moved_ns - SH_SIM_START_NS), tasks, text);
    // A failure before is the cause of the deadlock, and stays.
    if (sim->cause.code == SH_OK) sim->cause = *sh_error_last();
    sim->stuck = true;
    for (int r = 0; r < sim->endpoints; r++) sh_post_abandon(&sim->ranks[r]);
    wake_all(sim);
}
