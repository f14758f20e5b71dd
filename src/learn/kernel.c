/* Kernel functions K(a, b), in doubles from a.b and the squares, rounded to float where rows are
 * cached. Formulas are libsvm's, so that its models can be compared. */
#include "learn/kernel.h"

#include <math.h>
#include <omp.h>

static const char *const names[SH_KERNELS] = {"linear", "polynomial", "rbf"};

const char *sh_kernel_name(sh_kernel_kind kind) { return names[kind]; }

/* Integer powers by squaring, as libsvm has them (powi). */
static double power(double base, int exponent) {
    double result = 1;
    for (; exponent > 0; exponent /= 2, base *= base)
        if (exponent % 2 == 1) result *= base;
    return result;
}

/* |a - b|^2 = a.a + b.b - 2 a.b may come out below 0 by rounding; a distance is not. */
double sh_kernel_value(const sh_kernel *kernel, double dot, double square_a, double square_b) {
    double gap;
    switch (kernel->kind) {
        case SH_KERNEL_LINEAR:
            return dot;
        case SH_KERNEL_POLYNOMIAL:
            return power(kernel->gamma * dot + kernel->coef0, kernel->degree);
        default:
            gap = square_a + square_b - 2 * dot;
            return exp(-kernel->gamma * (gap > 0 ? gap : 0));
    }
}

/* O(count width). Small rows stay in one thread: starting a team would cost more. */
void sh_kernel_row(const sh_kernel *kernel, const sh_rows *rows, const double *square,
                   const uint32_t *list, size_t count, const double *x, double x_square,
                   int threads, float *value_out) {
#pragma omp parallel for num_threads(threads) schedule(static) if (count > 256)
    for (size_t i = 0; i < count; i++) {
        size_t row = list != NULL ? list[i] : i;
        value_out[i] =
            (float)sh_kernel_value(kernel, sh_rows_dot(rows, row, x), x_square, square[row]);
    }
}
