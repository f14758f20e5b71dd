/* LARS (You, Gitman and Ginsburg 2017): every layer gets a learning rate in proportion to its own
 * weights, for large batches.
 *
 *   ratio = trust |w| / (|g| + weight_decay |w|)
 *   m = momentum m + lr ratio (g + weight_decay w)        w = w - m
 *
 * The ratio stands inside the momentum: a later change of lr does not rescale steps already in m.
 * Biases and norms have ratio 1 and no decay. So has a layer whose weights or gradients are all
 * zero, for which the formula means nothing. */
#include "optim/list.h"
#include "optim/rules.h"

#include <math.h>

#include "tensor/kernels/reduce.h"
#include "tensor/kernels/update.h"

/* trust |w| / (|g| + decay |w|) with g as the rule sees it, hence the gradient's scale. */
static double trust_ratio(const sh_optim_options *options, const sh_optim_step *step,
                          const sh_update *update) {
    double norms[2] = {sh_reduce()->sum_squares(update->w, update->count),
                       sh_reduce()->sum_squares(update->g, update->count)};
    if (step->sum != NULL) step->sum(step->sum_self, norms, 2);
    double weights = sqrt(norms[0]), gradients = sqrt(norms[1]) * fabs((double)update->scale);
    if (!(weights > 0) || !(gradients > 0)) return 1;
    return options->trust * weights / (gradients + (double)update->decay * weights);
}

/* lr and ratio go into `keep`, the weight of the new gradient in m; the kernel's own lr is then
 * 1. */
static void step_lars(const sh_optim_options *options, const sh_optim_step *step,
                      float *const *slots) {
    sh_optim_run run;
    for (size_t next = step->first; sh_optim_next_run(options, step, true, &next, &run);) {
        sh_update update = sh_optim_update(options, step, slots, &run);
        double ratio = run.adapts ? trust_ratio(options, step, &update) : 1;
        update.momentum = (float)options->momentum;
        update.keep = (float)(step->lr * ratio);
        update.lr = 1;
        sh_update_pick()->momentum(&update);
    }
}

const sh_optim_kind sh_optim_lars = {
    .name = "lars",
    .help = "momentum with a learning rate per layer, for large batches",
    .slots = 1,
    .adaptive = true,
    .slot_names = {"momentum"},
    .initial = {.lr = 1,
                .momentum = 0.9,
                .beta1 = NAN,
                .beta2 = NAN,
                .epsilon = NAN,
                .weight_decay = 5e-4,
                .dampening = NAN,
                .trust = 1e-3,
                .rho = NAN},
    .step = step_lars,
};
