/* Shamir's secret sharing (1979) modulo p = 2^31 + 11. Products of two residues fit in 64 bits, and
 * every 31-bit limb is a residue. */
#include "fed/shamir.h"

#include <string.h>

/* Product of two residues below 2^32: no overflow. */
static uint64_t times(uint64_t a, uint64_t b) { return a * b % SH_SHAMIR_PRIME; }

/* Fermat: a^(p - 2) = 1 / a modulo a prime p. */
static uint64_t inverse(uint64_t a) {  // a^(p - 2)
    uint64_t result = 1;
    for (uint64_t power = SH_SHAMIR_PRIME - 2; power > 0; power >>= 1) {
        if (power & 1) result = times(result, a);
        a = times(a, a);  // O(log p)
    }
    return result;
}

/* Bits [31 k, 31 k + 31) of the secret as a big-endian number, from the lowest. */
static uint32_t limb_of(const unsigned char secret[SH_SECRET], int k) {
    uint32_t limb = 0;
    for (int bit = 30; bit >= 0; bit--) {
        int at = 31 * k + bit;
        int byte = SH_SECRET - 1 - at / 8;  // big-endian: bit 0 is in the last byte
        limb = limb << 1 | (byte >= 0 ? secret[byte] >> (at % 8) & 1u : 0);
    }
    return limb;
}

/* Horner's rule at x = 1 .. count; the limb is the value at 0, the random words are the other
 * coefficients. */
void sh_shamir_split(const unsigned char secret[SH_SECRET], size_t threshold, size_t count,
                     const uint64_t *random, sh_secret_share *shares_out) {
    SH_ASSERT(threshold >= 1 && threshold <= count);
    for (int limb = 0; limb < SH_LIMBS; limb++) {
        const uint64_t *coefficients = random + (size_t)limb * (threshold - 1);
        for (size_t x = 1; x <= count; x++) {
            uint64_t value = 0;
            for (size_t k = threshold - 1; k > 0; k--)
                // x is at most the number of clients.
                value = times(value + coefficients[k - 1] % SH_SHAMIR_PRIME, x);
            value = (value + limb_of(secret, SH_LIMBS - 1 - limb)) % SH_SHAMIR_PRIME;
            shares_out[x - 1].limb[limb] = (uint32_t)value;
        }
    }
}

/* Lagrange at 0: sum of y_i prod over j != i of x_j / (x_j - x_i). O(count^2). */
sh_status sh_shamir_interpolate(const uint32_t *numbers, const uint32_t *values, size_t count,
                                uint64_t *value_out) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t above = 1, below = 1;
        // Values from other clients: checked before arithmetic.
        if (numbers[i] == 0 || numbers[i] >= SH_SHAMIR_PRIME || values[i] >= SH_SHAMIR_PRIME)
            return SH_FAIL(SH_E_FORMAT, "share %u is none", numbers[i]);
        for (size_t j = 0; j < count; j++) {
            if (j == i) continue;
            if (numbers[i] == numbers[j])
                return SH_FAIL(SH_E_FORMAT, "share %u is there twice", numbers[i]);
            above = times(above, numbers[j]);
            // The modulus is added first: no negative numbers.
            below = times(below, (numbers[j] + SH_SHAMIR_PRIME - numbers[i]) % SH_SHAMIR_PRIME);
        }
        sum = (sum + times(values[i], times(above, inverse(below)))) % SH_SHAMIR_PRIME;
    }
    *value_out = sum;
    return SH_OK;
}

/* A limb beyond 31 bits, or bits beyond the secret, cannot come from a split: some share is wrong.
 */
static sh_status put_limb(unsigned char secret[SH_SECRET], int k, uint64_t limb) {
    for (int bit = 0; bit < 32; bit++) {
        int at = 31 * k + bit;
        if ((limb >> bit & 1) == 0) continue;
        if (bit == 31 || at >= 8 * SH_SECRET)
            return SH_FAIL(SH_E_FORMAT, "these shares give no secret: one of them is wrong");
        secret[SH_SECRET - 1 - at / 8] |= (unsigned char)(1u << (at % 8));
    }
    return SH_OK;
}

/* The output is written only if all limbs fit. */
sh_status sh_shamir_join(const uint32_t *numbers, const sh_secret_share *shares, size_t count,
                         unsigned char secret_out[SH_SECRET]) {
    uint32_t values[4096];
    unsigned char secret[SH_SECRET] = {0};
    // Bound of the stack array; SH_SECURE_CLIENTS_MOST is not above it.
    SH_ASSERT(count <= SH_COUNT(values));
    for (int limb = 0; limb < SH_LIMBS; limb++) {
        uint64_t value;
        for (size_t i = 0; i < count; i++) values[i] = shares[i].limb[limb];
        SH_TRY(sh_shamir_interpolate(numbers, values, count, &value));
        SH_TRY(put_limb(secret, SH_LIMBS - 1 - limb, value));
    }
    memcpy(secret_out, secret, SH_SECRET);
    return SH_OK;
}
