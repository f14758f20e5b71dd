/* Dropout whose mask is never stored: element i of a sample is kept if word i of its Philox stream
 * says so, in forward and again in backward. Any worker that holds the sample draws the same mask.
 */
#include "tensor/kernels/dropout.h"

#include "base/status.h"
#include "tensor/kernels/simd/lanes.h"
#include "tensor/kernels/simd/philox.h"

enum { WORDS = PHILOX_WORDS, PIECE = 4096 };

/* Draws WORDS random integers below 2^24, in element order. 24 bits, so that they compare as
 * signed integers. */
static void draw(const sh_rng *stream, uint64_t first, int32_t words_out[WORDS]) {
    philox_state s;
    philox_blocks(stream, first, &s);
    for (int i = 0; i < PHILOX_BLOCKS; i++) {
        words_out[4 * i] = (int32_t)(s.c0[i] >> 8);
        words_out[4 * i + 1] = (int32_t)(s.c1[i] >> 8);
        words_out[4 * i + 2] = (int32_t)(s.c2[i] >> 8);
        words_out[4 * i + 3] = (int32_t)(s.c3[i] >> 8);
    }
}

/* Applies the mask to elements [at, at + count) of one sample. `at` is a multiple of WORDS, so
 * that the position alone decides which Philox block an element uses. */
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

/* Scales kept elements by 1 / (1 - p) and zeroes the rest. Forward and backward are this same
 * function. Pieces over threads; the mask does not depend on the cut. */
static void apply(const float *x, float *y, size_t samples, size_t per_sample, float p,
                  const sh_rng *streams) {
    SH_ASSERT(p >= 0 && p < 1);
    int32_t threshold = sh_dropout_threshold(p);
    // Inverted dropout: inference then needs no factor.
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
