/* Adding up what the shards found. Every number here is a maximum, an integer sum, or is taken in
 * the order of the shards, so no result depends on which thread or worker had which shard. */
#include <math.h>
#include <string.h>

#include "tensor/kernels/fixed.h"
#include "tensor/kernels/reduce.h"
#include "train/exact_internal.h"

enum { RANGE = 1 << 15, BLOCK = 2048 };

static sh_status add_range(sh_cuts *cuts, const sh_param *param, size_t index, size_t at,
                           size_t count) {
    sh_param_list *list = &cuts->list;
    size_t before = list->capacity;
    SH_TRY(sh_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items));
    if (list->capacity != before) {
        size_t *grown = sh_realloc(cuts->param, list->capacity, sizeof *grown);
        if (grown == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for ranges of parameters");
        cuts->param = grown;
    }
    list->items[list->count] =
        (sh_param){.offset = param->offset + at, .count = count, .decays = param->decays};
    cuts->param[list->count++] = index;
    return SH_OK;
}

sh_status sh_cuts_init(sh_cuts *cuts, const sh_param_list *params, bool whole) {
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *param = &params->items[i];
        size_t range = whole && param->decays ? param->count : RANGE;
        for (size_t at = 0; at < param->count; at += range) {
            size_t left = param->count - at;
            SH_TRY(add_range(cuts, param, i, at, left < range ? left : range));
        }
    }
    cuts->list.total = params->total;
    return SH_OK;
}

void sh_cuts_fini(sh_cuts *cuts) {
    sh_param_list_fini(&cuts->list);
    sh_free(cuts->param);
    *cuts = (sh_cuts){0};
}

static int64_t bits_of(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double value_of(int64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void write_notes(sh_exact *exact) {
    size_t tensors = sh_exact_tensors(exact);
    for (size_t i = 0; i < tensors; i++) {
        exact->notes[i] = -1;
        for (int k = 0; k < sh_crew_members(exact->crew); k++)
            if (exact->lanes[k].notes[i] > exact->notes[i])
                exact->notes[i] = exact->lanes[k].notes[i];
    }
    for (int s = 0; s < exact->shards; s++) {
        int64_t *note = sh_exact_note(exact, s);
        bool mine = s >= exact->first && s < exact->last;
        const sh_loss_result *loss = mine ? &exact->own[s - exact->first].loss : NULL;
        note[0] = mine ? bits_of(loss->sum) : SH_NOTE_NOT_MINE;
        note[1] = mine ? loss->counted : SH_NOTE_NOT_MINE;
        note[2] = mine ? loss->correct : SH_NOTE_NOT_MINE;
    }
}

static sh_status check_loss(sh_exact *exact, const sh_exact_batch *batch) {
    for (int s = 0; s < exact->shards; s++) {
        if (isfinite(value_of(sh_exact_note(exact, s)[0]))) continue;
        if (s >= exact->first && s < exact->last)
            return sh_exact_explain(exact, batch, &exact->own[s - exact->first]);
        return SH_FAIL(SH_E_NUMERIC,
                       "step %ld: the loss of shard %d, which another worker has, is "
                       "not finite",
                       (long)exact->run->step + 1, s);
    }
    return SH_OK;
}

static sh_status bad_tensor(const sh_exact *exact, const char *what, const char *name) {
    const shoal_run *run = exact->run;
    SH_FAIL(SH_E_NUMERIC, "step %ld: %s '%s' is not finite", (long)run->step + 1, what, name);
    return sh_error_hint("lower --lr or add a warm-up%s",
                         run->saved ? "; the last good checkpoint is kept" : "");
}

static sh_status check_tensors(const sh_exact *exact) {
    const sh_net *net = exact->run->model.net;
    for (size_t i = 0; i < net->params.count; i++)
        if (exact->notes[i] == SH_FIXED_NOT_FINITE)
            return bad_tensor(exact, "the gradient of", net->params.items[i].name);
    for (size_t i = 0; i < net->states.count; i++)
        if (exact->notes[net->params.count + i] == SH_FIXED_NOT_FINITE)
            return bad_tensor(exact, "the state", net->states.items[i].name);
    return SH_OK;
}

static sh_loss_result add_losses(const sh_exact *exact) {
    sh_loss_result total = {0};
    for (int s = 0; s < exact->shards; s++) {
        const int64_t *note = sh_exact_note(exact, s);
        total.sum += value_of(note[0]);
        total.counted += note[1];
        total.correct += note[2];
    }
    return total;
}

/* One tensor's or range's sum over the shards. */
typedef struct summing {
    sh_exact *exact;
    double per_row;     // 1 / rows counted
    double per_sample;  // 1 / samples of the global batch
    int largest_bits;   // of the samples of a shard
} summing;

static void sum_range(const sh_exact *exact, const float *const *terms, const double *weights,
                      size_t at, size_t count, double scale, double factor, float *out) {
    int64_t sum[BLOCK];
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t some = count - i < BLOCK ? count - i : BLOCK;
        sh_fixed()->sum(sum, terms, weights, exact->terms, at + i, some, scale);
        sh_fixed()->to_float(out + at + i, sum, some, factor);
    }
}

static void sum_gradient(const summing *s, size_t piece) {
    const sh_exact *exact = s->exact;
    const sh_param *range = &exact->sums.list.items[piece];
    float *gradients = exact->run->model.blocks.gradients;
    int64_t note = exact->notes[exact->sums.param[piece]];
    if (note < 0) {  // used by no shard
        memset(gradients + range->offset, 0, range->count * sizeof *gradients);
        return;
    }
    double scale = sh_fixed_scale((int)note);
    sum_range(exact, exact->gradients, NULL, range->offset, range->count, scale, s->per_row / scale,
              gradients);
}

/* Shards weigh as many samples as they have; the weight takes its bits from the scale. */
static void sum_state(const summing *s, size_t index) {
    const sh_exact *exact = s->exact;
    const sh_net *net = exact->run->model.net;
    const sh_param *state = &net->states.items[index];
    double scale =
        ldexp(sh_fixed_scale((int)exact->notes[net->params.count + index]), -s->largest_bits);
    sum_range(exact, exact->states, exact->weights, state->offset, state->count, scale,
              s->per_sample / scale, exact->run->model.blocks.states);
}

static void sum_piece(void *user, int member, size_t piece) {
    (void)member;
    const summing *s = user;
    size_t ranges = s->exact->sums.list.count;
    if (piece < ranges)
        sum_gradient(s, piece);
    else
        sum_state(s, piece - ranges);
}

/* Finite terms can have an infinite sum, if only near the end of the range of a float. */
static sh_status check_sums(const sh_exact *exact) {
    const int safe = 254 - 12;  // 4096 terms of this exponent
    const sh_param_list *params = &exact->run->model.net->params;
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *param = &params->items[i];
        const float *gradient = exact->run->model.blocks.gradients + param->offset;
        if (exact->notes[i] > safe && !sh_reduce()->all_finite(gradient, param->count))
            return bad_tensor(exact, "the gradient of", param->name);
    }
    return SH_OK;
}

static int bits_for(int64_t value) {
    int bits = 0;
    while ((int64_t)1 << bits < value) bits++;
    return bits;
}

sh_status sh_exact_sum(sh_exact *exact, const sh_exact_batch *batch, sh_loss_result *result_out) {
    const sh_net *net = exact->run->model.net;
    write_notes(exact);
    SH_TRY(check_loss(exact, batch));
    SH_TRY(check_tensors(exact));
    sh_loss_result total = add_losses(exact);
    for (size_t i = 0; i < net->params.count; i++) exact->unused[i] = exact->notes[i] < 0;
    summing s = {
        .exact = exact,
        .per_row = total.counted > 0 ? 1.0 / (double)total.counted : 0.0,
        .per_sample = 1.0 / (double)batch->count,
        .largest_bits = bits_for((batch->count + exact->shards - 1) / exact->shards),
    };
    sh_crew_run(exact->crew, sum_piece, &s, exact->sums.list.count + net->states.count);
    *result_out = total;
    return check_sums(exact);
}

/* An optimizer step, range by range. */
typedef struct updating {
    sh_exact *exact;
    sh_optim_step step;
} updating;

static void update_piece(void *user, int member, size_t piece) {
    (void)member;
    const updating *u = user;
    sh_exact *exact = u->exact;
    if (exact->unused[exact->updates.param[piece]]) return;
    sh_optim_step step = u->step;
    step.first = piece;
    step.count = 1;
    sh_optim_apply(&exact->run->optim, &step);
}

void sh_exact_update(sh_exact *exact) {
    shoal_run *run = exact->run;
    const sh_blocks *blocks = &run->model.blocks;
    const size_t total = run->model.net->params.total;
    double scale = 1.0;
    if (run->config.clip_value > 0)
        sh_clip_value(blocks->gradients, total, (float)run->config.clip_value);
    if (run->config.clip_norm > 0)
        scale = sh_clip_norm(blocks->gradients, total, run->config.clip_norm, &run->grad_norm);
    updating u = {
        .exact = exact,
        .step = {.params = &exact->updates.list,
                 .weights = blocks->weights,
                 .gradients = blocks->gradients,
                 .gradient_scale = (float)scale,
                 .lr = sh_schedule_lr(&run->schedule, run->step),
                 .step = run->step + 1},
    };
    sh_crew_run(exact->crew, update_piece, &u, exact->updates.list.count);
}
