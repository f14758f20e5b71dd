#include "tensor/kernels/gemm.h"

#include <math.h>

#include "base/memory.h"
#include "base/rng.h"
#include "tensor/settings.h"

typedef struct sides {
    int64_t m, n, k;
} sides;

enum { VARIANTS = 128 };

/* One element at the end of every operand and of the scratch is a fence. */
typedef struct operands {
    sh_gemm_args args;
    float *a, *b, *c, *bias, *want;
    float *slope, *want_slope, *factor;
    size_t c_count;
} operands;

static float *floats(size_t count) {
    float *values = NULL;
    assert_int_equal(posix_memalign((void **)&values, 64, (count + 16) * sizeof(float)), 0);
    return values;
}

static operands operands_make(sides s, int variant) {
    operands o = {.c_count = (size_t)(s.m * s.n)};
    o.a = floats((size_t)(s.m * s.k)), o.b = floats((size_t)(s.k * s.n));
    o.c = floats(o.c_count), o.want = floats(o.c_count), o.bias = floats((size_t)s.n);
    o.slope = floats(o.c_count), o.want_slope = floats(o.c_count), o.factor = floats(o.c_count);
    sh_test_fill(o.a, (size_t)(s.m * s.k), 1);
    sh_test_fill(o.b, (size_t)(s.k * s.n), 2);
    sh_test_fill(o.bias, (size_t)s.n, 3);
    sh_test_fill(o.factor, o.c_count, 5);
    o.args = (sh_gemm_args){.m = s.m,
                            .n = s.n,
                            .k = s.k,
                            .ta = variant & 1,
                            .tb = variant & 2,
                            .accumulate = variant & 4,
                            .bias = variant & 8 ? o.bias : NULL,
                            .relu = variant & 16,
                            .activation = variant & 32 ? sh_activation_find("gelu") : NULL,
                            .factor = variant & 64 ? o.factor : NULL,
                            .a = o.a,
                            .b = o.b};
    o.args.c = o.want;
    o.args.slope = (variant & 33) == 33 ? o.want_slope : NULL;  // half of the activations
    sh_test_fill(o.want, o.c_count, 4);
    sh_gemm_reference(&o.args);
    o.args.c = o.c;
    if (o.args.slope != NULL) o.args.slope = o.slope;
    return o;
}

static void operands_free(operands *o) {
    free(o->a), free(o->b), free(o->c), free(o->want), free(o->bias);
    free(o->slope), free(o->want_slope), free(o->factor);
}

/* What is overwritten starts as NaN, so a value read or left out shows. */
static void start(operands *o) {
    if (o->args.accumulate)
        sh_test_fill(o->c, o->c_count, 4);
    else
        memset(o->c, 0xFF, o->c_count * sizeof(float));
    memset(o->slope, 0xFF, o->c_count * sizeof(float));
    o->c[o->c_count] = o->slope[o->c_count] = 12345.0f;
}

static void run(operands *o, sh_gemm_library library, int threads) {
    sh_gemm gemm = {.m = o->args.m,
                    .n = o->args.n,
                    .k = o->args.k,
                    .ta = o->args.ta,
                    .tb = o->args.tb,
                    .threads = threads,
                    .library = library};
    gemm.scratch_bytes = sh_packed_gemm()->scratch_bytes(gemm.m, gemm.n, gemm.k, threads);
    size_t count = gemm.scratch_bytes / sizeof(float);
    float *scratch = floats(count);
    scratch[count] = 54321.0f;
    start(o);
    sh_gemm_run(&gemm, o->args, scratch);
    assert_true(scratch[count] == 54321.0f);
    assert_true(o->c[o->c_count] == 12345.0f && o->slope[o->c_count] == 12345.0f);
    free(scratch);
}

static void check(sides s, int variant, sh_gemm_library library, int threads) {
    operands o = operands_make(s, variant);
    run(&o, library, threads);
    double tolerance = 3e-6 * (double)(s.k < 20 ? 20 : s.k);
    CHECK_CLOSE(o.c, o.want, o.c_count, tolerance);
    if (o.args.slope != NULL) CHECK_CLOSE(o.slope, o.want_slope, o.c_count, tolerance);
    operands_free(&o);
}

/* Sides from 1 to 70 in a fixed random order, and shapes that cross every block of the kernel. */
static sides side_at(size_t index) {
    // Last: packed rows of A with k cut and ragged edges; turned round in whole tiles, with ragged
    // edges, and in two chunks.
    static const sides some[] = {
        {1, 1, 1},      {1, 70, 3},     {70, 1, 9},      {6, 16, 8},      {7, 17, 9},
        {12, 32, 320},  {5, 15, 321},   {64, 10, 500},   {128, 10, 64},   {10, 64, 64},
        {3, 1600, 20},  {130, 40, 650}, {3, 5, 0},       {40, 3, 0},      {250, 33, 47},
        {17, 9, 33},    {16, 15, 7},    {130, 130, 130}, {127, 150, 397}, {16, 64, 24},
        {65, 270, 397}, {19, 1600, 30}, {192, 70, 390},  {193, 70, 390},  {200, 1600, 9},
    };
    if (index < SH_COUNT(some)) return some[index];
    sh_rng rng = sh_rng_stream(11, SH_RNG_TEST, (uint32_t)index, 0);
    return (sides){1 + (int64_t)sh_rng_below(&rng, 70), 1 + (int64_t)sh_rng_below(&rng, 70),
                   1 + (int64_t)sh_rng_below(&rng, 70)};
}

static void check_library(sh_gemm_library library, int threads) {
    omp_set_num_threads(threads);
    for (size_t i = 0; i < 40; i++) {
        sides s = side_at(i);
        int step = s.m * s.n * s.k > 50000 ? 21 : 3;  // odd, from all starts: in all mixtures
        for (int variant = (int)i % step; variant < VARIANTS; variant += step)
            check(s, variant, library, threads);
    }
}

TEST(gemm, packed_equals_reference_on_lesser_instruction_sets) {
    for (int level = SH_SIMD_BASE; level < SH_SIMD_MOST; level++) {
        sh_simd_limit((sh_simd_level)level);
        check_library(SH_GEMM_PACKED, 1);
        check_library(SH_GEMM_PACKED, 3);
    }
    sh_simd_limit(SH_SIMD_MOST);
}
TEST(gemm, packed_equals_reference_on_one_thread) { check_library(SH_GEMM_PACKED, 1); }
TEST(gemm, packed_equals_reference_on_two_threads) { check_library(SH_GEMM_PACKED, 2); }
TEST(gemm, packed_equals_reference_on_three_threads) { check_library(SH_GEMM_PACKED, 3); }
TEST(gemm, onednn_equals_reference) {
    check_library(SH_GEMM_ONEDNN, 1);
    check_library(SH_GEMM_ONEDNN, 2);
}
TEST(gemm, openblas_equals_reference) {
    check_library(SH_GEMM_OPENBLAS, 1);
    check_library(SH_GEMM_OPENBLAS, 2);
}

static void check_bits(sides s, int variant) {
    operands o = operands_make(s, variant);
    run(&o, SH_GEMM_PACKED, 1);
    float *first = copied(o.c, o.c_count), *first_slope = copied(o.slope, o.c_count);
    for (int threads = 2; threads <= 5; threads++) {
        run(&o, SH_GEMM_PACKED, threads);
        assert_memory_equal(first, o.c, o.c_count * sizeof(float));
        assert_memory_equal(first_slope, o.slope, o.c_count * sizeof(float));
    }
    free(first), free(first_slope);
    operands_free(&o);
}

TEST(gemm, packed_gives_the_same_bits_at_any_thread_count) {
    const sides some[] = {{130, 40, 650}, {64, 200, 784}, {33, 1700, 40},
                          {700, 9, 300},  {7, 7, 7},      {127, 270, 397}};
    for (size_t i = 0; i < SH_COUNT(some); i++)
        for (int variant = 0; variant < VARIANTS; variant += 11) check_bits(some[i], variant);
}

TEST(gemm, lets_what_is_not_a_number_through_a_relu) {
    for (int library = 0; library < SH_GEMM_LIBRARIES; library++) {
        for (int bias = 0; bias < 2; bias++) {
            operands o = operands_make((sides){19, 37, 5}, bias ? 24 : 16);
            o.a[0] = NAN;  // row 0 of A, so row 0 of C: full tiles and an edge
            run(&o, (sh_gemm_library)library, 1);
            for (int j = 0; j < 37; j++) assert_true(isnan(o.c[j]));
            for (int j = 37; j < 74; j++) assert_false(isnan(o.c[j]));
            operands_free(&o);
        }
    }
}

/* Sides above 3072 are cut for the measurement. 3300 is split into smaller blocks of k than 3072,
 * so the plan's scratch would be too small for the trial. */
TEST(gemm, measures_long_sides_within_its_memory) {
    sh_tuner *tuner = NULL;
    CHECK_OK(sh_tuner_create(
        &(sh_tuner_options){.clock = &sh_clock_real, .measure = true, .threads = 1}, &tuner));
    assert_true(sh_packed_gemm()->scratch_bytes(120, 16, 3072, 1) >
                sh_packed_gemm()->scratch_bytes(120, 16, 3300, 1));
    sh_gemm gemm;
    CHECK_OK(sh_gemm_choose(&gemm, 120, 16, 3300, true, false, tuner));
    assert_true(sh_tuner_changed(tuner));
    char *text = sh_tuner_print(tuner, true);
    assert_non_null(strstr(text, "gemm tn 120x16x3300 t1"));
    sh_free(text);
    sh_tuner_destroy(tuner);
}

TEST(gemm, measures_again_when_the_remembered_library_is_gone) {
    const char *stale = "{\"gemm nn 5x6x7 t1\": \"a library of another build\"}";
    sh_tuner *tuner = NULL;
    CHECK_OK(sh_tuner_create(
        &(sh_tuner_options){.clock = &sh_clock_real, .measure = true, .threads = 1}, &tuner));
    CHECK_OK(sh_tuner_load(tuner, "kernels.json", stale, strlen(stale), true));
    sh_gemm gemm;
    CHECK_OK(sh_gemm_choose(&gemm, 5, 6, 7, false, false, tuner));
    assert_true(sh_tuner_changed(tuner));
    sh_tuner_destroy(tuner);
}
