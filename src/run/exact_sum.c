/* Adding up what the shards found. Every number here is a maximum, an integer sum, or is taken in
 * the order of the shards, so no result depends on which thread or worker had which shard. */
#include <math.h>
#include <string.h>

#include "tensor/kernels/fixed.h"
#include "run/exact_internal.h"

/* Integers summed at a time by a single worker: 16 KiB on the stack, which stay in the cache
 * until they are floats again. */
enum { BLOCK = 2048 };

/* A loss travels as its bits through a maximum of integers in which one worker alone has a
 * value, so that it arrives unchanged. */
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

/* This worker's notes: maxima over its lanes, and the losses of its shards. The others' shards
 * hold SH_NOTE_NOT_MINE, which is below every value. */
static void write_notes(sh_exact *exact) {
    size_t tensors = sh_exact_tensors(exact);
    for (size_t i = 0; i < tensors; i++) {
        exact->notes[i] = -1;
        for (int k = 0; k < sh_thread_pool_size(exact->pool); k++)
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

/* The numbers of all workers become their maximum or sum. */
static sh_status combine(const sh_exact *exact, sh_reduce_op op, int64_t *values, size_t count,
                         bool *over_out) {
    const sh_replica_hooks *hooks = exact->hooks;
    if (hooks->combine == NULL) return SH_OK;  // alone
    return hooks->combine(hooks->who, op, values, count, over_out);
}

/* What everyone must know: one maximum over the workers, in which each note of a shard has one
 * owner, and with it whether anyone was asked to stop. */
static sh_status share_notes(sh_exact *exact, bool *over_out) {
    const shoal_run *run = exact->run;
    int64_t *stops = exact->notes + sh_exact_notes(exact) - 1;
    *stops = run->hooks.stop != NULL && run->hooks.stop(run->hooks.user);
    SH_TRY(combine(exact, SH_MAX, exact->notes, sh_exact_notes(exact), over_out));
    exact->stops = *stops > 0;
    return SH_OK;
}

/* An error record as it travels; all of it is text. */
typedef struct words {
    char text[sizeof((sh_error *)0)->text];
    char hint[sizeof((sh_error *)0)->hint];
} words;

/* The rank that computes a shard. Shares ascend with the rank, so the first one that ends
 * behind the shard has it. */
static int owner_of(const sh_exact *exact, int shard) {
    int rank = 0, ranks = exact->run->team.ranks;
    while (shard >= (int)sh_exact_share(exact->shards, rank, ranks).high) rank++;
    return rank;
}

/* Whoever has the shard says where it began, and everyone says the same: it does not matter whose
 * end is seen first. */
static sh_status explain_loss(sh_exact *exact, const sh_exact_batch *batch, int shard) {
    sh_team *team = &exact->run->team;
    int owner = owner_of(exact, shard);
    words said = {0};
    if (owner == team->rank) {
        sh_status status = sh_exact_explain(exact, batch, &exact->own[shard - exact->first]);
        if (team->group == NULL) return status;
        const sh_error *error = sh_error_last();
        memcpy(said.text, error->text, sizeof said.text);
        memcpy(said.hint, error->hint, sizeof said.hint);
    }
    sh_call call = {.what = SH_BROADCAST,
                    .data = &said,
                    .count = sizeof said,
                    .dtype = SH_DTYPE_BYTE,
                    .root = owner,
                    .step = exact->run->at.step,
                    .bucket = -1};
    SH_TRY(sh_group_run(team->group, &call));
    SH_FAIL(SH_E_NUMERIC, "%.*s", (int)sizeof said.text - 1, said.text);
    return sh_error_hint("%.*s", (int)sizeof said.hint - 1, said.hint);
}

/* The notes are common: all workers find the same first shard, and enter the broadcast of its
 * explanation together. */
static sh_status check_loss(sh_exact *exact, const sh_exact_batch *batch) {
    for (int s = 0; s < exact->shards; s++)
        if (!isfinite(value_of(sh_exact_note(exact, s)[0]))) return explain_loss(exact, batch, s);
    return SH_OK;
}

static sh_status bad_tensor(const sh_exact *exact, const char *what, const char *name) {
    const shoal_run *run = exact->run;
    SH_FAIL(SH_E_NUMERIC, "step %ld: %s '%s' is not finite", (long)run->at.step + 1, what, name);
    return sh_error_hint("lower --lr or add a warm-up%s",
                         run->results.saved ? "; the last good checkpoint is kept" : "");
}

/* From common notes, so that all workers refuse the same tensor and nobody waits for another. */
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

/* In the order of the shards, whoever computed them: the sum of the losses has the same bits
 * everywhere. */
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

/* A range of one tensor: its terms, and how they become integers and floats again. Pieces are the
 * ranges of the parameters, then the states. */
typedef struct piece {
    const float *const *terms;
    const double *weights;
    float *out;        // where the range begins
    size_t at, count;  // in the terms
    int64_t *sum;      // common memory of the workers; NULL: one worker
    double scale, factor;
    bool unused;
} piece;

/* The scale follows from the largest exponent over all shards and leaves room for
 * SH_FIXED_TERMS_MOST terms: the integer sum cannot overflow. */
static piece gradient_piece(const sh_exact *exact, size_t index) {
    const sh_param *range = &exact->sums.list.items[index];
    int64_t note = exact->notes[exact->sums.param[index]];
    double scale = sh_fixed_scale((int)note);
    return (piece){
        .terms = exact->gradients,
        .out = exact->run->model.blocks.gradients + range->offset,
        .at = range->offset,
        .count = range->count,
        .sum = exact->common != NULL ? exact->common + range->offset : NULL,
        .scale = scale,
        .factor = exact->summing.per_row / scale,
        .unused = note < 0,
    };
}

/* Shards weigh as many samples as they have; the weight takes its bits from the scale. */
static piece state_piece(const sh_exact *exact, size_t index) {
    const sh_net *net = exact->run->model.net;
    const sh_param *state = &net->states.items[index];
    int64_t note = exact->notes[net->params.count + index];
    double scale = ldexp(sh_fixed_scale((int)note), -exact->summing.largest_bits);
    return (piece){
        .terms = exact->states,
        .weights = exact->weights,
        .out = exact->run->model.blocks.states + state->offset,
        .at = state->offset,
        .count = state->count,
        .sum = exact->common != NULL ? exact->common + net->params.total + state->offset : NULL,
        .scale = scale,
        .factor = exact->summing.per_sample / scale,
    };
}

/* Neighbouring pieces, for the threads. */
typedef struct pieces {
    const sh_exact *exact;
    size_t first;
} pieces;

static piece piece_at(const pieces *p, size_t index) {
    size_t ranges = p->exact->sums.list.count, at = p->first + index;
    return at < ranges ? gradient_piece(p->exact, at) : state_piece(p->exact, at - ranges);
}

/* A parameter that no shard has used: the sum that peers may read is cleared, too. */
static void zero(const piece *p) {
    memset(p->out, 0, p->count * sizeof *p->out);
    if (p->sum != NULL) memset(p->sum, 0, p->count * sizeof *p->sum);
}

/* One worker: integers live for a block only. */
static void mean_alone(void *user, int member, size_t index) {
    (void)member;
    const pieces *all = user;
    const sh_exact *exact = all->exact;
    piece p = piece_at(all, index);
    int64_t sum[BLOCK];
    if (p.unused) zero(&p);
    for (size_t i = 0; i < p.count && !p.unused; i += BLOCK) {
        size_t some = p.count - i < BLOCK ? p.count - i : BLOCK;
        sh_fixed()->sum(sum, p.terms, p.weights, exact->terms, p.at + i, some, p.scale);
        sh_fixed()->to_float(p.out + i, sum, some, p.factor);
    }
}

/* Several workers: the own shards' sum goes into common memory, where the scheme adds that of
 * the others. */
static void sum_own(void *user, int member, size_t index) {
    (void)member;
    const pieces *all = user;
    piece p = piece_at(all, index);
    if (p.unused)
        zero(&p);
    else
        sh_fixed()->sum(p.sum, p.terms, p.weights, all->exact->terms, p.at, p.count, p.scale);
}

/* Sums of all workers become the mean gradient. Unused parameters were cleared by sum_own. */
static void mean_of_sums(void *user, int member, size_t index) {
    (void)member;
    piece p = piece_at(user, index);
    if (!p.unused) sh_fixed()->to_float(p.out, p.sum, p.count, p.factor);
}

/* The pieces of neighbouring parameters. */
static void run_pieces(sh_exact *exact, void (*work)(void *user, int member, size_t index),
                       size_t first, size_t count) {
    const size_t *begin = exact->sums.begin;
    pieces all = {.exact = exact, .first = begin[first]};
    sh_thread_pool_run(exact->pool, work, &all, begin[first + count] - begin[first]);
}

/* sh_fixed_gradient.sum and .mean: the scheme calls them for neighbouring parameters, once the
 * notes are common. */
static void fixed_sum(void *self, size_t first, size_t count) {
    run_pieces(self, sum_own, first, count);
}

static void fixed_mean(void *self, size_t first, size_t count) {
    sh_exact *exact = self;
    run_pieces(exact, exact->common != NULL ? mean_of_sums : mean_alone, first, count);
}

static void run_states(sh_exact *exact, void (*work)(void *user, int member, size_t index)) {
    pieces all = {.exact = exact, .first = exact->sums.list.count};
    sh_thread_pool_run(exact->pool, work, &all, exact->run->model.net->states.count);
}

/* The running statistics belong to no bucket and no server. */
static sh_status sum_states(sh_exact *exact, bool *over_out) {
    const sh_net *net = exact->run->model.net;
    if (net->states.count == 0) return SH_OK;
    if (exact->common == NULL) {
        run_states(exact, mean_alone);
        return SH_OK;
    }
    run_states(exact, sum_own);
    SH_TRY(combine(exact, SH_SUM, exact->common + net->params.total, net->states.total, over_out));
    if (!*over_out) run_states(exact, mean_of_sums);
    return SH_OK;
}

/* The least number of bits b with 2^b >= value: how far weights up to it can enlarge a term. */
static int bits_for(int64_t value) {
    int bits = 0;
    while ((int64_t)1 << bits < value) bits++;
    return bits;
}

/* The notes are common: checks them, and says what the sums need to know. */
static sh_status read_notes(sh_exact *exact, const sh_exact_batch *batch,
                            sh_loss_result *result_out) {
    const sh_net *net = exact->run->model.net;
    SH_TRY(check_loss(exact, batch));
    SH_TRY(check_tensors(exact));
    sh_loss_result total = add_losses(exact);
    for (size_t i = 0; i < net->params.count; i++) exact->unused[i] = exact->notes[i] < 0;
    // A shard that adds to a gradient has a row at least, so finite terms have a finite mean.
    exact->summing = (sh_exact_summing){
        .per_row = total.counted > 0 ? 1.0 / (double)total.counted : 0.0,
        .per_sample = 1.0 / (double)batch->count,
        .largest_bits = bits_for((batch->count + exact->shards - 1) / exact->shards),
    };
    *result_out = total;
    return SH_OK;
}

sh_status sh_exact_sum(sh_exact *exact, const sh_exact_batch *batch, sh_loss_result *result_out,
                       bool *over_out) {
    *over_out = false;
    write_notes(exact);
    SH_TRY(share_notes(exact, over_out));
    if (*over_out) return SH_OK;
    SH_TRY(read_notes(exact, batch, result_out));
    exact->fixed.counted = result_out->counted;
    return sum_states(exact, over_out);
}

/* The gradient as a scheme sees it. A worker alone has no common memory, and `mean` sums as
 * well. */
sh_fixed_gradient sh_exact_describe(sh_exact *exact) {
    return (sh_fixed_gradient){
        .sums = exact->common,
        .shared = exact->common != NULL ? sh_group_mapped(&exact->shared) : NULL,
        .notes = exact->notes,
        .sum = fixed_sum,
        .mean = fixed_mean,
        .self = exact};
}
