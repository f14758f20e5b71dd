/* The other collectives, groups, calls under way together, what a call allocates, and waits that
 * end in words. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/engine_cases.h"
#include "harness.h"

#define EXPECT(condition, ...) \
    if (!(condition)) return SH_FAIL(SH_E_NUMERIC, __VA_ARGS__)

TEST(engine, collectives_equal_the_serial_result) {
    for (int ranks = 1; ranks <= 17; ranks += ranks < 9 ? 1 : 4)
        CHECK_OK(run_engines(ranks, NULL, engine_collectives, NULL));
}

TEST(engine, groups_call_among_themselves) {
    CHECK_OK(run_engines(5, NULL, engine_groups, NULL));
    CHECK_OK(run_engines(5, &(sh_engine_options){.task = true}, engine_groups, NULL));
}

TEST(engine, groups_that_share_ranks_agree_on_their_ids) {
    CHECK_OK(run_engines(5, NULL, engine_overlapping_groups, NULL));
    CHECK_OK(run_engines(5, &(sh_engine_options){.task = true}, engine_overlapping_groups, NULL));
}

TEST(engine, many_calls_are_under_way_and_end_in_any_order) {
    for (int polls = 0; polls < 2; polls++) {
        bool how = polls != 0;
        CHECK_OK(run_engines(2, NULL, engine_many_at_once, &how));
        CHECK_OK(run_engines(5, NULL, engine_many_at_once, &how));
        CHECK_OK(run_engines(3, &(sh_engine_options){.task = true}, engine_many_at_once, &how));
    }
}

/* ---- Sums that are worked on on their way -----------------------------------------------------
 */

enum { WORKED_MOST = 100000 };  // elements: several parts

typedef struct worker {
    sh_shared values, results, states;
    int64_t *data, *result;
    int64_t *state;  // one for all ranks, as an optimizer has it
    int rank;
    size_t parts;  // that this rank has worked on
} worker;

/* Adds the sums to what the state of all says, and that to the result. */
static void add_up(void *self, const sh_call *call, sh_range part) {
    worker *w = self;
    const int64_t *sums = call->data;
    w->parts++;
    for (size_t i = part.first; i < part.first + part.count; i++) {
        w->state[i] += sums[i];
        w->result[i] += w->state[i];
    }
}

/* Every element was worked on once, by whomever, and all ranks have the result. */
static sh_status check_round(const worker *w, int ranks, size_t count, int64_t round) {
    int64_t rounds = round * (round + 1) / 2;  // 1 + 2 + ... + round
    for (size_t i = 0; i < count; i++) {
        int64_t sum = 0;
        for (int r = 0; r < ranks; r++) sum += engine_value(SH_SUM, r, i);
        EXPECT(w->state[i] == round * sum, "round %ld: state of %zu", (long)round, i);
        EXPECT(w->result[i] == rounds * sum, "round %ld: result of %zu", (long)round, i);
    }
    return SH_OK;
}

static sh_status work_round(sh_engine *engine, worker *w, size_t count, int64_t round) {
    engine_fill(w->data, SH_DTYPE_I64, SH_SUM, w->rank, count);
    sh_call call = {
        .what = SH_ALLREDUCE,
        .data = w->data,
        .count = count,
        .dtype = SH_DTYPE_I64,
        .shared = &w->values,
        .fused = {.work = add_up, .self = w, .result = w->result, .shared = &w->results},
        .bucket = 0,
    };
    SH_TRY(sh_engine_start(engine, &call));
    // Who has something else to do leaves the work to those who wait.
    size_t parts = w->parts;
    for (int i = 0; i < 20; i++) sh_engine_test(engine, &call);
    EXPECT(w->parts == parts, "worked without waiting");
    SH_TRY(sh_engine_wait(engine, &call));
    SH_TRY(check_round(w, sh_engine_ranks(engine), count, round));
    return sh_engine_barrier(engine);
}

static sh_status work_on_sums(sh_engine *engine, void *argument) {
    (void)argument;
    size_t bytes = WORKED_MOST * sizeof(int64_t), ranks = (size_t)sh_engine_ranks(engine);
    worker w = {.rank = sh_engine_rank(engine)};
    EXPECT(sh_engine_maps(engine), "nothing is mapped");
    SH_TRY(sh_engine_share(engine, bytes, &w.values));
    SH_TRY(sh_engine_share(engine, bytes, &w.results));
    SH_TRY(sh_engine_share(engine, (bytes + ranks - 1) / ranks, &w.states));
    EXPECT(w.states.stride * ranks >= bytes, "the parts do not lie in a row");
    w.data = (int64_t *)(void *)w.values.base[w.rank];
    w.result = (int64_t *)(void *)w.results.base[w.rank];
    w.state = (int64_t *)(void *)w.states.base[0];
    static const size_t counts[] = {1, 17, 9000, WORKED_MOST};
    for (size_t i = 0; i < SH_COUNT(counts); i++) {
        memset(w.result, 0, bytes);
        if (w.rank == 0) memset(w.state, 0, bytes);
        SH_TRY(sh_engine_barrier(engine));
        for (int64_t round = 1; round <= 5; round++)
            SH_TRY(work_round(engine, &w, counts[i], round));
    }
    sh_engine_unshare(engine, &w.values);
    sh_engine_unshare(engine, &w.results);
    sh_engine_unshare(engine, &w.states);
    return SH_OK;
}

TEST(engine, sums_are_worked_on_once_by_whoever_waits) {
    for (int ranks = 2; ranks <= 7; ranks++) CHECK_OK(run_engines(ranks, NULL, work_on_sums, NULL));
}

/* A call that nobody could work on is refused, and the engine goes on. */
static sh_status refuse_work(sh_engine *engine, void *argument) {
    const bool *maps = argument;
    EXPECT(sh_engine_maps(engine) == *maps, "maps");
    int64_t data[4] = {1, 2, 3, 4};
    worker w = {.data = data, .result = data, .state = data};
    sh_call call = SH_CALL(.what = SH_ALLREDUCE, .data = data, .count = 4, .dtype = SH_DTYPE_I64,
                           .fused = {.work = add_up, .self = &w, .result = data});
    EXPECT(sh_engine_run(engine, &call) == SH_E_UNSUPPORTED, "taken");
    return sh_engine_barrier(engine);
}

TEST(engine, work_on_sums_needs_mapped_memory) {
    bool yes = true, no = false;
    CHECK_OK(run_engines(2, NULL, refuse_work, &yes));
    CHECK_OK(run_engines(2, &(sh_engine_options){.algorithm = "ring"}, refuse_work, &no));
    CHECK_OK(run_engines(2, &(sh_engine_options){.task = true}, refuse_work, &no));
}

/* ---- What a call costs ----------------------------------------------------------------------- */

static sh_status count_allocations(sh_engine *engine, void *argument) {
    _Atomic uint64_t *calls = argument;
    static const char *const names[] = {"ring", "halving-doubling", "tree", "direct"};
    float *data = sh_alloc(300000, sizeof *data);
    SH_ASSERT(data != NULL);
    sh_status status = SH_OK;
    for (int round = 0; round < 3; round++) {
        SH_TRY_OUT(sh_engine_barrier(engine));
        if (sh_engine_rank(engine) == 0) calls[round] = sh_alloc_calls();
        SH_TRY_OUT(sh_engine_barrier(engine));
        for (size_t i = 0; i < SH_COUNT(names); i++) {
            sh_call call =
                SH_CALL(.what = SH_ALLREDUCE, .algorithm = names[i], .data = data, .count = 300000);
            SH_TRY_OUT(sh_engine_run(engine, &call));
        }
    }
out:
    sh_free(data);
    return status;
}

TEST(engine, allocates_nothing_after_the_first_call_of_a_size) {
    _Atomic uint64_t calls[3];
    CHECK_OK(run_engines(3, NULL, count_allocations, calls));
    assert_true(calls[1] > calls[0]);
    // The transport may still queue an unexpected message once; the engine takes nothing.
    assert_in_range(calls[2] - calls[1], 0, 4);
}

static sh_status count_bytes(sh_engine *engine, void *argument) {
    (void)argument;
    float data[1200] = {0};
    sh_call call = {.what = SH_ALLREDUCE, .algorithm = "ring", .data = data, .count = 1200};
    SH_TRY(sh_engine_run(engine, &call));
    EXPECT(call.messages == 6, "%d messages", (int)call.messages);
    EXPECT(call.sent_bytes == 6 * 300 * sizeof(float), "%d bytes", (int)call.sent_bytes);
    return SH_OK;
}

TEST(engine, counts_what_it_sends) { CHECK_OK(run_engines(4, NULL, count_bytes, NULL)); }

/* ---- What goes wrong --------------------------------------------------------------------------
 */

typedef struct stop {
    const char *algorithm;
    size_t count;
    bool shared;
    _Atomic int ended;
} stop;

static sh_status wait_in_vain(sh_engine *engine, stop *job, const sh_shared *shared) {
    sh_call call = {.what = SH_ALLREDUCE,
                    .algorithm = job->algorithm,
                    .data = shared->base[sh_engine_rank(engine)],
                    .count = job->count,
                    .shared = job->shared ? shared : NULL,
                    .step = 118,
                    .bucket = 3};
    SH_TRY(sh_engine_start(engine, &call));
    sh_status status = sh_engine_wait(engine, &call);
    bool refuses = sh_engine_barrier(engine) == status;
    if (status != SH_OK) sh_engine_wait(engine, &call);
    for (job->ended++; job->ended < 2;) usleep(1000);
    EXPECT(status == SH_E_PEER && refuses, "status %d", (int)status);
    const char *text = sh_error_last()->text;
    // In a tree only its parent waits for rank 1; rank 2 waits for the parent.
    bool direct = strcmp(job->algorithm, "direct") == 0 || sh_engine_rank(engine) == 0;
    const char *wanted = direct ? "for rank 1 in allreduce" : "for rank 0 in allreduce";
    EXPECT(strstr(text, wanted) != NULL, "'%s' does not say '%s'", text, wanted);
    EXPECT(strstr(text, "bucket 3, step 118") != NULL, "'%s' does not name the bucket", text);
    return SH_OK;
}

/* Rank 1 stays away until the others have given up. */
static sh_status one_stays_away(sh_engine *engine, void *argument) {
    stop *job = argument;
    sh_shared shared;
    SH_TRY(sh_engine_share(engine, 100000 * sizeof(float), &shared));
    sh_status status = SH_OK;
    if (sh_engine_rank(engine) != 1) status = wait_in_vain(engine, job, &shared);
    while (job->ended < 2) usleep(1000);
    sh_engine_unshare(engine, &shared);
    return status;
}

TEST(engine, a_wait_without_end_names_who_is_missing) {
    static const struct {
        const char *algorithm;
        size_t count;
        bool shared;
    } rows[] = {{"direct", 10, false},
                {"direct", 100000, true},
                {"direct", 100000, false},
                {"tree", 100000, false}};
    for (size_t i = 0; i < SH_COUNT(rows); i++)
        for (int task = 0; task < 2; task++) {
            // Long enough for the two others to arrive, also on a loaded machine.
            sh_engine_options options = {.timeout_ns = 1000000000, .task = task != 0};
            stop job = {
                .algorithm = rows[i].algorithm, .count = rows[i].count, .shared = rows[i].shared};
            CHECK_OK(run_engines(3, &options, one_stays_away, &job));
        }
}

static sh_status refuse(sh_engine *engine, void *argument) {
    (void)argument;
    char data[10] = {0};
    sh_call call = {.what = SH_ALLREDUCE, .data = data, .count = 10, .dtype = SH_DTYPE_BYTE};
    EXPECT(sh_engine_run(engine, &call) == SH_E_UNSUPPORTED, "bytes were reduced");
    call = (sh_call){.what = SH_ALLREDUCE, .algorithm = "star", .data = data, .count = 1};
    EXPECT(sh_engine_run(engine, &call) == SH_E_USAGE, "there is a star");
    call = (sh_call){.what = SH_BROADCAST, .root = 2, .data = data, .count = 1};
    EXPECT(sh_engine_run(engine, &call) == SH_E_USAGE, "a root outside the group");
    sh_group *group = NULL;
    EXPECT(sh_group_create(engine, (int[]){0, 0}, 2, &group) == SH_E_USAGE, "a rank twice");
    EXPECT(sh_group_create(engine, (int[]){0, 2}, 2, &group) == SH_E_USAGE, "a rank too high");
    return sh_engine_barrier(engine);  // nothing is broken
}

TEST(engine, refuses_calls_that_make_no_sense) {
    CHECK_OK(run_engines(2, NULL, refuse, NULL));
    CHECK_OK(run_engines(2, &(sh_engine_options){.task = true}, refuse, NULL));
}

/* ---- What is measured and chosen ------------------------------------------------------------- */

typedef struct measured {
    sh_costs costs[5];
    const sh_algorithm *choice[5][4];
} measured;

static sh_status measure(sh_engine *engine, void *argument) {
    measured *job = argument;
    static const size_t bytes[] = {8, 4096, 1 << 18, 1 << 26};
    int rank = sh_engine_rank(engine);
    SH_TRY(sh_engine_calibrate(engine, &job->costs[rank]));
    for (int i = 0; i < 4; i++) {
        double seconds = -1;
        job->choice[rank][i] = sh_engine_choice(engine, NULL, bytes[i], i % 2 == 0, &seconds);
        EXPECT(job->choice[rank][i] != NULL && seconds > 0, "no choice for %zu bytes", bytes[i]);
    }
    return sh_engine_barrier(engine);
}

TEST(engine, all_ranks_learn_the_same_costs_and_choose_alike) {
    for (int task = 0; task < 2; task++) {
        measured job = {0};
        CHECK_OK(run_engines(5, &(sh_engine_options){.task = task != 0}, measure, &job));
        const sh_link *inside = &job.costs[0].node_link;
        assert_true(inside->alpha_s > 0 && inside->beta_s > 0 && inside->gamma_s > 0);
        for (int rank = 1; rank < 5; rank++) {
            assert_memory_equal(&job.costs[rank], &job.costs[0], sizeof(sh_costs));
            assert_memory_equal(job.choice[rank], job.choice[0], sizeof job.choice[0]);
        }
    }
}
