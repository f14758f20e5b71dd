/* What every codec promises: errors within bounds, nothing lost, the right mean. */
#include "rig.h"

#include <math.h>

static const size_t shapes[][2] = {{1, 1},   {1, 7},     {6, 25},  {16, 150},
                                   {10, 84}, {64, 1037}, {257, 8}, {300, 301}};

/* All kinds with amounts that leave something to see, with and without error feedback. */
static const char *const texts[] = {"fp16",     "bf16",     "int8",     "qsgd:2",     "qsgd:3",
                                    "qsgd:4",   "qsgd:8",   "terngrad", "onebit",     "topk:1%",
                                    "topk:30%", "randk:5%", "dgc:2%",   "powersgd:1", "powersgd:3"};

static void keeps_mass(const sh_codec *codec, size_t rows, size_t columns) {
    size_t n = rows * columns;
    rig r;
    rig_init(&r, codec, rows, columns, 0);
    double *given = calloc(n, sizeof *given), *got = calloc(n, sizeof *got);
    float *want = calloc(n, sizeof *want), *have = calloc(n, sizeof *have);
    for (int step = 0; step < 4; step++) {
        float *x = filled(n, 100 + (uint64_t)step, 3);
        for (size_t i = 0; i < n; i++) given[i] += (double)x[i];
        round_trip(&r, 1, &x, 1, step);
        for (size_t i = 0; i < n; i++) {
            got[i] += (double)x[i];
            want[i] = (float)given[i];
            have[i] = (float)(got[i] + (double)r.tensor.state[0][i]);
        }
        CHECK_CLOSE(have, want, n, 1e-5);
        free(x);
    }
    free(given), free(got), free(want), free(have);
    rig_fini(&r);
}

static void mass(void) {
    for (size_t t = 0; t < SH_COUNT(texts); t++) {
        sh_codec codec = codec_of(texts[t]);
        if (codec.kind->feedback == SH_FEEDBACK_NEVER) continue;
        codec.options.error_feedback = true;  // fp16 and bf16 too
        for (size_t s = 0; s < SH_COUNT(shapes); s++)
            keeps_mass(&codec, shapes[s][0], shapes[s][1]);
    }
}

TEST(feedback, decoded_and_residual_are_the_gradients_so_far) { each_setting(mass); }

TEST(feedback, mass_is_kept_over_ranks) {
    const char *const summed[] = {"int8", "onebit", "topk:1%", "randk:5%", "dgc:1%", "powersgd:2"};
    enum { RANKS = 3 };
    size_t rows = 32, columns = 77, n = rows * columns;
    for (size_t t = 0; t < SH_COUNT(summed); t++) {
        sh_codec codec = codec_of(summed[t]);
        rig rigs[RANKS];
        for (int k = 0; k < RANKS; k++) rig_init(&rigs[k], &codec, rows, columns, k);
        float *want = calloc(n, sizeof *want), *total = calloc(n, sizeof *total);
        for (int step = 0; step < 5; step++) {
            float *x[RANKS];
            for (int k = 0; k < RANKS; k++) {
                x[k] = filled(n, (uint64_t)(10 * step + k), 1);
                for (size_t i = 0; i < n; i++) want[i] += x[k][i];
            }
            round_trip(rigs, RANKS, x, 1, step);
            for (int k = 1; k < RANKS; k++) assert_memory_equal(x[k], x[0], n * sizeof(float));
            for (size_t i = 0; i < n; i++) total[i] += x[0][i];
            for (int k = 0; k < RANKS; k++) free(x[k]);
        }
        for (int k = 0; k < RANKS; k++) {
            for (size_t i = 0; i < n; i++) total[i] += rigs[k].tensor.state[0][i];
            rig_fini(&rigs[k]);
        }
        CHECK_CLOSE(total, want, n, 2e-5);
        free(want), free(total);
    }
}

/* The decoded x of one step without feedback. */
static float *decoded(const sh_codec *codec, const float *x, size_t rows, size_t columns,
                      uint64_t seed) {
    rig r;
    rig_init(&r, codec, rows, columns, 0);
    float *y = copied(x, rows * columns);
    round_trip(&r, 1, &y, seed, 0);
    rig_fini(&r);
    return y;
}

static void quantised_bounds(void) {
    const struct {
        const char *text;
        double part;  // of the block's largest magnitude
    } cases[] = {{"int8", 0.5 / 127}, {"qsgd:2", 1},       {"qsgd:3", 1. / 3},
                 {"qsgd:4", 1. / 7},  {"qsgd:5", 1. / 15}, {"qsgd:6", 1. / 31},
                 {"qsgd:7", 1. / 63}, {"qsgd:8", 1. / 127}};
    for (size_t c = 0; c < SH_COUNT(cases); c++)
        for (size_t s = 0; s < SH_COUNT(shapes); s++) {
            sh_codec codec = codec_of(cases[c].text);
            size_t n = shapes[s][0] * shapes[s][1];
            float *x = filled(n, s, 0.01f), *y = decoded(&codec, x, shapes[s][0], shapes[s][1], 5);
            double most = 0;
            for (size_t i = 0; i < n; i++) {
                if (i % 512 == 0) most = 0;
                for (size_t k = i; i % 512 == 0 && k < n && k < i + 512; k++)
                    most = fmax(most, fabs((double)x[k]));
                assert_true(fabs((double)x[i] - (double)y[i]) <= most * cases[c].part * 1.0001);
            }
            free(x), free(y);
        }
}

TEST(levels, stay_within_a_step_of_the_value) { each_setting(quantised_bounds); }

TEST(levels, bits_do_not_depend_on_threads) {
    sh_codec codec = codec_of("qsgd:4");
    size_t n = 300000;
    float *x = filled(n, 1, 1);
    omp_set_num_threads(1);
    float *one = decoded(&codec, x, 1, n, 5);
    omp_set_num_threads(3);
    float *three = decoded(&codec, x, 1, n, 5);
    assert_memory_equal(one, three, n * sizeof *one);
    free(x), free(one), free(three);
}

TEST(levels, zeros_and_tiny_values_stay_calm) {
    const char *const all[] = {"int8", "qsgd:4", "terngrad", "onebit", "topk:1%", "powersgd:2"};
    for (size_t t = 0; t < SH_COUNT(all); t++) {
        sh_codec codec = codec_of(all[t]);
        float x[600] = {0}, *y = decoded(&codec, x, 20, 30, 1);
        for (size_t i = 0; i < 600; i++) assert_true(y[i] == 0);
        free(y);
        for (size_t i = 0; i < 600; i++) x[i] = i % 2 ? 1e-42f : -1e-40f;
        y = decoded(&codec, x, 20, 30, 1);
        for (size_t i = 0; i < 600; i++) assert_true(fabsf(y[i]) <= 1e-39f);
        free(y);
    }
}

/* Mean of many draws against the value: within 6 standard errors, measured from the draws. What a
 * draw can be off by is at most `step`; a rare one may not occur at all, so two of that size are
 * added to what was measured. */
static void unbiased(const sh_codec *codec, size_t rows, size_t columns, double step) {
    enum { DRAWS = 300 };
    size_t n = rows * columns;
    float *x = filled(n, 77, 1);
    double *sum = calloc(n, sizeof *sum), *squares = calloc(n, sizeof *squares), worst = 0;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        float *y = decoded(codec, x, rows, columns, seed);
        for (size_t i = 0; i < n; i++) {
            sum[i] += (double)y[i];
            squares[i] += (double)y[i] * (double)y[i];
        }
        free(y);
    }
    double shift = 0, bias = 0, variance = 0;
    for (size_t i = 0; i < n; i++) {
        double mean = sum[i] / DRAWS, spread = squares[i] / DRAWS - mean * mean;
        double error = mean - (double)x[i];
        double standard = sqrt((spread + 2 * step * step / DRAWS) / DRAWS);
        worst = fmax(worst, fabs(error) / standard);
        shift += error;                       // up or down, all together
        bias += (x[i] > 0 ? 1 : -1) * error;  // towards or away from zero
        variance += (spread + 1e-12) / DRAWS;
    }
    if (worst > 6) fail_msg("%s: an element is %.1f standard errors off", codec->kind->name, worst);
    if (fabs(shift) > 5 * sqrt(variance))
        fail_msg("%s: is shifted by %.2g, standard error %.2g", codec->kind->name, shift,
                 sqrt(variance));
    if (fabs(bias) > 5 * sqrt(variance))
        fail_msg("%s: shrinks or grows by %.2g, standard error %.2g", codec->kind->name, bias,
                 sqrt(variance));
    free(x), free(sum), free(squares);
}

TEST(unbiased, qsgd_means_the_gradient) {
    for (int bits = 2; bits <= 8; bits += 2) {
        sh_codec codec = codec_of("qsgd");
        codec.options.amount = bits;
        unbiased(&codec, 20, 61, 1.0 / ((1 << (bits - 1)) - 1));
    }
}

TEST(unbiased, int8_without_feedback_means_the_gradient) {
    sh_codec codec = codec_of("int8");
    codec.options.error_feedback = false;
    unbiased(&codec, 20, 61, 1.0 / 127);
}

TEST(unbiased, terngrad_means_the_gradient) {
    sh_codec codec = codec_of("terngrad");
    codec.options.clip = 0;
    unbiased(&codec, 20, 61, 1);
}

TEST(unbiased, randk_without_feedback_means_the_gradient) {
    sh_codec codec = codec_of("randk:20%");
    codec.options.error_feedback = false;
    unbiased(&codec, 20, 61, 5);
}

/* Two of seven: one of the first three, and one of the other four. */
TEST(unbiased, randk_without_feedback_weighs_by_the_length_of_the_stretch) {
    enum { DRAWS = 4000, N = 7, FIRST = 3 };
    sh_codec codec = codec_of("randk:30%");
    codec.options.error_feedback = false;
    float x[N] = {1, -2, 3, 4, 5, -6, 7};
    int hits[N] = {0};
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        float *y = decoded(&codec, x, 1, N, seed);
        int in_first = 0, in_second = 0;
        for (int i = 0; i < N; i++) {
            if (y[i] == 0) continue;
            assert_true(y[i] == x[i] * (float)(i < FIRST ? FIRST : N - FIRST));
            hits[i]++;
            (*(i < FIRST ? &in_first : &in_second))++;
        }
        assert_int_equal(in_first, 1);
        assert_int_equal(in_second, 1);
        free(y);
    }
    for (int i = 0; i < N; i++) {
        double chance = 1.0 / (i < FIRST ? FIRST : N - FIRST);
        double deviation = sqrt(DRAWS * chance * (1 - chance));
        assert_true(fabs(hits[i] - DRAWS * chance) < 5 * deviation);
    }
}

TEST(unbiased, ranks_draw_for_themselves) {
    sh_codec codec = codec_of("qsgd:2");
    size_t n = 4096;
    rig a, b;
    rig_init(&a, &codec, 1, n, 0);
    rig_init(&b, &codec, 1, n, 1);
    float *x = filled(n, 1, 1), *y = copied(x, n), *both[] = {x, y};
    rig rigs[] = {a, b};
    round_trip(rigs, 2, both, 1, 0);
    assert_memory_not_equal(a.message, b.message, sh_codec_bytes(&codec, &a.tensor, 0));
    rig_fini(&a), rig_fini(&b);
    free(x), free(y);
}

static void ternary_values(void) {
    for (size_t s = 0; s < SH_COUNT(shapes); s++) {
        sh_codec codec = codec_of("terngrad");
        codec.options.clip = 0;
        size_t n = shapes[s][0] * shapes[s][1];
        if (n < 30) continue;  // dense
        float *x = filled(n, s, 1), *y = decoded(&codec, x, shapes[s][0], shapes[s][1], 3);
        float most = 0;
        for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
        for (size_t i = 0; i < n; i++) {
            assert_true(y[i] == 0 || fabsf(y[i]) == most);
            assert_true(y[i] * x[i] >= 0);
        }
        free(x), free(y);
    }
}

TEST(terngrad, has_three_values) { each_setting(ternary_values); }

TEST(terngrad, clips_at_deviations) {
    sh_codec codec = codec_of("terngrad");
    size_t n = 5000;
    float *x = filled(n, 1, 1);
    x[17] = -1000;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i], squares += (double)x[i] * (double)x[i];
    double sigma = sqrt(squares / (double)n - sum * sum / (double)n / (double)n);
    float *y = decoded(&codec, x, 1, n, 3);
    assert_true(fabs((double)y[17] + 2.5 * sigma) < 1e-4 * sigma);
    free(x), free(y);
}

static void signs(void) {
    for (size_t s = 0; s < SH_COUNT(shapes); s++) {
        sh_codec codec = codec_of("onebit");
        size_t rows = shapes[s][0], columns = shapes[s][1];
        if (columns < 8) continue;  // dense
        float *x = filled(rows * columns, s, 1), *y = decoded(&codec, x, rows, columns, 3);
        for (size_t row = 0; row < rows; row++) {
            double sum[2] = {0}, count[2] = {0};
            for (size_t i = row * columns; i < (row + 1) * columns; i++)
                sum[x[i] >= 0] += (double)x[i], count[x[i] >= 0]++;
            for (size_t i = row * columns; i < (row + 1) * columns; i++) {
                float want = (float)(sum[x[i] >= 0] / count[x[i] >= 0]);
                CHECK_CLOSE(&y[i], &want, 1, 1e-6);
            }
        }
        free(x), free(y);
    }
}

TEST(onebit, sends_two_means_per_output) { each_setting(signs); }

TEST(sizes, are_what_the_page_says) {
    const struct {
        const char *text;
        size_t rows, columns, bytes;
    } cases[] = {
        {"fp16", 10, 100, 2000},
        {"bf16", 10, 101, 2020},
        {"int8", 10, 100, 4 * 2 + 1000},
        {"qsgd:4", 10, 100, 4 * 2 + 500},
        {"qsgd:3", 10, 100, 4 * 2 + 376},
        {"terngrad", 10, 100, 4 + 200},
        {"onebit", 10, 100, 10 * 8 + 128},
        {"topk:1%", 10, 100, 80},
        {"topk:1%", 1, 6, 8},
        {"randk:1%", 10, 100, 40},
        {"dgc:0.1%", 10, 1000, 80},
        {"powersgd:2", 20, 100, 80 * 2},
        {"powersgd:2", 1, 100, 400},  // a vector goes dense
        {"topk:50%", 10, 100, 4000},  // as large as dense: dense
        {"terngrad", 1, 1, 4},
        {"onebit", 10, 1, 40},
    };
    for (size_t c = 0; c < SH_COUNT(cases); c++) {
        sh_codec codec = codec_of(cases[c].text);
        sh_codec_tensor tensor = {.rows = cases[c].rows,
                                  .columns = cases[c].columns,
                                  .count = cases[c].rows * cases[c].columns};
        assert_int_equal(sh_codec_bytes(&codec, &tensor, 0), cases[c].bytes);
    }
}

TEST(sizes, never_exceed_dense) {
    for (size_t t = 0; t < SH_COUNT(texts); t++)
        for (size_t s = 0; s < SH_COUNT(shapes); s++) {
            sh_codec codec = codec_of(texts[t]);
            sh_codec_tensor tensor = {.rows = shapes[s][0],
                                      .columns = shapes[s][1],
                                      .count = shapes[s][0] * shapes[s][1]};
            size_t bytes = 0;
            for (int round = 0; round < codec.kind->rounds; round++)
                bytes += sh_codec_bytes(&codec, &tensor, round);
            assert_true(bytes <= tensor.count * sizeof(float));
        }
}

TEST(sizes, empty_parameters_are_empty_messages) {
    for (size_t t = 0; t < SH_COUNT(texts); t++) {
        sh_codec codec = codec_of(texts[t]);
        float nothing[1] = {5}, *x = nothing;
        rig r;
        rig_init(&r, &codec, 1, 0, 0);
        assert_int_equal(sh_codec_bytes(&codec, &r.tensor, 0), 0);
        round_trip(&r, 1, &x, 1, 0);
        rig_fini(&r);
    }
}

TEST(matrix, is_outputs_by_the_rest) {
    size_t rows, columns;
    sh_codec_matrix(&SH_SHAPE(64, 3, 5, 5), &rows, &columns);
    assert_int_equal(rows, 64);
    assert_int_equal(columns, 75);
    sh_codec_matrix(&SH_SHAPE(10), &rows, &columns);
    assert_int_equal(rows, 1);
    assert_int_equal(columns, 10);
    sh_shape scalar = {0};
    sh_codec_matrix(&scalar, &rows, &columns);
    assert_int_equal(rows * columns, 1);
}
