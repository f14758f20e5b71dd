/* The options of optimizers and schedules, as a run file has them. Numbers that nobody set are NaN:
 * then the update rule's own default holds. */
#include "optim/optim.h"
#include "optim/schedule.h"

/* Names of the optimizers, for the check and the help of `optimizer.name`. */
static const char *optim_choice(size_t index) {
    const sh_optim_kind *kind = sh_optim_at(index);
    return kind != NULL ? kind->name : NULL;
}

static const char *schedule_choice(size_t index) {
    const sh_schedule_kind *kind = sh_schedule_at(index);
    return kind != NULL ? kind->name : NULL;
}

static const sh_option optim_rows[] = {
    SH_TEXT_ROW(sh_optim_options, name, "optimizer.name", "sgd", "the update rule",
                .flag = "optimizer-name", .alias = "optimizer", .choices = optim_choice),
    SH_REAL_ROW(sh_optim_options, lr, "optimizer.lr", "nan", 0, 1e6,
                "learning rate; default the optimizer's own"),
    SH_REAL_ROW(sh_optim_options, momentum, "optimizer.momentum", "nan", 0, 1, "momentum"),
    SH_REAL_ROW(sh_optim_options, dampening, "optimizer.dampening", "nan", 0, 1,
                "dampening of momentum"),
    SH_REAL_ROW(sh_optim_options, beta1, "optimizer.beta1", "nan", 0, 1,
                "decay of the first moment"),
    SH_REAL_ROW(sh_optim_options, beta2, "optimizer.beta2", "nan", 0, 1,
                "decay of the second moment"),
    SH_REAL_ROW(sh_optim_options, rho, "optimizer.rho", "nan", 0, 1,
                "RMSProp: decay of the squared gradients"),
    SH_REAL_ROW(sh_optim_options, epsilon, "optimizer.epsilon", "nan", 0, 1,
                "added to denominators"),
    SH_REAL_ROW(sh_optim_options, weight_decay, "optimizer.weight_decay", "nan", 0, 10,
                "weight decay"),
    SH_BOOL_ROW(sh_optim_options, decay_all, "optimizer.decay_all", "false",
                "decay biases and norms too"),
    SH_REAL_ROW(sh_optim_options, trust, "optimizer.trust", "nan", 0, 100,
                "LARS: trust coefficient"),
};

const sh_option_table sh_optim_table = {optim_rows, SH_COUNT(optim_rows)};

static const sh_option schedule_rows[] = {
    SH_TEXT_ROW(sh_schedule_options, name, "schedule.name", "constant", "learning-rate schedule",
                .flag = "schedule-name", .alias = "schedule", .choices = schedule_choice),
    SH_REAL_ROW(sh_schedule_options, warmup, "schedule.warmup", "0", 0, 1e12,
                "linear warm-up: steps, or below 1 a part of the run"),
    SH_REAL_ROW(sh_schedule_options, last, "schedule.last", "0", 0, 1,
                "final rate as a part of the peak"),
    SH_INTS_ROW(sh_schedule_options, milestones, "schedule.milestones", NULL, 1, 1e9,
                "step: epochs after which the rate is multiplied by gamma", .value = "EPOCHS"),
    SH_REAL_ROW(sh_schedule_options, gamma, "schedule.gamma", "0.1", 0, 1, "step: the factor"),
    SH_INT_ROW(sh_schedule_options, reference_batch, "schedule.reference_batch", "0", 0, 1 << 20,
               "linear scaling: lr is for batch N and grows with the batch; 0: off", .value = "N"),
};

const sh_option_table sh_schedule_table = {schedule_rows, SH_COUNT(schedule_rows)};

const sh_own_options *sh_optim_own_at(size_t index) {
    const sh_optim_kind *kind = sh_optim_at(index);
    return kind != NULL ? &kind->own : NULL;
}

/* The optimizer's own struct within the block that all share. */
const void *sh_optim_own(const sh_optim_options *options, const sh_optim_kind *kind) {
    size_t index = 0;
    while (sh_optim_at(index) != kind) index++;
    return options->own.bytes + sh_own_offset(sh_optim_own_at, index);
}
