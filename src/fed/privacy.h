/* Central differential privacy for clients: the server cuts every update to a norm, adds Gaussian
 * noise to the sum of a round, and keeps account of what the published models tell about any one
 * client. The budget is charged, durably, before the sum of a round is used. */
#ifndef SH_FED_PRIVACY_H
#define SH_FED_PRIVACY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "fed/accountant.h"
#include "fed/exact_sum.h"

enum { SH_FED_NOISE_KEY = 32 };

typedef struct sh_fed_privacy {
    bool on;
    double epsilon, delta;  // the budget
    double clip;            // largest L2 norm of an update
    double noise;           // deviation of the noise on the sum, in units of `clip`
    /* Keys the noise and who is drawn. From the system's randomness where updates are real: who
     * knows it can take the noise off. */
    unsigned char key[SH_FED_NOISE_KEY];
} sh_fed_privacy;

/* "epsilon=8,delta=1e-5,clip=1,noise=1.1": clip is 1 unless given, and noise the least with which
 * `rounds` rounds of this sampling rate keep the budget. The key is zero. */
sh_status sh_fed_privacy_parse(const char *text, double rate, int64_t rounds,
                               sh_fed_privacy *privacy_out);
/* A key that nobody knows; or one that follows from a seed, for simulated clients. */
sh_status sh_fed_privacy_draw_key(sh_fed_privacy *privacy);
void sh_fed_privacy_seed_key(sh_fed_privacy *privacy, uint64_t seed);

/* What a vector is to be multiplied by to have at most the norm `clip`. */
double sh_fed_privacy_scale(const sh_fed_privacy *privacy, const float *values, size_t count);
/* Adds the noise of a round to the sum of updates of weight `weight` each. */
sh_status sh_fed_privacy_add_noise(const sh_fed_privacy *privacy, uint64_t round, uint32_t attempt,
                                   uint64_t weight, sh_fed_sum *sum);
/* Whether client `client` is drawn for an attempt, with probability `rate`, each by itself. */
bool sh_fed_privacy_draws(const sh_fed_privacy *privacy, uint64_t round, uint32_t attempt,
                          size_t client, double rate);

#endif
