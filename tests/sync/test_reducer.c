/* The reducer: buckets start once all their gradients are ready, in one order on all ranks, and
 * arrive as sums. Ranks are threads over shared memory. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "comm/engines.h"
#include "harness.h"
#include "sync/reducer.h"

static const int64_t counts[] = {5, 300, 1, 64, 7, 90, 3};
enum { PARAMS = sizeof counts / sizeof *counts, STEPS = 3 };

typedef struct world {
    int ranks;
    size_t bucket_bytes;
    bool waits;     // no overlap: buckets start when backward has ended
    bool forwards;  // the first parameter is ready first: no bucket can start before the last is
} world;

/* What one rank's listener has seen in a step. */
typedef struct listener {
    const sh_reducer *reducer;
    bool ready[PARAMS];
    size_t arrived;     // buckets
    const char *fault;  // what a bucket did that it must not; NULL: nothing
} listener;

static bool hear(void *user, const sh_bucket *bucket) {
    listener *heard = user;
    for (size_t i = 0; i < bucket->count; i++)
        if (!heard->ready[bucket->first + i]) heard->fault = "arrived before its last gradient";
    if (bucket != sh_reducer_bucket(heard->reducer, heard->arrived++))
        heard->fault = "arrived out of order";
    return true;
}

static float own_gradient(int rank, int64_t step, size_t index) {
    return (float)((rank * 7 + step * 5 + (int64_t)index * 3) % 13) - 6;
}

/* Gradients become ready one by one; until then they are NaN. */
static sh_status backward(const world *w, sh_reducer *reducer, const sh_param_list *params,
                          float *gradients, int rank, int64_t step, listener *heard) {
    for (size_t i = 0; i < params->total; i++) gradients[i] = NAN;
    sh_reducer_begin(reducer, step);
    for (size_t k = 0; k < PARAMS; k++) {
        size_t index = w->forwards ? k : PARAMS - 1 - k;
        const sh_param *param = &params->items[index];
        for (size_t i = param->offset; i < param->offset + param->count; i++)
            gradients[i] = own_gradient(rank, step, i);
        heard->ready[index] = true;
        sh_reducer_ready(reducer, index);
    }
    if (w->waits && heard->arrived > 0) heard->fault = "arrived during backward";
    SH_TRY(sh_reducer_finish(reducer));
    if (heard->arrived != sh_reducer_buckets(reducer)) heard->fault = "did not arrive";
    return heard->fault == NULL ? SH_OK : SH_FAIL(SH_E_NUMERIC, "a bucket %s", heard->fault);
}

static sh_status check_sums(const world *w, const float *gradients, size_t total, int64_t step) {
    for (size_t i = 0; i < total; i++) {
        float wanted = 0;  // small whole numbers: any order gives the same
        for (int rank = 0; rank < w->ranks; rank++) wanted += own_gradient(rank, step, i);
        if (gradients[i] != wanted)
            return SH_FAIL(SH_E_NUMERIC, "step %ld: gradient %zu is %g, not %g", (long)step, i,
                           (double)gradients[i], (double)wanted);
    }
    return SH_OK;
}

static sh_status run_rank(sh_engine *engine, void *argument) {
    const world *w = argument;
    sh_param_list params = {0};
    for (size_t i = 0; i < PARAMS; i++)
        SH_TRY(sh_param_list_add(&params, (char[]){(char)('a' + i), '\0'}, SH_SHAPE(counts[i]),
                                 true, NULL));
    float *gradients = sh_alloc(params.total, sizeof *gradients);
    SH_ASSERT(gradients != NULL);
    listener heard = {0};
    sh_reducer *reducer = NULL;
    const sh_reducer_options options = {.group = sh_engine_world(engine),
                                        .params = &params,
                                        .gradients = gradients,
                                        .codec = &(const sh_codec){0},
                                        .bucket_bytes = w->bucket_bytes,
                                        .overlap = !w->waits,
                                        .arrived = hear,
                                        .user = &heard,
                                        .clock = &sh_clock_real};
    SH_TRY(sh_reducer_create(&options, &reducer));
    sh_status status = SH_OK;
    for (int64_t step = 0; step < STEPS && status == SH_OK; step++) {
        heard = (listener){.reducer = reducer};
        status = backward(w, reducer, &params, gradients, sh_engine_rank(engine), step, &heard);
        if (status == SH_OK) status = check_sums(w, gradients, params.total, step);
    }
    if (status != SH_OK) return status;
    sh_reducer_destroy(reducer);
    sh_free(gradients);
    sh_param_list_fini(&params);
    return SH_OK;
}

/* A bucket for each parameter, some with several, and one for all. */
static void check_sizes(world w) {
    const size_t sizes[] = {1, 256, 1 << 20};
    for (size_t i = 0; i < SH_COUNT(sizes); i++) {
        w.bucket_bytes = sizes[i];
        CHECK_OK(run_engines(w.ranks, NULL, run_rank, &w));
    }
}

/* Alone a sum is there as soon as it starts, so here a bucket that starts early arrives early. */
TEST(reducer, a_bucket_starts_when_its_last_gradient_is_there) {
    check_sizes((world){.ranks = 1});
    check_sizes((world){.ranks = 1, .forwards = true});
}

TEST(reducer, sums_the_gradients_of_all_ranks) {
    for (int ranks = 2; ranks <= 4; ranks++) {
        check_sizes((world){.ranks = ranks});
        check_sizes((world){.ranks = ranks, .forwards = true});
    }
}

TEST(reducer, without_overlap_nothing_arrives_before_backward_has_ended) {
    for (int ranks = 1; ranks <= 3; ranks++) check_sizes((world){.ranks = ranks, .waits = true});
}
