/* Joining buffers of several ranks, for all operators and types, from one macro. One thread each:
 * the ranks are the threads. Values are joined in the order of the arguments, so whoever joins
 * ranks in the same order gets the same bits. */
#include "tensor/kernels/combine.h"

#include "tensor/kernels/simd/half.h"
#include "tensor/kernels/simd/lanes.h"

/* Conversions of JOIN: half-precision values are joined in float; integers as unsigned, since
 * signed overflow is undefined in C. */
#define SAME(x) (x)

/* Operators. MAX and MIN give NaN if either value is NaN. No branches, so that loops become vector
 * code. */
#define SUM(a, b)     ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
#define MAX(a, b)     (((int)((a) > (b)) | (int)((a) != (a))) ? (a) : (b))
#define MIN(a, b)     (((int)((a) < (b)) | (int)((a) != (a))) ? (a) : (b))

/* Defines NAME, z = a op b, and NAME_both, which writes the result to both a and b. Elements are
 * independent: z is a, or b, or overlaps neither. */
#define JOIN(name, type, load, store, op)                                      \
    static void name(void *z_, const void *a_, const void *b_, size_t count) { \
        type *z = z_;                                                          \
        const type *a = a_, *b = b_;                                           \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) z[i] =          \
            store(op(load(a[i]), load(b[i])));                                 \
    }                                                                          \
    static void name##_both(void *a_, void *b_, size_t count) {                \
        type *restrict a = a_, *restrict b = b_;                               \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) a[i] = b[i] =   \
            store(op(load(a[i]), load(b[i])));                                 \
    }

/* All operators of one type. Max and min compare with sign, sums and products wrap without. */
#define JOINS(dtype, type, unsigned_type, load, store)         \
    JOIN(sum_##dtype, unsigned_type, load, store, SUM)         \
    JOIN(product_##dtype, unsigned_type, load, store, PRODUCT) \
    JOIN(max_##dtype, type, load, store, MAX)                  \
    JOIN(min_##dtype, type, load, store, MIN)

JOINS(f32, float, float, SAME, SAME)
JOINS(f64, double, double, SAME, SAME)
JOINS(i32, int32_t, uint32_t, SAME, SAME)
JOINS(i64, int64_t, uint64_t, SAME, SAME)
JOINS(f16, uint16_t, uint16_t, half_to_float, half_from_float)
JOINS(bf16, uint16_t, uint16_t, bfloat_to_float, bfloat_from_float)

/* Division by the number of ranks, after a sum: the mean. */
#define DIVIDE(dtype, type, number, load, store)                                       \
    static void divide_##dtype(void *x_, int divisor, size_t count) {                  \
        type *x = x_;                                                                  \
        for (size_t i = 0; i < count; i++) x[i] = store(load(x[i]) / (number)divisor); \
    }

DIVIDE(f32, float, float, SAME, SAME)
DIVIDE(f64, double, double, SAME, SAME)
DIVIDE(i32, int32_t, int32_t, SAME, SAME)
DIVIDE(i64, int64_t, int64_t, SAME, SAME)
DIVIDE(f16, uint16_t, float, half_to_float, half_from_float)
DIVIDE(bf16, uint16_t, float, bfloat_to_float, bfloat_from_float)

/* Copies `bytes` in steps of four vectors. The empty asm statement keeps the compiler from turning
 * the loop into a call of memcpy. */
static void copy(void *to_, const void *from_, size_t bytes) {
    enum { VECTOR = sizeof(vf), STEP = 4 * VECTOR };
    char *to = to_;
    const char *from = from_;
    size_t at = 0;
    for (; at + STEP <= bytes; at += STEP) {
        vf v[4];
        memcpy(v, from + at, sizeof v);
        __asm__ volatile("" ::: "memory");
        memcpy(to + at, v, sizeof v);
    }
    if (at < bytes) memcpy(to + at, from + at, bytes - at);
}

/* One row of the table: an operator on every type. A mean is a sum that `divide` finishes. */
#define ROW(op)                                                                           \
    {                                                                                     \
        [SH_DTYPE_F32] = op##_f32, [SH_DTYPE_F64] = op##_f64, [SH_DTYPE_I32] = op##_i32,  \
        [SH_DTYPE_I64] = op##_i64, [SH_DTYPE_F16] = op##_f16, [SH_DTYPE_BF16] = op##_bf16 \
    }
#define ROW_BOTH(op)                                                     \
    {                                                                    \
        [SH_DTYPE_F32] = op##_f32_both, [SH_DTYPE_F64] = op##_f64_both,  \
        [SH_DTYPE_I32] = op##_i32_both, [SH_DTYPE_I64] = op##_i64_both,  \
        [SH_DTYPE_F16] = op##_f16_both, [SH_DTYPE_BF16] = op##_bf16_both \
    }

const sh_combine_kernels SH_SIMD(sh_combine_table) = {
    .join = {[SH_SUM] = ROW(sum),
             [SH_MEAN] = ROW(sum),
             [SH_MAX] = ROW(max),
             [SH_MIN] = ROW(min),
             [SH_PRODUCT] = ROW(product)},
    .both = {[SH_SUM] = ROW_BOTH(sum),
             [SH_MEAN] = ROW_BOTH(sum),
             [SH_MAX] = ROW_BOTH(max),
             [SH_MIN] = ROW_BOTH(min),
             [SH_PRODUCT] = ROW_BOTH(product)},
    .divide = ROW(divide),
    .copy = copy,
};
