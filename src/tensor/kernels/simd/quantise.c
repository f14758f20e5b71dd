/* Inner loops of the quantising codecs. Levels are packed by shifts on 8-byte words, ternary
 * digits in base 3, five to a byte. Draws are 16 bits of a counter-based generator per element, so
 * the same gradient quantises alike at any thread count. */
#include "tensor/kernels/quantise.h"

#include <math.h>

#include "tensor/kernels/simd/lanes.h"
#include "tensor/kernels/simd/philox.h"

enum { BLOCK = SH_QUANTISE_BLOCK, GROUP = SH_TERNARY_GROUP, TERNARY_BLOCK = 3 * GROUP };
enum { ROOM = BLOCK + 16 };  // a block's levels and the excess of the last vector

/* Norms below this would make the steps per unit overflow; such blocks count as zero. */
static const float SMALLEST = 0x1p-110f;

/* Lane-wise maximum of integers. */
LANE_FUNCTION vi vi_max(vi a, vi b) {
    vi larger_a = a > b;
    return (larger_a & a) | (~larger_a & b);
}

/* Loads up to LANES values; missing lanes are 0. */
LANE_FUNCTION vf load_some(const float *x, size_t count) {
    return count >= LANES ? vf_load(x) : vf_load_part(x, count, 0);
}

/* Largest magnitude of the values. Magnitudes of floats order like integers, with NaN above
 * infinity, so one comparison finds both. */
static float largest_of(const float *y, size_t count) {
    vi most = {0};
    for (size_t i = 0; i < count; i += LANES)
        most = vi_max(most, (vi)vf_abs(load_some(y + i, count - i)));
    int32_t lanes[LANES], bits = 0;
    memcpy(lanes, &most, sizeof lanes);
    for (int i = 0; i < LANES; i++) bits = lanes[i] > bits ? lanes[i] : bits;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Uniform draws in (0, 1) for the elements of a block, 16 bits each: element i < 256 has the lower
 * half of word i, element i + 256 the upper half. */
typedef struct draws {
    int32_t words[2 * PHILOX_WORDS];
} draws;

/* Draws the randomness of block `block`; it depends on the block's index alone, not on threads. */
static void draw(const sh_rng *rng, size_t block, draws *draws_out) {
    philox_state s;
    for (size_t i = 0; i < 2; i++) {
        philox_blocks(rng, (2 * block + i) * PHILOX_BLOCKS, &s);
        memcpy(draws_out->words + i * PHILOX_WORDS, &s, sizeof s);
    }
}

/* Draws of elements [i, i + LANES); i is a multiple of LANES. The half keeps the mean at 1/2. */
LANE_FUNCTION vf draw_at(const draws *d, size_t i) {
    vi words;
    memcpy(&words, d->words + i % (BLOCK / 2), sizeof words);
    words = i < BLOCK / 2 ? words & 0xFFFF : (words >> 16) & 0xFFFF;
    return (__builtin_convertvector(words, vf) + 0.5f) * 0x1p-16f;
}

/* Rounds to the nearest integer, ties to even, for |v| < 2^22. */
LANE_FUNCTION vi round_nearest(vf v) {
    const float magic = 0x1.8p23f;  // adding it leaves no room for a fraction
    return __builtin_convertvector((v + magic) - magic, vi);
}

/* Rounds towards minus infinity. */
LANE_FUNCTION vi round_down(vf v) {
    vi whole = __builtin_convertvector(v, vi);
    return whole + (v < __builtin_convertvector(whole, vf));  // a true lane is -1
}

/* Levels to bytes. A loop of its own: gcc narrows whole vectors here, but goes lane by lane in
 * __builtin_convertvector. */
static void narrow(const int32_t whole[ROOM], int s, uint8_t level[ROOM]) {
    for (size_t i = 0; i < BLOCK; i++) level[i] = (uint8_t)(whole[i] + s);
}

/* Quantises up to BLOCK elements to levels 0..2s (the true level plus s); elements behind the last
 * get s, which is zero. With draws the rounding is stochastic and unbiased: floor(v + u). `left`
 * gets what rounding lost. */
static void level_block(const float *y, size_t count, float per_unit, float step, int s,
                        const draws *d, uint8_t level[ROOM], float *left) {
    int32_t whole[ROOM];
    for (size_t i = 0; i < count; i += LANES) {
        vf v = load_some(y + i, count - i);
        vf scaled = vf_max(vf_min(v * per_unit, vf_all((float)s)), vf_all((float)-s));
        vi q = d != NULL ? round_down(scaled + draw_at(d, i)) : round_nearest(scaled);
        memcpy(whole + i, &q, sizeof q);
        if (left == NULL) continue;
        vf rest = v - __builtin_convertvector(q, vf) * step;
        if (count - i >= LANES)
            vf_store(left + i, rest);
        else
            vf_store_part(left + i, rest, count - i);
    }
    for (size_t i = count; i < BLOCK; i++) whole[i] = 0;
    narrow(whole, s, level);
}

/* Packs eight bytes below 2^b into 8 b bits; halves join in three steps. `spread` is the
 * inverse. */
LANE_FUNCTION uint64_t squeeze(uint64_t x, int b) {
    const uint64_t bytes = 0x00FF00FF00FF00FF, words = 0x0000FFFF0000FFFF, half = 0xFFFFFFFF;
    x = (x & bytes) | ((x >> 8) & bytes) << b;
    x = (x & words) | ((x >> 16) & words) << (2 * b);
    return (x & half) | (x >> 32) << (4 * b);
}

LANE_FUNCTION uint64_t spread(uint64_t x, int b) {
    const uint64_t m4 = (UINT64_C(1) << (4 * b)) - 1;
    const uint64_t m2 = ((UINT64_C(1) << (2 * b)) - 1) * 0x0000000100000001;
    const uint64_t m1 = ((UINT64_C(1) << b) - 1) * 0x0001000100010001;
    x = (x & m4) | ((x >> (4 * b)) & m4) << 32;
    x = (x & m2) | ((x >> (2 * b)) & m2) << 16;
    return (x & m1) | ((x >> b) & m1) << 8;
}

/* Packs the levels of a block: every 8 levels take `bits` bytes. */
static void pack(const uint8_t level[ROOM], size_t count, int bits, uint8_t *packed) {
    uint8_t out[ROOM];
    size_t groups = (count + 7) / 8;
    for (size_t g = 0; g < groups; g++) {
        uint64_t x;
        memcpy(&x, level + 8 * g, sizeof x);
        x = squeeze(x, bits);
        memcpy(out + g * (size_t)bits, &x, sizeof x);  // the next group overwrites the excess
    }
    memcpy(packed, out, groups * (size_t)bits);
}

/* Unpacks a block. 8 zero bytes behind the input let the last group be read as a whole word. */
static void unpack(const uint8_t *packed, size_t count, int bits, uint8_t level[ROOM]) {
    uint8_t in[ROOM];
    size_t groups = (count + 7) / 8;
    memcpy(in, packed, groups * (size_t)bits);
    memset(in + groups * (size_t)bits, 0, 8);
    for (size_t g = 0; g < groups; g++) {
        uint64_t x;
        memcpy(&x, in + g * (size_t)bits, sizeof x);
        x = spread(x, bits);
        memcpy(level + 8 * g, &x, sizeof x);
    }
}

/* Largest level s of a width in bits; levels run from -s to s. */
static int levels_of(int bits) { return (1 << (bits - 1)) - 1; }

/* Writes norm and levels of one block. A block with an infinity or NaN sends only its norm, which
 * spoils the receiver's sum visibly. */
static void levels_block(const float *y, size_t count, int bits, const sh_rng *rng, size_t block,
                         float *norm, uint8_t *packed, float *left) {
    uint8_t level[ROOM];
    draws d;
    int s = levels_of(bits);
    float most = largest_of(y, count);
    memset(level, s, sizeof level);
    if (most >= SMALLEST && most <= __FLT_MAX__) {
        if (rng != NULL) draw(rng, block, &d);
        level_block(y, count, (float)s / most, most / (float)s, s, rng != NULL ? &d : NULL, level,
                    left);
    } else if (most < SMALLEST) {
        most = 0;
    }
    *norm = most;
    pack(level, count, bits, packed);
}

/* Quantises an array; blocks over threads. */
static void levels(const float *y, size_t count, int bits, const sh_rng *rng, float *norms,
                   uint8_t *packed, float *left) {
    size_t block_bytes = sh_quantise_bytes(BLOCK, bits);
#pragma omp parallel for schedule(static) if (count >= PARALLEL_LEAST)
    for (size_t b = 0; b < sh_quantise_norms(count); b++) {
        size_t at = b * BLOCK;
        levels_block(y + at, least(BLOCK, count - at), bits, rng, b, norms + b,
                     packed + b * block_bytes, left != NULL ? left + at : NULL);
    }
}

/* x += step * (level - s); returns the largest level seen. Plain loops: gcc widens bytes of these
 * as vectors, but lane by lane in __builtin_convertvector. */
static int add_block(const uint8_t level[ROOM], size_t count, int s, float step, float *x) {
    uint8_t most = 0;
    for (size_t i = 0; i < count; i++) most = level[i] > most ? level[i] : most;
    for (size_t i = 0; i < count; i++) x[i] += (float)(level[i] - s) * step;
    return most;
}

/* x += scale times the decoded levels; blocks over threads. False if a level occurs that no
 * encoder writes: the message is damaged. */
static bool add_levels(const float *norms, const uint8_t *packed, size_t count, int bits,
                       float scale, float *x) {
    size_t block_bytes = sh_quantise_bytes(BLOCK, bits);
    int s = levels_of(bits), bad = 0;
#pragma omp parallel for schedule(static) reduction(| : bad) if (count >= PARALLEL_LEAST)
    for (size_t b = 0; b < sh_quantise_norms(count); b++) {
        uint8_t level[ROOM];
        size_t n = least(BLOCK, count - b * BLOCK);
        memset(level + n, s, sizeof level - n);
        unpack(packed + b * block_bytes, n, bits, level);
        bad |= add_block(level, n, s, scale * (norms[b] / (float)s), x + b * BLOCK) > 2 * s;
    }
    return bad == 0;
}

/* Groups of GROUP digits take GROUP / 5 bytes, the last one as many as it needs. */
static size_t group_bytes(size_t digits) { return (least(digits, GROUP) + 4) / 5; }

/* Quantises to {-1, 0, 1} times `most`, stochastically; groups over threads. Five digits make a
 * byte; they lie a group's fifth apart, so that the loop over bytes is vector code. */
static void ternary(const float *y, size_t count, float most, const sh_rng *rng, uint8_t *packed) {
    size_t blocks = (count + TERNARY_BLOCK - 1) / TERNARY_BLOCK;
    bool zero = !(most >= SMALLEST && most <= __FLT_MAX__);
#pragma omp parallel for schedule(static) if (count >= PARALLEL_LEAST)
    for (size_t b = 0; b < blocks; b++) {
        size_t at = b * TERNARY_BLOCK, n = least(TERNARY_BLOCK, count - at);
        uint8_t digit[ROOM];
        draws d;
        memset(digit, 1, sizeof digit);
        draw(rng, b, &d);
        if (!zero) level_block(y + at, n, 1 / most, most, 1, &d, digit, NULL);
        memset(digit + n, 1, sizeof digit - n);
        for (size_t g = 0; g < n; g += GROUP) {
            size_t bytes = group_bytes(n - g);
            const uint8_t *from = digit + g;
            uint8_t *to = packed + (at + g) / 5;
            for (size_t j = 0; j < bytes; j++)
                to[j] = (uint8_t)(from[j] + 3 * from[bytes + j] + 9 * from[2 * bytes + j] +
                                  27 * from[3 * bytes + j] + 81 * from[4 * bytes + j]);
        }
    }
}

/* Decodes one group; false if a byte is 243 = 3^5 or more, which no encoder writes. */
static bool ternary_digits(const uint8_t *packed, size_t bytes, uint8_t *digit) {
    uint8_t most = 0;
    uint16_t rest[GROUP / 5];
    for (size_t j = 0; j < bytes; j++) {
        rest[j] = packed[j];
        most = packed[j] > most ? packed[j] : most;
    }
    for (size_t k = 0; k < 5; k++)
        for (size_t j = 0; j < bytes; j++) {
            // A multiplication replaces the division, which has no vector instruction.
            uint16_t third = (uint16_t)(rest[j] * 171) >> 9;  // rest / 3, exact below 256
            digit[k * bytes + j] = (uint8_t)(rest[j] - 3 * third);
            rest[j] = third;
        }
    return most < 243;
}

/* x += step times the decoded digits; false for a damaged message. */
static bool add_ternary(const uint8_t *packed, size_t count, float step, float *x) {
    int bad = 0;
#pragma omp parallel for schedule(static) reduction(| : bad) if (count >= PARALLEL_LEAST)
    for (size_t at = 0; at < count; at += GROUP) {
        uint8_t digit[ROOM];
        size_t n = least(GROUP, count - at), bytes = group_bytes(n);
        memset(digit + 5 * bytes, 1, 16);
        bad |= !ternary_digits(packed + at / 5, bytes, digit);
        add_block(digit, n, 1, step, x + at);
    }
    return bad == 0;
}

/* Like the sums of reduce.c: PARTS ranges whatever the thread count, added in order. */
enum { PARTS = 64, SUM_BLOCK = 4096 };

/* Moments of one range, blocks in float lanes and their sums in double. Ends early at a NaN. */
static sh_moments moments_part(const float *y, size_t count) {
    sh_moments total = {0};
    for (size_t at = 0; at < count; at += SUM_BLOCK) {
        size_t n = least(SUM_BLOCK, count - at);
        vf sum = {0}, squares = {0};
        for (size_t i = 0; i < n; i += LANES) {
            vf v = load_some(y + at + i, n - i);
            sum += v;
            squares += v * v;
        }
        total.sum += (double)vf_sum(sum);
        total.squares += (double)vf_sum(squares);
        float most = largest_of(y + at, n);
        if (!(most <= total.largest)) total.largest = most;  // NaN stays: nothing is <= NaN
        if (isnan(total.largest)) break;
    }
    return total;
}

/* Sum, sum of squares and largest magnitude in one pass. */
static sh_moments moments(const float *y, size_t count) {
    sh_moments part[PARTS] = {{0}}, total = {0};
    size_t blocks = (count + SUM_BLOCK - 1) / SUM_BLOCK;
    size_t each = (blocks + PARTS - 1) / PARTS * SUM_BLOCK;
    size_t parts = each == 0 ? 0 : (count + each - 1) / each;
#pragma omp parallel for schedule(static) if (count >= PARALLEL_LEAST)
    for (size_t p = 0; p < parts; p++)
        part[p] = moments_part(y + p * each, least(each, count - p * each));
    for (size_t p = 0; p < parts; p++) {
        total.sum += part[p].sum;
        total.squares += part[p].squares;
        if (!(part[p].largest <= total.largest) && !isnan(total.largest))
            total.largest = part[p].largest;
    }
    return total;
}

const sh_quantise_kernels SH_SIMD(sh_quantise_table) = {
    .levels = levels,
    .add_levels = add_levels,
    .ternary = ternary,
    .add_ternary = add_ternary,
    .moments = moments,
};
