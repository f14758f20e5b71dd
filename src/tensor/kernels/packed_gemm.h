/* Shoal's own sgemm: C (m x n) := or += op(A) op(B), all row-major and contiguous, with the bias
 * and relu of a dense layer applied while the last block of C is still in registers, and other
 * activations while it is still in the first cache.
 *
 * Beside the libraries because the shapes of training are lopsided (small batch, k of 10 or 32,
 * transposed weight gradients), where those fall to half the peak, and because its sums do not
 * depend on the number of threads. */
#ifndef SH_TENSOR_KERNELS_PACKED_GEMM_H
#define SH_TENSOR_KERNELS_PACKED_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/kernels/activation.h"
#include "tensor/kernels/simd.h"

typedef struct sh_gemm_args {
    int64_t m, n, k;
    bool ta, tb;  // A is stored (k, m), B is stored (n, k)
    const float *a, *b;
    float *c;           // (m, n)
    bool accumulate;    // C += instead of C =
    const float *bias;  // (n), added to every row; NULL: none
    bool relu;
    const sh_activation_row *activation;  // applied to C last; a row with `apply`, or NULL: none
    float *slope;         // (m, n): takes the slopes of `activation`; NULL: not wanted
    const float *factor;  // (m, n): C is multiplied by it, element by element; NULL: not
} sh_gemm_args;

typedef struct sh_packed_gemm_kernels {
    size_t (*scratch_bytes)(int64_t m, int64_t n, int64_t k, int threads);
    void (*run)(const sh_gemm_args *args, void *scratch, int threads);
} sh_packed_gemm_kernels;

SH_SIMD_DECLARE(sh_packed_gemm_kernels, sh_packed_gemm_table);
static inline const sh_packed_gemm_kernels *sh_packed_gemm(void) {
    return SH_SIMD_PICK(sh_packed_gemm_table);
}

#endif
