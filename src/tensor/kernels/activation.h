/* Activations, element by element. `saved` of backward is what forward left: its input where
 * needs_input says so, else its output. Results may overwrite arguments (y == x, dx == dy). */
#ifndef SH_TENSOR_KERNELS_ACTIVATION_H
#define SH_TENSOR_KERNELS_ACTIVATION_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/kernels/simd.h"

typedef enum sh_activation_kind {
    SH_ACTIVATION_RELU,
    SH_ACTIVATION_GELU,       // x Phi(x), by erf
    SH_ACTIVATION_GELU_TANH,  // GPT-2's approximation of it
    SH_ACTIVATION_SILU,
    SH_ACTIVATION_TANH,
    SH_ACTIVATION_SIGMOID,
    SH_ACTIVATION_COUNT,
} sh_activation_kind;

typedef struct sh_activation_row {
    const char *name;
    bool needs_input;  // backward wants x; otherwise y
    void (*forward)(const float *x, float *y, size_t count);
    void (*backward)(const float *dy, const float *saved, float *dx, size_t count);
    /* On part of a matrix, `row` floats from one row of it to the next, in one thread: y takes the
     * place of x, and the slope there goes to `slope` (NULL: nowhere), which lies like x. Only
     * where needs_input: then slopes are kept in the place of inputs. */
    void (*apply)(float *x, float *slope, size_t rows, size_t columns, size_t row);
} sh_activation_row;

typedef struct sh_activation_kernels {
    sh_activation_row row[SH_ACTIVATION_COUNT];  // by kind
    /* The functions themselves on arrays, single-threaded: for kernels outside and for tests. */
    void (*exp)(const float *x, float *y, size_t count);
    void (*erf)(const float *x, float *y, size_t count);
    void (*log1p_unit)(const float *x, float *y, size_t count);  // 0 <= x <= 1
} sh_activation_kernels;

SH_SIMD_DECLARE(sh_activation_kernels, sh_activation_table);
static inline const sh_activation_kernels *sh_activation(void) {
    return SH_SIMD_PICK(sh_activation_table);
}

/* The row of a name ("relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"), or NULL. */
static inline const sh_activation_row *sh_activation_find(const char *name) {
    const sh_activation_kernels *kernels = sh_activation();
    for (int kind = 0; kind < SH_ACTIVATION_COUNT; kind++)
        if (__builtin_strcmp(kernels->row[kind].name, name) == 0) return &kernels->row[kind];
    return NULL;
}

#endif
