/* What a parent does for workers that are processes (host/launch.c), for those that the simulator
 * runs: when one dies by executor, the living form the next team; who comes back by executor joins
 * when they have met. Both hosts follow one state machine (host/membership.h). */
#include "host/membership.h"
#include "run/regroup.h"
#include "run/server.h"
#include "sim/simulate.h"

/* A server with wires of its own: another in every team. */
typedef struct server_place {
    int home;
    bool runs;   // its task has not ended, though it may have died
    bool waits;  // another is to take its place once it has
    sh_simulated_worker self;
} server_place;

typedef struct sh_simulated_teams {
    sh_membership members;
    server_place *servers;         // (services)
    void **snapshots;              // (generations): memory of the snapshots of each; NULL: none
    sh_simulated_worker *workers;  // who came back, per planned death
    int back;
} sh_simulated_teams;

/* The endpoints of the newest team and its servers begin here; its workers enter by themselves
 * (next). A server that cannot be started counts as ended. */
static void begin_team(sh_simulation *s) {
    sh_simulated_teams *t = s->teams;
    const sh_membership *m = &t->members;
    int services = sh_scheme_services(s->scheme, &s->config.scheme, m->ranks);
    int mail = s->scheme.kind->family->mails ? m->ranks + services : 0;
    sh_sim_begin_team(s->sim, m->newest, m->roll, m->ranks, mail);
    for (int i = 0; i < m->options.servers; i++) {
        server_place *of = &t->servers[i];
        of->self = (sh_simulated_worker){.simulation = s,
                                         .slot = m->options.slots + i,
                                         .rank = m->ranks + i,
                                         .home = of->home,
                                         .team = m->newest};
        of->runs = sh_simulated_start(&of->self) == SH_OK;
        if (!of->runs) sh_membership_ended(&t->members, of->self.slot);
    }
}

/* The workers see in `moved` that their team is over, and the run's end what cannot go on. */
static void follow(sh_simulation *s) {
    for (;;) {
        switch (sh_membership_move(&s->teams->members)) {
            case SH_TEAM_BEGINS:
                begin_team(s);
                break;
            case SH_TEAM_ENDS:
                sh_sim_end_team(s->sim, s->teams->members.newest);
                break;
            case SH_TEAM_DONE:
                break;
            case SH_TEAM_STAYS:
            case SH_TEAM_LOST:
            case SH_TEAM_SPENT:
                return;
        }
    }
}

/* Hook of the simulator at a planned death, called outside of all tasks. */
static void died(void *who, int rank) {
    sh_simulation *s = who;
    if (sh_membership_died(&s->teams->members, rank)) follow(s);
}

/* Whether the team has lost somebody shows elsewhere. */
sh_status sh_simulated_served(const sh_simulated_worker *server, sh_status status) {
    sh_simulation *s = server->simulation;
    sh_membership *m = &s->teams->members;
    server_place *of = &s->teams->servers[server->slot - m->options.slots];
    of->runs = false;
    (of->waits ? sh_membership_returns : sh_membership_ended)(m, server->slot);
    of->waits = false;
    follow(s);
    return status == SH_E_PEER ? SH_OK : status;
}

/* Hook of the simulator. A server's successor waits until the task of the dead one has ended; a
 * worker's starts at once and joins when the others have met. */
static void returns(void *who, int rank, int home) {
    sh_simulation *s = who;
    sh_simulated_teams *t = s->teams;
    sh_simulated_worker *worker = &t->workers[t->back++];
    int slots = t->members.options.slots;
    if (s->done) return;
    if (rank >= slots) {
        server_place *of = &t->servers[rank - slots];
        of->home = home;
        of->waits = of->runs;
        if (!of->runs) sh_membership_returns(&t->members, rank);
        follow(s);
        return;
    }
    sh_membership_returns(&t->members, rank);
    *worker = (sh_simulated_worker){
        .simulation = s, .slot = rank, .rank = -1, .home = home, .team = t->members.newest};
    (void)sh_simulated_start(worker);
}

/* ---- The worker's env ---- */

/* Where nobody holds the model no further team can begin, so that waiting for one would never
 * end. */
static bool anybody_holds(const sh_membership *m) {
    for (int slot = 0; slot < m->options.slots; slot++)
        if (sh_membership_holds(m, slot)) return true;
    return false;
}

/* Until there is a team for it; false: the run has ended without it. */
static sh_status await_team(const sh_simulated_worker *worker) {
    static const int64_t moment_ns = 1000000;
    const sh_simulation *s = worker->simulation;
    const sh_membership *m = &s->teams->members;
    while (m->newest <= worker->team || sh_membership_rank(m, worker->slot) < 0) {
        if (s->done || !anybody_holds(m))
            return SH_FAIL(SH_E_INTERRUPTED, "the run ended before it could join");
        SH_TRY(sh_sim_spend(s->sim, moment_ns));
    }
    return SH_OK;
}

/* Env hook (sh_regroup_ops.next). The engine of a worker that trained stays open as `before`
 * until it has joined the next team. */
static sh_status next(void *self, sh_worker_env *env_out) {
    sh_simulated_worker *worker = self;
    sh_simulation *s = worker->simulation;
    sh_membership *m = &s->teams->members;
    if (sh_sim_is_dead(s->sim, worker->home)) return SH_FAIL(SH_E_INTERRUPTED, "it was killed");
    if (worker->trains)
        worker->before = worker->engine;
    else
        sh_engine_destroy(worker->engine);
    worker->engine = NULL;
    worker->trains = false;
    if (!worker->holds) worker->rank = -1;  // those who were to give it the model may have died
    sh_membership_tells(m, worker->slot, worker->holds ? SH_MEMBER_WAITS : SH_MEMBER_READY,
                        worker->team);
    follow(s);
    SH_TRY(await_team(worker));
    worker->rank = sh_membership_rank(m, worker->slot);
    SH_TRY(sh_simulated_enter(worker, m->newest, m->ranks));
    env_out->engine = worker->engine;
    return SH_OK;
}

/* The simulation's, so it outlives whoever dies. */
static void *keep(void *self, size_t bytes) {
    const sh_simulated_worker *worker = self;
    void **snapshots = &worker->simulation->teams->snapshots[worker->team];
    SH_ASSERT(*snapshots == NULL);
    return *snapshots = sh_alloc(bytes, 1);
}

/* Env hook: the worker holds the model, so its engine in the team before can go, and the others
 * can rely on it. */
static void joined(void *self) {
    sh_simulated_worker *worker = self;
    sh_engine_destroy(worker->before);
    worker->before = NULL;
    worker->trains = worker->holds = true;
    sh_membership_tells(&worker->simulation->teams->members, worker->slot, SH_MEMBER_TRAINS,
                        worker->team);
}

static bool moved(void *self) {
    const sh_simulated_worker *worker = self;
    const sh_membership *m = &worker->simulation->teams->members;
    return m->newest > worker->team || m->over;
}

static bool wished(void *self) {
    const sh_simulated_worker *worker = self;
    return sh_membership_wished(&worker->simulation->teams->members);
}

static bool gone(void *self) {
    const sh_simulated_worker *worker = self;
    return sh_sim_is_dead(worker->simulation->sim, worker->home);
}

const sh_regroup_ops sh_simulated_regroup = {
    .next = next,
    .keep = keep,
    .joined = joined,
    .moved = moved,
    .wished = wished,
    .gone = gone,
};

/* ---- Open and close ---- */

/* The workers cannot do without it. */
static sh_status check_deaths(const sh_sim_options *options) {
    for (int i = 0; i < options->faults.death_count; i++) {
        const sh_sim_death *death = &options->faults.deaths[i];
        if (death->rank < options->ranks || death->back_s > 0) continue;
        SH_FAIL(SH_E_USAGE, "--die: rank %d is server %d, and the workers cannot go on without it",
                death->rank, death->rank - options->ranks);
        return sh_error_hint("say when another takes its place: --die %d@%gs+1s", death->rank,
                             death->at_s);
    }
    return SH_OK;
}

sh_status sh_simulated_teams_open(sh_simulation *s) {
    sh_sim_options *options = &s->spec.options;
    int deaths = options->faults.death_count, services = options->services;
    if (deaths == 0 || s->config.exact || !s->scheme.kind->survives) return SH_OK;
    SH_TRY(check_deaths(options));
    sh_simulated_teams *t = s->teams = sh_alloc(1, sizeof *t);
    if (t == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a simulation");
    // The executor of deaths says who comes back: restarts are not counted.
    sh_membership_options members = {.slots = options->ranks,
                                     .servers = services,
                                     .generations_most = 1 + 2 * deaths,
                                     .restarts_most = INT64_MAX};
    SH_TRY(sh_membership_init(&t->members, &members));
    t->servers = sh_alloc((size_t)services + 1, sizeof *t->servers);
    t->snapshots = sh_alloc((size_t)members.generations_most, sizeof *t->snapshots);
    t->workers = sh_alloc((size_t)deaths, sizeof *t->workers);
    if (t->servers == NULL || t->snapshots == NULL || t->workers == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %d workers", options->ranks);
    for (int i = 0; i < services; i++)
        t->servers[i] = (server_place){.home = options->ranks + i, .runs = true};
    options->teams = members.generations_most - 1;
    options->died = died;
    options->returns = returns;
    options->who = s;
    return SH_OK;
}

/* After a failed open, too: whatever was not allocated is NULL. */
void sh_simulated_teams_close(sh_simulation *s) {
    sh_simulated_teams *t = s->teams;
    if (t == NULL) return;
    for (int i = 0; t->snapshots != NULL && i < t->members.options.generations_most; i++)
        sh_free(t->snapshots[i]);
    sh_membership_fini(&t->members);
    for (int i = 0; i < t->back; i++) sh_simulated_leave(&t->workers[i]);
    sh_free(t->workers);
    sh_free(t->snapshots);
    sh_free(t->servers);
    sh_free(t);
    s->teams = NULL;
}
