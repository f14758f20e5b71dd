/* Shamir's secret sharing of 32-byte secrets over the prime 2^31 + 11: the secret is cut into limbs
 * of 31 bits, the most significant first, and each limb is shared by a polynomial of its own. Any
 * `threshold` shares give the secret, fewer tell nothing about it. */
#ifndef SH_FED_SHAMIR_H
#define SH_FED_SHAMIR_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SH_SECRET = 32, SH_LIMBS = 9 };  // 9 limbs of 31 bits hold 256

static const uint64_t SH_SHAMIR_PRIME = ((uint64_t)1 << 31) + 11;

typedef struct sh_secret_share {
    uint32_t limb[SH_LIMBS];
} sh_secret_share;

/* Shares number 1 to `count`. `random` has (threshold - 1) * SH_LIMBS random 64-bit words, whose
 * residues are the coefficients. */
void sh_shamir_split(const unsigned char secret[SH_SECRET], size_t threshold, size_t count,
                     const uint64_t *random, sh_secret_share *shares_out);
/* From `count` shares with these numbers. SH_E_FORMAT: numbers that are zero or equal, limbs that
 * are none, or a secret that does not fit, so that some share is wrong. */
sh_status sh_shamir_join(const uint32_t *numbers, const sh_secret_share *shares, size_t count,
                         unsigned char secret_out[SH_SECRET]);
/* One limb: the value at 0 of the polynomial through these points. */
sh_status sh_shamir_interpolate(const uint32_t *numbers, const uint32_t *values, size_t count,
                                uint64_t *value_out);

#endif
