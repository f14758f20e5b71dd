/* All-reduces: equal to the serial result, and equal bits on all ranks. */
#include "comm/engine_cases.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"

static const size_t sizes[] = {0, 1, 3, 17, 1000, 100003};

static const sh_reduce_op ops[] = {SH_SUM, SH_MEAN, SH_MAX, SH_MIN, SH_PRODUCT};
static const sh_dtype dtypes[] = {SH_DTYPE_F32, SH_DTYPE_F64, SH_DTYPE_I32,
                                  SH_DTYPE_I64, SH_DTYPE_F16, SH_DTYPE_BF16};

/* One all-reduce of one kind; in shared memory where `shared` is given. */
static sh_status reduce_once(sh_engine *engine, const sh_shared *shared, void *data,
                             const char *algorithm, size_t count, sh_reduce_op op, sh_dtype dtype) {
    int rank = sh_engine_rank(engine), ranks = sh_engine_ranks(engine);
    engine_fill(data, dtype, op, rank, count);
    sh_call call = SH_CALL(.what = SH_ALLREDUCE, .algorithm = algorithm, .data = data,
                           .count = count, .dtype = dtype, .op = op, .shared = shared);
    SH_TRY(sh_engine_run(engine, &call));
    char what[64];
    snprintf(what, sizeof what, "rank %d: %s of %zu, %s", rank, algorithm, count,
             shared != NULL ? "shared" : "private");
    return engine_check(data, dtype, op, NULL, ranks, 0, count, what);
}

/* Whether the transport's own takes these elements. */
static bool is_served(const sh_algorithm *algorithm, sh_dtype dtype) {
    return !algorithm->native || (dtype != SH_DTYPE_F16 && dtype != SH_DTYPE_BF16);
}

sh_status engine_all_reduces(sh_engine *engine, void *argument) {
    const engine_ways *how = argument;
    enum { PAIRS = SH_COUNT(ops) * SH_COUNT(dtypes) };
    sh_shared shared;
    SH_TRY(sh_engine_share(engine, 100003 * 8, &shared));
    void *private = sh_alloc(100003, 8), *mine = shared.base[sh_engine_rank(engine)];
    SH_ASSERT(private != NULL);
    sh_status status = SH_OK;
    size_t turn = (size_t)sh_engine_ranks(engine);
    const sh_algorithm *algorithm;
    for (size_t a = 0; (algorithm = sh_algorithm_at(a)) != NULL; a++) {
        if (algorithm->does != SH_ALLREDUCE || (algorithm->native && !how->native)) continue;
        for (size_t s = 0; s < SH_COUNT(sizes); s++) {
            size_t pairs = how->every_pair ? PAIRS : sizes[s] > 1000 ? 1 : 2;
            if (how->every_pair && sizes[s] > 1000) continue;
            for (size_t p = 0; p < pairs; p++, turn++) {
                size_t pair = how->every_pair ? p : turn % PAIRS;
                sh_reduce_op op = ops[pair % SH_COUNT(ops)];
                sh_dtype dtype = dtypes[pair / SH_COUNT(ops)];
                if (!is_served(algorithm, dtype)) continue;
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

/* Every all-reduce that sends messages, on one group; operators and types take turns. */
static sh_status reduce_in_group(sh_engine *engine, sh_group *group, int ranks, void *data) {
    const sh_algorithm *algorithm;
    size_t turn = (size_t)ranks;
    for (size_t a = 0; (algorithm = sh_algorithm_at(a)) != NULL; a++) {
        if (algorithm->does != SH_ALLREDUCE || algorithm->native) continue;
        for (size_t s = 1; s < SH_COUNT(sizes) - 1; s++, turn++) {
            sh_call call = SH_CALL(.what = SH_ALLREDUCE, .algorithm = algorithm->name,
                                   .group = group, .data = data, .count = sizes[s],
                                   .dtype = dtypes[turn % 4], .op = ops[turn % SH_COUNT(ops)]);
            engine_fill(data, call.dtype, call.op, sh_engine_rank(engine), call.count);
            SH_TRY(sh_engine_run(engine, &call));
            char what[64];
            snprintf(what, sizeof what, "%s of %zu, %d ranks", algorithm->name, call.count, ranks);
            SH_TRY(engine_check(data, call.dtype, call.op, NULL, ranks, 0, call.count, what));
        }
    }
    return SH_OK;
}

sh_status engine_every_count(sh_engine *engine, void *argument) {
    (void)argument;
    enum { RANKS_MOST = 32 };
    int member[RANKS_MOST], ranks = sh_engine_ranks(engine);
    static int64_t data[1000];  // the longest of these sizes, in any type
    SH_ASSERT(ranks <= RANKS_MOST);
    for (int count = 1; count <= ranks; count++) {
        member[count - 1] = count - 1;
        sh_group *group = NULL;
        SH_TRY(sh_group_create(engine, member, count, &group));
        if (group != NULL) SH_TRY(reduce_in_group(engine, group, count, data));
        sh_group_destroy(group);
        SH_TRY(sh_engine_barrier(engine));
    }
    return SH_OK;
}

/* Every rank compares its result with rank 0's, which travels. */
static sh_status compare_results(sh_engine *engine, const float *mine, float *first, size_t count,
                                 const char *what) {
    memcpy(first, mine, count * sizeof *mine);
    sh_call call = {.what = SH_BROADCAST, .data = first, .count = count};
    SH_TRY(sh_engine_run(engine, &call));
    if (memcmp(mine, first, count * sizeof *mine) == 0) return SH_OK;
    return SH_FAIL(SH_E_NUMERIC, "%s: ranks 0 and %d of %d differ", what, sh_engine_rank(engine),
                   sh_engine_ranks(engine));
}

/* Random values, whose sums round: all ranks must round alike. */
sh_status engine_equal_bits(sh_engine *engine, void *argument) {
    size_t count = *(const size_t *)argument;
    int rank = sh_engine_rank(engine);
    sh_shared shared;
    SH_TRY(sh_engine_share(engine, count * sizeof(float), &shared));
    float *mine = (float *)(void *)shared.base[rank], *first = sh_alloc(count, sizeof *first);
    SH_ASSERT(first != NULL);
    sh_status status = SH_OK;
    const sh_algorithm *algorithm;
    for (size_t a = 0; (algorithm = sh_algorithm_at(a)) != NULL; a++) {
        if (algorithm->does != SH_ALLREDUCE || algorithm->native) continue;
        for (int op = SH_SUM; op <= SH_MEAN; op++) {
            sh_rng rng = sh_rng_stream((uint64_t)rank + 1, SH_RNG_TEST, 0, 0);
            for (size_t i = 0; i < count; i++) mine[i] = 2.0f * sh_rng_uniform(&rng) - 1.0f;
            sh_call call = {.what = SH_ALLREDUCE,
                            .algorithm = algorithm->name,
                            .data = mine,
                            .count = count,
                            .op = (sh_reduce_op)op,
                            .shared = &shared};
            SH_TRY_OUT(sh_engine_run(engine, &call));
            SH_TRY_OUT(compare_results(engine, mine, first, count, algorithm->name));
        }
    }
    SH_TRY_OUT(sh_engine_barrier(engine));
out:
    sh_free(first);
    if (status == SH_OK) sh_engine_unshare(engine, &shared);
    return status;
}
