#include "base/rng.h"

#include <math.h>
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
