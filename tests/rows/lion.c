/* An optimizer of this test's own: steps of one size, in the direction of a mix of gradient and
 * running mean (Chen et al. 2023), with an option that no other has. */
#include <math.h>

#include "optim/optim.h"
#include "optim/rules.h"
#include "rows/rows.h"

typedef struct lion_options {
    double mix;  // share of the running mean in the direction
} lion_options;

static const sh_option rows[] = {
    SH_REAL_ROW(lion_options, mix, "optimizer.lion_mix", "0.9", 0, 1,
                "lion: share of the running mean in the direction"),
};

static void step(const sh_optim_options *options, const sh_optim_step *step, float *const *slots) {
    const lion_options *own = sh_optim_own(options, &row_lion);
    sh_optim_run run;
    for (size_t next = step->first; sh_optim_next_run(options, step, false, &next, &run);) {
        sh_update u = sh_optim_update(options, step, slots, &run);
        for (size_t i = 0; i < u.count; i++) {
            double g = (double)(u.g[i] * u.scale), m = (double)u.m[i];
            double way = own->mix * m + (1 - own->mix) * g;
            u.w[i] -= u.lr * (float)((way > 0) - (way < 0));
            u.m[i] = (float)(0.99 * m + 0.01 * g);
        }
    }
}

const sh_optim_kind row_lion = {
    .name = "lion",
    .help = "steps of one size, for this test",
    .slots = 1,
    .slot_names = {"lion_mean"},
    .own = {{rows, SH_COUNT(rows)}, sizeof(lion_options)},
    .initial = {.lr = 0.001,
                .momentum = NAN,
                .beta1 = NAN,
                .beta2 = NAN,
                .epsilon = NAN,
                .weight_decay = 0,
                .dampening = NAN,
                .trust = NAN,
                .rho = NAN},
    .step = step,
};
