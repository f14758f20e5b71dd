#include "comm/engines.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

typedef struct engine_job {
    const sh_engine_options *options;
    sh_engine_body body;
    void *argument;
} engine_job;

static sh_status run_engine(sh_transport *transport, void *argument) {
    engine_job *job = argument;
    sh_engine_options none = {0};
    sh_engine *engine = NULL;
    SH_TRY(sh_engine_create(transport, job->options != NULL ? job->options : &none, &engine));
    sh_status status = job->body(engine, job->argument);
    sh_error error = *sh_error_last();
    sh_engine_destroy(engine);
    return status == SH_OK ? SH_OK : sh_error_adopt(&error);
}

sh_status run_engines(int ranks, const sh_engine_options *options, sh_engine_body body,
                      void *argument) {
    return run_ranks_given(ranks, run_engine, &(engine_job){options, body, argument});
}

int engine_value(sh_reduce_op op, int rank, size_t index) {
    if (op == SH_PRODUCT) return (index + (size_t)rank) % 5 == 0 ? 2 : 1;
    return (int)((index * 7 + (size_t)rank * 3) % 13) - 6;
}

/* Small whole numbers in half precision and bfloat16. */
static uint16_t encode(float value, int fraction_bits, int bias) {
    if (value == 0) return 0;
    int exponent;
    float fraction = frexpf(fabsf(value), &exponent);  // [0.5, 1)
    uint16_t bits = (uint16_t)ldexpf(2 * fraction - 1, fraction_bits);
    uint16_t sign = value < 0 ? 0x8000 : 0;
    return (uint16_t)(sign | (unsigned)(exponent - 1 + bias) << fraction_bits | bits);
}

static float decode(uint16_t bits, int fraction_bits, int bias) {
    int exponent = (bits & 0x7FFF) >> fraction_bits;
    int fraction = bits & ((1 << fraction_bits) - 1);
    if (exponent == 0) return 0;
    float value = ldexpf(1 + ldexpf((float)fraction, -fraction_bits), exponent - bias);
    return bits & 0x8000 ? -value : value;
}

static void put(void *data, sh_dtype dtype, size_t at, int value) {
    switch (dtype) {
        case SH_DTYPE_F32:
            ((float *)data)[at] = (float)value;
            break;
        case SH_DTYPE_F64:
            ((double *)data)[at] = value;
            break;
        case SH_DTYPE_I32:
            ((int32_t *)data)[at] = value;
            break;
        case SH_DTYPE_I64:
            ((int64_t *)data)[at] = value;
            break;
        case SH_DTYPE_F16:
            ((uint16_t *)data)[at] = encode((float)value, 10, 15);
            break;
        case SH_DTYPE_BF16:
            ((uint16_t *)data)[at] = encode((float)value, 7, 127);
            break;
        case SH_DTYPE_BYTE:
            ((uint8_t *)data)[at] = (uint8_t)value;
            break;
    }
}

static double get(const void *data, sh_dtype dtype, size_t at) {
    switch (dtype) {
        case SH_DTYPE_F32:
            return (double)((const float *)data)[at];
        case SH_DTYPE_F64:
            return ((const double *)data)[at];
        case SH_DTYPE_I32:
            return ((const int32_t *)data)[at];
        case SH_DTYPE_I64:
            return (double)((const int64_t *)data)[at];
        case SH_DTYPE_F16:
            return (double)decode(((const uint16_t *)data)[at], 10, 15);
        case SH_DTYPE_BF16:
            return (double)decode(((const uint16_t *)data)[at], 7, 127);
        case SH_DTYPE_BYTE:
            break;
    }
    return ((const uint8_t *)data)[at];
}

void engine_fill(void *data, sh_dtype dtype, sh_reduce_op op, int rank, size_t count) {
    for (size_t i = 0; i < count; i++) put(data, dtype, i, engine_value(op, rank, i));
}

static double reduced(sh_reduce_op op, sh_dtype dtype, const int *member, int ranks, size_t index) {
    int result = engine_value(op, member != NULL ? member[0] : 0, index);
    for (int i = 1; i < ranks; i++) {
        int value = engine_value(op, member != NULL ? member[i] : i, index);
        if (op == SH_SUM || op == SH_MEAN) result += value;
        if (op == SH_PRODUCT) result *= value;
        if (op == SH_MAX && value > result) result = value;
        if (op == SH_MIN && value < result) result = value;
    }
    if (op != SH_MEAN) return result;
    if (dtype == SH_DTYPE_F32) return (double)((float)result / (float)ranks);
    if (dtype == SH_DTYPE_I32 || dtype == SH_DTYPE_I64) return result / ranks;
    return (double)result / ranks;
}

sh_status engine_check(const void *data, sh_dtype dtype, sh_reduce_op op, const int *member,
                       int ranks, size_t first, size_t count, const char *what) {
    // Halves round a mean; what they round to is the kernels' test.
    double tolerance = 0;
    if (op == SH_MEAN && dtype == SH_DTYPE_F16) tolerance = 0.01;
    if (op == SH_MEAN && dtype == SH_DTYPE_BF16) tolerance = 0.05;
    for (size_t i = first; i < first + count; i++) {
        double got = get(data, dtype, i), wanted = reduced(op, dtype, member, ranks, i);
        if (!(fabs(got - wanted) <= tolerance))
            return SH_FAIL(SH_E_NUMERIC,
                           "%s of %d ranks, type %d, operator %d: element %zu of %zu "
                           "is %g, not %g",
                           what, ranks, (int)dtype, (int)op, i, count, got, wanted);
    }
    return SH_OK;
}
