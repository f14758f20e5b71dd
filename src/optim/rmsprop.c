/* RMSProp (Tieleman and Hinton 2012, lecture 6e): like Adagrad, but the squares fade.
 *
 *   m = rho m + (1 - rho) g^2        w = w - lr d        d = g / (sqrt(m) + epsilon)
 *
 * With momentum the step is the velocity v = momentum v + d instead of d. */
#include "optim/list.h"
#include "optim/rules.h"

#include <math.h>

#include "tensor/kernels/update.h"

/* Without momentum the second slot does not exist, and the kernel takes the shorter rule. */
static void step_rmsprop(const sh_optim_options *options, const sh_optim_step *step,
                         float *const *slots) {
    sh_optim_run run;
    for (size_t next = step->first; sh_optim_next_run(options, step, false, &next, &run);) {
        sh_update update = sh_optim_update(options, step, slots, &run);
        update.mix2 = (float)(1 - options->rho);
        update.momentum = (float)options->momentum;
        update.epsilon = (float)options->epsilon;
        sh_update_pick()->rmsprop(&update);
    }
}

const sh_optim_kind sh_optim_rmsprop = {
    .name = "rmsprop",
    .help = "steps divided by the root of a moving average of squares",
    .slots = 2,
    .momentum_slot = true,
    .slot_names = {"square_avg", "momentum"},
    .initial = {.lr = 0.01,
                .momentum = 0,
                .beta1 = NAN,
                .beta2 = NAN,
                .epsilon = 1e-8,
                .weight_decay = 0,
                .dampening = NAN,
                .trust = NAN,
                .rho = 0.99},
    .step = step_rmsprop,
};
