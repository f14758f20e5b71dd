/* Matrix products: one call, three libraries behind it. The choice is made once per shape and says
 * which of them serves it (tuner.h); running it allocates nothing. */
#ifndef SH_TENSOR_KERNELS_GEMM_H
#define SH_TENSOR_KERNELS_GEMM_H

#include "tensor/kernels/packed_gemm.h"
#include "tensor/kernels/tuner.h"

typedef enum sh_gemm_library {
    SH_GEMM_PACKED,
    SH_GEMM_ONEDNN,
    SH_GEMM_OPENBLAS,
    SH_GEMM_LIBRARIES
} sh_gemm_library;

typedef struct sh_gemm {
    int64_t m, n, k;
    bool ta, tb;
    int threads;
    sh_gemm_library library;
    size_t scratch_bytes;
} sh_gemm;

/* Decides for C (m, n) = op(A) op(B); measures when the tuner does not know the shape yet. */
sh_status sh_gemm_choose(sh_gemm *gemm, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                         sh_tuner *tuner);
/* Fills m, n, k, ta, tb of `args` from the choice and runs it. `scratch`: scratch_bytes, aligned.
 */
void sh_gemm_run(const sh_gemm *gemm, sh_gemm_args args, void *scratch);
const char *sh_gemm_library_name(sh_gemm_library library);

/* The oracle: three plain loops, double sums. */
void sh_gemm_reference(const sh_gemm_args *args);

#endif
