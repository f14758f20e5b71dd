/* The privacy accountant against published and independently computed values. */
#include "harness.h"

#include <math.h>

#include "fed/accountant.h"

static void check(double found, double expected, double tolerance, const char *what) {
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%s: %.12g, expected %.12g", what, found, expected);
}

static double epsilon(double rate, double multiplier, double rounds, double delta) {
    sh_fed_accountant accountant = {0};
    sh_fed_accountant_add(&accountant, rate, multiplier, rounds);
    return sh_fed_accountant_epsilon(&accountant, delta);
}

/* Opacus and TensorFlow Privacy give these. */
TEST(accountant, gives_the_published_epsilons) {
    check(epsilon(0.04, 1.5, 2250, 1e-5), 7.32911117143, 1e-6, "q .04, sigma 1.5");
    check(epsilon(150.0 / 60000, 1.3, 15 * 400, 1e-5), 0.7242234026109595, 1e-6, "B 150");
    check(epsilon(100 / 1e5, 1, 30 * 1000, 1e-7), 1.4154988495444845, 1e-6, "B 100");
    check(epsilon(0.01, 4, 10000, 1e-5), 1.0355, 5e-5, "the moments accountant's example");
}

/* The orders of 2.5 and 3.9 against the defining integral, summed in 400,000 steps. */
TEST(accountant, gives_the_rdp_of_whole_and_other_orders) {
    static const struct {
        double order, rdp, relative;
    } cases[] = {{2.5, 1.08541805574e-3, 2e-9},
                 {5, 2.18075656194e-3, 1e-9},
                 {50, 0.023846037538710972, 1e-9},
                 {100, 167.41630754841827, 1e-9}};
    for (size_t i = 0; i < SH_COUNT(cases); i++)
        check(50 * sh_fed_gaussian_rdp(0.01, 2.5, cases[i].order), cases[i].rdp,
              cases[i].rdp * cases[i].relative, "rdp");
    check(sh_fed_gaussian_rdp(1, 2, 8), 1, 1e-12, "without sampling");
    check(sh_fed_gaussian_rdp(0.999999999, 2, 8), 1, 1e-6, "nearly without sampling");
}

TEST(accountant, spends_more_with_less_noise_more_rounds_and_more_clients) {
    double base = epsilon(0.1, 1, 100, 1e-5);
    assert_true(epsilon(0.1, 0.8, 100, 1e-5) > base);
    assert_true(epsilon(0.1, 1, 101, 1e-5) > base);
    assert_true(epsilon(0.11, 1, 100, 1e-5) > base);
    assert_true(epsilon(0.1, 1, 100, 1e-6) > base);
    assert_true(epsilon(0.1, 0, 1, 1e-5) == INFINITY);
    assert_true(epsilon(0.1, 1, 0, 1e-5) == 0 && epsilon(0, 1, 100, 1e-5) == 0);
}

TEST(accountant, finds_the_noise_for_a_budget) {
    static const double rates[] = {0.05, 1};
    for (int i = 0; i < 2; i++) {
        double sigma = sh_fed_noise_for(8, 1e-5, rates[i], 200);
        assert_true(epsilon(rates[i], sigma, 200, 1e-5) <= 8);
        assert_true(epsilon(rates[i], sigma * 0.999, 200, 1e-5) > 8);
    }
}
