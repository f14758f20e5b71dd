#include "harness.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "optim/optim.h"

TEST(clip, norm_gives_the_factor_and_leaves_the_gradients) {
    float gradients[] = {3, 0, -4};
    double norm;
    assert_true(fabs(sh_clip_norm(gradients, 3, 1, &norm) - 0.2) < 1e-7);
    assert_true(fabs(norm - 5) < 1e-6);
    assert_true(sh_clip_norm(gradients, 3, 5, &norm) == 1);
    assert_true(sh_clip_norm(gradients, 3, 100, NULL) == 1);
    assert_true(gradients[2] == -4);
}

TEST(clip, norm_of_long_gradients_is_accurate) {
    enum { COUNT = 300001 };
    float *gradients = sh_alloc(COUNT, sizeof *gradients);
    sh_test_fill(gradients, COUNT, 5);
    double squares = 0, norm;
    for (size_t i = 0; i < COUNT; i++) squares += (double)gradients[i] * (double)gradients[i];
    double factor = sh_clip_norm(gradients, COUNT, 2, &norm);
    assert_true(fabs(norm / sqrt(squares) - 1) < 1e-6);
    assert_true(fabs(factor * norm - 2) < 1e-9);
    sh_free(gradients);
}

TEST(clip, norm_of_huge_gradients_does_not_overflow) {
    float gradients[] = {3e30f, -4e30f};
    double norm;
    double factor = sh_clip_norm(gradients, 2, 1, &norm);
    assert_true(fabs(norm / 5e30 - 1) < 1e-6);
    assert_true(fabs(factor * 5e30 - 1) < 1e-6);
}

TEST(clip, norm_reports_what_is_not_a_number) {
    float gradients[] = {1, NAN};
    double norm;
    assert_true(sh_clip_norm(gradients, 2, 0.5, &norm) == 1);
    assert_true(isnan(norm));
    gradients[1] = INFINITY;
    sh_clip_norm(gradients, 2, 0.5, &norm);
    assert_true(isinf(norm));
}

TEST(clip, value_clamps_and_keeps_nan) {
    float gradients[] = {-7, -0.5f, 0, 0.5f, 7, NAN, INFINITY, -INFINITY, 0.25f};
    const float expected[] = {-0.5f, -0.5f, 0, 0.5f, 0.5f, 0, 0.5f, -0.5f, 0.25f};
    sh_clip_value(gradients, SH_COUNT(gradients), 0.5f);
    assert_true(isnan(gradients[5]));
    gradients[5] = 0;
    assert_memory_equal(gradients, expected, sizeof expected);
}
