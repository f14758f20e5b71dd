/* Adagrad (Duchi, Hazan and Singer 2011): every weight's step is divided by the root of all its
 * squared gradients so far.
 *
 *   m = m + g^2        w = w - lr g / (sqrt(m) + epsilon) */
#include "optim/list.h"
#include "optim/rules.h"

#include <math.h>

#include "tensor/kernels/update.h"

/* The sum never shrinks, so the rate of a weight only falls. */
static void step_adagrad(const sh_optim_options *options, const sh_optim_step *step,
                         float *const *slots) {
    sh_optim_run run;
    for (size_t next = step->first; sh_optim_next_run(options, step, false, &next, &run);) {
        sh_update update = sh_optim_update(options, step, slots, &run);
        update.epsilon = (float)options->epsilon;
        sh_update_pick()->adagrad(&update);
    }
}

const sh_optim_kind sh_optim_adagrad = {
    .name = "adagrad",
    .help = "steps divided by the root of the summed squares; for sparse gradients",
    .slots = 1,
    .slot_names = {"sum"},
    .initial = {.lr = 0.01,
                .momentum = NAN,
                .beta1 = NAN,
                .beta2 = NAN,
                .epsilon = 1e-10,
                .weight_decay = 0,
                .dampening = NAN,
                .trust = NAN,
                .rho = NAN},
    .step = step_adagrad,
};
