/* Trust-region Newton for linear models with smooth losses:
 *
 *   minimise  f(w) = l2/2 sum over outputs of |w_k|^2 + sum over rows of C s_i loss(y_i, W x_i + b)
 *
 * with s_i the row's weight; the intercept b is not penalised. As LIBLINEAR's (Lin, Weng and
 * Keerthi, "Trust region Newton method for large-scale logistic regression", 2008): conjugate
 * gradients find each step, and one sum of (width + 1) outputs numbers is sent for a gradient and
 * for each of their products with the Hessian. Sums are integers, so that the weights have the same
 * bits at any number of workers and threads. */
#ifndef SH_LEARN_NEWTON_H
#define SH_LEARN_NEWTON_H

#include "learn/rows.h"

typedef enum sh_glm_loss {
    SH_GLM_SQUARE,         // 1/2 (z - y)^2
    SH_GLM_LOGISTIC,       // log(1 + exp(-y z)), y -1 or 1
    SH_GLM_SQUARED_HINGE,  // max(0, 1 - y z)^2
    SH_GLM_MULTINOMIAL,    // log(sum over k of exp(z_k)) - z_y
} sh_glm_loss;

typedef struct sh_newton_options {
    sh_glm_loss loss;
    double c, l2;
    bool intercept;
    size_t outputs;    // 1, or the classes of MULTINOMIAL
    int64_t positive;  // losses of -1 and 1: the class that is 1; all others are -1
} sh_newton_options;

typedef struct sh_newton_step {
    double objective, gradient;  // f and |f'| after the step
    int64_t products;            // with the Hessian
    bool accepted;
} sh_newton_step;

typedef struct sh_newton sh_newton;

/* Begins with weights of zero. Collective; borrows rows and team. */
sh_status sh_newton_create(const sh_newton_options *options, const sh_rows *rows,
                           sh_learn_team *team, sh_newton **newton_out);
void sh_newton_destroy(sh_newton *newton);
/* One step of the trust region, collective. */
sh_status sh_newton_iterate(sh_newton *newton, sh_newton_step *step_out);
/* |f'| is at most epsilon min(positives, negatives) / rows times that at weights of zero, as
 * LIBLINEAR stops. */
bool sh_newton_is_done(const sh_newton *newton, double epsilon);
/* (outputs, width + 1), the intercept last. */
const double *sh_newton_weights(const sh_newton *newton);
/* For checkpoints: the weights are pairs of floats, which hold all there is to know beside the
 * radius of the trust region. */
double sh_newton_radius(const sh_newton *newton);
/* Goes on from such weights. Collective. */
sh_status sh_newton_restore(sh_newton *newton, const double *weights, double radius);

#endif
