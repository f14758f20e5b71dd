/* Secret sharing: a published vector, and that shares below the threshold do not fix a secret. */
#include "harness.h"

#include <string.h>

#include "base/rng.h"
#include "fed/shamir.h"

/* t = 3, x = 1 to 5, two limbs: the secret is 0x21 (google/federated-compute). */
TEST(shamir, joins_the_published_shares) {
    static const uint32_t high[] = {0x70cf762e, 0x30a0c5ac, 0x3f73ee90, 0x1d48f0cf, 0x4a1fcc74};
    static const uint32_t low[] = {0x6ed4aa1c, 0x26eb91cc, 0x2844b747, 0x72e01a8d, 0x06bdbb88};
    static const int picks[][3] = {{0, 1, 2}, {2, 3, 4}, {4, 0, 2}};
    for (size_t k = 0; k < SH_COUNT(picks); k++) {
        uint32_t numbers[3], a[3], b[3];
        uint64_t value;
        for (int i = 0; i < 3; i++) {
            numbers[i] = (uint32_t)picks[k][i] + 1;
            a[i] = high[picks[k][i]];
            b[i] = low[picks[k][i]];
        }
        CHECK_OK(sh_shamir_interpolate(numbers, a, 3, &value));
        assert_int_equal(value, 0);
        CHECK_OK(sh_shamir_interpolate(numbers, b, 3, &value));
        assert_int_equal(value, 0x21);
    }
}

TEST(shamir, splits_and_joins_any_secret_from_any_threshold_of_shares) {
    sh_rng rng = sh_rng_stream(1, SH_RNG_TEST, 9, 0);
    for (size_t threshold = 1; threshold <= 7; threshold++) {
        unsigned char secret[SH_SECRET], joined[SH_SECRET];
        uint64_t random[6 * SH_LIMBS];
        sh_secret_share shares[9], some[9];
        uint32_t numbers[9];
        for (int i = 0; i < SH_SECRET; i++)
            secret[i] = threshold == 7 ? 0xff : (unsigned char)sh_rng_u32(&rng);
        for (size_t i = 0; i < SH_COUNT(random); i++) random[i] = sh_rng_u64(&rng);
        sh_shamir_split(secret, threshold, 9, random, shares);
        for (size_t first = 0; first + threshold <= 9; first++) {
            for (size_t i = 0; i < threshold; i++) {
                numbers[i] = (uint32_t)(first + threshold - i);  // in any order
                some[i] = shares[numbers[i] - 1];
            }
            CHECK_OK(sh_shamir_join(numbers, some, threshold, joined));
            assert_memory_equal(joined, secret, SH_SECRET);
        }
    }
}

/* With one share less, every secret is as possible: another constant fits the same points. */
TEST(shamir, below_the_threshold_gives_another_secret_or_none) {
    unsigned char secret[SH_SECRET] = {1, 2, 3}, joined[SH_SECRET];
    uint64_t random[2 * SH_LIMBS];
    sh_secret_share shares[5];
    const uint32_t numbers[] = {1, 2, 3};
    sh_rng rng = sh_rng_stream(1, SH_RNG_TEST, 10, 0);
    for (size_t i = 0; i < SH_COUNT(random); i++) random[i] = sh_rng_u64(&rng);
    sh_shamir_split(secret, 3, 5, random, shares);
    sh_status status = sh_shamir_join(numbers, shares, 2, joined);
    assert_true(status != SH_OK || memcmp(joined, secret, SH_SECRET) != 0);
}

TEST(shamir, refuses_shares_that_cannot_be) {
    unsigned char secret[SH_SECRET] = {9}, joined[SH_SECRET];
    uint64_t random[2 * SH_LIMBS] = {5, 6, 7};
    sh_secret_share shares[3];
    const uint32_t twice[] = {1, 1, 2}, zero[] = {0, 1, 2}, right[] = {1, 2, 3};
    sh_shamir_split(secret, 3, 3, random, shares);
    CHECK_FAILS(SH_E_FORMAT, "there twice", sh_shamir_join(twice, shares, 3, joined));
    CHECK_FAILS(SH_E_FORMAT, "is none", sh_shamir_join(zero, shares, 3, joined));
    shares[1].limb[4] = UINT32_MAX;
    CHECK_FAILS(SH_E_FORMAT, "is none", sh_shamir_join(right, shares, 3, joined));
}
