#include "harness.h"
#include "sync/balance.h"

TEST(balance, equal_workers_share_equally) {
    const double speed[] = {10, 10, 10, 10};
    uint32_t cuts[5];
    sh_balance_cut(speed, 4, 64, cuts);
    for (uint32_t r = 0; r <= 4; r++) assert_int_equal(cuts[r], 16 * r);
}

TEST(balance, shares_follow_speed) {
    const double speed[] = {30, 10, 20};
    uint32_t cuts[4];
    sh_balance_cut(speed, 3, 60, cuts);
    assert_int_equal(cuts[1], 30);
    assert_int_equal(cuts[2], 40);
    assert_int_equal(cuts[3], 60);
}

TEST(balance, everyone_keeps_a_sample) {
    const double speed[] = {1e6, 1e-3, 1e6};
    uint32_t cuts[4];
    sh_balance_cut(speed, 3, 8, cuts);
    assert_int_equal(cuts[2] - cuts[1], 1);
    assert_int_equal(cuts[3], 8);
}

/* No other cut is faster: compared with all of them. */
TEST(balance, no_other_cut_is_faster) {
    const double speeds[][3] = {{3, 2, 1}, {1, 1.1, 7}, {5, 5, 1}, {0.3, 2.9, 1.7}};
    for (size_t i = 0; i < SH_COUNT(speeds); i++) {
        uint32_t cuts[4], other[4] = {0, 0, 0, 17};
        sh_balance_cut(speeds[i], 3, 17, cuts);
        double best = sh_balance_time(speeds[i], 3, cuts);
        for (other[1] = 1; other[1] < 16; other[1]++)
            for (other[2] = other[1] + 1; other[2] < 17; other[2]++)
                assert_true(best <= sh_balance_time(speeds[i], 3, other) + 1e-12);
    }
}
