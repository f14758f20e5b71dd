#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* Known answers of the Random123 distribution (kat_vectors, philox4x32 10 rounds). */
TEST(philox, gives_the_published_vectors) {
    const uint32_t zero4[4] = {0}, zero2[2] = {0};
    const sh_philox_block a = sh_philox(zero4, zero2);
    const uint32_t expect_a[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(a.word, expect_a, sizeof expect_a);

    const uint32_t ones4[4] = {~0u, ~0u, ~0u, ~0u}, ones2[2] = {~0u, ~0u};
    const sh_philox_block b = sh_philox(ones4, ones2);
    const uint32_t expect_b[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    assert_memory_equal(b.word, expect_b, sizeof expect_b);

    const uint32_t pi4[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    const uint32_t pi2[2] = {0xa4093822, 0x299f31d0};
    const sh_philox_block c = sh_philox(pi4, pi2);
    const uint32_t expect_c[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    assert_memory_equal(c.word, expect_c, sizeof expect_c);
}

TEST(rng, streams_differ_and_repeat) {
    sh_rng a = sh_rng_stream(1, SH_RNG_INIT, 0, 0), b = sh_rng_stream(1, SH_RNG_INIT, 0, 0);
    sh_rng c = sh_rng_stream(1, SH_RNG_INIT, 0, 1), d = sh_rng_stream(2, SH_RNG_INIT, 0, 0);
    uint64_t first = sh_rng_u64(&a);
    assert_int_equal(first, sh_rng_u64(&b));
    assert_int_not_equal(first, sh_rng_u64(&c));
    assert_int_not_equal(first, sh_rng_u64(&d));
}

TEST(rng, normal_has_mean_0_and_variance_1) {
    sh_rng rng = sh_rng_stream(7, SH_RNG_TEST, 0, 0);
    double sum = 0, squares = 0;
    const int n = 200000;
    for (int i = 0; i < n; i++) {
        double x = (double)sh_rng_normal(&rng);
        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / n) < 0.01);
    assert_true(fabs(squares / n - 1.0) < 0.02);
}

TEST(rng, normals_have_mean_0_and_variance_1_and_pairs_do_not_correlate) {
    enum { COUNT = 200000 };
    sh_rng rng = sh_rng_stream(7, SH_RNG_TEST, 1, 0);
    float *x = malloc(COUNT * sizeof *x);
    sh_rng_normals(&rng, 0, COUNT, x);
    double sum = 0, squares = 0, products = 0;
    for (int i = 0; i < COUNT; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        products += i > 0 ? (double)x[i] * (double)x[i - 1] : 0;
    }
    free(x);
    assert_true(fabs(sum / COUNT) < 0.01);
    assert_true(fabs(squares / COUNT - 1.0) < 0.02);
    assert_true(fabs(products / COUNT) < 0.01);
}

TEST(rng, ranges_of_draws_are_parts_of_the_whole) {
    sh_rng rng = sh_rng_stream(7, SH_RNG_TEST, 2, 0);
    float normals[64], uniforms[64], part[64];
    sh_rng_normals(&rng, 0, 64, normals);
    sh_rng_uniforms(&rng, 0, 64, uniforms);
    for (size_t first = 0; first < 9; first++)
        for (size_t count = 1; first + count <= 20; count++) {
            sh_rng_normals(&rng, first, count, part);
            assert_memory_equal(part, normals + first, count * sizeof *part);
            sh_rng_uniforms(&rng, first, count, part);
            assert_memory_equal(part, uniforms + first, count * sizeof *part);
        }
}

TEST(rng, shuffle_gives_every_order_alike) {
    enum { DRAWS = 6000 };
    int counts[3][3][3] = {{{0}}};
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        uint32_t order[3];
        sh_rng rng = sh_rng_stream(seed, SH_RNG_ORDER, 0, 0);
        sh_rng_shuffle(&rng, order, 3);
        counts[order[0]][order[1]][order[2]]++;
    }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 3; c++) {
                if (a == b || b == c || a == c) continue;
                // 1000 each; the deviation is 29.
                if (counts[a][b][c] < 850 || counts[a][b][c] > 1150)
                    fail_msg("%d%d%d comes %d times of %d", a, b, c, counts[a][b][c], DRAWS);
            }
}

TEST(rng, shuffle_is_a_permutation) {
    uint32_t order[1000];
    bool seen[1000] = {false};
    sh_rng rng = sh_rng_stream(3, SH_RNG_ORDER, 0, 0);
    sh_rng_shuffle(&rng, order, 1000);
    size_t moved = 0;
    for (size_t i = 0; i < 1000; i++) {
        assert_true(order[i] < 1000 && !seen[order[i]]);
        seen[order[i]] = true;
        moved += order[i] != i;
    }
    assert_true(moved > 900);
}
