/* Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011). A draw is a pure function of (seed, stream, counter): nothing is consumed, so
 * order, thread and worker count cannot change it.
 *
 * A stream is named by what it is for: sh_rng_stream(seed, SH_RNG_DROPOUT, layer, step). Parts of a
 * net are named by sh_rng_name, so that a net with other layers around them draws the same. */
#ifndef SH_BASE_RNG_H
#define SH_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

typedef enum sh_rng_use {
    SH_RNG_INIT = 1,
    SH_RNG_ORDER,
    SH_RNG_AUGMENT,
    SH_RNG_DROPOUT,
    SH_RNG_DROP_PATH,
    SH_RNG_SYNTHETIC,
    SH_RNG_SPLIT,
    SH_RNG_TEST,
    SH_RNG_CODEC,
    SH_RNG_SIM_COMPUTE,
    SH_RNG_SIM_FAULT,
    SH_RNG_GOSSIP,
    SH_RNG_LEARN,
    SH_RNG_FED_SELECT,
    SH_RNG_FED_LOCAL,
    SH_RNG_FED_PARTITION,
    SH_RNG_FED_RETRY,
    SH_RNG_GENERATE,
} sh_rng_use;

typedef struct sh_rng {
    uint32_t key[2];
    uint32_t stream[2];  // the upper half of the counter
    uint64_t next;       // the lower half: block number of sequential draws
    uint32_t block[4];   // words of the current block
    int left;            // words not yet handed out
} sh_rng;

typedef struct sh_philox_block {
    uint32_t word[4];
} sh_philox_block;

/* The bare function, ten rounds. */
sh_philox_block sh_philox(const uint32_t counter[4], const uint32_t key[2]);

/* The stream (use, a, b) of a seed. `b` may be 64 bits wide (a step, a sample). */
sh_rng sh_rng_stream(uint64_t seed, sh_rng_use use, uint32_t a, uint64_t b);

/* A name as a coordinate of streams (64-bit FNV-1a). */
uint64_t sh_rng_name(const char *name);

/* Random access: block `index` of the stream, without changing it. */
sh_philox_block sh_rng_at(const sh_rng *rng, uint64_t index);

/* Sequential draws from a copy that the caller owns. */
uint32_t sh_rng_u32(sh_rng *rng);
uint64_t sh_rng_u64(sh_rng *rng);
float sh_rng_uniform(sh_rng *rng);               // [0, 1), 24 bits
float sh_rng_normal(sh_rng *rng);                // mean 0, variance 1
uint64_t sh_rng_below(sh_rng *rng, uint64_t n);  // 0 <= draw < n without bias, n > 0

/* Random access: elements [first, first + count) of the stream's uniform draws in [0, 1), or of its
 * standard normal draws. Element i is the same whatever range asks for it. */
void sh_rng_uniforms(const sh_rng *rng, uint64_t first, size_t count, float *values_out);
void sh_rng_normals(const sh_rng *rng, uint64_t first, size_t count, float *values_out);

/* Fills `order_out` with a permutation of 0..count-1 (Fisher-Yates). */
void sh_rng_shuffle(sh_rng *rng, uint32_t *order_out, size_t count);

static inline float sh_u32_to_unit(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

#endif
