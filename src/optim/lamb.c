/* LAMB (You et al. 2020): Adam's direction with weight decay, scaled per layer to the size of the
 * layer's weights, for large batches.
 *
 *   u = m' / (sqrt(v') + epsilon) + weight_decay w        w = w - lr |w| / |u| u
 *
 * with m' and v' as in adam.c. Biases and norms take the step without the ratio and, unless asked
 * for, without decay; a layer of zeros, or with u = 0, has ratio 1. */
#include "optim/list.h"
#include "optim/rules.h"

#include <math.h>

#include "tensor/kernels/update.h"

/* Updates one layer. `step->sum` adds the squared norms of those who hold the layer's other
 * elements, so the ratio is that of the whole layer. */
static void step_layer(const sh_optim_step *step, sh_update *update) {
    double norms[2];  // squared: of the weights, of the direction
    sh_update_pick()->lamb_moments(update, &norms[0], &norms[1]);
    if (step->sum != NULL) step->sum(step->sum_self, norms, 2);
    double ratio = norms[0] > 0 && norms[1] > 0 ? sqrt(norms[0] / norms[1]) : 1;
    update->lr = (float)((double)update->lr * ratio);
    sh_update_pick()->lamb_apply(update);
}

/* Runs are single parameters here, as each has a ratio of its own. */
static void step_lamb(const sh_optim_options *options, const sh_optim_step *step,
                      float *const *slots) {
    sh_optim_run run;
    for (size_t next = step->first; sh_optim_next_run(options, step, true, &next, &run);) {
        sh_update update = sh_optim_update(options, step, slots, &run);
        double decay = run.decays ? options->weight_decay : 0;
        update.decay = 0;
        sh_optim_set_moments(options, step->step, &update);
        if (run.adapts) {
            update.shrink = (float)decay;
            step_layer(step, &update);
        } else {  // without the ratio it is AdamW
            update.shrink = (float)(step->lr * decay);
            sh_update_pick()->adam(&update);
        }
    }
}

const sh_optim_kind sh_optim_lamb = {
    .name = "lamb",
    .help = "AdamW with a learning rate per layer, for large batches",
    .slots = 2,
    .adaptive = true,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .initial = {.lr = 1e-3,
                .momentum = NAN,
                .beta1 = 0.9,
                .beta2 = 0.999,
                .epsilon = 1e-6,
                .weight_decay = 0.01,
                .dampening = NAN,
                .trust = NAN,
                .rho = NAN},
    .step = step_lamb,
};
