/* Optimizers by name, their numbers checked, and one step over ranges of parameters. A rule
 * (adam.c and its siblings) sees one range at a time; the loop over parameters, weight decay by
 * parameter and the slots are the same for all. */
#include "optim/optim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optim/list.h"
#include "optim/rules.h"

#define X(name) &sh_optim_##name,
static const sh_optim_kind *const kinds[] = {SH_OPTIM_LIST(X)};
#undef X

const sh_optim_kind *sh_optim_at(size_t index) {
    if (index < SH_COUNT(kinds)) return kinds[index];
    if (sh_optim_more == NULL) return NULL;
    for (size_t i = 0;; i++)
        if (sh_optim_more[i] == NULL || i == index - SH_COUNT(kinds)) return sh_optim_more[i];
}

/* NULL: no optimizer has this name. */
const sh_optim_kind *sh_optim_find(const char *name) {
    const sh_optim_kind *kind;
    for (size_t i = 0; (kind = sh_optim_at(i)) != NULL; i++)
        if (strcmp(kind->name, name) == 0) return kind;
    return NULL;
}

const sh_optim_kind *sh_optim_plain(void) { return &sh_optim_sgd; }

/* The numbers of sh_optim_options and what is valid for them. */
typedef struct field {
    const char *name;
    size_t at;
    double least, most;
    bool open_above, open_below;  // the bound itself is not valid
} field;

#define FIELD(key) .name = #key, .at = offsetof(sh_optim_options, key)
static const field fields[] = {
    {FIELD(lr), .most = INFINITY, .open_above = true},
    {FIELD(momentum), .most = 1, .open_above = true},
    {FIELD(beta1), .most = 1, .open_above = true},
    {FIELD(beta2), .most = 1, .open_above = true},
    {FIELD(epsilon), .most = 1},
    {FIELD(weight_decay), .most = INFINITY, .open_above = true},
    {FIELD(dampening), .most = 1},
    {FIELD(trust), .most = INFINITY, .open_above = true, .open_below = true},
    {FIELD(rho), .most = 1, .open_above = true},
};
#undef FIELD

/* Points at a number of the options. */
static double *number(sh_optim_options *options, const field *f) {
    return (double *)((char *)options + f->at);
}

/* Tells whether a number is within its bounds. NaN fails every comparison, so it is never valid. */
static bool is_valid(const field *f, double value) {
    return (f->open_below ? value > f->least : value >= f->least) &&
           (f->open_above ? value < f->most : value <= f->most);
}

static sh_status complete(const sh_optim_kind *kind, const field *f, sh_optim_options *options) {
    sh_optim_options initial = kind->initial;
    double fallback = *number(&initial, f), *value = number(options, f);
    if (isnan(*value)) {
        *value = isnan(fallback) ? 0 : fallback;
        return SH_OK;
    }
    if (isnan(fallback)) {
        SH_FAIL(SH_E_USAGE, "optimizer '%s' has no option '%s'", kind->name, f->name);
        return sh_error_hint("leave 'optimizer.%s' out or choose another optimizer", f->name);
    }
    if (!is_valid(f, *value)) {
        SH_FAIL(SH_E_USAGE, "optimizer '%s': %s is %g", kind->name, f->name, *value);
        return sh_error_hint("give a number from %g%s to %g%s", f->least,
                             f->open_below ? " (excluded)" : "", f->most,
                             f->open_above ? " (excluded)" : "");
    }
    return SH_OK;
}

void sh_optim_resolve(const sh_optim *optim, sh_optim_options *options_inout) {
    sh_optim_options initial = optim->kind->initial, own = optim->options;
    for (size_t i = 0; i < SH_COUNT(fields); i++)
        if (!isnan(*number(&initial, &fields[i])))
            *number(options_inout, &fields[i]) = *number(&own, &fields[i]);
}

static sh_status unknown_name(const char *name) {
    char known[256];
    size_t at = 0;
    for (size_t i = 0; i < SH_COUNT(kinds) && at < sizeof known; i++)
        at +=
            (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", kinds[i]->name);
    SH_FAIL(SH_E_USAGE, "there is no optimizer '%s'", name);
    return sh_error_hint("choose one of %s", known);
}

static size_t slot_floats(const sh_optim *optim) {
    return sh_round_up(optim->total * sizeof(float), SH_ALIGN) / sizeof(float);
}

size_t sh_optim_floats(const sh_optim *optim) {
    return slot_floats(optim) * (size_t)optim->slot_count;
}

static void set_slots(sh_optim *optim, float *memory) {
    for (int i = 0; i < optim->slot_count; i++)
        optim->slots[i] = memory + (size_t)i * slot_floats(optim);
}

void sh_optim_place(sh_optim *optim, float *memory) {
    sh_arena_fini(&optim->arena);
    set_slots(optim, memory);
}

static sh_status take_slots(sh_optim *optim) {
    const sh_optim_kind *kind = optim->kind;
    optim->slot_count = kind->slots;
    if (kind->momentum_slot && optim->options.momentum == 0) optim->slot_count--;
    if (optim->slot_count == 0 || optim->total == 0) return SH_OK;
    if (optim->total > SIZE_MAX / (4 * sizeof(float)))
        return SH_FAIL(SH_E_MEMORY, "optimizer state for %zu parameters does not fit in memory",
                       optim->total);
    size_t bytes = sh_optim_floats(optim) * sizeof(float);
    SH_TRY(sh_arena_init(&optim->arena, "optimizer state", bytes));
    set_slots(optim, sh_arena_take(&optim->arena, bytes));
    return SH_OK;
}

sh_status sh_optim_init(sh_optim *optim, const sh_optim_options *options, size_t total) {
    const char *name = options->name != NULL ? options->name : sh_optim_plain()->name;
    sh_optim made = {.kind = sh_optim_find(name), .options = *options, .total = total};
    if (made.kind == NULL) return unknown_name(name);
    made.options.name = (char *)(uintptr_t)made.kind->name;
    for (size_t i = 0; i < SH_COUNT(fields); i++)
        SH_TRY(complete(made.kind, &fields[i], &made.options));
    SH_TRY(take_slots(&made));
    *optim = made;
    return SH_OK;
}

sh_status sh_optim_init_like(sh_optim *optim, const sh_optim *other, size_t total) {
    sh_optim made = {.kind = other->kind, .options = other->options, .total = total};
    SH_TRY(take_slots(&made));
    *optim = made;
    return SH_OK;
}

void sh_optim_fini(sh_optim *optim) {
    sh_arena_fini(&optim->arena);
    *optim = (sh_optim){0};
}

void sh_optim_apply(sh_optim *optim, const sh_optim_step *step) {
    SH_ASSERT(step->params->total == optim->total);
    SH_ASSERT(step->first <= step->params->count);
    SH_ASSERT(step->count <= step->params->count - step->first);
    SH_ASSERT(step->step >= 1);
    // Parameters that took no part in the step are gaps between runs of those that did.
    sh_optim_step part = *step;
    for (size_t i = step->first, end = step->first + step->count; i < end; i++) {
        if (step->unused != NULL && step->unused[i]) continue;
        part.first = i;
        while (i < end && (step->unused == NULL || !step->unused[i])) i++;
        part.count = i - part.first;
        optim->kind->step(&optim->options, &part, optim->slots);
    }
}

/* The elements of a parameter that lie in the window of the step; none: count 0. */
static sh_optim_run in_window(const sh_optim_step *step, const sh_param *param) {
    size_t low = param->offset, high = low + param->count;
    if (step->windowed && low < step->low) low = step->low;
    if (step->windowed && high > step->high) high = step->high;
    if (low >= high) return (sh_optim_run){.at = param->offset};
    return (sh_optim_run){.at = low, .count = high - low};
}

bool sh_optim_next_run(const sh_optim_options *options, const sh_optim_step *step, bool adaptive,
                       size_t *next_inout, sh_optim_run *run_out) {
    size_t end = step->first + step->count, i = *next_inout;
    sh_optim_run run = {0};
    bool started = false;
    for (; i < end; i++) {
        const sh_param *param = &step->params->items[i];
        sh_optim_run part = in_window(step, param);
        part.decays = options->weight_decay != 0 && (param->decays || options->decay_all);
        part.adapts = adaptive && param->decays;
        // One with a trust ratio takes part in the sum of its norm even with no element here.
        if (part.count == 0 && !part.adapts) continue;
        bool fits = started && !run.adapts && !part.adapts && run.decays == part.decays &&
                    run.at + run.count == part.at;
        if (started && !fits) break;
        if (started)
            run.count += part.count;
        else
            run = part;
        started = true;
    }
    *next_inout = i;
    *run_out = run;
    return started;
}

sh_update sh_optim_update(const sh_optim_options *options, const sh_optim_step *step,
                          float *const *slots, const sh_optim_run *run) {
    return (sh_update){
        .w = step->weights + run->at,
        .g = step->gradients + run->at,
        .m = slots[0] != NULL ? slots[0] + run->at : NULL,
        .v = slots[1] != NULL ? slots[1] + run->at : NULL,
        .count = run->count,
        .scale = step->gradient_scale,
        .decay = run->decays ? (float)options->weight_decay : 0,
        .lr = (float)step->lr,
    };
}
