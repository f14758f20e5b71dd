/* Element types that travel between ranks, and the operators that join them. */
#ifndef SH_TENSOR_DTYPE_H
#define SH_TENSOR_DTYPE_H

#include <stddef.h>

typedef enum sh_dtype {
    SH_DTYPE_F32,
    SH_DTYPE_F64,
    SH_DTYPE_I32,
    SH_DTYPE_I64,
    SH_DTYPE_F16,   // joined in float, rounded per step
    SH_DTYPE_BF16,  // likewise
    SH_DTYPE_BYTE,  // moved, never reduced
} sh_dtype;

typedef enum sh_reduce_op { SH_SUM, SH_MEAN, SH_MAX, SH_MIN, SH_PRODUCT } sh_reduce_op;

enum { SH_DTYPES = 7, SH_REDUCE_OPS = 5 };

static inline size_t sh_dtype_bytes(sh_dtype dtype) {
    static const unsigned char bytes[SH_DTYPES] = {4, 8, 4, 8, 2, 2, 1};
    return bytes[dtype];
}

#endif
