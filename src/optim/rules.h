/* What the optimizers' files share with each other and with nobody else. */
#ifndef SH_OPTIM_RULES_H
#define SH_OPTIM_RULES_H

#include "optim/optim.h"
#include "tensor/kernels/update.h"

/* The run's pointers, the gradient's scale, the learning rate and, where the run decays, the decay
 * as part of the gradient. The rest is zero. */
sh_update sh_optim_update(const sh_optim_options *options, const sh_optim_step *step,
                          float *const *slots, const sh_optim_run *run);

/* The moving averages of adam, adamw and lamb at `step` (from 1). */
void sh_optim_set_moments(const sh_optim_options *options, int64_t step, sh_update *update);

/* The rule that sgd and momentum share. */
void sh_optim_step_sgd(const sh_optim_options *options, const sh_optim_step *step,
                       float *const *slots);

#endif
