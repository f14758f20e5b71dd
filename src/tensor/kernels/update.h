/* The inner loops of the optimizers: one pass over a contiguous range, bound by memory. Every
 * element is computed alone and with the same operations wherever it lies in the range, so cutting
 * a range into several calls, or using other thread counts, gives equal bits. */
#ifndef SH_TENSOR_KERNELS_UPDATE_H
#define SH_TENSOR_KERNELS_UPDATE_H

#include <stddef.h>

#include "tensor/kernels/simd.h"

/* One range and the numbers of the rule. w weights, g gradients, m first slot, v second slot. All
 * rules first read g as scale * g + decay * w. */
typedef struct sh_update {
    float *w;        // (count)
    const float *g;  // (count)
    float *m, *v;    // (count) each, NULL where the rule has no such slot
    size_t count;
    float scale, decay;
    float lr;
    float shrink;          // decoupled decay: w loses shrink * w
    float momentum, keep;  // m = momentum m + keep g
    float mix1, mix2;      // 1 - beta1, 1 - beta2: the weight of the new value in a moving average
    float unbias1, unbias2;  // bias corrections: of the first moment, of the second one's root
    float epsilon;
} sh_update;

typedef struct sh_update_kernels {
    void (*sgd)(const sh_update *update);       // w -= lr g
    void (*momentum)(const sh_update *update);  // w -= lr m
    /* The same bits where nobody else writes w; where others do, at the same time, every element of
     * it is loaded and stored once, by relaxed atomics (Hogwild). m is the caller's own. */
    void (*sgd_shared)(const sh_update *update);
    void (*momentum_shared)(const sh_update *update);
    void (*nesterov)(const sh_update *update);  // w -= lr (g + momentum m)
    void (*adam)(const sh_update *update);      // shrink, then w -= lr unbias1 m / (root of v)
    void (*adagrad)(const sh_update *update);   // m += g^2; w -= lr g / (sqrt(m) + epsilon)
    void (*rmsprop)(const sh_update *update);   // m average of g^2; v, if any, is the momentum
    /* LAMB in two passes. The first updates m and v and gives the squares of the norms of the
     * weights and of the direction unbias1 m / (root of v) + shrink w; here decay must be 0. The
     * sums do not depend on the thread count. The second takes lr times the direction off w. */
    void (*lamb_moments)(const sh_update *update, double *weights_out, double *direction_out);
    void (*lamb_apply)(const sh_update *update);
    /* x into [-most, most]; NaN stays, so that it is still found later. */
    void (*clamp)(float *x, size_t count, float most);
} sh_update_kernels;

SH_SIMD_DECLARE(sh_update_kernels, sh_update_table);
static inline const sh_update_kernels *sh_update_pick(void) {
    return SH_SIMD_PICK(sh_update_table);
}

#endif
