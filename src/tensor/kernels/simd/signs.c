/* One bit per element and two means per row (1-bit SGD, Seide et al. 2014). Writing reads the
 * gradient twice, for the means and for the bits; 32 elements become a word. */
#include "tensor/kernels/signs.h"

#include "tensor/kernels/simd/lanes.h"

enum { SUM_BLOCK = 4096, WORDS_PIECE = 256 };  // elements per float sum; words per parallel block

#if LANES == 8
#define LANE_BITS ((vi){1, 2, 4, 8, 16, 32, 64, 128})
#else
#define LANE_BITS ((vi){1, 2, 4, 8})
#endif

typedef struct halves {
    double sum[2];  // of the negative elements, of the others
    size_t others;
} halves;

/* Sums of negative and other elements: float lanes within a block, double between blocks. A
 * comparison gives -1 per true lane, hence the subtraction that counts. */
static void halves_block(const float *y, size_t count, halves *h) {
    vf all = {0}, other = {0};
    vi others = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vf v = vf_load(y + i);
        vi mask = v >= 0;
        all += vf_keep(~mask, v);
        other += vf_keep(mask, v);
        others -= mask;
    }
    for (; i < count; i++) {
        h->sum[y[i] >= 0] += (double)y[i];
        h->others += y[i] >= 0;
    }
    h->sum[0] += (double)vf_sum(all);
    h->sum[1] += (double)vf_sum(other);
    for (int lane = 0; lane < LANES; lane++) h->others += (size_t)others[lane];
}

/* Mean of the negative elements and mean of the others of one row; 0 for an empty half. */
static void means_of(const float *y, size_t columns, float means[2]) {
    halves h = {0};
    for (size_t at = 0; at < columns; at += SUM_BLOCK)
        halves_block(y + at, least(SUM_BLOCK, columns - at), &h);
    size_t negative = columns - h.others;
    means[0] = negative > 0 ? (float)(h.sum[0] / (double)negative) : 0;
    means[1] = h.others > 0 ? (float)(h.sum[1] / (double)h.others) : 0;
}

/* The bits of 32 elements, 1 for y >= 0: every lane collects its own bits, then the lanes are
 * joined. */
LANE_FUNCTION uint32_t word_of(const float *y) {
    vi bits = {0};
    for (int k = 0; k < 32 / LANES; k++)
        bits |= ((vf_load(y + k * LANES) >= 0) & LANE_BITS) << (k * LANES);
    uint32_t word = 0;
    for (int lane = 0; lane < LANES; lane++) word |= (uint32_t)bits[lane];
    return word;
}

/* Bits of the whole gradient. Words run across rows, so a row may end within a word. One word more
 * than whole ones is written. */
static void write_bits(const float *y, size_t count, uint32_t *bits) {
    size_t whole = count / 32;
#pragma omp parallel for schedule(static) if (count >= PARALLEL_LEAST)
    for (size_t at = 0; at < whole; at += WORDS_PIECE)
        for (size_t w = at; w < least(at + WORDS_PIECE, whole); w++) bits[w] = word_of(y + 32 * w);
    uint32_t word = 0;
    for (size_t i = 32 * whole; i < count; i++) word |= (uint32_t)(y[i] >= 0) << (i % 32);
    bits[whole] = word;
}

/* Leaves the residual of error feedback: each element minus the mean that is sent for it. */
static void subtract_means(const float means[2], size_t count, float *y) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vf v = vf_load(y + i);
        vf_store(y + i, v - vf_select(v >= 0, vf_all(means[1]), vf_all(means[0])));
    }
    for (; i < count; i++) y[i] -= means[y[i] >= 0];
}

/* Encodes: bits first, since `left` may be y and is then overwritten. */
static void write(const float *y, size_t rows, size_t columns, float *means, uint32_t *bits,
                  float *left) {
    write_bits(y, rows * columns, bits);
#pragma omp parallel for schedule(static) if (rows * columns >= PARALLEL_LEAST)
    for (size_t row = 0; row < rows; row++) {
        means_of(y + row * columns, columns, means + 2 * row);
        if (left != NULL) subtract_means(means + 2 * row, columns, left + row * columns);
    }
}

/* x += the decoded row that begins at bit `first`. Two bytes hold any LANES bits. */
static void add_row(const float means[2], const unsigned char *bits, size_t first, size_t columns,
                    float scale, float *x) {
    float negative = scale * means[0], other = scale * means[1];
    size_t i = 0;
    for (; i + LANES <= columns; i += LANES) {
        size_t at = first + i;
        uint16_t pair;
        memcpy(&pair, bits + at / 8, sizeof pair);
        vi mask = (((vi){0} + (pair >> at % 8)) & LANE_BITS) != 0;
        vf_store(x + i, vf_load(x + i) + vf_select(mask, vf_all(other), vf_all(negative)));
    }
    for (; i < columns; i++) {
        size_t at = first + i;
        x[i] += bits[at / 8] >> at % 8 & 1 ? other : negative;
    }
}

/* x += scale times the decoded gradient; rows over threads. */
static void add(const float *means, const uint32_t *bits, size_t rows, size_t columns, float scale,
                float *x) {
#pragma omp parallel for schedule(static) if (rows * columns >= PARALLEL_LEAST)
    for (size_t row = 0; row < rows; row++)
        add_row(means + 2 * row, (const unsigned char *)bits, row * columns, columns, scale,
                x + row * columns);
}

const sh_signs_kernels SH_SIMD(sh_signs_table) = {.write = write, .add = add};
