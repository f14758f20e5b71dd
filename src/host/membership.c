#include "host/membership.h"

#include "base/memory.h"

/* `roll` has room for two rolls: that of the newest generation, and behind it the next one
 * while it is called. */
sh_status sh_membership_init(sh_membership *team, const sh_membership_options *options) {
    size_t slots = (size_t)options->slots, servers = (size_t)options->servers;
    *team = (sh_membership){.options = *options,
                            .member = sh_alloc(slots, sizeof *team->member),
                            .server = sh_alloc(servers + 1, sizeof *team->server),
                            .roll = sh_alloc(2 * slots, sizeof *team->roll),
                            .ranks = options->slots};
    if (team->member == NULL || team->server == NULL || team->roll == NULL) {
        sh_membership_fini(team);
        return SH_FAIL(SH_E_MEMORY, "out of memory for a team of %d workers", options->slots);
    }
    for (int i = 0; i < options->slots; i++) {
        team->member[i].state = SH_MEMBER_STARTS;
        team->roll[i] = i;
    }
    for (int i = 0; i < options->servers; i++) team->server[i] = SH_SERVER_SERVES;
    return SH_OK;
}

void sh_membership_fini(sh_membership *team) {
    sh_free(team->member);
    sh_free(team->server);
    sh_free(team->roll);
    *team = (sh_membership){0};
}

int sh_membership_rank(const sh_membership *team, int slot) {
    if (slot >= team->options.slots) return team->ranks + slot - team->options.slots;
    for (int rank = 0; rank < team->ranks; rank++)
        if (team->roll[rank] == slot) return rank;
    return -1;
}

static bool lives(const sh_membership *team, int slot) {
    return team->member[slot].state != SH_MEMBER_GONE;
}

/* The host has prepared for generations_most generations, and no further one can begin. */
static bool is_spent(const sh_membership *team) {
    return team->newest + 1 >= team->options.generations_most;
}

/* The roll of the next generation into `roll_out`, which may be NULL; how many of it hold the
 * model. */
static int call_roll(const sh_membership *team, int *roll_out, int *count_out) {
    int count = 0;
    for (int rank = 0; rank < team->ranks; rank++) {
        if (!sh_membership_holds(team, team->roll[rank])) continue;
        if (roll_out != NULL) roll_out[count] = team->roll[rank];
        count++;
    }
    int holders = count;
    for (int slot = 0; slot < team->options.slots; slot++) {
        if (team->member[slot].state != SH_MEMBER_READY) continue;
        if (roll_out != NULL) roll_out[count] = slot;
        count++;
    }
    *count_out = count;
    return holders;
}

/* Living members of the newest generation that hold the model; 0: no worker has it any more. */
static int holders_of(const sh_membership *team) {
    int count;
    return call_roll(team, NULL, &count);
}

/* A state told before a death may be read after it, and must not bring the slot to life again. */
void sh_membership_tells(sh_membership *team, int slot, sh_member_state state, int generation) {
    if (lives(team, slot)) team->member[slot] = (sh_member){state, generation};
}

/* Nothing is done for a slot any more. */
static void release_slot(sh_membership *team, int slot, sh_server_state server) {
    if (slot >= team->options.slots)
        team->server[slot - team->options.slots] = server;
    else
        team->member[slot] = (sh_member){SH_MEMBER_GONE, team->newest};
}

void sh_membership_ended(sh_membership *team, int slot) {
    bool serves = slot >= team->options.slots;
    if (serves && team->server[slot - team->options.slots] == SH_SERVER_GONE) return;
    release_slot(team, slot, SH_SERVER_IDLE);
}

/* Whoever starts in the newest generation has not got the model yet, and nobody can tell from whom
 * it is getting it. */
static bool has_starter(const sh_membership *team) {
    for (int rank = 0; rank < team->ranks; rank++)
        if (team->member[team->roll[rank]].state == SH_MEMBER_STARTS) return true;
    return false;
}

bool sh_membership_died(sh_membership *team, int slot) {
    bool member = sh_membership_rank(team, slot) >= 0;
    release_slot(team, slot, SH_SERVER_GONE);
    // Nobody waits for a slot without a rank in the newest generation.
    if (!member) return true;
    if (team->restarts >= team->options.restarts_most || is_spent(team)) return false;
    if (holders_of(team) == 0 || has_starter(team)) return false;
    team->over = true;
    return true;
}

sh_replacement sh_membership_replace(sh_membership *team, int slot) {
    if (team->restarts >= team->options.restarts_most) return SH_REPLACED_BY_NOBODY;
    team->restarts++;
    bool serves = slot >= team->options.slots;
    if (!serves && team->options.elastic) return SH_REPLACED_BY_NONE_ASKED_FOR;
    sh_membership_returns(team, slot);
    return serves ? SH_REPLACED_BY_SERVER : SH_REPLACED_BY_WORKER;
}

void sh_membership_returns(sh_membership *team, int slot) {
    if (slot >= team->options.slots)
        team->server[slot - team->options.slots] = SH_SERVER_IDLE;
    else
        team->member[slot] = (sh_member){SH_MEMBER_STARTS, team->newest};
}

/* Asked before a worker that hangs is killed: false means that the kill would end the attempt. */
bool sh_membership_can_lose(const sh_membership *team, int slot) {
    if (team->restarts >= team->options.restarts_most || is_spent(team)) return false;
    if (slot >= team->options.slots) return holders_of(team) > 0;
    return sh_membership_holds(team, slot) && holders_of(team) > 1;
}

/* With all generations spent nobody can be let in, and a meeting for it would be in vain. */
bool sh_membership_wished(const sh_membership *team) {
    for (int slot = 0; slot < team->options.slots && !is_spent(team); slot++)
        if (team->member[slot].state == SH_MEMBER_READY && sh_membership_rank(team, slot) < 0)
            return true;
    return false;
}

static bool anybody_lives(const sh_membership *team) {
    for (int slot = 0; slot < team->options.slots; slot++)
        if (lives(team, slot)) return true;
    return false;
}

/* What servers leave in their snapshots is what the others go on with, so the next generation waits
 * until none serves, and until there is a place for each. */
static sh_team_move follow(sh_membership *team) {
    for (int i = 0; i < team->options.servers; i++)
        if (team->server[i] != SH_SERVER_IDLE) return SH_TEAM_STAYS;
    if (!anybody_lives(team)) return SH_TEAM_STAYS;
    int *next = team->roll + team->options.slots, count;
    if (call_roll(team, next, &count) == 0) return SH_TEAM_LOST;
    for (int rank = 0; rank < count; rank++) team->roll[rank] = next[rank];
    for (int i = 0; i < team->options.servers; i++) team->server[i] = SH_SERVER_SERVES;
    team->ranks = count;
    team->newest++;
    team->over = team->announced = false;
    return SH_TEAM_BEGINS;
}

/* Living members, and how many of them have left the newest generation again; those who could not
 * even take the model there are ready once more. */
static int count_living(const sh_membership *team, int *waiting_out) {
    int living = 0;
    *waiting_out = 0;
    for (int rank = 0; rank < team->ranks; rank++) {
        const sh_member *member = &team->member[team->roll[rank]];
        living += member->state != SH_MEMBER_GONE;
        bool left = member->state == SH_MEMBER_WAITS || member->state == SH_MEMBER_READY;
        *waiting_out += left && member->generation == team->newest;
    }
    return living;
}

sh_team_move sh_membership_move(sh_membership *team) {
    if (team->over && !team->announced) {
        team->announced = true;
        return SH_TEAM_ENDS;
    }
    if (team->over) return follow(team);
    int waiting, living = count_living(team, &waiting);
    if (living == 0) {
        // SH_TEAM_DONE is told once; the host calls again until the team stays.
        bool told = team->done;
        team->done = true;
        return told ? SH_TEAM_STAYS : SH_TEAM_DONE;
    }
    if (waiting < living) return SH_TEAM_STAYS;
    // All living members have left the newest generation, so the next one is due.
    if (is_spent(team)) return SH_TEAM_SPENT;
    team->over = true;
    return sh_membership_move(team);
}
