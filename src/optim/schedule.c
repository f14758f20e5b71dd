/* The learning rate of a step: a linear warm-up to the peak, then the factor of a schedule. A pure
 * function of the step, so a resumed run goes on with the same rate and nothing is saved. With
 * `reference_batch` the peak grows in proportion to the batch (Goyal et al. 2017). */
#include "optim/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optim/schedules/list.h"

#define X(name) &sh_schedule_##name,
static const sh_schedule_kind *const kinds[] = {SH_SCHEDULE_LIST(X)};
#undef X

const sh_schedule_kind *sh_schedule_at(size_t index) {
    return index < SH_COUNT(kinds) ? kinds[index] : NULL;
}

/* NULL: no schedule has this name. */
const sh_schedule_kind *sh_schedule_find(const char *name) {
    for (size_t i = 0; i < SH_COUNT(kinds); i++)
        if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
    return NULL;
}

/* Reports an unknown schedule with all names, as there are few. */
static sh_status unknown_name(const char *name) {
    char known[256];
    size_t at = 0;
    for (size_t i = 0; i < SH_COUNT(kinds) && at < sizeof known; i++)
        at +=
            (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", kinds[i]->name);
    SH_FAIL(SH_E_USAGE, "there is no learning-rate schedule '%s'", name);
    return sh_error_hint("choose one of %s", known);
}

/* Reports an option out of range, and what would be valid. */
static sh_status bad_number(const char *key, double value, const char *valid) {
    SH_FAIL(SH_E_USAGE, "learning-rate schedule: %s is %g", key, value);
    return sh_error_hint("give %s", valid);
}

/* Checks all options, also those that this schedule ignores: a wrong number is a mistake in any
 * case. */
static sh_status check(const sh_schedule_options *options, double lr) {
    if (!(lr >= 0 && lr < INFINITY)) return bad_number("lr", lr, "a number of at least 0");
    if (!(options->warmup >= 0 && options->warmup < 0x1p53))
        return bad_number("warmup", options->warmup, "a number of steps, or a part of the run");
    if (!(options->last >= 0 && options->last <= 1))
        return bad_number("last", options->last, "a part of the peak, from 0 to 1");
    if (!(options->gamma > 0 && options->gamma < INFINITY))
        return bad_number("gamma", options->gamma, "a number above 0");
    if (options->reference_batch < 0)
        return bad_number("reference_batch", (double)options->reference_batch,
                          "the batch that lr was tuned for, or 0");
    for (size_t i = 0; i < options->milestones.count; i++) {
        int64_t epoch = options->milestones.items[i];
        if (epoch < 0 || (i > 0 && epoch <= options->milestones.items[i - 1]))
            return bad_number("a milestone", (double)epoch, "epochs in rising order");
    }
    return SH_OK;
}

sh_status sh_schedule_init(sh_schedule *schedule, const sh_schedule_options *options, double lr,
                           int64_t batch, int64_t steps, int64_t steps_per_epoch) {
    SH_ASSERT(batch > 0);
    SH_ASSERT(steps >= 0);
    SH_ASSERT(steps_per_epoch > 0);
    sh_schedule made = {
        .options = *options, .peak = lr, .steps = steps, .steps_per_epoch = steps_per_epoch};
    const char *name = options->name != NULL ? options->name : "constant";
    made.kind = sh_schedule_find(name);
    if (made.kind == NULL) return unknown_name(name);
    made.options.name = (char *)(uintptr_t)made.kind->name;
    if (isnan(made.options.warmup)) made.options.warmup = 0;
    if (isnan(made.options.last)) made.options.last = 0;
    if (isnan(made.options.gamma)) made.options.gamma = 0.1;
    SH_TRY(check(&made.options, lr));
    if (options->reference_batch > 0) made.peak *= (double)batch / (double)options->reference_batch;
    double warmup = made.options.warmup;
    made.warmup_steps = (int64_t)(warmup < 1 ? round(warmup * (double)steps) : warmup);
    *schedule = made;
    return SH_OK;
}

/* Learning rate of `step`, from 0 on. The warm-up takes its last step at the peak; beyond the last
 * step the rate stays. */
double sh_schedule_lr(const sh_schedule *schedule, int64_t step) {
    int64_t warmup = schedule->warmup_steps;
    if (step < warmup) return schedule->peak * (double)(step + 1) / (double)warmup;
    int64_t steps = schedule->steps > warmup ? schedule->steps - warmup : 1;
    int64_t at = step - warmup < steps ? step - warmup : steps;
    return schedule->peak * schedule->kind->factor(schedule, at, steps);
}
