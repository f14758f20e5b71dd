#include "tensor/kernels/dropout.h"

#include "base/status.h"
#include "tensor/kernels/simd/lanes.h"

/* BLOCKS blocks of Philox4x32-10 side by side; the inner loops become vector code. */
enum { BLOCKS = 32, WORDS = 4 * BLOCKS, PIECE = 4096 };

typedef struct philox_state {
    uint32_t c0[BLOCKS], c1[BLOCKS], c2[BLOCKS], c3[BLOCKS];
} philox_state;

LANE_FUNCTION uint32_t high_half(uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b >> 32);
}

/* Upper and lower halves of the products are written apart and the loop stands alone: so gcc sees
 * vector multiplies. */
__attribute__((noinline)) static void philox_round(philox_state *s, uint32_t k0, uint32_t k1) {
    const uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;
    for (int i = 0; i < BLOCKS; i++) {
        uint32_t a = s->c0[i], b = s->c2[i];
        s->c0[i] = high_half(m1, b) ^ s->c1[i] ^ k0;
        s->c2[i] = high_half(m0, a) ^ s->c3[i] ^ k1;
        s->c1[i] = m1 * b;
        s->c3[i] = m0 * a;
    }
}

/* Words of the blocks first .. first + BLOCKS - 1, in order. */
static void draw(const sh_rng *stream, uint64_t first, int32_t words_out[WORDS]) {
    philox_state s;
    uint32_t k0 = stream->key[0], k1 = stream->key[1];
    for (int i = 0; i < BLOCKS; i++) {
        s.c0[i] = (uint32_t)(first + (uint64_t)i);
        s.c1[i] = (uint32_t)((first + (uint64_t)i) >> 32);
        s.c2[i] = stream->stream[0];
        s.c3[i] = stream->stream[1];
    }
    for (int round = 0; round < 10; round++) {
        philox_round(&s, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < BLOCKS; i++) {
        words_out[4 * i] = (int32_t)(s.c0[i] >> 8);
        words_out[4 * i + 1] = (int32_t)(s.c1[i] >> 8);
        words_out[4 * i + 2] = (int32_t)(s.c2[i] >> 8);
        words_out[4 * i + 3] = (int32_t)(s.c3[i] >> 8);
    }
}

/* Elements [at, at + count) of one sample; `at` is a multiple of WORDS. */
static void apply_piece(const float *x, float *y, size_t at, size_t count, int32_t threshold,
                        float scale, const sh_rng *stream) {
    int32_t words[WORDS];
    for (size_t i = 0; i < count; i += WORDS) {
        draw(stream, (at + i) / 4, words);
        size_t n = least(WORDS, count - i), j = 0;
        for (; j + LANES <= n; j += LANES) {
            vi word;
            memcpy(&word, words + j, sizeof word);
            vf_store(y + i + j, vf_keep(word >= threshold, vf_load(x + i + j) * scale));
        }
        for (; j < n; j++) y[i + j] = words[j] >= threshold ? x[i + j] * scale : 0.0f;
    }
}

static void apply(const float *x, float *y, size_t samples, size_t per_sample, float p,
                  const sh_rng *streams) {
    SH_ASSERT(p >= 0 && p < 1);
    int32_t threshold = sh_dropout_threshold(p);
    float scale = 1.0f / (1.0f - p);
    size_t pieces = (per_sample + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) if (samples * per_sample >= PARALLEL_LEAST / 4)
    for (size_t k = 0; k < samples * pieces; k++) {
        size_t sample = k / pieces, at = k % pieces * PIECE, from = sample * per_sample + at;
        apply_piece(x + from, y + from, at, least(PIECE, per_sample - at), threshold, scale,
                    &streams[sample]);
    }
}

const sh_dropout_kernels SH_SIMD(sh_dropout_table) = {.apply = apply};
