/* Clipping gradients, by norm or by value, before the update. By norm the whole gradient is
 * scaled, which keeps its direction (Pascanu, Mikolov and Bengio 2013). */
#include <math.h>

#include "optim/optim.h"
#include "tensor/kernels/reduce.h"
#include "tensor/kernels/update.h"

/* For gradients above about 1e18, whose squares leave the range of the fast kernel's floats. */
static double sum_squares_wide(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Squared norm of a part of the gradient; workers that hold parts add theirs. */
double sh_clip_squares(const float *gradients, size_t count) {
    double squares = sh_reduce()->sum_squares(gradients, count);
    return isinf(squares) ? sum_squares_wide(gradients, count) : squares;
}

/* The factor is left to the optimizer's step, which scales while it reads the gradient: no pass of
 * its own. */
double sh_clip_factor(double squares, double most, double *norm_out) {
    SH_ASSERT(most > 0);
    double norm = sqrt(squares);
    if (norm_out != NULL) *norm_out = norm;
    return norm > most ? most / norm : 1;  // NaN: 1, the numbers' policy decides
}

double sh_clip_norm(const float *gradients, size_t count, double most, double *norm_out) {
    return sh_clip_factor(sh_clip_squares(gradients, count), most, norm_out);
}

void sh_clip_value(float *gradients, size_t count, float most) {
    SH_ASSERT(most > 0);
    sh_update_pick()->clamp(gradients, count, most);
}
