/* The rule of sgd.c with the momentum that most recipes use. */
#include "optim/list.h"
#include "optim/rules.h"

#include <math.h>

/* Only the defaults differ from sgd; they share the step. */
const sh_optim_kind sh_optim_momentum = {
    .name = "momentum",
    .help = "sgd with a momentum of 0.9",
    .slots = 1,
    .momentum_sgd = true,
    .momentum_slot = true,
    .shares = true,
    .slot_names = {"momentum"},
    .initial = {.lr = 0.01,
                .momentum = 0.9,
                .beta1 = NAN,
                .beta2 = NAN,
                .epsilon = NAN,
                .weight_decay = 0,
                .dampening = 0,
                .trust = NAN,
                .rho = NAN},
    .step = sh_optim_step_sgd,
};
