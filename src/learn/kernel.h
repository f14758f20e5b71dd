/* Kernels of support vector machines, and rows of the kernel matrix. A value depends on its two
 * samples alone: not on the rows around them, threads or workers. */
#ifndef SH_LEARN_KERNEL_H
#define SH_LEARN_KERNEL_H

#include "learn/rows.h"

typedef enum sh_kernel_kind {
    SH_KERNEL_LINEAR,
    SH_KERNEL_POLYNOMIAL,
    SH_KERNEL_RBF
} sh_kernel_kind;
enum { SH_KERNELS = 3 };

typedef struct sh_kernel {
    sh_kernel_kind kind;
    double gamma;  // RBF: exp(-gamma |a - b|^2); polynomial: (gamma a.b + coef0)^degree
    double coef0;
    int degree;
} sh_kernel;

const char *sh_kernel_name(sh_kernel_kind kind);  // "rbf"

/* From a.b, |a|^2 and |b|^2. */
double sh_kernel_value(const sh_kernel *kernel, double dot, double square_a, double square_b);

/* The kernel of a sample x, (width), with the rows that `list` names (NULL: the first `count`):
 * value_out[i] is that with row list[i]. `square` holds the rows' sums of squares. */
void sh_kernel_row(const sh_kernel *kernel, const sh_rows *rows, const double *square,
                   const uint32_t *list, size_t count, const double *x, double x_square,
                   int threads, float *value_out);

#endif
