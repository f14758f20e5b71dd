/* Layer and batch normalisation, forward and backward. */
#ifndef SH_TENSOR_KERNELS_NORM_H
#define SH_TENSOR_KERNELS_NORM_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/kernels/simd.h"

/* Batch normalisation over data laid out as [outer][channels/lanes][inner][lanes]: images in plain
 * order have lanes 1 and inner H*W, blocked ones lanes 8 or 16; rows of features [N][C] are lanes C
 * and inner 1. Statistics per channel have `channels` floats. */
typedef struct sh_batchnorm_shape {
    size_t outer, channels, inner, lanes;  // lanes divides channels
} sh_batchnorm_shape;

typedef struct sh_batchnorm_forward {
    sh_batchnorm_shape shape;
    const float *x, *gamma, *beta;
    const float *residual;              // added after the affine map; NULL for none
    float *y;                           // may be x or residual
    float *mean, *rstd;                 // of this batch, out (training)
    float *running_mean, *running_var;  // in and out in training, in for inference
    float eps, momentum;                // running = (1 - momentum) running + momentum batch
    bool relu;                          // y = max(0, y) at the end
} sh_batchnorm_forward;

typedef struct sh_batchnorm_backward {
    sh_batchnorm_shape shape;
    const float *dy, *x, *gamma, *mean, *rstd;
    const float *y;    // the output, where relu was fused: dy counts where y > 0. Else NULL.
    float *dx;         // may be dy
    float *dresidual;  // the masked dy, for the branch that was added; NULL if none. May be dy
                       // when dx is not.
    float *dgamma, *dbeta;
    bool accumulate;  // add to dgamma and dbeta
} sh_batchnorm_backward;

typedef struct sh_batchnorm_kernels {
    /* Batch statistics; updates the running ones (variance unbiased, as PyTorch has it). */
    void (*train)(const sh_batchnorm_forward *args);
    /* Uses the running statistics; writes neither these nor mean and rstd. */
    void (*infer)(const sh_batchnorm_forward *args);
    void (*backward)(const sh_batchnorm_backward *args);
    /* The same in two halves each, for a batch that is spread over workers: sums of this part, and
     * after they were added up the rest. Sums are (2, channels): of x and of x squared; of dy and
     * of dy (x - mean). `count` is that of a channel over all parts. */
    void (*train_sums)(const sh_batchnorm_forward *args, double *sums_out);
    void (*train_rest)(const sh_batchnorm_forward *args, const double *sums, double count);
    void (*backward_sums)(const sh_batchnorm_backward *args, double *sums_out);
    void (*backward_rest)(const sh_batchnorm_backward *args, const double *sums, double count);
} sh_batchnorm_kernels;

/* The gradients of gamma and beta are summed by parts of the rows, as many as there are threads and
 * as fit into scratch_floats: at least 4 C, best 4 C threads. The results depend on that number. */
typedef struct sh_layernorm_backward {
    size_t rows, C;
    const float *dy, *x;       // [rows][C]
    const float *gamma;        // [C]
    const float *mean, *rstd;  // [rows]
    const float *residual;     // [rows][C], added to dx (the branch around); NULL for none
    float *dx;                 // [rows][C], may be dy or residual
    float *dgamma, *dbeta;     // [C]; dbeta may be NULL
    bool accumulate;           // add to dgamma and dbeta
    float *scratch;
    size_t scratch_floats;
} sh_layernorm_backward;

typedef struct sh_layernorm_kernels {
    /* x, y [rows][C]; gamma, beta [C] (beta may be NULL); mean, rstd [rows]. y may be x. */
    void (*forward)(const float *x, const float *gamma, const float *beta, float eps, size_t rows,
                    size_t C, float *y, float *mean, float *rstd);
    void (*backward)(const sh_layernorm_backward *args);
} sh_layernorm_kernels;

SH_SIMD_DECLARE(sh_batchnorm_kernels, sh_batchnorm_table);
SH_SIMD_DECLARE(sh_layernorm_kernels, sh_layernorm_table);
static inline const sh_batchnorm_kernels *sh_batchnorm(void) {
    return SH_SIMD_PICK(sh_batchnorm_table);
}
static inline const sh_layernorm_kernels *sh_layernorm(void) {
    return SH_SIMD_PICK(sh_layernorm_table);
}

#endif
