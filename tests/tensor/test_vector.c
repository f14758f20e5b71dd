#include "tensor/kernels/vector.h"

#include <math.h>

#include "settings.h"
#include "tensor/kernels/layout.h"
#include "tensor/kernels/reduce.h"

static void elementwise(void) {
    const size_t counts[] = {0, 1, 7, 8, 33, 32769, 100001};
    const sh_vector_kernels *k = sh_vector();
    for (size_t c = 0; c < SH_COUNT(counts); c++) {
        size_t n = counts[c];
        float *a = filled(n, 1, 1), *b = filled(n, 2, 1), *z = filled(n, 3, 1);
        float *want = filled(n, 4, 1);
        for (size_t i = 0; i < n; i++) want[i] = a[i] + b[i];
        k->add(a, b, z, n);
        assert_memory_equal(z, want, n * sizeof *z);
        k->copy(a, z, n);
        assert_memory_equal(z, a, n * sizeof *z);
        k->add_to(z, b, n);
        assert_memory_equal(z, want, n * sizeof *z);
        for (size_t i = 0; i < n; i++) want[i] = a[i] * b[i];
        k->copy(a, z, n);
        k->multiply_to(z, b, n);
        assert_memory_equal(z, want, n * sizeof *z);
        for (size_t i = 0; i < n; i++) want[i] = a[i] * -0.3f;
        k->copy(a, z, n);
        k->scale(z, -0.3f, n);
        assert_memory_equal(z, want, n * sizeof *z);
        for (size_t i = 0; i < n; i++) want[i] = b[i] + 1.5f * a[i];
        k->axpy(1.5f, a, b, n);
        CHECK_CLOSE(b, want, n, 1e-6);
        k->fill(z, 2.5f, n);
        for (size_t i = 0; i < n; i++) assert_true(z[i] == 2.5f);
        free(a), free(b), free(z), free(want);
    }
}

TEST(vector, does_element_wise_work) { each_setting(elementwise); }

static void biases(void) {
    const size_t shapes[][2] = {{1, 1},    {5, 3},    {128, 10}, {33, 64},
                                {10, 200}, {700, 77}, {3, 50257}};
    for (size_t s = 0; s < SH_COUNT(shapes); s++) {
        size_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
        float *x = filled(n, 1, 1), *bias = filled(cols, 2, 1), *want = copied(x, n);
        float *db = filled(cols, 3, 1), *db_want = copied(db, cols);
        for (size_t i = 0; i < n; i++) want[i] += bias[i % cols];
        sh_vector()->bias_add_rows(x, bias, rows, cols);
        assert_memory_equal(x, want, n * sizeof *x);
        for (int accumulate = 1; accumulate >= 0; accumulate--) {
            for (size_t c = 0; c < cols; c++) {
                double sum = accumulate ? (double)db[c] : 0;
                for (size_t row = 0; row < rows; row++) sum += (double)x[row * cols + c];
                db_want[c] = (float)sum;
            }
            sh_vector()->bias_grad(x, rows, cols, accumulate, db);
            CHECK_CLOSE(db, db_want, cols, 3e-6);
        }
        free(x), free(bias), free(want), free(db), free(db_want);
    }
}

TEST(bias, is_added_and_its_gradient_sums_columns) { each_setting(biases); }

static void image_biases(void) {
    const size_t shapes[][4] = {
        {3, 5, 7, 1}, {2, 16, 9, 8}, {4, 32, 300, 16}, {9, 4, 1021, 1}, {2, 6, 5, 3}};
    for (size_t s = 0; s < SH_COUNT(shapes); s++) {
        size_t N = shapes[s][0], C = shapes[s][1], area = shapes[s][2], lanes = shapes[s][3];
        float *dy = filled(N * C * area, 1, 1), *db = filled(C, 2, 1);
        for (int accumulate = 1; accumulate >= 0; accumulate--) {
            double sum[64] = {0};
            float want[64];
            for (size_t i = 0; i < N * C * area; i++)
                sum[i / (area * lanes) % (C / lanes) * lanes + i % lanes] += (double)dy[i];
            for (size_t c = 0; c < C; c++) want[c] = (float)sum[c] + (accumulate ? db[c] : 0);
            sh_vector()->bias_grad_images(dy, N, C, area, lanes, accumulate, db);
            CHECK_CLOSE(db, want, C, 5e-6);
        }
        free(dy), free(db);
    }
}

TEST(bias, gradient_of_images_sums_all_but_channels) { each_setting(image_biases); }

static void layouts(void) {
    const size_t shapes[][4] = {{2, 16, 35, 8}, {1, 32, 1, 16}, {3, 6, 10, 3}, {9, 64, 130, 8}};
    for (size_t s = 0; s < SH_COUNT(shapes); s++) {
        size_t N = shapes[s][0], C = shapes[s][1], area = shapes[s][2], block = shapes[s][3];
        size_t n = N * C * area;
        float *plain = filled(n, 1, 1), *blocked = filled(n, 2, 1), *back = filled(n, 3, 1);
        sh_layout()->to_blocked(plain, N, C, area, block, blocked);
        for (size_t i = 0; i < n; i++) {
            size_t image = i / (C * area), c = i / area % C, at = i % area;
            size_t to = ((image * (C / block) + c / block) * area + at) * block + c % block;
            assert_true(blocked[to] == plain[i]);
        }
        sh_layout()->to_plain(blocked, N, C, area, block, back);
        assert_memory_equal(back, plain, n * sizeof *back);
        free(plain), free(blocked), free(back);
    }
}

TEST(layout, goes_to_blocks_and_back) { each_setting(layouts); }

static void sums(void) {
    const size_t counts[] = {0, 1, 9, 4097, 32768, 1000003};
    for (size_t c = 0; c < SH_COUNT(counts); c++) {
        size_t n = counts[c];
        float *x = filled(n, 1, 2), *y = filled(n, 2, 1);
        double dot = 0, squares = 0;
        for (size_t i = 0; i < n; i++) {
            dot += (double)x[i] * (double)y[i];
            squares += (double)x[i] * (double)x[i];
        }
        assert_true(fabs(sh_reduce()->sum_squares(x, n) - squares) <= 1e-6 * fmax(1, squares));
        assert_true(fabs(sh_reduce()->dot(x, y, n) - dot) <= 1e-7 * fmax(1, squares));
        assert_true(sh_reduce()->all_finite(x, n));
        for (size_t at = 0; at < n; at += n / 3 + 1) {
            float kept = x[at];
            x[at] = NAN;
            assert_false(sh_reduce()->all_finite(x, n));
            x[at] = -INFINITY;
            assert_false(sh_reduce()->all_finite(x, n));
            x[at] = kept;
        }
        free(x), free(y);
    }
}

TEST(reduce, sums_and_finds_what_is_not_finite) { each_setting(sums); }

TEST(reduce, does_not_depend_on_threads) {
    size_t n = 1000003;
    float *x = filled(n, 1, 2);
    omp_set_num_threads(1);
    double one = sh_reduce()->sum_squares(x, n);
    for (int threads = 2; threads <= 5; threads++) {
        omp_set_num_threads(threads);
        assert_true(sh_reduce()->sum_squares(x, n) == one);
    }
    free(x);
}

/* Of 224 x 224 positive values, in plain images and blocked ones. */
static void large_bias_gradients(void) {
    enum { AREA = 224 * 224, C = 8 };
    float *dy = filled(AREA * C, 1, 1), got[C], want[C];
    for (size_t i = 0; i < AREA * C; i++) dy[i] += 1;
    for (size_t lanes = 1; lanes <= C; lanes += C - 1) {
        double sum[C] = {0};
        for (size_t i = 0; i < AREA * C; i++) sum[lanes == 1 ? i / AREA : i % C] += (double)dy[i];
        for (size_t c = 0; c < C; c++) want[c] = (float)sum[c];
        sh_vector()->bias_grad_images(dy, 1, C, AREA, lanes, false, got);
        CHECK_CLOSE(got, want, C, 5e-7);
    }
    free(dy);
}

TEST(vector, keeps_the_digits_of_large_bias_gradients) { each_setting(large_bias_gradients); }
