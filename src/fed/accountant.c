/* Renyi accountant of the subsampled Gaussian mechanism (Mironov, Talwar, Zhang 2019). Moments are
 * sums over binomial coefficients that overflow doubles, so that all sums are of logarithms. */
#include "fed/accountant.h"

#include <math.h>
#include <stdbool.h>

#include "base/status.h"

/* Dense where the best order usually lies, sparse above: small budgets are best converted at high
 * orders. */
double sh_fed_order(size_t index) {
    static const double large[] = {128, 256, 512, 1024};
    SH_ASSERT(index < SH_FED_ORDERS);
    if (index < 99) return 1 + (double)(index + 1) / 10;  // 1.1 to 10.9 by tenths
    if (index < 152) return (double)(index - 99 + 11);    // 11 to 63
    return large[index - 152];
}

/* log(e^a + e^b); below, log(e^a - e^b) for a >= b. Minus infinity stands for log 0. */
static double log_add(double a, double b) {
    double high = a > b ? a : b, low = a > b ? b : a;
    return isinf(low) && low < 0 ? high : high + log1p(exp(low - high));
}

/* log(e^a - e^b); rounding that makes a the smaller gives log 0. */
static double log_subtract(double a, double b) {
    if (isinf(b) && b < 0) return a;
    return a > b ? a + log1p(-exp(b - a)) : -INFINITY;
}

/* log(erfc(x)), by its asymptotic series where erfc underflows. */
static double log_erfc(double x) {
    if (x < 25) return log(erfc(x));
    double y = 1 / (x * x);
    return -log(M_PI) / 2 - log(x) - x * x - y / 2 + 5 * y * y / 8 - 37 * y * y * y / 24;
}

/* log E[((1 - q) + q exp((2z - 1) / 2 s^2))^a] for z ~ N(0, s^2): the binomial sum. */
static double log_moment_whole(double q, double s, int a) {
    double sum = -INFINITY;
    for (int i = 0; i <= a; i++) {
        // log of the binomial coefficient a over i.
        double choose = lgamma(a + 1.0) - lgamma(i + 1.0) - lgamma(a - i + 1.0);
        double power = (double)i * (i - 1) / (2 * s * s);
        sum = log_add(sum, choose + i * log(q) + (a - i) * log1p(-q) + power);
    }
    return sum;
}

/* The same for any order: two binomial series, which meet at z0 (section 3.3 of the paper). */
static double log_moment_any(double q, double s, double a) {
    double below = -INFINITY, above = -INFINITY, choose = 1;
    const double z0 = s * s * log(1 / q - 1) + 0.5, root = sqrt(2) * s;
    for (int i = 0;; i++) {
        double j = a - i, k = i;
        // Generalised binomial coefficient: its sign may change.
        if (i > 0) choose *= (a - i + 1) / i;
        double log_choose = log(fabs(choose));
        double low = log_choose + k * log(q) + j * log1p(-q) + k * (k - 1) / (2 * s * s) +
                     log(0.5) + log_erfc((k - z0) / root);
        double high = log_choose + j * log(q) + k * log1p(-q) + j * (j - 1) / (2 * s * s) +
                      log(0.5) + log_erfc((z0 - j) / root);
        below = choose > 0 ? log_add(below, low) : log_subtract(below, low);
        above = choose > 0 ? log_add(above, high) : log_subtract(above, high);
        // Terms behind order a alternate and fall: e^-40 is below rounding.
        if (i > a && fmax(low, high) < -40) return log_add(below, above);
    }
}

/* rate 1 is the plain Gaussian mechanism, whose divergence has a closed form. No noise: no privacy.
 */
double sh_fed_gaussian_rdp(double rate, double multiplier, double order) {
    SH_ASSERT(order > 1 && rate >= 0 && rate <= 1);
    if (rate == 0) return 0;
    if (!(multiplier > 0)) return INFINITY;
    if (rate == 1) return order / (2 * multiplier * multiplier);
    bool whole = order == floor(order);
    double moment = whole ? log_moment_whole(rate, multiplier, (int)order)
                          : log_moment_any(rate, multiplier, order);
    return moment / (order - 1);
}

/* Renyi divergences of independent rounds add up at each order: composition is a sum. */
void sh_fed_accountant_add(sh_fed_accountant *accountant, double rate, double multiplier,
                           double rounds) {
    for (size_t i = 0; i < SH_FED_ORDERS; i++)
        accountant->rdp[i] += rounds * sh_fed_gaussian_rdp(rate, multiplier, sh_fed_order(i));
}

/* Adds `rounds` times a cost that was computed before: no binomial sums. */
void sh_fed_accountant_repeat(sh_fed_accountant *accountant, const sh_fed_accountant *cost,
                              double rounds) {
    for (size_t i = 0; i < SH_FED_ORDERS; i++) accountant->rdp[i] += rounds * cost->rdp[i];
}

/* Conversion of Renyi DP to (epsilon, delta) at the best order (Canonne, Kamath, Steinke 2020):
 * epsilon = rdp + log(1 - 1/a) - (log delta + log a) / (a - 1). */
double sh_fed_accountant_epsilon(const sh_fed_accountant *accountant, double delta) {
    double least = INFINITY;
    bool spent = false;
    for (size_t i = 0; i < SH_FED_ORDERS; i++) {
        double a = sh_fed_order(i), rdp = accountant->rdp[i];
        spent = spent || rdp > 0;
        double epsilon = rdp + log1p(-1 / a) - (log(delta) + log(a)) / (a - 1);
        if (epsilon < least) least = epsilon;
    }
    if (!spent) return 0;  // no rounds: no privacy is lost
    return least > 0 ? least : 0;
}

/* Epsilon of `rounds` equal rounds, from nothing. */
static double spent_with(double multiplier, double delta, double rate, double rounds) {
    sh_fed_accountant accountant = {0};
    sh_fed_accountant_add(&accountant, rate, multiplier, rounds);
    return sh_fed_accountant_epsilon(&accountant, delta);
}

/* Epsilon falls with the noise: doubling finds an upper bound, 60 halvings narrow it. The upper end
 * is returned: never too little noise. */
double sh_fed_noise_for(double epsilon, double delta, double rate, double rounds) {
    double low = 1e-2, high = 1e-2;
    while (spent_with(high, delta, rate, rounds) > epsilon) {
        low = high;
        high *= 2;
        if (high > 1e6) return INFINITY;  // no noise is enough
    }
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (spent_with(middle, delta, rate, rounds) > epsilon)
            low = middle;
        else
            high = middle;
    }
    return high;
}
