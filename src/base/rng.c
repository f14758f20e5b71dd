/* Philox 4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011): a block
 * cipher over a counter. A number is a function of (seed, use, coordinates, index) and of no
 * state, so threads and workers draw the same values in any order, and a draw can be repeated on
 * resume. */
#include "base/rng.h"

#include <math.h>

#include "base/status.h"

/* Multipliers and Weyl increments of Philox, from the paper. */
static const uint32_t MULTIPLIER_0 = 0xD2511F53, MULTIPLIER_1 = 0xCD9E8D57;
static const uint32_t WEYL_0 = 0x9E3779B9, WEYL_1 = 0xBB67AE85;

sh_philox_block sh_philox(const uint32_t counter[4], const uint32_t key[2]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];  // advanced by the Weyl constants each round
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0, p1 = (uint64_t)MULTIPLIER_1 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    return (sh_philox_block){{c0, c1, c2, c3}};
}

/* A seed, a use and two coordinates are 160 bits; the key and the stream take 128. Mixing them
 * through the cipher itself keeps streams apart without laying coordinates side by side. */
sh_rng sh_rng_stream(uint64_t seed, sh_rng_use use, uint32_t a, uint64_t b) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)use, a, (uint32_t)b, (uint32_t)(b >> 32)};
    sh_philox_block mixed = sh_philox(counter, key);
    return (sh_rng){.key = {mixed.word[0], mixed.word[1]},
                    .stream = {mixed.word[2], mixed.word[3]}};
}

/* FNV-1a: streams are keyed by names, so inserting a layer does not shift those behind it. */
uint64_t sh_rng_name(const char *name) {
    uint64_t hash = 0xCBF29CE484222325;
    for (; *name != '\0'; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001B3;
    return hash;
}

/* Block `index` of a stream, without any state. */
sh_philox_block sh_rng_at(const sh_rng *rng, uint64_t index) {
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), rng->stream[0],
                                 rng->stream[1]};
    return sh_philox(counter, rng->key);
}

/* Next word of the sequence; four words come from one block. */
uint32_t sh_rng_u32(sh_rng *rng) {
    if (rng->left == 0) {
        sh_philox_block block = sh_rng_at(rng, rng->next++);
        for (int i = 0; i < 4; i++) rng->block[i] = block.word[i];
        rng->left = 4;
    }
    return rng->block[4 - rng->left--];
}

/* 64 random bits: two words, the lower one first. */
uint64_t sh_rng_u64(sh_rng *rng) {
    uint64_t low = sh_rng_u32(rng);
    return low | (uint64_t)sh_rng_u32(rng) << 32;
}

/* In [0, 1), 24 bits. */
float sh_rng_uniform(sh_rng *rng) { return sh_u32_to_unit(sh_rng_u32(rng)); }

/* Box-Muller; the second value is thrown away so that one draw is always two words. */
float sh_rng_normal(sh_rng *rng) {
    double u = ((double)sh_rng_u32(rng) + 1.0) * 0x1p-32;  // (0, 1]
    double v = (double)sh_rng_u32(rng) * 0x1p-32;
    return (float)(sqrt(-2.0 * log(u)) * cos(2.0 * 3.14159265358979323846 * v));
}

/* Four uniform values of a block. */
static void block_of_uniforms(sh_philox_block block, float values_out[4]) {
    for (int i = 0; i < 4; i++) values_out[i] = sh_u32_to_unit(block.word[i]);
}

/* Box-Muller, both values of each pair of words. */
static void block_of_normals(sh_philox_block block, float values_out[4]) {
    for (int i = 0; i < 4; i += 2) {
        double u = ((double)block.word[i] + 1.0) * 0x1p-32;  // (0, 1]
        double angle = 2.0 * 3.14159265358979323846 * (double)block.word[i + 1] * 0x1p-32;
        double radius = sqrt(-2.0 * log(u));
        values_out[i] = (float)(radius * cos(angle));
        values_out[i + 1] = (float)(radius * sin(angle));
    }
}

/* Element i is value i % 4 of block i / 4. */
static void fill(const sh_rng *rng, uint64_t first, size_t count,
                 void (*values_of)(sh_philox_block block, float values_out[4]), float *values_out) {
    float values[4];
    for (size_t i = 0; i < count; i++) {
        uint64_t element = first + i;
        if (i == 0 || element % 4 == 0) values_of(sh_rng_at(rng, element / 4), values);
        values_out[i] = values[element % 4];
    }
}

void sh_rng_uniforms(const sh_rng *rng, uint64_t first, size_t count, float *values_out) {
    fill(rng, first, count, block_of_uniforms, values_out);
}

void sh_rng_normals(const sh_rng *rng, uint64_t first, size_t count, float *values_out) {
    fill(rng, first, count, block_of_normals, values_out);
}

/* Unbiased: draws above the last multiple of n are repeated. */
uint64_t sh_rng_below(sh_rng *rng, uint64_t n) {
    SH_ASSERT(n > 0);
    uint64_t excess = (UINT64_MAX % n + 1) % n;  // 2^64 mod n: draws above the last multiple bias
    uint64_t draw;
    do {
        draw = sh_rng_u64(rng);
    } while (draw > UINT64_MAX - excess);
    return draw % n;
}

/* Fisher and Yates; the order depends on the stream alone. */
void sh_rng_shuffle(sh_rng *rng, uint32_t *order_out, size_t count) {
    for (size_t i = 0; i < count; i++) order_out[i] = (uint32_t)i;
    for (size_t i = count; i > 1; i--) {
        size_t j = sh_rng_below(rng, i);
        uint32_t swapped = order_out[i - 1];
        order_out[i - 1] = order_out[j];
        order_out[j] = swapped;
    }
}
