#include "tensor/kernels/attention.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "harness.h"
#include "tensor/kernels/reference_attention.h"

/* All arrays of one problem, with one guard value after each that a kernel must not touch. */
typedef struct problem {
    sh_attention_shape shape;
    size_t y_count, lse_count, scratch_count;  // qkv has 3 y_count
    float *qkv, *y, *lse, *dy, *dqkv, *scratch;
    sh_arena arena;
} problem;

static const float GUARD = 12345.0f;

static float *take(problem *p, size_t count) {
    float *x = sh_arena_take(&p->arena, (count + 1) * sizeof(float));
    for (size_t i = 0; i < count; i++) x[i] = NAN;  // outputs must be written in full
    x[count] = GUARD;
    return x;
}

static problem problem_open(sh_attention_shape shape, int threads) {
    problem p = {.shape = shape,
                 .y_count = shape.B * shape.T * shape.H * shape.D,
                 .lse_count = shape.B * shape.H * shape.T,
                 .scratch_count = sh_attention()->scratch_bytes(&shape, threads) / sizeof(float)};
    size_t floats = 8 * p.y_count + p.lse_count + p.scratch_count;
    CHECK_OK(sh_arena_init(&p.arena, "test", floats * sizeof(float) + 4096));
    p.qkv = take(&p, 3 * p.y_count);
    p.dqkv = take(&p, 3 * p.y_count);
    p.y = take(&p, p.y_count);
    p.dy = take(&p, p.y_count);
    p.lse = take(&p, p.lse_count);
    p.scratch = take(&p, p.scratch_count);
    sh_test_fill(p.qkv, 3 * p.y_count, 1);
    for (size_t i = 0; i < 3 * p.y_count; i++) p.qkv[i] *= 3;  // so that the softmax is not flat
    sh_test_fill(p.dy, p.y_count, 2);
    return p;
}

static void problem_close(problem *p) {
    assert_true(p->qkv[3 * p->y_count] == GUARD && p->dqkv[3 * p->y_count] == GUARD);
    assert_true(p->y[p->y_count] == GUARD && p->dy[p->y_count] == GUARD);
    assert_true(p->lse[p->lse_count] == GUARD && p->scratch[p->scratch_count] == GUARD);
    sh_arena_fini(&p->arena);
}

static void problem_run(problem *p) {
    const sh_attention_kernels *kernels = sh_attention();
    kernels->forward(&p->shape, p->qkv, p->y, p->lse, p->scratch);
    kernels->backward(&p->shape, p->qkv, p->y, p->lse, p->dy, p->dqkv, p->scratch);
}

/* Runs with 1 to `threads_most` threads and compares each time. */
static void check_against_reference(sh_attention_shape shape, int threads_most) {
    problem expect = problem_open(shape, 1);
    double *row = sh_alloc(shape.T + 3 * expect.y_count, sizeof *row);
    sh_reference_attention_forward(&shape, expect.qkv, expect.y, expect.lse, row);
    sh_reference_attention_backward(&shape, expect.qkv, expect.dy, expect.dqkv, row);
    for (int threads = 1; threads <= threads_most; threads++) {
        omp_set_num_threads(threads);
        problem p = problem_open(shape, threads);
        problem_run(&p);
        CHECK_CLOSE(p.y, expect.y, p.y_count, 1e-5);
        CHECK_CLOSE(p.lse, expect.lse, p.lse_count, 5e-6);
        CHECK_CLOSE(p.dqkv, expect.dqkv, 3 * p.y_count, 5e-5);
        problem_close(&p);
    }
    sh_free(row);
    problem_close(&expect);
}

static void check_shapes(sh_simd_level level) {
    static const size_t tokens[] = {1, 7, 64, 65, 130}, sizes[] = {1, 8, 20, 64};
    sh_simd_limit(level);
    for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
        for (size_t d = 0; d < sizeof sizes / sizeof *sizes; d++)
            for (int causal = 0; causal < 2; causal++)
                check_against_reference(
                    (sh_attention_shape){2, tokens[t], 2, sizes[d], causal == 1}, 2);
    sh_simd_limit(SH_SIMD_MOST);
}

TEST(attention, matches_the_definition_over_odd_shapes) { check_shapes(SH_SIMD_MOST); }
TEST(attention, matches_the_definition_in_avx2_code) { check_shapes(SH_SIMD_AVX2); }
TEST(attention, matches_the_definition_in_baseline_code) { check_shapes(SH_SIMD_BASE); }

TEST(attention, matches_the_definition_over_many_blocks) {
    check_against_reference((sh_attention_shape){1, 410, 1, 16, true}, 2);
    check_against_reference((sh_attention_shape){1, 250, 1, 80, false}, 1);
    check_against_reference((sh_attention_shape){1, 199, 1, 128, true}, 1);
}

TEST(attention, matches_the_definition_at_block_edges) {
    for (size_t edge = 48; edge <= 192; edge *= 2)
        for (size_t T = edge - 2; T <= edge + 2; T++)
            for (int causal = 0; causal < 2; causal++)
                check_against_reference((sh_attention_shape){1, T, 1, 3, causal == 1}, 2);
}

TEST(attention, gives_equal_bits_for_any_thread_count) {
    sh_attention_shape shape = {1, 333, 1, 24, true};  // fewer heads than threads: blocks are split
    omp_set_num_threads(1);
    problem one = problem_open(shape, 1);
    problem_run(&one);
    for (int threads = 2; threads <= 5; threads++) {
        omp_set_num_threads(threads);
        problem many = problem_open(shape, threads);
        problem_run(&many);
        assert_memory_equal(one.y, many.y, one.y_count * sizeof(float));
        assert_memory_equal(one.lse, many.lse, one.lse_count * sizeof(float));
        assert_memory_equal(one.dqkv, many.dqkv, 3 * one.y_count * sizeof(float));
        problem_close(&many);
    }
    problem_close(&one);
}

/* sum(dy * y) in double: the scalar whose gradient backward returns. */
static double objective(problem *p) {
    sh_attention()->forward(&p->shape, p->qkv, p->y, p->lse, p->scratch);
    double sum = 0;
    for (size_t i = 0; i < p->y_count; i++) sum += (double)p->dy[i] * (double)p->y[i];
    return sum;
}

static void check_differences(sh_attention_shape shape) {
    omp_set_num_threads(1);
    problem p = problem_open(shape, 1);
    problem_run(&p);
    const float step = 0.01f;
    for (size_t i = 0; i < 3 * p.y_count; i++) {
        float kept = p.qkv[i];
        p.qkv[i] = kept + step;
        double above = objective(&p);
        p.qkv[i] = kept - step;
        double slope = (above - objective(&p)) / (2 * (double)step);
        p.qkv[i] = kept;
        if (fabs(slope - (double)p.dqkv[i]) > 1e-3)
            fail_msg("dqkv[%zu] is %g, differences give %g", i, (double)p.dqkv[i], slope);
    }
    problem_close(&p);
}

TEST(attention, backward_is_the_slope_of_forward) {
    check_differences((sh_attention_shape){2, 7, 2, 5, true});
    check_differences((sh_attention_shape){1, 9, 2, 4, false});
}

/* Scores of several thousand: exponentials of the raw scores would overflow. */
TEST(attention, stays_finite_for_large_scores) {
    omp_set_num_threads(1);
    problem p = problem_open((sh_attention_shape){1, 100, 1, 32, true}, 1);
    for (size_t i = 0; i < 3 * p.y_count; i++) p.qkv[i] *= 50;
    problem_run(&p);
    for (size_t i = 0; i < p.y_count; i++) assert_true(isfinite(p.y[i]));
    for (size_t i = 0; i < 3 * p.y_count; i++) assert_true(isfinite(p.dqkv[i]));
    problem_close(&p);
}

/* Scores of 1024 + j / 4 weigh as those of j / 4 do. They are exact in float; as powers of two they
 * keep a relative error of 1e-4. */
static void check_large_scores(sh_attention_shape shape, float level) {
    omp_set_num_threads(1);
    problem got = problem_open(shape, 1), want = problem_open(shape, 1);
    const size_t D = shape.D, C = shape.H * D;
    for (size_t t = 0; t < shape.T; t++) {
        float *q = got.qkv + t * 3 * C, *k = q + C;
        for (size_t d = 0; d < D; d++) q[d] = k[d] = 0;
        q[0] = 64;  // 64 k / sqrt(4)
        k[0] = (level + 0.25f * (float)(t % 23)) / 32;
    }
    memcpy(want.qkv, got.qkv, 3 * got.y_count * sizeof *got.qkv);
    double *row = sh_alloc(shape.T + 3 * want.y_count, sizeof *row);
    sh_reference_attention_forward(&shape, want.qkv, want.y, want.lse, row);
    sh_attention()->forward(&shape, got.qkv, got.y, got.lse, got.scratch);
    CHECK_CLOSE(got.y, want.y, got.y_count, 1e-3);
    CHECK_CLOSE(got.lse, want.lse, got.lse_count, 1e-6);
    sh_free(row);
    sh_arena_fini(&got.arena), sh_arena_fini(&want.arena);
}

TEST(attention, weighs_large_scores_as_small_ones) {
    for (int causal = 0; causal < 2; causal++) {
        check_large_scores((sh_attention_shape){1, 430, 1, 4, causal == 1}, 1024);
        check_large_scores((sh_attention_shape){1, 430, 1, 4, causal == 1}, -1024);
        check_large_scores((sh_attention_shape){1, 30, 1, 4, causal == 1}, 0);
    }
}

/* A run stops at the layer that first produced a NaN, so a kernel may not swallow one. */
TEST(attention, passes_nan_on) {
    omp_set_num_threads(1);
    for (size_t third = 0; third < 3; third++) {
        problem p = problem_open((sh_attention_shape){1, 20, 1, 8, true}, 1);
        p.qkv[10 * 24 + third * 8 + 3] = NAN;  // q, k or v of token 10
        problem_run(&p);
        bool found = false;
        for (size_t d = 0; d < 8; d++) found = found || isnan(p.y[10 * 8 + d]);
        assert_true(found);
        problem_close(&p);
    }
}

/* Later tokens must not reach earlier ones: changing the future leaves the past's bits alone. */
TEST(attention, causal_rows_do_not_see_the_future) {
    omp_set_num_threads(1);
    sh_attention_shape shape = {1, 120, 2, 16, true};
    problem p = problem_open(shape, 1), changed = problem_open(shape, 1);
    const size_t from = 61, C = 32;
    for (size_t i = from * 3 * C; i < 3 * p.y_count; i++) changed.qkv[i] = -2 * p.qkv[i];
    problem_run(&p);
    problem_run(&changed);
    assert_memory_equal(p.y, changed.y, from * C * sizeof(float));
    assert_memory_not_equal(p.y + from * C, changed.y + from * C, C * sizeof(float));
    problem_close(&p);
    problem_close(&changed);
}
