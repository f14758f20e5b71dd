/* Privacy spent by rounds that add Gaussian noise to a sum over clients, in Rényi differential
 * privacy (Mironov 2017; Mironov, Talwar and Zhang 2019 for Poisson sampling): rounds add up per
 * order, and the order with the least epsilon is taken at the end.
 *
 *   one round without sampling   rdp(a) = a / (2 sigma^2)
 *   conversion   epsilon = rdp + log((a - 1) / a) - (log(delta) + log(a)) / (a - 1)
 *
 * Sampling makes privacy cheaper only where it is really random and secret, and every client is in
 * a round or not by a draw of its own. */
#ifndef SH_FED_ACCOUNTANT_H
#define SH_FED_ACCOUNTANT_H

#include <stddef.h>

enum { SH_FED_ORDERS = 99 + 53 + 4 };  // 1.1 to 10.9, 11 to 63, 128 to 1024

typedef struct sh_fed_accountant {
    double rdp[SH_FED_ORDERS];  // spent so far, per order
} sh_fed_accountant;

double sh_fed_order(size_t index);
/* The cost of one round at order `order` > 1: each client takes part with probability `rate`
 * (0 to 1), and the noise has `multiplier` times the largest norm of a client's share. */
double sh_fed_gaussian_rdp(double rate, double multiplier, double order);
/* Adds `rounds` such rounds. */
void sh_fed_accountant_add(sh_fed_accountant *accountant, double rate, double multiplier,
                           double rounds);
/* The same where the cost of one round is known already. */
void sh_fed_accountant_repeat(sh_fed_accountant *accountant, const sh_fed_accountant *cost,
                              double rounds);
/* Epsilon for this delta. */
double sh_fed_accountant_epsilon(const sh_fed_accountant *accountant, double delta);
/* The least noise multiplier with which `rounds` rounds spend at most `epsilon`; infinity: none. */
double sh_fed_noise_for(double epsilon, double delta, double rate, double rounds);

#endif
