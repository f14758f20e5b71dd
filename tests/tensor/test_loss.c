#include "tensor/kernels/loss.h"

#include <math.h>

#include "settings.h"
#include "tensor/kernels/reference.h"
#include "tensor/kernels/softmax.h"

static const struct row_case {
    size_t rows, classes;
} CASES[] = {{1, 1}, {3, 2},     {5, 7},     {128, 10}, {17, 33},
             {9, 8}, {5000, 10}, {7, 50257}, {130, 300}};

static int32_t *labels_for(size_t rows, size_t classes, bool ignore_some) {
    int32_t *labels = malloc(rows * sizeof *labels);
    for (size_t i = 0; i < rows; i++) labels[i] = (int32_t)((i * 7919 + 3) % classes);
    for (size_t i = 0; ignore_some && i < rows; i += 3) labels[i] = SH_IGNORE_INDEX;
    return labels;
}

typedef sh_class_loss_sum (*class_loss)(const float *, const int32_t *, size_t, size_t,
                                        const sh_class_loss_options *, float *);

static void check_class_loss(class_loss kernel, class_loss reference, float smoothing,
                             bool ignore_some) {
    for (size_t c = 0; c < SH_COUNT(CASES); c++) {
        size_t rows = CASES[c].rows, classes = CASES[c].classes, n = rows * classes;
        float *x = filled(n, c, 5), *dx = filled(n, 9, 1), *want = filled(n, 8, 1);
        int32_t *labels = labels_for(rows, classes, ignore_some);
        for (size_t i = 0; i < rows; i += 2)  // some rows are right
            if (labels[i] >= 0) x[i * classes + (size_t)labels[i]] = 6;
        sh_class_loss_options options = {smoothing, 0.25f, SH_IGNORE_INDEX};
        sh_class_loss_sum expect = reference(x, labels, rows, classes, &options, want);
        sh_class_loss_sum value = kernel(x, labels, rows, classes, &options, NULL);
        sh_class_loss_sum both = kernel(x, labels, rows, classes, &options, dx);
        sh_class_loss_sum in_place;
        CHECK_CLOSE(dx, want, n, 1e-6);
        in_place = kernel(x, labels, rows, classes, &options, x);
        assert_memory_equal(x, dx, n * sizeof *x);
        assert_true(fabs(value.loss - expect.loss) <= 2e-6 * fmax(1, fabs(expect.loss)));
        assert_true(value.loss == both.loss && value.loss == in_place.loss);
        assert_int_equal(value.counted, expect.counted);
        assert_int_equal(value.counted, sh_loss_counted(labels, rows, SH_IGNORE_INDEX));
        assert_int_equal(value.correct, expect.correct);
        free(x), free(dx), free(want), free(labels);
    }
}

static void cross_entropy(void) {
    class_loss kernel = sh_losses()->softmax_cross_entropy;
    check_class_loss(kernel, sh_ref_softmax_cross_entropy, 0, false);
    check_class_loss(kernel, sh_ref_softmax_cross_entropy, 0.1f, false);
    check_class_loss(kernel, sh_ref_softmax_cross_entropy, 0, true);
    check_class_loss(kernel, sh_ref_softmax_cross_entropy, 0.2f, true);
}

static void hinge(void) {
    check_class_loss(sh_losses()->hinge, sh_ref_hinge, 0, false);
    check_class_loss(sh_losses()->hinge, sh_ref_hinge, 0, true);
}

TEST(cross_entropy, matches_reference) { each_setting(cross_entropy); }
TEST(hinge, matches_reference) { each_setting(hinge); }

static void far_logits(void) {
    float x[] = {1e4f, -1e4f, 0, 3e38f, -3e38f, 1}, dx[6];
    const int32_t labels[] = {1, 0};
    sh_class_loss_options options = {0, 1, SH_IGNORE_INDEX};
    sh_class_loss_sum sum = sh_losses()->softmax_cross_entropy(x, labels, 2, 3, &options, dx);
    assert_true(fabs(sum.loss - 2e4) < 1e-2 && sum.correct == 1);
    const float want[] = {1, -1, 0, 0, 0, 0};
    CHECK_CLOSE(dx, want, 6, 1e-6);
    x[2] = NAN;
    sum = sh_losses()->softmax_cross_entropy(x, labels, 1, 3, &options, NULL);
    assert_true(isnan(sum.loss));
    x[2] = INFINITY;
    sum = sh_losses()->softmax_cross_entropy(x, labels, 1, 3, &options, NULL);
    assert_false(isfinite(sum.loss));
}

TEST(cross_entropy, bears_far_logits_and_shows_nan) { each_setting(far_logits); }

static void first_of_equals(void) {
    const float x[] = {1, 2, 2, 2};
    const int32_t first = 1, second = 2;
    sh_class_loss_options options = {0, 1, SH_IGNORE_INDEX};
    assert_int_equal(sh_losses()->softmax_cross_entropy(x, &first, 1, 4, &options, NULL).correct,
                     1);
    assert_int_equal(sh_losses()->softmax_cross_entropy(x, &second, 1, 4, &options, NULL).correct,
                     0);
}

TEST(cross_entropy, counts_the_first_of_equal_scores) { each_setting(first_of_equals); }

TEST(cross_entropy, sum_does_not_depend_on_threads) {
    size_t rows = 5001, classes = 10;
    float *x = filled(rows * classes, 3, 4);
    int32_t *labels = labels_for(rows, classes, true);
    sh_class_loss_options options = {0.1f, 1, SH_IGNORE_INDEX};
    double loss[4];
    for (int threads = 1; threads <= 4; threads++) {
        omp_set_num_threads(threads);
        loss[threads - 1] =
            sh_losses()->softmax_cross_entropy(x, labels, rows, classes, &options, NULL).loss;
        assert_true(loss[threads - 1] == loss[0]);
    }
    free(x), free(labels);
}

typedef double (*element_reference)(double, double, double *);

static double huber_of(double pred, double target, double *slope) {
    return sh_ref_huber(pred, target, 0.75, slope);
}
static double huber_kernel(const float *pred, const float *target, size_t count, float scale,
                           float *dpred) {
    return sh_losses()->huber(pred, target, count, 0.75f, scale, dpred);
}

static void check_elements(double (*kernel)(const float *, const float *, size_t, float, float *),
                           element_reference reference) {
    const size_t counts[] = {1, 5, 8, 100, 1025, 100003};
    for (size_t c = 0; c < SH_COUNT(counts); c++) {
        size_t n = counts[c];
        float *x = filled(n, n, 4), *t = filled(n, n + 1, 0.5f);
        float *dx = filled(n, 1, 1), *want = filled(n, 2, 1);
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            double slope;
            t[i] += 0.5f;
            sum += reference((double)x[i], (double)t[i], &slope);
            want[i] = (float)(slope * 0.5);
        }
        double value = kernel(x, t, n, 0.5f, NULL);
        assert_true(fabs(value - sum) <= 1e-6 * fmax(1, fabs(sum)));
        assert_true(kernel(x, t, n, 0.5f, dx) == value);
        CHECK_CLOSE(dx, want, n, 1e-6);
        kernel(x, t, n, 0.5f, x);
        assert_memory_equal(x, dx, n * sizeof *x);
        free(x), free(t), free(dx), free(want);
    }
}

static void elements(void) {
    check_elements(sh_losses()->mse, sh_ref_mse);
    check_elements(sh_losses()->bce_logits, sh_ref_bce_logits);
    check_elements(huber_kernel, huber_of);
}

TEST(element_losses, match_reference) { each_setting(elements); }

TEST(references, have_the_slopes_of_finite_differences) {
    const element_reference all[] = {sh_ref_mse, sh_ref_bce_logits, huber_of};
    for (size_t f = 0; f < SH_COUNT(all); f++)
        for (double x = -3.01; x < 3; x += 0.37) {
            double slope, unused, h = 1e-5;
            all[f](x, 0.4, &slope);
            double difference =
                (all[f](x + h, 0.4, &unused) - all[f](x - h, 0.4, &unused)) / (2 * h);
            assert_true(fabs(slope - difference) < 1e-7);
        }
}

/* Losses are doubles over float scores, so differences need a wide step. */
TEST(cross_entropy, gradient_matches_finite_differences) {
    const size_t rows = 6, classes = 11;
    const class_loss kernels[] = {sh_losses()->softmax_cross_entropy, sh_losses()->hinge};
    for (size_t k = 0; k < SH_COUNT(kernels); k++) {
        float *x = filled(rows * classes, 1, 2), *dx = filled(rows * classes, 2, 1);
        int32_t *labels = labels_for(rows, classes, true);
        sh_class_loss_options options = {0.1f, 1, SH_IGNORE_INDEX};
        kernels[k](x, labels, rows, classes, &options, dx);
        for (size_t i = 0; i < rows * classes; i++) {
            float kept = x[i], h = 1e-3f;
            x[i] = kept + h;
            double up = kernels[k](x, labels, rows, classes, &options, NULL).loss;
            x[i] = kept - h;
            double down = kernels[k](x, labels, rows, classes, &options, NULL).loss;
            x[i] = kept;
            assert_true(fabs((up - down) / (2 * (double)h) - (double)dx[i]) < 2e-3);
        }
        free(x), free(dx), free(labels);
    }
}

static void softmax(void) {
    for (size_t c = 0; c < SH_COUNT(CASES); c++) {
        size_t rows = CASES[c].rows, cols = CASES[c].classes, n = rows * cols;
        float *x = filled(n, c, 6), *y = filled(n, 1, 1), *want = filled(n, 2, 1);
        float *dy = filled(n, 3, 1), *dx = filled(n, 4, 1);
        sh_softmax()->forward(x, y, rows, cols);
        sh_ref_softmax(x, want, rows, cols);
        CHECK_CLOSE(y, want, n, 1e-6);
        sh_softmax()->backward(dy, y, dx, rows, cols);
        for (size_t row = 0; row < rows; row++) {
            double dot = 0;
            for (size_t j = row * cols; j < (row + 1) * cols; j++)
                dot += (double)dy[j] * (double)y[j];
            for (size_t j = row * cols; j < (row + 1) * cols; j++)
                want[j] = (float)((double)y[j] * ((double)dy[j] - dot));
        }
        CHECK_CLOSE(dx, want, n, 1e-6);
        sh_softmax()->backward(dy, y, dy, rows, cols);
        assert_memory_equal(dx, dy, n * sizeof *dx);
        sh_softmax()->forward(x, x, rows, cols);
        assert_memory_equal(x, y, n * sizeof *x);
        free(x), free(y), free(want), free(dy), free(dx);
    }
}

TEST(softmax, matches_reference) { each_setting(softmax); }

/* Equal probabilities and gradients of one sign: the sum over a row is long. */
static void wide_softmax(void) {
    enum { COLS = 1 << 18 };
    float *x = filled(COLS, 1, 0.1f), *y = filled(COLS, 2, 1), *want = filled(COLS, 3, 1);
    float *dy = filled(COLS, 4, 1);
    for (size_t j = 0; j < COLS; j++) dy[j] += 1;
    sh_softmax()->forward(x, y, 1, COLS);
    sh_ref_softmax(x, want, 1, COLS);
    double dot = 0;
    for (size_t j = 0; j < COLS; j++) dot += (double)dy[j] * (double)y[j];
    for (size_t j = 0; j < COLS; j++) y[j] *= COLS, want[j] *= COLS;  // about 1
    CHECK_CLOSE(y, want, COLS, 7e-7);
    sh_softmax()->backward(dy, y, x, 1, COLS);
    for (size_t j = 0; j < COLS; j++) want[j] = dy[j] - (float)(dot * COLS);
    for (size_t j = 0; j < COLS; j++) x[j] /= y[j];
    CHECK_CLOSE(x, want, COLS, 1e-6);
    free(x), free(y), free(want), free(dy);
}

TEST(softmax, keeps_its_digits_in_wide_rows) { each_setting(wide_softmax); }

/* exp(1000) is no float: the largest logit of a row must be taken off before. */
static void large_logits(void) {
    enum { COLS = 19 };
    const float levels[] = {1000, -1000, 3e38f, 1e5f};
    float x[COLS], y[COLS], want[COLS];
    for (size_t l = 0; l < SH_COUNT(levels); l++) {
        for (size_t j = 0; j < COLS; j++) x[j] = levels[l] + 0.5f * (float)(j % 7);
        sh_softmax()->forward(x, y, 1, COLS);
        sh_ref_softmax(x, want, 1, COLS);
        for (size_t j = 0; j < COLS; j++) assert_true(isfinite(want[j]) && want[j] > 0);
        CHECK_CLOSE(y, want, COLS, 1e-6);
    }
    const float far[] = {1000, -1000, 0, -3e38f, -INFINITY}, first[] = {1, 0, 0, 0, 0};
    sh_softmax()->forward(far, y, 1, SH_COUNT(far));
    CHECK_CLOSE(y, first, SH_COUNT(far), 1e-6);
}

TEST(softmax, bears_large_logits) { each_setting(large_logits); }

typedef struct softmax_run {
    const float *x;
    float *y;
    size_t rows, cols;
} softmax_run;

static void run_softmax(void *context) {
    softmax_run *r = context;
    sh_softmax()->forward(r->x, r->y, r->rows, r->cols);
}

TEST(softmax, gradient_matches_finite_differences) {
    float *x = filled(3 * 9, 1, 2), *dy = filled(3 * 9, 2, 1), y[27], dx[27];
    softmax_run r = {x, y, 3, 9};
    run_softmax(&r);
    sh_softmax()->backward(dy, y, dx, 3, 9);
    check_slopes(run_softmax, &r, x, 27, y, dy, 27, dx, 1e-2, 2e-4);
    free(x), free(dy);
}
