/* Nesterov's momentum in the form of Sutskever et al. 2013, as PyTorch writes it: the gradient is
 * taken where the weights are, and the step looks ahead by one velocity.
 *
 *   m = momentum m + g        w = w - lr (g + momentum m) */
#include "optim/list.h"
#include "optim/rules.h"

#include <math.h>

#include "tensor/kernels/update.h"

/* No dampening: the look-ahead assumes an undamped velocity. */
static void step_nesterov(const sh_optim_options *options, const sh_optim_step *step,
                          float *const *slots) {
    sh_optim_run run;
    for (size_t next = step->first; sh_optim_next_run(options, step, false, &next, &run);) {
        sh_update update = sh_optim_update(options, step, slots, &run);
        update.momentum = (float)options->momentum;
        sh_update_pick()->nesterov(&update);
    }
}

const sh_optim_kind sh_optim_nesterov = {
    .name = "nesterov",
    .help = "momentum that looks one step ahead",
    .slots = 1,
    .momentum_sgd = true,
    .nesterov = true,
    .slot_names = {"momentum"},
    .initial = {.lr = 0.01,
                .momentum = 0.9,
                .beta1 = NAN,
                .beta2 = NAN,
                .epsilon = NAN,
                .weight_decay = 0,
                .dampening = NAN,
                .trust = NAN,
                .rho = NAN},
    .step = step_nesterov,
};
