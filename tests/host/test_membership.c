/* The supervisor as a state machine: by hand, and under thousands of random fault schedules with
 * workers that are a few states each. SEEDS=N runs more schedules, SEED=N one of them. */
#include "host/membership.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "harness.h"

static sh_membership team_of(int slots, int servers, int generations, int64_t restarts) {
    sh_membership team;
    CHECK_OK(sh_membership_init(&team, &(sh_membership_options){.slots = slots,
                                                                .servers = servers,
                                                                .generations_most = generations,
                                                                .restarts_most = restarts}));
    return team;
}

static void all_train(sh_membership *team) {
    for (int rank = 0; rank < team->ranks; rank++)
        sh_membership_tells(team, team->roll[rank], SH_MEMBER_TRAINS, team->newest);
}

static void check_roll(const sh_membership *team, const char *slots) {
    char text[64] = "";
    for (int rank = 0; rank < team->ranks; rank++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%d", team->roll[rank]);
    assert_string_equal(text, slots);
}

TEST(membership, lets_the_others_go_on_and_the_newcomer_join_when_they_have_met) {
    sh_membership team = team_of(4, 0, 5, 2);
    all_train(&team);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_STAYS);
    assert_true(sh_membership_died(&team, 1));
    assert_int_equal(sh_membership_move(&team), SH_TEAM_ENDS);
    assert_int_equal(sh_membership_replace(&team, 1), SH_REPLACED_BY_WORKER);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_BEGINS);
    check_roll(&team, "023");
    all_train(&team);
    assert_false(sh_membership_wished(&team));
    sh_membership_tells(&team, 1, SH_MEMBER_READY, 1);
    assert_true(sh_membership_wished(&team));
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(sh_membership_move(&team), SH_TEAM_STAYS);
        sh_membership_tells(&team, team.roll[rank], SH_MEMBER_WAITS, 1);
    }
    assert_int_equal(sh_membership_move(&team), SH_TEAM_ENDS);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_BEGINS);
    check_roll(&team, "0231");  // who had the model comes first
    assert_int_equal(sh_membership_rank(&team, 1), 3);
    sh_membership_fini(&team);
}

TEST(membership, ends_the_run_when_nobody_can_go_on) {
    sh_membership team = team_of(3, 0, 5, 2);
    assert_false(sh_membership_died(&team, 0));  // the others still start
    sh_membership_fini(&team);

    team = team_of(2, 0, 5, 1);
    all_train(&team);
    assert_true(sh_membership_died(&team, 0));
    assert_int_equal(sh_membership_replace(&team, 0), SH_REPLACED_BY_WORKER);
    assert_false(sh_membership_died(&team, 1));  // the restart is used up
    sh_membership_fini(&team);

    team = team_of(2, 0, 1, 9);
    all_train(&team);
    assert_false(sh_membership_can_lose(&team, 0));
    assert_false(sh_membership_died(&team, 0));  // no further generation
    sh_membership_fini(&team);

    team = team_of(2, 1, 9, 9);
    all_train(&team);
    assert_true(sh_membership_died(&team, 0));
    assert_int_equal(sh_membership_replace(&team, 0), SH_REPLACED_BY_WORKER);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_ENDS);
    assert_false(sh_membership_died(&team, 1));  // while the server still ends
    sh_membership_fini(&team);
}

TEST(membership, cannot_go_on_while_a_member_still_takes_the_model) {
    sh_membership team = team_of(3, 0, 5, 2);
    sh_membership_tells(&team, 0, SH_MEMBER_TRAINS, 0);
    sh_membership_tells(&team, 1, SH_MEMBER_TRAINS, 0);
    assert_false(sh_membership_died(&team, 0));  // it may have been giving the model to slot 2
    sh_membership_fini(&team);
}

TEST(membership, waits_for_its_servers_before_the_next_generation) {
    sh_membership team = team_of(2, 2, 5, 2);
    all_train(&team);
    assert_true(sh_membership_died(&team, 2));  // a server
    assert_int_equal(sh_membership_replace(&team, 2), SH_REPLACED_BY_SERVER);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_ENDS);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_STAYS);
    sh_membership_ended(&team, 3);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_BEGINS);
    check_roll(&team, "01");
    sh_membership_fini(&team);
}

TEST(membership, ends_newcomers_once_all_members_have_ended) {
    sh_membership team = team_of(2, 0, 5, 2);
    all_train(&team);
    sh_membership_ended(&team, 0);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_STAYS);
    sh_membership_ended(&team, 1);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_DONE);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_STAYS);
    sh_membership_fini(&team);
}

TEST(membership, counts_on_nobody_who_had_no_time_to_take_the_model) {
    sh_membership team = team_of(3, 0, 9, 9);
    all_train(&team);
    assert_true(sh_membership_died(&team, 2));
    assert_int_equal(sh_membership_replace(&team, 2), SH_REPLACED_BY_WORKER);
    sh_membership_tells(&team, 2, SH_MEMBER_READY, 0);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_ENDS);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_BEGINS);
    check_roll(&team, "012");
    sh_membership_tells(&team, 0, SH_MEMBER_WAITS, 1);  // the sums of this generation failed
    sh_membership_tells(&team, 1, SH_MEMBER_WAITS, 1);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_STAYS);
    sh_membership_tells(&team, 2, SH_MEMBER_READY, 1);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_ENDS);
    assert_int_equal(sh_membership_move(&team), SH_TEAM_BEGINS);
    check_roll(&team, "012");
    sh_membership_fini(&team);
}

TEST(membership, ignores_what_the_dead_had_told) {
    sh_membership team = team_of(3, 0, 5, 2);
    all_train(&team);
    assert_true(sh_membership_died(&team, 2));
    sh_membership_tells(&team, 2, SH_MEMBER_TRAINS, 0);
    assert_false(sh_membership_holds(&team, 2));
    sh_membership_fini(&team);
}

/* ---- Random schedules ---- */

enum { SLOTS_MOST = 6, SERVERS_MOST = 2, TICKS_MOST = 20000 };

/* A worker as the machine sees it. */
typedef struct process {
    bool lives, hangs;
    sh_member_state state;
    int generation;  // that it is in, or was in last
    int position;    // steps that are in its model
} process;

typedef struct schedule {
    uint64_t seed;
    sh_rng rng;
    sh_membership team;
    process worker[SLOTS_MOST];
    bool serves[SERVERS_MOST];
    int base, goal;  // where the newest generation began, and the end of the run
    int left;        // the newest generation that its members have agreed to leave
    int deaths_left;
    bool finished, failed;
} schedule;

static bool chance(schedule *s, int percent) {
    return sh_rng_below(&s->rng, 100) < (uint64_t)percent;
}

static bool is_member(const schedule *s, int slot) {
    return sh_membership_rank(&s->team, slot) >= 0;
}

static void tell(schedule *s, int slot, sh_member_state state) {
    process *w = &s->worker[slot];
    w->state = state;
    sh_membership_tells(&s->team, slot, state, w->generation);
}

static void check_generation(const schedule *s, const int *before, int ranks_before, int newest) {
    const sh_membership *team = &s->team;
    bool joiners = false;
    int at = 0;
    if (team->newest != newest + 1 || team->ranks < 1 ||
        team->newest >= team->options.generations_most)
        fail_msg("seed %lu: generation %d of %d ranks", (unsigned long)s->seed, team->newest,
                 team->ranks);
    for (int rank = 0; rank < team->ranks; rank++) {
        const process *w = &s->worker[team->roll[rank]];
        bool holds = w->state >= SH_MEMBER_TRAINS;
        if (!w->lives || (holds && joiners) || (rank == 0 && !holds))
            fail_msg("seed %lu: rank %d of generation %d", (unsigned long)s->seed, rank,
                     team->newest);
        joiners = joiners || !holds;
        while (holds && at < ranks_before && before[at] != team->roll[rank]) at++;
        if (holds && at == ranks_before)
            fail_msg("seed %lu: holders change their order", (unsigned long)s->seed);
        for (int r = 0; r < rank; r++) assert_int_not_equal(team->roll[r], team->roll[rank]);
    }
    for (int i = 0; i < team->options.servers; i++)
        if (s->serves[i]) fail_msg("seed %lu: a server of before serves", (unsigned long)s->seed);
}

/* What a host does with the machine's moves. */
static void follow(schedule *s) {
    for (;;) {
        int before[SLOTS_MOST], ranks = s->team.ranks, newest = s->team.newest;
        memcpy(before, s->team.roll, (size_t)ranks * sizeof *before);
        switch (sh_membership_move(&s->team)) {
            case SH_TEAM_STAYS:
                return;
            case SH_TEAM_ENDS:
                break;
            case SH_TEAM_BEGINS:
                check_generation(s, before, ranks, newest);
                for (int rank = 0; rank < s->team.ranks; rank++) {
                    const process *w = &s->worker[s->team.roll[rank]];
                    if (w->state >= SH_MEMBER_TRAINS && w->position > s->base)
                        s->base = w->position;
                }
                for (int i = 0; i < s->team.options.servers; i++) s->serves[i] = true;
                break;
            case SH_TEAM_DONE:
                s->finished = true;
                return;
            case SH_TEAM_LOST:
            case SH_TEAM_SPENT:
                s->failed = true;
                return;
        }
    }
}

static void die(schedule *s, int slot) {
    int slots = s->team.options.slots;
    bool serves = slot >= slots;
    if (serves)
        s->serves[slot - slots] = false;
    else
        s->worker[slot].lives = false;
    if (!sh_membership_died(&s->team, slot)) {
        s->failed = true;
        return;
    }
    sh_replacement who = sh_membership_replace(&s->team, slot);
    assert_true(s->team.restarts <= s->team.options.restarts_most);
    if (who == SH_REPLACED_BY_WORKER)
        s->worker[slot] =
            (process){.lives = true, .state = SH_MEMBER_STARTS, .generation = s->team.newest};
}

static bool all_train_in(const schedule *s, int generation) {
    for (int rank = 0; rank < s->team.ranks; rank++) {
        const process *w = &s->worker[s->team.roll[rank]];
        if (!w->lives || w->state != SH_MEMBER_TRAINS || w->generation != generation) return false;
    }
    return true;
}

static void enter(schedule *s, int slot) {
    process *w = &s->worker[slot];
    w->generation = s->team.newest;
    w->position = s->base;
    tell(s, slot, SH_MEMBER_TRAINS);
}

/* Some time passes for one worker. */
static void act(schedule *s, int slot) {
    process *w = &s->worker[slot];
    bool over = s->team.over || s->team.newest > w->generation;
    switch (w->state) {
        case SH_MEMBER_GONE:
            return;
        case SH_MEMBER_STARTS:
            if (s->team.newest == 0 && is_member(s, slot))
                enter(s, slot);
            else
                tell(s, slot, SH_MEMBER_READY);
            return;
        case SH_MEMBER_READY:
        case SH_MEMBER_WAITS:
            if (s->team.newest > w->generation && is_member(s, slot)) enter(s, slot);
            return;
        case SH_MEMBER_TRAINS:
            if (over || s->left == w->generation) tell(s, slot, SH_MEMBER_WAITS);
            return;
    }
}

/* Workers in lockstep: a step is one of all members, or of nobody, and so is the agreement to let
 * somebody join. */
static void step_together(schedule *s) {
    if (s->team.over || !all_train_in(s, s->team.newest)) return;
    for (int rank = 0; rank < s->team.ranks; rank++) {
        process *w = &s->worker[s->team.roll[rank]];
        if (w->hangs) return;
    }
    if (sh_membership_wished(&s->team)) s->left = s->team.newest;
    for (int rank = 0; rank < s->team.ranks; rank++) s->worker[s->team.roll[rank]].position++;
    if (s->worker[s->team.roll[0]].position < s->goal) return;
    for (int rank = 0; rank < s->team.ranks; rank++) {
        s->worker[s->team.roll[rank]].lives = false;
        sh_membership_ended(&s->team, s->team.roll[rank]);
    }
}

static void tick(schedule *s) {
    int slots = s->team.options.slots, servers = s->team.options.servers;
    for (int slot = 0; slot < slots; slot++) {
        process *w = &s->worker[slot];
        if (!w->lives || s->failed) continue;
        if (s->deaths_left > 0 && chance(s, 1)) {
            s->deaths_left--;
            if (chance(s, 70)) {
                die(s, slot);
                continue;
            }
            w->hangs = true;
        }
        if (w->hangs && chance(s, 10)) {  // the watchdog
            if (sh_membership_can_lose(&s->team, slot))
                die(s, slot);
            else
                s->failed = true;
        } else if (!w->hangs && chance(s, 40)) {
            act(s, slot);
        }
    }
    for (int i = 0; i < servers && !s->failed; i++) {
        if (!s->serves[i]) continue;
        if (s->deaths_left > 0 && chance(s, 1)) {
            s->deaths_left--;
            die(s, slots + i);
        } else if (s->team.over && chance(s, 30)) {
            s->serves[i] = false;
            sh_membership_ended(&s->team, slots + i);
        }
    }
    if (!s->failed) step_together(s);
    if (!s->failed) follow(s);
}

static void run_schedule(uint64_t seed, int *finished, int *regrouped) {
    schedule s = {.seed = seed, .left = -1, .rng = sh_rng_stream(seed, SH_RNG_TEST, 0, 0)};
    sh_membership_options options = {
        .slots = 1 + (int)sh_rng_below(&s.rng, SLOTS_MOST),
        .servers = (int)sh_rng_below(&s.rng, SERVERS_MOST + 1),
        .restarts_most = (int64_t)sh_rng_below(&s.rng, 6),
        .elastic = chance(&s, 30),
    };
    options.generations_most = 1 + (int)sh_rng_below(&s.rng, 12);
    s.goal = 5 + (int)sh_rng_below(&s.rng, 60);
    s.deaths_left = (int)sh_rng_below(&s.rng, 8);
    CHECK_OK(sh_membership_init(&s.team, &options));
    for (int i = 0; i < options.slots; i++)
        s.worker[i] = (process){.lives = true, .state = SH_MEMBER_STARTS};
    for (int i = 0; i < options.servers; i++) s.serves[i] = true;
    int ticks = 0;
    while (!s.finished && !s.failed && ticks++ < TICKS_MOST) tick(&s);
    if (!s.finished && !s.failed)
        fail_msg("seed %lu: nothing happens in generation %d (SEED=%lu runs it alone)",
                 (unsigned long)seed, s.team.newest, (unsigned long)seed);
    // No step is lost or done twice: the next generation goes on from the farthest position.
    for (int rank = 0; s.finished && rank < s.team.ranks; rank++)
        assert_int_equal(s.worker[s.team.roll[rank]].position, s.goal);
    *finished += s.finished;
    *regrouped += s.finished && s.team.newest > 0;
    sh_membership_fini(&s.team);
}

TEST(membership, neither_hangs_nor_loses_steps_under_random_faults) {
    const char *only = getenv("SEED"), *many = getenv("SEEDS");
    int64_t seeds = many != NULL ? atol(many) : 2000;
    int finished = 0, regrouped = 0;
    if (only != NULL) {
        run_schedule(strtoull(only, NULL, 10), &finished, &regrouped);
        return;
    }
    for (int64_t seed = 0; seed < seeds; seed++)
        run_schedule((uint64_t)seed, &finished, &regrouped);
    // Most runs end well, and many of them after they have regrouped: the faults are real.
    assert_true(finished > seeds / 3);
    assert_true(regrouped > seeds / 10);
    assert_true(finished < seeds);
}
