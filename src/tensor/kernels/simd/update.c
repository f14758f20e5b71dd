/* Update rules, one pass over weights, gradients and slots, bound by memory. Elements are
 * independent, so the bits depend neither on threads nor on how the parameters are cut into
 * ranges; multiplications and additions are fused explicitly, since compilers choose differently.
 */
#include "tensor/kernels/update.h"

#include <math.h>
#include <omp.h>

#include "tensor/kernels/simd/lanes.h"

/* A block stays in the first-level cache together with its slots. */
enum { BLOCK = 4096, SPANS_MOST = 256 };

/* Blocks take the numbers by value: then the compiler knows that stores cannot change them. */
typedef void (*block_update)(sh_update u, size_t at, size_t count);

/* Runs an update over blocks, which go over threads. */
static void for_blocks(const sh_update *update, block_update block) {
    size_t count = update->count, blocks = (count + BLOCK - 1) / BLOCK;
    if (count < PARALLEL_LEAST) {
        block(*update, 0, count);
        return;
    }
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < blocks; i++) block(*update, i * BLOCK, least(count - i * BLOCK, BLOCK));
}

/* Writes past the cache, since the weights are read next by other cores. Ends that are not aligned
 * are stored as usual. */
static void stream(float *to, const float *from, size_t count) {
    size_t i = 0;
    for (; i < count && (uintptr_t)(to + i) % sizeof(vf) != 0; i++) to[i] = from[i];
    for (; i + LANES <= count; i += LANES) vf_stream(to + i, vf_load(from + i));
    for (; i < count; i++) to[i] = from[i];
}

/* for_blocks for weights that all threads read between updates: a block is updated in a copy and
 * streamed back, so that no store waits for a line that another core holds. */
static void for_read_blocks(const sh_update *update, block_update block) {
    size_t count = update->count, blocks = (count + BLOCK - 1) / BLOCK;
    if (count < PARALLEL_LEAST || omp_get_max_threads() == 1) {
        for_blocks(update, block);
        return;
    }
#pragma omp parallel
    {
        float fresh[BLOCK];
#pragma omp for schedule(static)
        for (size_t i = 0; i < blocks; i++) {
            sh_update u = *update;
            size_t at = i * BLOCK, size = least(count - at, BLOCK);
            memcpy(fresh, u.w + at, size * sizeof *fresh);
            u.w = fresh;
            u.g += at;
            if (u.m != NULL) u.m += at;
            if (u.v != NULL) u.v += at;
            block(u, 0, size);
            stream(update->w + at, fresh, size);
        }
        vf_stream_end();
    }
}

/* a * b + c, fused wherever the processor can: left to the compiler, a*b + c*d could be fused one
 * way in the vector body and another way in the remainder of a loop. */
static inline float madd(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* The gradient as the rule uses it: scale g + decay w. */
static inline float seen(const sh_update *u, float g, float w) {
    return madd(u->decay, w, u->scale * g);
}

/* w -= lr g. */
static void sgd_block(sh_update u, size_t at, size_t count) {
    float *restrict w = u.w + at;
    const float *restrict g = u.g + at;
#pragma omp simd
    for (size_t i = 0; i < count; i++) w[i] = madd(-u.lr, seen(&u, g[i], w[i]), w[i]);
}

/* m = mu m + keep g; w -= lr m. */
static void momentum_block(sh_update u, size_t at, size_t count) {
    float *restrict w = u.w + at, *restrict m = u.m + at;
    const float *restrict g = u.g + at;
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float next = madd(u.momentum, m[i], u.keep * seen(&u, g[i], w[i]));
        m[i] = next;
        w[i] = madd(-u.lr, next, w[i]);
    }
}

/* m = mu m + g; w -= lr (g + mu m). */
static void nesterov_block(sh_update u, size_t at, size_t count) {
    float *restrict w = u.w + at, *restrict m = u.m + at;
    const float *restrict g = u.g + at;
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float gradient = seen(&u, g[i], w[i]);
        float next = madd(u.momentum, m[i], gradient);
        m[i] = next;
        w[i] = madd(-u.lr, madd(u.momentum, next, gradient), w[i]);
    }
}

/* The same rules for weights that other cores read and write at the same time. A relaxed load and a
 * relaxed store are a plain move each, but the compiler may neither tear nor invent them, and the
 * thread sanitizer knows that the race is meant. Between the two another core's addition may be
 * lost. What has no gradient is not written: every store takes a cache line from the other cores.
 */
static inline float relaxed_load(const float *from) {
    float value;
    __atomic_load(from, &value, __ATOMIC_RELAXED);
    return value;
}

static inline void relaxed_store(float *to, float value) {
    __atomic_store(to, &value, __ATOMIC_RELAXED);
}

/* sgd_block for Hogwild. A zero gradient without decay changes nothing and is skipped. */
static void sgd_shared_block(sh_update u, size_t at, size_t count) {
    float *w = u.w + at;
    const float *g = u.g + at;
    for (size_t i = 0; i < count; i++) {
        if (g[i] == 0 && u.decay == 0) continue;
        float seen_w = relaxed_load(&w[i]);
        relaxed_store(&w[i], madd(-u.lr, seen(&u, g[i], seen_w), seen_w));
    }
}

/* momentum_block for Hogwild; m is this worker's own, so only w is shared. */
static void momentum_shared_block(sh_update u, size_t at, size_t count) {
    float *w = u.w + at, *m = u.m + at;
    const float *g = u.g + at;
    for (size_t i = 0; i < count; i++) {
        float seen_w = relaxed_load(&w[i]);
        m[i] = madd(u.momentum, m[i], u.keep * seen(&u, g[i], seen_w));
        if (m[i] != 0) relaxed_store(&w[i], madd(-u.lr, m[i], seen_w));
    }
}

/* A moving average m + mix (x - m). For squares it cannot become negative: x - m >= -m, mix < 1. */
static inline float average(float m, float x, float mix) { return madd(mix, x - m, m); }
static inline float average_square(float v, float x, float mix) {
    return madd(mix, madd(x, x, -v), v);
}

/* m unbias1 / (sqrt(v) unbias2 + epsilon): the corrected mean over the root of the corrected
 * square. */
static inline float adam_direction(const sh_update *u, float m, float v) {
    return u->unbias1 * m / madd(sqrtf(v), u->unbias2, u->epsilon);
}

/* Adam; with shrink > 0 AdamW, whose weight decay is decoupled from the gradient. */
static void adam_block(sh_update u, size_t at, size_t count) {
    float *restrict w = u.w + at, *restrict m = u.m + at, *restrict v = u.v + at;
    const float *restrict g = u.g + at;
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float gradient = seen(&u, g[i], w[i]);
        float m_next = average(m[i], gradient, u.mix1);
        float v_next = average_square(v[i], gradient, u.mix2);
        m[i] = m_next;
        v[i] = v_next;
        float shrunk = madd(-u.shrink, w[i], w[i]);
        w[i] = madd(-u.lr, adam_direction(&u, m_next, v_next), shrunk);
    }
}

/* m += g^2; w -= lr g / (sqrt(m) + eps). */
static void adagrad_block(sh_update u, size_t at, size_t count) {
    float *restrict w = u.w + at, *restrict m = u.m + at;
    const float *restrict g = u.g + at;
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float gradient = seen(&u, g[i], w[i]);
        float sum = madd(gradient, gradient, m[i]);
        m[i] = sum;
        w[i] = madd(-u.lr, gradient / (sqrtf(sum) + u.epsilon), w[i]);
    }
}

/* m = average of g^2; w -= lr g / (sqrt(m) + eps). */
static void rmsprop_block(sh_update u, size_t at, size_t count) {
    float *restrict w = u.w + at, *restrict m = u.m + at;
    const float *restrict g = u.g + at;
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float gradient = seen(&u, g[i], w[i]);
        float square = average_square(m[i], gradient, u.mix2);
        m[i] = square;
        w[i] = madd(-u.lr, gradient / (sqrtf(square) + u.epsilon), w[i]);
    }
}

/* RMSProp with momentum in the second slot: v = mu v + g / (sqrt(m) + eps); w -= lr v. */
static void rmsprop_momentum_block(sh_update u, size_t at, size_t count) {
    float *restrict w = u.w + at, *restrict m = u.m + at, *restrict v = u.v + at;
    const float *restrict g = u.g + at;
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float gradient = seen(&u, g[i], w[i]);
        float square = average_square(m[i], gradient, u.mix2);
        float next = madd(u.momentum, v[i], gradient / (sqrtf(square) + u.epsilon));
        m[i] = square;
        v[i] = next;
        w[i] = madd(-u.lr, next, w[i]);
    }
}

/* Adam's direction plus decoupled decay; its norm against that of w gives the trust ratio. */
static inline float lamb_direction(const sh_update *u, float w, float m, float v) {
    return madd(u->shrink, w, adam_direction(u, m, v));
}

typedef struct squares {  // sums of squares, for two norms
    double weights, direction;
} squares;

/* One block: sums in float lanes, which are added up in double by the caller. */
static squares lamb_moments_block(sh_update u, size_t at, size_t count) {
    float *restrict m = u.m + at, *restrict v = u.v + at;
    const float *restrict g = u.g + at, *restrict w = u.w + at;
    float weights = 0, direction = 0;
#pragma omp simd reduction(+ : weights, direction)
    for (size_t i = 0; i < count; i++) {
        float gradient = u.scale * g[i];
        float m_next = average(m[i], gradient, u.mix1);
        float v_next = average_square(v[i], gradient, u.mix2);
        m[i] = m_next;
        v[i] = v_next;
        float d = lamb_direction(&u, w[i], m_next, v_next);
        weights += w[i] * w[i];
        direction += d * d;
    }
    return (squares){(double)weights, (double)direction};
}

/* The range is cut into at most 256 spans of whole blocks by its length alone, and the spans' sums
 * are added in order: the same bits with any number of threads, without allocating. */
static void lamb_moments(const sh_update *update, double *weights_out, double *direction_out) {
    squares partial[SPANS_MOST];
    size_t count = update->count, blocks = (count + BLOCK - 1) / BLOCK;
    size_t span = (blocks + SPANS_MOST - 1) / SPANS_MOST * BLOCK;
    size_t spans = span == 0 ? 0 : (count + span - 1) / span;
#pragma omp parallel for schedule(static) if (count >= PARALLEL_LEAST)
    for (size_t i = 0; i < spans; i++) {
        size_t end = count - i * span < span ? count : (i + 1) * span;
        squares sum = {0};
        for (size_t at = i * span; at < end; at += BLOCK) {
            squares block =
                lamb_moments_block(*update, at, end - at < BLOCK ? end - at : (size_t)BLOCK);
            sum.weights += block.weights;
            sum.direction += block.direction;
        }
        partial[i] = sum;
    }
    *weights_out = *direction_out = 0;
    for (size_t i = 0; i < spans; i++) {
        *weights_out += partial[i].weights;
        *direction_out += partial[i].direction;
    }
}

/* The second pass of LAMB, with the trust ratio of the layer. */
static void lamb_apply_block(sh_update u, size_t at, size_t count) {
    if (u.m == NULL || u.v == NULL) __builtin_unreachable();  // it always has both
    float *restrict w = u.w + at;
    const float *restrict m = u.m + at, *restrict v = u.v + at;
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        w[i] = madd(-u.lr, lamb_direction(&u, w[i], m[i], v[i]), w[i]);
}

static void sgd(const sh_update *update) { for_read_blocks(update, sgd_block); }
static void momentum(const sh_update *update) { for_read_blocks(update, momentum_block); }
static void sgd_shared(const sh_update *update) { for_blocks(update, sgd_shared_block); }
static void momentum_shared(const sh_update *update) { for_blocks(update, momentum_shared_block); }
static void nesterov(const sh_update *update) { for_read_blocks(update, nesterov_block); }
static void adam(const sh_update *update) { for_read_blocks(update, adam_block); }
static void adagrad(const sh_update *update) { for_read_blocks(update, adagrad_block); }
static void rmsprop(const sh_update *update) {
    for_read_blocks(update, update->v != NULL ? rmsprop_momentum_block : rmsprop_block);
}
static void lamb_apply(const sh_update *update) { for_read_blocks(update, lamb_apply_block); }

/* Cuts every element to [-most, most]; both comparisons are false for NaN, which stays. */
static void clamp(float *x, size_t count, float most) {
#pragma omp parallel for simd schedule(static) if (count >= PARALLEL_LEAST)
    for (size_t i = 0; i < count; i++) x[i] = x[i] > most ? most : x[i] < -most ? -most : x[i];
}

const sh_update_kernels SH_SIMD(sh_update_table) = {
    .sgd = sgd,
    .momentum = momentum,
    .sgd_shared = sgd_shared,
    .momentum_shared = momentum_shared,
    .nesterov = nesterov,
    .adam = adam,
    .adagrad = adagrad,
    .rmsprop = rmsprop,
    .lamb_moments = lamb_moments,
    .lamb_apply = lamb_apply,
    .clamp = clamp,
};
