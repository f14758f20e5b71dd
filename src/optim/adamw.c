/* AdamW (Loshchilov and Hutter 2019): Adam whose weight decay does not pass through the moving
 * averages: w loses lr * weight_decay * w, then takes Adam's step. */
#include "optim/list.h"
#include "optim/rules.h"

#include <math.h>

#include "tensor/kernels/update.h"

/* Moves the decay out of the gradient and into `shrink`, which the kernel applies to w beside
 * Adam's step. */
static void step_adamw(const sh_optim_options *options, const sh_optim_step *step,
                       float *const *slots) {
    sh_optim_run run;
    for (size_t next = step->first; sh_optim_next_run(options, step, false, &next, &run);) {
        sh_update update = sh_optim_update(options, step, slots, &run);
        update.decay = 0;
        update.shrink = run.decays ? (float)(step->lr * options->weight_decay) : 0;
        sh_optim_set_moments(options, step->step, &update);
        sh_update_pick()->adam(&update);
    }
}

const sh_optim_kind sh_optim_adamw = {
    .name = "adamw",
    .help = "Adam with weight decay beside the gradient, not inside it",
    .slots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .initial = {.lr = 1e-3,
                .momentum = NAN,
                .beta1 = 0.9,
                .beta2 = 0.999,
                .epsilon = 1e-8,
                .weight_decay = 0.01,
                .dampening = NAN,
                .trust = NAN,
                .rho = NAN},
    .step = step_adamw,
};
