/* topk, randk and dgc. */
#include "rig.h"

#include <math.h>

#include "codec/sparse.h"
#include "tensor/kernels/select.h"

static const float *sorted_by;

static int by_size(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    uint32_t x = sh_magnitude(sorted_by[i]), y = sh_magnitude(sorted_by[j]);
    if (x != y) return x > y ? -1 : 1;
    return i < j ? -1 : 1;
}

static int by_index(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    return i < j ? -1 : i > j;
}

/* The message against a full sort. */
static void check_choice(const float *y, size_t count, size_t kept) {
    uint32_t *order = malloc((count + 1) * sizeof *order);
    void *work = block(sh_sparse_work_bytes(count, kept));
    uint32_t *message = block(sh_sparse_bytes(kept));
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    sorted_by = y;
    qsort(order, count, sizeof *order, by_size);
    qsort(order, kept, sizeof *order, by_index);
    sh_sparse_write(y, count, kept, work, message);
    assert_memory_equal(message, order, kept * sizeof *order);
    for (size_t i = 0; i < kept; i++)
        assert_memory_equal(message + kept + i, &y[order[i]], sizeof(float));
    free(order), free(work), free(message);
}

static void choices(void) {
    const size_t counts[] = {1, 5, 33, 4095, 4096, 10007, 200003};
    const double ratios[] = {0.00001, 0.001, 0.01, 0.2, 0.7, 1};
    for (size_t c = 0; c < SH_COUNT(counts); c++)
        for (size_t r = 0; r < SH_COUNT(ratios); r++) {
            size_t n = counts[c], k = sh_sparse_kept(ratios[r], n);
            float *y = filled(n, c, 1);
            check_choice(y, n, k);
            for (size_t i = 0; i < n; i++) y[i] = y[i] * y[i] * y[i] * y[i] * y[i];  // long tails
            check_choice(y, n, k);
            for (size_t i = 0; i < n; i++) y[i] = (float)((int)(y[i] * 4)) / 4;  // ties
            check_choice(y, n, k);
            for (size_t i = 0; i < n; i++) y[i] = i % 2 ? -1 : 1;  // nothing but ties
            check_choice(y, n, k);
            memset(y, 0, n * sizeof *y);
            check_choice(y, n, k);
            free(y);
        }
}

TEST(topk, chooses_exactly_the_largest) { each_setting(choices); }

TEST(topk, survives_a_sample_that_misleads) {
    size_t n = 100000, k = 1000;
    float *y = filled(n, 1, 1e-3f);
    for (size_t i = 0; i < 900; i++) y[i] = 5 + y[i];  // all in one corner: the guess is too low
    check_choice(y, n, k);
    for (size_t i = 0; i < n; i++) y[i] = i < n / 2 ? 1 + y[i] : y[i];  // half are large
    check_choice(y, n, k);
    for (size_t i = 0; i < n; i++) y[i] = 1e-40f * (float)(i % 977);  // subnormal numbers
    check_choice(y, n, k);
    free(y);
}

TEST(topk, sends_what_is_not_a_number_first) {
    size_t n = 20000;
    float *y = filled(n, 1, 1);
    y[777] = NAN;
    y[12345] = -INFINITY;
    check_choice(y, n, 2);
    check_choice(y, n, 100);
    free(y);
}

TEST(topk, keeps_at_least_one_and_rounds) {
    assert_int_equal(sh_sparse_kept(0.01, 6), 1);
    assert_int_equal(sh_sparse_kept(0.01, 149), 1);
    assert_int_equal(sh_sparse_kept(0.01, 150), 2);
    assert_int_equal(sh_sparse_kept(1, 150), 150);
    assert_int_equal(sh_sparse_kept(0.001, 61706), 62);
}

TEST(topk, feeds_dropped_values_back) {
    sh_codec codec = codec_of("topk:1%");
    size_t n = 300;
    rig r;
    rig_init(&r, &codec, 1, n, 0);
    float *x = malloc(n * sizeof *x);
    for (int step = 0; step < 100; step++) {  // 3 of 300 each: all have been sent by then
        for (size_t i = 0; i < n; i++) x[i] = step == 0 ? (float)(i + 1) : 0;
        round_trip(&r, 1, &x, 1, step);
        for (size_t i = 0; i < n; i++) {
            bool sent = i + 3 * (size_t)step + 3 >= n && i + 3 * (size_t)step < n;
            assert_true(x[i] == (sent ? (float)(i + 1) : 0));
        }
    }
    free(x);
    rig_fini(&r);
}

TEST(topk, without_feedback_forgets) {
    sh_codec codec = codec_of("topk:1%");
    codec.options.error_feedback = false;
    assert_int_equal(sh_codec_states(&codec), 0);
    rig r;
    rig_init(&r, &codec, 1, 300, 0);
    float *x = malloc(300 * sizeof *x);
    for (size_t i = 0; i < 300; i++) x[i] = (float)(i + 1);
    round_trip(&r, 1, &x, 1, 0);
    memset(x, 0, 300 * sizeof *x);
    round_trip(&r, 1, &x, 1, 1);
    for (size_t i = 0; i < 300; i++) assert_true(x[i] == 0);
    free(x);
    rig_fini(&r);
}

TEST(randk, ranks_choose_alike_and_values_add_up) {
    enum { RANKS = 4, N = 1000 };
    sh_codec codec = codec_of("randk:5%");
    rig rigs[RANKS];
    float *x[RANKS], *first = malloc(N * sizeof *first);
    for (int k = 0; k < RANKS; k++) rig_init(&rigs[k], &codec, 10, N / 10, k);
    for (int step = 0; step < 3; step++) {
        for (int k = 0; k < RANKS; k++) {
            x[k] = malloc(N * sizeof(float));
            memset(rigs[k].tensor.state[0], 0, N * sizeof(float));
            for (size_t i = 0; i < N; i++) x[k][i] = (float)((i + 1) * (size_t)(k + 1));
        }
        round_trip(rigs, RANKS, x, 9, step);
        size_t sent = 0;
        for (size_t i = 0; i < N; i++) {
            if (x[0][i] == 0) continue;
            sent++;
            assert_true(x[0][i] == (float)(i + 1) * 10);
        }
        assert_int_equal(sent, 50);
        if (step > 0) assert_memory_not_equal(x[0], first, N * sizeof(float));
        memcpy(first, x[0], N * sizeof *first);
        for (int k = 0; k < RANKS; k++) free(x[k]);
    }
    for (int k = 0; k < RANKS; k++) rig_fini(&rigs[k]);
    free(first);
}

/* Weights after steps of dgc at 100 % on two ranks, against plain momentum on the sum. */
static void equals_momentum(bool nesterov) {
    enum { RANKS = 2, N = 500 };
    const float lr = 0.1f, m = 0.9f;
    sh_codec codec = codec_of("dgc:100%");
    codec.options.momentum = (double)m;
    codec.options.nesterov = nesterov;
    rig rigs[RANKS];
    for (int k = 0; k < RANKS; k++) rig_init(&rigs[k], &codec, 5, N / 5, k);
    float *w = calloc(N, sizeof *w), *plain = calloc(N, sizeof *plain), *u = calloc(N, sizeof *u);
    for (int step = 0; step < 10; step++) {
        float *x[RANKS];
        for (int k = 0; k < RANKS; k++) x[k] = filled(N, (uint64_t)(2 * step + k), 1);
        for (size_t i = 0; i < N; i++) {
            float g = x[0][i] + x[1][i];
            u[i] = m * u[i] + g;
            plain[i] -= lr * (nesterov ? g + m * u[i] : u[i]);
        }
        round_trip(rigs, RANKS, x, 1, step);
        for (size_t i = 0; i < N; i++) w[i] -= lr * x[0][i];
        for (int k = 0; k < RANKS; k++) free(x[k]);
    }
    CHECK_CLOSE(w, plain, N, 1e-5);
    for (int k = 0; k < RANKS; k++) rig_fini(&rigs[k]);
    free(w), free(plain), free(u);
}

TEST(dgc, at_100_percent_is_momentum_sgd) { equals_momentum(false); }
TEST(dgc, at_100_percent_is_nesterov_sgd) { equals_momentum(true); }

/* Algorithm of the paper, element by element. */
TEST(dgc, corrects_momentum_and_masks_factors) {
    enum { N = 400, K = 4 };
    sh_codec codec = codec_of("dgc:1%");
    codec.options.momentum = 0.5;
    rig r;
    rig_init(&r, &codec, 1, N, 0);
    float *u = calloc(N, sizeof *u), *v = calloc(N, sizeof *v), *want = calloc(N, sizeof *want);
    for (int step = 0; step < 20; step++) {
        float *x = filled(N, (uint64_t)step, 1);
        for (size_t i = 0; i < N; i++) {
            u[i] = 0.5f * u[i] + x[i];
            v[i] += u[i];
            want[i] = 0;
        }
        for (int k = 0; k < K; k++) {
            size_t best = 0;
            for (size_t i = 0; i < N; i++)
                if (fabsf(v[i]) > fabsf(v[best])) best = i;
            want[best] = v[best];
            u[best] = v[best] = 0;
        }
        round_trip(&r, 1, &x, 1, step);
        CHECK_CLOSE(x, want, N, 1e-5);
        CHECK_CLOSE(r.tensor.state[0], v, N, 1e-5);
        CHECK_CLOSE(r.tensor.state[1], u, N, 1e-5);
        free(x);
    }
    free(u), free(v), free(want);
    rig_fini(&r);
}

TEST(dgc, warms_up_in_stages) {
    sh_codec codec = codec_of("dgc:0.1%");
    codec.options.warmup_steps = 40;
    sh_codec_tensor tensor = {.rows = 1, .columns = 65536, .count = 65536};
    const struct {
        int64_t step;
        size_t kept;
    } cases[] = {{0, 16384}, {9, 16384}, {10, 4096}, {20, 1024},
                 {30, 256},  {39, 256},  {40, 66},   {1000, 66}};
    for (size_t c = 0; c < SH_COUNT(cases); c++) {
        codec.step = cases[c].step;
        assert_int_equal(sh_codec_bytes(&codec, &tensor, 0), sh_sparse_bytes(cases[c].kept));
        assert_int_equal(sh_codec_bytes_most(&codec, &tensor, 0), sh_sparse_bytes(16384));
    }
}

TEST(dgc, sends_small_parameters_whole) {
    sh_codec codec;
    CHECK_OK(sh_codec_parse("dgc:0.1%", &codec));
    sh_codec_tensor small = {.rows = 1, .columns = 4095, .count = 4095};
    sh_codec_tensor large = {.rows = 1, .columns = 4096, .count = 4096};
    assert_true(sh_codec_is_dense(&codec, &small));
    assert_int_equal(sh_codec_bytes(&codec, &small, 0), 4095 * sizeof(float));
    assert_false(sh_codec_is_dense(&codec, &large));
    assert_int_equal(sh_codec_bytes(&codec, &large, 0), sh_sparse_bytes(4));
}

TEST(dgc, keeps_mass_through_the_warm_up) {
    enum { N = 30000 };
    sh_codec codec = codec_of("dgc:0.1%");
    codec.options.warmup_steps = 8;
    rig r;
    rig_init(&r, &codec, 100, N / 100, 0);
    float *given = calloc(N, sizeof *given), *total = calloc(N, sizeof *total);
    for (int step = 0; step < 12; step++) {
        float *x = filled(N, (uint64_t)step, 1);
        for (size_t i = 0; i < N; i++) given[i] += x[i];
        round_trip(&r, 1, &x, 1, step);
        for (size_t i = 0; i < N; i++) total[i] += x[i];
        free(x);
    }
    for (size_t i = 0; i < N; i++) total[i] += r.tensor.state[0][i];
    CHECK_CLOSE(total, given, N, 1e-5);
    free(given), free(total);
    rig_fini(&r);
}
