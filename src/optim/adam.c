/* Adam (Kingma and Ba 2015): moving averages of the gradient and of its square, both corrected for
 * their start at zero.
 *
 *   m = beta1 m + (1 - beta1) g        w = w - lr m' / (sqrt(v') + epsilon)
 *   v = beta2 v + (1 - beta2) g^2      m' = m / (1 - beta1^t), v' = v / (1 - beta2^t)
 *
 * Weight decay is part of g; see adamw.c for the other way. */
#include "optim/list.h"
#include "optim/rules.h"

#include <math.h>

#include "tensor/kernels/update.h"

/* Both corrections in double: beta2^t is close to 1 at first, and 1 - beta2^t would lose
 * digits in float. */
void sh_optim_set_moments(const sh_optim_options *options, int64_t step, sh_update *update) {
    update->mix1 = (float)(1 - options->beta1);
    update->mix2 = (float)(1 - options->beta2);
    update->unbias1 = (float)(1 / (1 - pow(options->beta1, (double)step)));
    update->unbias2 = (float)(1 / sqrt(1 - pow(options->beta2, (double)step)));
    update->epsilon = (float)options->epsilon;
}

/* Decay stays in `update.decay`, as part of the gradient. */
static void step_adam(const sh_optim_options *options, const sh_optim_step *step,
                      float *const *slots) {
    sh_optim_run run;
    for (size_t next = step->first; sh_optim_next_run(options, step, false, &next, &run);) {
        sh_update update = sh_optim_update(options, step, slots, &run);
        sh_optim_set_moments(options, step->step, &update);
        sh_update_pick()->adam(&update);
    }
}

const sh_optim_kind sh_optim_adam = {
    .name = "adam",
    .help = "moving averages of the gradient and its square; decay inside the gradient",
    .slots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .initial = {.lr = 1e-3,
                .momentum = NAN,
                .beta1 = 0.9,
                .beta2 = 0.999,
                .epsilon = 1e-8,
                .weight_decay = 0,
                .dampening = NAN,
                .trust = NAN,
                .rho = NAN},
    .step = step_adam,
};
