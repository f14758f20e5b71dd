#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "comm/engines.h"
#include "harness.h"

static const size_t sizes[] = {0, 1, 3, 17, 1000, 100003};

static const sh_reduce_op ops[] = {SH_SUM, SH_MEAN, SH_MAX, SH_MIN, SH_PRODUCT};
static const sh_dtype dtypes[] = {SH_DTYPE_F32, SH_DTYPE_F64, SH_DTYPE_I32,
                                  SH_DTYPE_I64, SH_DTYPE_F16, SH_DTYPE_BF16};

/* One all-reduce of one kind; in shared memory where `shared` is given. */
static sh_status reduce_once(sh_engine *engine, const sh_shared *shared, void *data,
                             const char *algorithm, size_t count, sh_reduce_op op, sh_dtype dtype) {
    int rank = sh_engine_rank(engine), ranks = sh_engine_ranks(engine);
    engine_fill(data, dtype, op, rank, count);
    sh_call call = {.what = SH_ALLREDUCE,
                    .algorithm = algorithm,
                    .data = data,
                    .count = count,
                    .dtype = dtype,
                    .op = op,
                    .shared = shared,
                    .bucket = -1};
    SH_TRY(sh_engine_run(engine, &call));
    char what[64];
    snprintf(what, sizeof what, "rank %d: %s of %zu, %s", rank, algorithm, count,
             shared != NULL ? "shared" : "private");
    return engine_check(data, dtype, op, NULL, ranks, 0, count, what);
}

typedef struct all_reduces {
    bool every_pair;  // of operator and type; else some of them, others each time
} all_reduces;

static sh_status reduce_in_all_ways(sh_engine *engine, void *argument) {
    const all_reduces *how = argument;
    enum { PAIRS = SH_COUNT(ops) * SH_COUNT(dtypes) };
    sh_shared shared;
    SH_TRY(sh_engine_share(engine, 100003 * 8, &shared));
    void *private = sh_alloc(100003, 8), *mine = shared.base[sh_engine_rank(engine)];
    SH_ASSERT(private != NULL);
    sh_status status = SH_OK;
    size_t turn = (size_t)sh_engine_ranks(engine);
    const sh_algorithm *algorithm;
    for (size_t a = 0; (algorithm = sh_algorithm_at(a)) != NULL; a++) {
        if (algorithm->does != SH_ALLREDUCE || algorithm->native) continue;
        for (size_t s = 0; s < SH_COUNT(sizes); s++) {
            size_t pairs = how->every_pair ? PAIRS : sizes[s] > 1000 ? 1 : 2;
            if (how->every_pair && sizes[s] > 1000) continue;
            for (size_t p = 0; p < pairs; p++, turn++) {
                size_t pair = how->every_pair ? p : turn % PAIRS;
                sh_reduce_op op = ops[pair % SH_COUNT(ops)];
                sh_dtype dtype = dtypes[pair / SH_COUNT(ops)];
                SH_TRY_OUT(
                    reduce_once(engine, NULL, private, algorithm->name, sizes[s], op, dtype));
                SH_TRY_OUT(
                    reduce_once(engine, &shared, mine, algorithm->name, sizes[s], op, dtype));
            }
        }
    }
out:
    sh_free(private);
    if (status == SH_OK) sh_engine_unshare(engine, &shared);
    return status;
}

TEST(engine, all_reduces_equal_the_serial_result_at_all_rank_counts) {
    for (int ranks = 1; ranks <= 17; ranks++)
        CHECK_OK(run_engines(ranks, NULL, reduce_in_all_ways, &(all_reduces){false}));
}

TEST(engine, all_reduces_do_every_operator_on_every_type) {
    for (int ranks = 2; ranks <= 5; ranks++)
        CHECK_OK(run_engines(ranks, NULL, reduce_in_all_ways, &(all_reduces){true}));
}

TEST(engine, cuts_long_buffers_into_segments) {
    sh_engine_options options = {.segment_bytes = 10000};
    for (int ranks = 2; ranks <= 7; ranks += ranks < 3 ? 1 : 4)
        CHECK_OK(run_engines(ranks, &options, reduce_in_all_ways, &(all_reduces){false}));
}

TEST(engine, works_from_a_comm_task) {
    sh_engine_options options = {.task = true};
    for (int ranks = 1; ranks <= 4; ranks++)
        CHECK_OK(run_engines(ranks, &options, reduce_in_all_ways, &(all_reduces){false}));
}

/* Random values, whose sums round: all ranks must round alike. */
typedef struct same_bits {
    float *result[17];
    size_t count;
} same_bits;

static sh_status compare_bits(sh_engine *engine, void *argument) {
    same_bits *job = argument;
    int rank = sh_engine_rank(engine), ranks = sh_engine_ranks(engine);
    sh_shared shared;
    SH_TRY(sh_engine_share(engine, job->count * sizeof(float), &shared));
    float *mine = (float *)(void *)shared.base[rank];
    const sh_algorithm *algorithm;
    for (size_t a = 0; (algorithm = sh_algorithm_at(a)) != NULL; a++) {
        if (algorithm->does != SH_ALLREDUCE || algorithm->native) continue;
        for (int op = SH_SUM; op <= SH_MEAN; op++) {
            sh_test_fill(mine, job->count, (uint64_t)rank + 1);
            sh_call call = {.what = SH_ALLREDUCE,
                            .algorithm = algorithm->name,
                            .data = mine,
                            .count = job->count,
                            .op = (sh_reduce_op)op,
                            .shared = &shared};
            SH_TRY(sh_engine_run(engine, &call));
            SH_TRY(sh_engine_barrier(engine));
            for (int peer = 0; peer < ranks; peer++)
                if (memcmp(mine, shared.base[peer], job->count * sizeof *mine) != 0)
                    return SH_FAIL(SH_E_NUMERIC, "%s: ranks %d and %d of %d differ",
                                   algorithm->name, rank, peer, ranks);
            SH_TRY(sh_engine_barrier(engine));
        }
    }
    sh_engine_unshare(engine, &shared);
    return SH_OK;
}

TEST(engine, all_ranks_end_with_equal_bits) {
    for (int ranks = 2; ranks <= 17; ranks += 3) {
        same_bits small = {.count = 777}, large = {.count = 50021};
        CHECK_OK(run_engines(ranks, NULL, compare_bits, &small));
        CHECK_OK(run_engines(ranks, NULL, compare_bits, &large));
    }
}
