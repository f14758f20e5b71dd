/* What a parent does for workers that are processes (train/launch.c), for those that the simulator
 * runs: when one dies by plan, the living form the next team; who comes back by plan joins when
 * they have met. */
#include "train/regroup.h"
#include "train/server.h"
#include "train/simulate.h"

typedef enum place_state { STARTS, READY, TRAINS, WAITS } place_state;

typedef struct place {
    bool lives;
    place_state state;
    int team;  // that it waits to leave
} place;

typedef struct team {
    int *slots;  // (ranks)
    int ranks;
    void *kept;  // memory of its vault; NULL: none
} team;

/* A server with wires of its own: another in every team. */
typedef struct server_place {
    bool lives, serves;
    int home;
    sh_simulated_worker self;
} server_place;

typedef struct sh_simulated_teams {
    int slots, count, newest;
    bool over;  // the newest team is: the next waits for its servers
    place *slot;
    server_place *servers;         // (services)
    team *team;                    // (count)
    sh_simulated_worker *workers;  // who came back, per planned death
    int back;
} sh_simulated_teams;

static int rank_of(const team *of, int slot) {
    int rank = 0;
    while (rank < of->ranks && of->slots[rank] != slot) rank++;
    return rank < of->ranks ? rank : -1;
}

static const team *newest(const sh_simulated_teams *t) { return &t->team[t->newest]; }

static bool is_spent(const sh_simulated_teams *t) { return t->newest + 1 >= t->count; }

/* ---- The next team ---- */

/* Who holds the model in the order they had, then who waits to join. How many hold it. */
static int call_roll(const sh_simulated_teams *t, team *next) {
    const team *last = newest(t);
    for (int rank = 0; rank < last->ranks; rank++) {
        const place *of = &t->slot[last->slots[rank]];
        if (of->lives && of->state >= TRAINS) next->slots[next->ranks++] = last->slots[rank];
    }
    int holders = next->ranks;
    for (int i = 0; i < t->slots; i++)
        if (t->slot[i].lives && t->slot[i].state == READY) next->slots[next->ranks++] = i;
    return holders;
}

static void begin_team(sh_simulation *s) {
    sh_simulated_teams *t = s->teams;
    team *next = &t->team[t->newest + 1];
    next->ranks = 0;
    if (call_roll(t, next) == 0) return;
    int services = sh_scheme_services(s->scheme, &s->config.scheme, next->ranks);
    int mail = s->scheme.kind->family->mails ? next->ranks + services : 0;
    sh_sim_begin_team(s->sim, t->newest + 1, next->slots, next->ranks, mail);
    t->newest++;
    t->over = false;
    for (int i = 0; i < s->spec.options.services; i++) {
        server_place *of = &t->servers[i];
        of->self = (sh_simulated_worker){.simulation = s,
                                         .slot = t->slots + i,
                                         .rank = next->ranks + i,
                                         .home = of->home,
                                         .team = t->newest};
        of->serves = sh_simulated_start(&of->self) == SH_OK;
    }
}

/* What servers leave in their snapshots is what the others go on with: all have ended, and there is
 * somebody for every place. */
static void follow(sh_simulation *s) {
    const sh_simulated_teams *t = s->teams;
    bool ready = t->over;
    for (int i = 0; i < s->spec.options.services; i++)
        ready = ready && t->servers[i].lives && !t->servers[i].serves;
    if (ready) begin_team(s);
}

static void end_team(sh_simulation *s) {
    s->teams->over = true;
    follow(s);
}

/* Those who are in the team have met to let somebody in, or have lost each other. */
static void tend(sh_simulation *s) {
    const sh_simulated_teams *t = s->teams;
    const team *last = newest(t);
    bool waits = true;
    for (int rank = 0; rank < last->ranks; rank++) {
        const place *of = &t->slot[last->slots[rank]];
        if (of->lives) waits = waits && of->state == WAITS && of->team == t->newest;
    }
    if (waits && !is_spent(t)) end_team(s);
}

static void died(void *who, int rank) {
    sh_simulation *s = who;
    sh_simulated_teams *t = s->teams;
    const team *last = newest(t);
    if (rank >= t->slots)
        t->servers[rank - t->slots].lives = false;
    else
        t->slot[rank].lives = false;
    if ((rank < t->slots && rank_of(last, rank) < 0) || is_spent(t)) return;
    for (int r = 0; r < last->ranks; r++) {
        const place *of = &t->slot[last->slots[r]];
        if (of->lives && of->state == STARTS) return;  // nobody can go on yet
    }
    end_team(s);
}

/* Whether the team has lost somebody shows elsewhere. */
sh_status sh_simulated_served(const sh_simulated_worker *server, sh_status status) {
    sh_simulation *s = server->simulation;
    s->teams->servers[server->slot - s->teams->slots].serves = false;
    follow(s);
    return status == SH_E_PEER ? SH_OK : status;
}

static void returns(void *who, int rank, int home) {
    sh_simulation *s = who;
    sh_simulated_teams *t = s->teams;
    sh_simulated_worker *worker = &t->workers[t->back++];
    if (s->done) return;
    if (rank >= t->slots) {
        t->servers[rank - t->slots].lives = true;
        t->servers[rank - t->slots].home = home;
        follow(s);
        return;
    }
    *worker = (sh_simulated_worker){
        .simulation = s, .slot = rank, .rank = -1, .home = home, .team = t->newest};
    t->slot[rank] = (place){.lives = true};
    (void)sh_simulated_start(worker);
}

/* ---- The worker's seat ---- */

/* Until there is a team for it; false: the run has ended without it. */
static sh_status await_team(const sh_simulated_worker *worker) {
    static const int64_t moment_ns = 1000000;
    const sh_simulation *s = worker->simulation;
    const sh_simulated_teams *t = s->teams;
    while (t->newest <= worker->team || rank_of(newest(t), worker->slot) < 0) {
        bool lost = true;  // all who had the model
        for (int i = 0; i < t->slots; i++)
            if (t->slot[i].lives && t->slot[i].state >= TRAINS) lost = false;
        if (s->done || lost) return SH_FAIL(SH_E_INTERRUPTED, "the run ended before it could join");
        SH_TRY(sh_sim_spend(s->sim, moment_ns));
    }
    return SH_OK;
}

static sh_status next(void *self, sh_seat *seat_out) {
    sh_simulated_worker *worker = self;
    sh_simulation *s = worker->simulation;
    sh_simulated_teams *t = s->teams;
    if (sh_sim_is_dead(s->sim, worker->home)) return SH_FAIL(SH_E_INTERRUPTED, "it was killed");
    if (worker->trains)
        worker->before = worker->engine;
    else
        sh_engine_destroy(worker->engine);
    worker->engine = NULL;
    worker->trains = false;
    t->slot[worker->slot].team = worker->team;
    t->slot[worker->slot].state = worker->holds ? WAITS : READY;
    tend(s);
    SH_TRY(await_team(worker));
    worker->rank = rank_of(newest(t), worker->slot);
    SH_TRY(sh_simulated_enter(worker, t->newest, newest(t)->ranks));
    seat_out->engine = worker->engine;
    return SH_OK;
}

/* The simulation's, so it outlives whoever dies. */
static void *keep(void *self, size_t bytes) {
    const sh_simulated_worker *worker = self;
    team *of = &worker->simulation->teams->team[worker->team];
    SH_ASSERT(of->kept == NULL);
    return of->kept = sh_alloc(bytes, 1);
}

static void joined(void *self) {
    sh_simulated_worker *worker = self;
    sh_engine_destroy(worker->before);
    worker->before = NULL;
    worker->trains = worker->holds = true;
    worker->simulation->teams->slot[worker->slot].state = TRAINS;
}

static bool moved(void *self) {
    const sh_simulated_worker *worker = self;
    const sh_simulated_teams *t = worker->simulation->teams;
    return t->newest > worker->team || t->over;
}

static bool wished(void *self) {
    const sh_simulated_worker *worker = self;
    const sh_simulated_teams *t = worker->simulation->teams;
    for (int i = 0; i < t->slots && !is_spent(t); i++)
        if (t->slot[i].lives && t->slot[i].state == READY && rank_of(newest(t), i) < 0) return true;
    return false;
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

static sh_status allocate(sh_simulated_teams *t, int deaths, int servers) {
    t->slot = sh_alloc((size_t)t->slots, sizeof *t->slot);
    t->servers = sh_alloc((size_t)servers + 1, sizeof *t->servers);
    t->team = sh_alloc((size_t)t->count, sizeof *t->team);
    t->workers = sh_alloc((size_t)deaths, sizeof *t->workers);
    bool enough = t->slot != NULL && t->servers != NULL && t->team != NULL && t->workers != NULL;
    for (int i = 0; enough && i < t->count; i++) {
        t->team[i].slots = sh_alloc((size_t)t->slots, sizeof(int));
        enough = t->team[i].slots != NULL;
    }
    return enough ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for %d workers", t->slots);
}

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
    int deaths = options->faults.death_count;
    if (deaths == 0 || s->config.exact || !s->scheme.kind->survives) return SH_OK;
    SH_TRY(check_deaths(options));
    sh_simulated_teams *t = s->teams = sh_alloc(1, sizeof *t);
    if (t == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a simulation");
    t->slots = options->ranks;
    t->count = 1 + 2 * deaths;
    SH_TRY(allocate(t, deaths, options->services));
    t->team[0].ranks = t->slots;
    for (int i = 0; i < t->slots; i++) {
        t->team[0].slots[i] = i;
        t->slot[i].lives = true;
    }
    for (int i = 0; i < options->services; i++)
        t->servers[i] = (server_place){.lives = true, .serves = true, .home = t->slots + i};
    options->teams = t->count - 1;
    options->died = died;
    options->returns = returns;
    options->who = s;
    return SH_OK;
}

void sh_simulated_teams_close(sh_simulation *s) {
    sh_simulated_teams *t = s->teams;
    if (t == NULL) return;
    for (int i = 0; t->team != NULL && i < t->count; i++) {
        sh_free(t->team[i].kept);
        sh_free(t->team[i].slots);
    }
    sh_free(t->workers);
    sh_free(t->team);
    sh_free(t->servers);
    sh_free(t->slot);
    sh_free(t);
    s->teams = NULL;
}
