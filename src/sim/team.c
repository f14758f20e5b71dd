/* Endpoints. One after the other: the ranks and services of team 0, its mail; ranks and mail of the
 * teams that may follow; and a home for everyone who takes a dead one's place, for its tasks until
 * it is in a team. Those of a later team belong to nobody before it begins. */
#include "sim/sim_internal.h"

int sh_sim_main_endpoints(const sh_sim *sim) { return sim->options.ranks + sim->options.services; }

/* Endpoints that a later team adds: ranks and mail. Services with endpoints of their own keep
 * those of team 0. */
static int team_endpoints(const sh_sim_options *options) { return options->ranks + options->mail; }

/* The number of all endpoints; must count the same parts as first_of and sh_sim_home lay out. */
int sh_sim_endpoints(const sh_sim_options *options) {
    return options->ranks + options->services + options->mail +
           options->teams * team_endpoints(options) + options->faults.death_count;
}

/* The first of a team's ranks, or of its mail. */
static int first_of(const sh_sim *sim, int team, bool mail) {
    const sh_sim_options *options = &sim->options;
    int mains = sh_sim_main_endpoints(sim);
    if (team == 0) return mail ? mains : 0;
    int first = mains + options->mail + (team - 1) * team_endpoints(options);
    return mail ? first + options->ranks : first;
}

int sh_sim_team_first(const sh_sim *sim, int team) { return first_of(sim, team, false); }

int sh_sim_home(const sh_sim *sim, int death) {
    return first_of(sim, sim->options.teams + 1, false) + death;
}

void sh_sim_place(sh_sim *sim, int endpoint, int host) {
    sim->ranks[endpoint].host = sim->network.host[endpoint] = host;
    sim->node[endpoint] = sh_network_rack(&sim->network, endpoint);
}

/* Number `number` of a set of `peers` that begins at endpoint `first`; transports say `ranks`. */
static void set_up(sh_sim *sim, int first, int number, int peers, int ranks, int host) {
    int endpoint = first + number;
    sh_sim_rank *rank = &sim->ranks[endpoint];
    *rank = (sh_sim_rank){.sim = sim, .first = first, .peers = peers};
    rank->posted_end = &rank->posted;
    rank->come_end = &rank->come;
    sh_sim_place(sim, endpoint, host);
    rank->base = (sh_transport){.ops = &sh_sim_ops,
                                .rank = number,
                                .ranks = ranks,
                                .node = sim->node + first,
                                .ranks_per_core = 1,
                                .clock = &sim->clock,
                                .virtual_time = true,
                                .board = &sim->board->rank[endpoint],
                                .boards = sim->board};
}

/* Reports look at the board of a rank, so what it waits for in its mail belongs there too. */
static void set_up_mail(sh_sim *sim, int team, int ranks, int mail) {
    int first = first_of(sim, team, true), main = first_of(sim, team, false);
    for (int i = 0; i < mail; i++) {
        int sits_on = main + i % ranks;  // services behind the ranks, in turn,
        if (i >= ranks && sim->options.services > 0)
            sits_on = sim->options.ranks + i - ranks;  // or each on an endpoint of its own
        set_up(sim, first, i, mail, mail, sim->ranks[sits_on].host);
        if (i < ranks) sim->ranks[first + i].base.board = sim->ranks[main + i].base.board;
    }
}

void sh_sim_set_up_endpoints(sh_sim *sim) {
    const sh_sim_options *options = &sim->options;
    int mains = sh_sim_main_endpoints(sim);
    // Each stands alone at first; those of later teams are set up when their team begins.
    for (int r = 0; r < sim->endpoints; r++) set_up(sim, r, 0, 0, 0, r);
    for (int r = 0; r < mains; r++)
        set_up(sim, 0, r, mains, options->ranks, options->hosts != NULL ? options->hosts[r] : r);
    set_up_mail(sim, 0, options->ranks, options->mail);
}

void sh_sim_begin_team(sh_sim *sim, int team, const int *hosts, int ranks, int mail) {
    SH_ASSERT(team >= 1 && team <= sim->options.teams);
    SH_ASSERT(ranks <= sim->options.ranks && mail <= sim->options.mail);
    int first = first_of(sim, team, false);
    for (int r = 0; r < ranks; r++) set_up(sim, first, r, ranks, ranks, hosts[r]);
    set_up_mail(sim, team, ranks, mail);
}

/* Opening an endpoint discards news of its previous owner, but a dead endpoint cannot be opened
 * again. */
static sh_status attach(sh_sim *sim, int endpoint, sh_transport **transport_out) {
    sh_sim_rank *own = &sim->ranks[endpoint];
    if (own->dead) return sh_sim_health(&own->base);
    own->news = false;
    *transport_out = &own->base;
    return SH_OK;
}

sh_status sh_sim_attach(sh_sim *sim, int rank, sh_transport **transport_out) {
    SH_ASSERT(rank >= 0 && rank < sh_sim_main_endpoints(sim));
    return attach(sim, rank, transport_out);
}

sh_status sh_sim_attach_mail(sh_sim *sim, int endpoint, sh_transport **transport_out) {
    return sh_sim_attach_team_mail(sim, 0, endpoint, transport_out);
}

sh_status sh_sim_attach_team(sh_sim *sim, int team, int rank, sh_transport **transport_out) {
    SH_ASSERT(rank >= 0 && rank < sim->options.ranks);
    return attach(sim, first_of(sim, team, false) + rank, transport_out);
}

sh_status sh_sim_attach_team_mail(sh_sim *sim, int team, int endpoint,
                                  sh_transport **transport_out) {
    SH_ASSERT(endpoint >= 0 && endpoint < sim->options.mail);
    return attach(sim, first_of(sim, team, true) + endpoint, transport_out);
}
