/* Workers that look at each other: a replica that drifted, and what messages cost. */
#include "run/team.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/task.h"
#include "comm/engines.h"
#include "harness.h"
#include "run/costs.h"
#include "run/run.h"

enum { PARAMS = 1000 };

/* Which ranks drift, as bits, each by another amount unless `alike`. */
typedef struct drift {
    unsigned who;
    bool alike;
} drift;

static sh_status look(sh_engine *engine, void *argument) {
    const drift *job = argument;
    float weights[PARAMS] = {0};
    sh_net net = {.params.total = PARAMS};
    shoal_run *run = sh_alloc(1, sizeof *run);
    SH_ASSERT(run != NULL);
    int rank = sh_engine_rank(engine);
    run->team =
        (sh_team){.group = sh_engine_world(engine), .rank = rank, .ranks = sh_engine_ranks(engine)};
    run->config.check_every = 10;
    run->model.net = &net;
    run->model.blocks.weights = weights;
    if (job->who >> rank & 1) weights[777] = job->alike ? 1e-7f : 1e-7f * (float)(rank + 1);
    run->at.step = 19;  // not yet looked at
    sh_status status = sh_team_check_replicas(run);
    run->at.step = 20;
    if (status == SH_OK) status = sh_team_check_replicas(run);
    sh_free(run);
    return status;
}

TEST(team, equal_replicas_are_left_alone) { CHECK_OK(run_engines(3, NULL, look, &(drift){0})); }

TEST(team, the_replica_that_drifted_is_named) {
    for (int rank = 0; rank < 4; rank++) {
        char text[64];
        snprintf(text, sizeof text, "step 20: the parameters of rank %d differ", rank);
        CHECK_FAILS(SH_E_NUMERIC, text, run_engines(4, NULL, look, &(drift){1u << rank, false}));
    }
    CHECK_FAILS(SH_E_NUMERIC, "rank 1 differ", run_engines(2, NULL, look, &(drift){2, false}));
}

TEST(team, several_that_drifted_are_counted) {
    CHECK_FAILS(SH_E_NUMERIC, "the parameters of 2 of 4 ranks differ from rank 0's",
                run_engines(4, NULL, look, &(drift){6, false}));
    CHECK_FAILS(SH_E_NUMERIC, "the parameters of 2 of 3 ranks differ from rank 0's",
                run_engines(3, NULL, look, &(drift){6, false}));
}

/* ---- Patience while rank 0 writes a checkpoint ---- */

static void take_steps(sh_team *team, int count) {
    for (int i = 0; i < count; i++) sh_team_phase(team, SH_PHASE_STEP, i);
}

static sh_team patient_team(sh_engine *engine, sh_rank_status *board, sh_wait_limits *wait_limits) {
    return (sh_team){.group = sh_engine_world(engine),
                     .rank = sh_engine_rank(engine),
                     .ranks = sh_engine_ranks(engine),
                     .board = board,
                     .wait_limits = wait_limits,
                     .env = {.clock = &sh_clock_real}};
}

/* Rank 0 has its checkpoint when all others are many steps ahead of it. */
static sh_status write_late(sh_engine *engine, void *argument) {
    _Atomic int *ahead = argument;
    sh_rank_status board = {0};
    sh_wait_limits wait_limits = {0};
    sh_team team = patient_team(engine, &board, &wait_limits);
    take_steps(&team, 3);
    double step_s = wait_limits.limit_s;
    sh_team_writing(&team, 3);
    double write_s = wait_limits.limit_s, ahead_s = write_s;
    if (team.rank == 0)
        while (atomic_load(ahead) < team.ranks - 1) sh_task_yield();
    sh_status status = sh_team_wrote(&team, 3);
    if (team.rank > 0) {
        take_steps(&team, 10);
        ahead_s = wait_limits.limit_s;
        atomic_fetch_add(ahead, 1);
    }
    while (status == SH_OK && team.writes) take_steps(&team, 1);
    take_steps(&team, 2);
    sh_team_fini(&team);
    SH_TRY(status);
    if (write_s > step_s && ahead_s == write_s && wait_limits.limit_s == step_s) return SH_OK;
    return SH_FAIL(SH_E_FORMAT, "rank %d: %g s in steps, %g while it is written, then %g",
                   team.rank, step_s, ahead_s, wait_limits.limit_s);
}

TEST(team, waits_longer_for_rank_0_until_its_checkpoint_is_written) {
    _Atomic int ahead = 0;
    const sh_engine_options options = {.task = true};
    CHECK_OK(run_engines(3, &options, write_late, &ahead));
}

/* The last rank does not come to the meeting before rank 0 has looked at its own limit. */
static sh_status write_without_last(sh_engine *engine, void *argument) {
    _Atomic bool *looked = argument;
    sh_rank_status board = {0};
    sh_wait_limits wait_limits = {0};
    sh_team team = patient_team(engine, &board, &wait_limits);
    take_steps(&team, 3);
    double step_s = wait_limits.limit_s;
    while (team.rank == team.ranks - 1 && !atomic_load(looked)) sh_task_yield();
    sh_team_writing(&team, 3);
    double write_s = wait_limits.limit_s;
    sh_status status = sh_team_wrote(&team, 3);
    take_steps(&team, 1);
    double after_s = wait_limits.limit_s;
    if (team.rank == 0) atomic_store(looked, true);
    sh_team_fini(&team);
    SH_TRY(status);
    if (team.rank > 0 || (write_s > step_s && after_s == step_s)) return SH_OK;
    return SH_FAIL(SH_E_FORMAT, "%g s in steps, %g while it is written, then %g", step_s, write_s,
                   after_s);
}

TEST(team, rank_0_waits_for_nobody_longer_once_its_checkpoint_is_written) {
    _Atomic bool looked = false;
    const sh_engine_options options = {.task = true};
    CHECK_OK(run_engines(3, &options, write_without_last, &looked));
}

TEST(team, only_rank_0_tells_a_parent_that_it_writes) {
    for (int rank = 0; rank < 2; rank++) {
        sh_rank_status board = {0};
        sh_team team = {
            .rank = rank, .ranks = 2, .board = &board, .env = {.clock = &sh_clock_real}};
        take_steps(&team, 2);
        sh_team_writing(&team, 2);
        assert_int_equal(board.phase, rank == 0 ? SH_PHASE_CHECKPOINT : SH_PHASE_STEP);
        CHECK_OK(sh_team_wrote(&team, 2));
        assert_int_equal(board.phase, SH_PHASE_STEP);
    }
}

TEST(costs, are_read_as_they_were_written) {
    sh_costs costs = {.link = {4e-5, 8.5e-9, 5e-11},
                      .node_link = {4e-7, 1e-10, 5e-11},
                      .large = sh_algorithm_find(SH_ALLREDUCE, "ring")};
    sh_costs read = {0};
    char text[SH_COSTS_TEXT], again[SH_COSTS_TEXT];
    assert_true(sh_costs_parse(sh_costs_print(&costs, text), &read));
    assert_memory_equal(&read, &costs, sizeof costs);
    costs.large = NULL;
    costs.link.alpha_s = 1.0 / 3;  // rounded once, and then for good
    assert_true(sh_costs_parse(sh_costs_print(&costs, text), &read));
    assert_string_equal(sh_costs_print(&read, again), text);
}

TEST(costs, that_make_no_sense_are_measured_anew) {
    static const char *const texts[] = {
        "",
        "link 1 1 1",
        "link 0 1 1 node 1 1 1 large -",
        "link nan 1 1 node 1 1 1 large -",
        "link 1 -1 1 node 1 1 1 large -",
        "link 1e300 1e-9 1e-10 node 1e-6 1e-10 1e-10 large -",
        "link 1e-300 1e-9 1e-10 node 1e-6 1e-10 1e-10 large -",
        "link 1e-5 1e300 1e-10 node 1e-6 1e-10 1e-10 large -",
        "link 1e-5 1e-300 1e-10 node 1e-6 1e-10 1e-10 large -",
        "link 1e-5 1e-9 1e300 node 1e-6 1e-10 1e-10 large -",
        "link 1e-5 1e-9 1e-10 node 1e300 1e-10 1e-10 large -",
        "link 1e-5 1e-9 1e-10 node 1e-6 1e-300 1e-10 large -",
        "link 1e-5 1e-9 1e-10 node 1e-6 1e-10 inf large -",
        "link 1 1 1 node 1 1 1 large star",
        "link 1 1 1 node 1 1 1 large mpi",
        "link 1 1 1 node 1 1 1 large ring and more",
    };
    sh_costs costs;
    for (size_t i = 0; i < SH_COUNT(texts); i++)
        if (sh_costs_parse(texts[i], &costs)) fail_msg("'%s' was taken", texts[i]);
}

/* From a satellite's kilobyte a second to memory faster than any. */
TEST(costs, of_every_network_there_is_are_taken) {
    static const char *const texts[] = {
        "link 10 1e-3 1e-9 node 1e-6 1e-10 1e-10 large -",
        "link 5e-5 8e-9 1e-10 node 5e-8 1e-12 1e-12 large ring",
        "link 1e-9 1e-13 0 node 1e-9 1e-13 0 large -",
    };
    sh_costs costs;
    for (size_t i = 0; i < SH_COUNT(texts); i++)
        if (!sh_costs_parse(texts[i], &costs)) fail_msg("'%s' was refused", texts[i]);
}

TEST(costs, only_another_network_makes_links_differ) {
    sh_link link = {8e-6, 8.5e-9, 5e-11}, busy = {2e-4, 1.7e-8, 1e-9};
    sh_link slow = {4e-5, 8.5e-8, 5e-11}, far = {1e-3, 8.5e-9, 5e-11};
    assert_false(sh_links_differ(&link, &link));
    assert_false(sh_links_differ(&link, &busy));
    assert_false(sh_links_differ(&busy, &link));
    assert_true(sh_links_differ(&link, &slow));
    assert_true(sh_links_differ(&slow, &link));
    assert_true(sh_links_differ(&link, &far));
}

static sh_status calibrate(sh_engine *engine, void *argument) {
    (void)argument;
    sh_costs costs = {.link = {4e-5, 8.5e-9, 5e-11},
                      .node_link = {4e-7, 1e-10, 5e-11},
                      .large = sh_algorithm_find(SH_ALLREDUCE, "ring")};
    SH_TRY(sh_engine_set_costs(engine, &costs));
    sh_costs measured;
    SH_TRY(sh_engine_calibrate(engine, &measured));
    if (measured.large != NULL)
        return SH_FAIL(SH_E_NUMERIC, "something was tried where all memory is mapped");
    return sh_engine_barrier(engine);
}

TEST(costs, nothing_is_tried_where_memory_is_mapped) {
    CHECK_OK(run_engines(3, NULL, calibrate, NULL));
}
