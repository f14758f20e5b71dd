/* Stochastic gradient descent, with momentum when that is set (heavy ball; Polyak 1964, in the form
 * that keeps the learning rate outside of the velocity):
 *
 *   m = momentum m + (1 - dampening) g        w = w - lr m
 *
 * where g = gradient + weight_decay w. The first step takes m = g, undamped. */
#include "optim/list.h"
#include "optim/rules.h"

#include <math.h>

#include "tensor/kernels/update.h"

/* Without momentum there is no slot (m is NULL). `shared`: other workers write the same weights
 * (Hogwild). */
void sh_optim_step_sgd(const sh_optim_options *options, const sh_optim_step *step,
                       float *const *slots) {
    sh_optim_run run;
    for (size_t next = step->first; sh_optim_next_run(options, step, false, &next, &run);) {
        sh_update update = sh_optim_update(options, step, slots, &run);
        update.momentum = (float)options->momentum;
        update.keep = step->step == 1 ? 1 : (float)(1 - options->dampening);
        const sh_update_kernels *k = sh_update_pick();
        if (update.m != NULL)
            (step->shared ? k->momentum_shared : k->momentum)(&update);
        else
            (step->shared ? k->sgd_shared : k->sgd)(&update);
    }
}

const sh_optim_kind sh_optim_sgd = {
    .name = "sgd",
    .help = "stochastic gradient descent; momentum when it is set",
    .slots = 1,
    .momentum_sgd = true,
    .momentum_slot = true,
    .shares = true,
    .slot_names = {"momentum"},
    .initial = {.lr = 0.01,
                .momentum = 0,
                .beta1 = NAN,
                .beta2 = NAN,
                .epsilon = NAN,
                .weight_decay = 0,
                .dampening = 0,
                .trust = NAN,
                .rho = NAN},
    .step = sh_optim_step_sgd,
};
