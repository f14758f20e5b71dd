/* Bulk-synchronous: gradients of all workers are summed in every step, while backward still runs
 * (Valiant 1990; the DDP algorithm of Li et al., VLDB 2020).
 *
 *   forward      backward, last parameters first                 finish
 *   |----------> loss known | ready(p) ... bucket full -> sum -> |--> last sums, control
 *                control -->'                  `-> arrived: update   clip, update what is left
 *
 * The reducer (sync/reducer.h) cuts buckets and sums them; this file is the step around it. Beside
 * the gradients travels what everyone must know after the step: its loss, whether a worker was
 * asked to stop, and the running statistics (sync/statistics.h). A parameter is updated as soon as
 * its sum has arrived, unless something of the whole gradient must be known first: its norm, to
 * clip it, or which parameters any worker had a use for. */
#include <string.h>

#include "base/memory.h"
#include "sync/cost.h"
#include "sync/list.h"
#include "tensor/kernels/vector.h"

/* What is summed beside the gradients: results of the loss, and how many were asked to stop. */
enum { CONTROL_LOSS, CONTROL_COUNTED, CONTROL_CORRECT, CONTROL_STOP, CONTROL_COUNT };

typedef struct bsp {
    sh_replica *replica;
    sh_reducer *reducer;
    bool clips_own;   // own gradients are clipped before they are encoded, instead of the sum
    bool at_end;      // no parameter is updated before all gradients have arrived
    bool begun;       // in this step: the reducer has, and the control values are under way
    double *control;  // CONTROL_COUNT numbers, then the running statistics
    sh_call control_call;
    int32_t *used;     // per parameter, where paths are dropped: summed over the ranks
    bool *unused;      // per parameter, for a step without samples
    sh_status status;  // of what failed inside an update
} bsp;

/* ---- Updates --------------------------------------------------------------------------------- */

/* Norms of whole parameters, whose elements are spread over the ranks. */
static void sum_norms(void *self, double *values, size_t count) {
    bsp *b = self;
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = values,
                    .count = count,
                    .dtype = SH_DTYPE_F64,
                    .op = SH_SUM,
                    .bucket = -1};
    sh_status status = sh_group_run(sh_reducer_group(b->reducer), &call);
    if (status != SH_OK) b->status = status;  // the step fails when it ends
}

static void update(bsp *b, const sh_bucket *bucket, double scale, const bool *unused) {
    sh_replica *replica = b->replica;
    sh_optim_step step = {
        .first = bucket->first,
        .count = bucket->count,
        .low = bucket->low,
        .high = bucket->high,
        .sum = replica->steps->shards ? sum_norms : NULL,
        .sum_self = b,
        .unused = unused,
        .gradient_scale = (float)scale,
    };
    int64_t begin = sh_trace_begin(replica->trace);
    sh_replica_apply(replica, step);
    if (!replica->steps->fuses_update)  // then there are many, and `finish` tells of them
        sh_trace_end(replica->trace, "optim", "update", replica->step, begin);
}

/* The sum of a bucket, or of a part of it, is in place: sh_reducer_options.arrived. */
static bool arrived(void *user, const sh_bucket *bucket) {
    bsp *b = user;
    if (b->at_end) return false;
    update(b, bucket, 1.0, NULL);
    return true;
}

/* This rank's gradient, before it is encoded. Its part of the largest value is 1 / ranks, so that
 * the sum keeps to it. Its part of the largest norm is 1 / sqrt(ranks) (Lin et al., ICLR 2018):
 * that of the sum if the ranks' gradients were independent. */
static void clip_own(sh_replica *replica) {
    const sh_step_options *steps = replica->steps;
    float *gradients = replica->gradients;
    size_t total = replica->params->total;
    double ranks = replica->ranks;
    if (gradients == NULL) return;
    if (steps->clip_value > 0) sh_clip_value(gradients, total, (float)(steps->clip_value / ranks));
    if (steps->clip_norm <= 0) return;
    double squares = ranks * sh_clip_squares(gradients, total);
    double factor = sh_clip_factor(squares, steps->clip_norm, &replica->batch.grad_norm);
    if (factor < 1) sh_vector()->scale(gradients, (float)factor, total);
}

/* Bucket by bucket: each rank has its shards of them. An exact run's bits must not depend on how
 * buckets were cut, so its gradient is clipped as one. */
static double clip_buckets(const bsp *b) {
    const sh_replica *replica = b->replica;
    double squares = 0;
    if (replica->fixed != NULL) return sh_replica_clip(replica, 0, replica->params->total);
    for (size_t i = 0; i < sh_reducer_buckets(b->reducer); i++) {
        const sh_bucket *bucket = sh_reducer_bucket(b->reducer, i);
        squares += sh_replica_clip(replica, bucket->low, bucket->high);
    }
    return squares;
}

static sh_status clip_sum(bsp *b, double *scale_out) {
    sh_replica *replica = b->replica;
    double squares = clip_buckets(b);
    if (replica->steps->clip_norm <= 0 || replica->gradients == NULL) return SH_OK;
    if (replica->steps->shards) {
        sum_norms(b, &squares, 1);
        SH_TRY(b->status);
    }
    *scale_out = sh_clip_factor(squares, replica->steps->clip_norm, &replica->batch.grad_norm);
    return SH_OK;
}

static bool clips(const sh_step_options *steps) {
    return steps->clip_norm > 0 || steps->clip_value > 0;
}

/* All gradients are there: clips, updates, and gathers what other ranks updated. */
static sh_status update_all(bsp *b) {
    double scale = 1;
    if (clips(b->replica->steps) && !b->clips_own) SH_TRY(clip_sum(b, &scale));
    for (size_t i = 0; i < sh_reducer_buckets(b->reducer); i++)
        update(b, sh_reducer_bucket(b->reducer, i), scale, b->replica->batch.unused);
    return sh_reducer_gather(b->reducer);
}

/* ---- Parameters that nobody used ------------------------------------------------------------- */

static bool is_zero(const float *x, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (x[i] != 0) return false;
    return true;
}

/* A parameter that no rank used in this step stays as it is, unless a codec delivers what it had
 * kept back of earlier steps: that is taken off the residuals and would be lost. Decoded sums are
 * the same on all ranks, so that all decide alike. */
static sh_status agree_on_unused(bsp *b) {
    const sh_replica *replica = b->replica;
    const sh_param_list *params = replica->params;
    bool *unused = replica->batch.unused;
    if (unused == NULL) return SH_OK;
    for (size_t i = 0; i < params->count; i++) b->used[i] = !unused[i];
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = b->used,
                    .count = params->count,
                    .dtype = SH_DTYPE_I32,
                    .op = SH_SUM,
                    .step = replica->step + 1,
                    .bucket = -1};
    SH_TRY(sh_group_run(replica->group, &call));
    for (size_t i = 0; i < params->count; i++) unused[i] = b->used[i] == 0;
    if (replica->codec->kind == NULL || sh_codec_states(replica->codec) == 0) return SH_OK;
    for (size_t i = 0; i < params->count; i++)
        if (unused[i])
            unused[i] =
                is_zero(replica->gradients + params->items[i].offset, params->items[i].count);
    return SH_OK;
}

/* ---- A step ---------------------------------------------------------------------------------- */

/* Running statistics are one model's after every step, whatever its evaluations and checkpoints, so
 * that a run may stop after any. */
static size_t statistics_sums(const sh_replica *replica) {
    return replica->steps->common_statistics ? 0 : sh_statistics_sums(&replica->statistics);
}

/* What everyone must know after the step travels beside the gradients. */
static sh_status begins(void *who, const sh_loss_result *losses) {
    bsp *b = who;
    sh_replica *replica = b->replica;
    b->begun = true;
    b->control[CONTROL_LOSS] = losses->sum;
    b->control[CONTROL_COUNTED] = (double)losses->counted;
    b->control[CONTROL_CORRECT] = (double)losses->correct;
    b->control[CONTROL_STOP] =
        replica->ops.stops != NULL && replica->ops.stops(replica->ops.self) ? 1 : 0;
    size_t sums = statistics_sums(replica);
    if (sums > 0)
        sh_statistics_weigh(&replica->statistics, replica->batch.samples,
                            b->control + CONTROL_COUNT);
    b->control_call = (sh_call){.what = SH_ALLREDUCE,
                                .data = replica->weights != NULL ? b->control : NULL,
                                .count = CONTROL_COUNT + sums,
                                .dtype = SH_DTYPE_F64,
                                .op = SH_SUM,
                                .step = replica->step + 1,
                                .bucket = -1};
    sh_reducer_begin(b->reducer, replica->step);
    return sh_group_start(replica->group, &b->control_call);
}

static void ready(void *who, size_t param) { sh_reducer_ready(((bsp *)who)->reducer, param); }

static size_t bucket_begin(void *who, size_t end) {
    return sh_reducer_bucket_begin(((bsp *)who)->reducer, end);
}

static void all_ready(bsp *b) {
    for (size_t i = b->replica->params->count; i-- > 0;) sh_reducer_ready(b->reducer, i);
}

/* A rank without samples in a short batch adds zeros. */
static sh_status add_nothing(bsp *b) {
    sh_replica *replica = b->replica;
    const sh_param_list *params = replica->params;
    memset(replica->gradients, 0, params->total * sizeof(float));
    for (size_t i = 0; i < params->count; i++) b->unused[i] = true;
    replica->batch.unused = b->unused;
    SH_TRY(begins(b, &(sh_loss_result){0}));
    all_ready(b);
    return SH_OK;
}

static sh_status take_control(bsp *b, sh_loss_result *total_out) {
    sh_replica *replica = b->replica;
    SH_TRY(sh_group_wait(replica->group, &b->control_call));
    *total_out = (sh_loss_result){.sum = b->control[CONTROL_LOSS],
                                  .counted = (int64_t)b->control[CONTROL_COUNTED],
                                  .correct = (int64_t)b->control[CONTROL_CORRECT]};
    replica->batch.stops_now = b->control[CONTROL_STOP] > 0;
    if (statistics_sums(replica) > 0)
        sh_statistics_take(&replica->statistics, b->control + CONTROL_COUNT);
    return SH_OK;
}

/* Waits for the sums of all ranks; most parameters have been updated already when it returns. */
static sh_status finish(bsp *b, sh_loss_result *total_out) {
    sh_replica *replica = b->replica;
    if (b->clips_own) clip_own(replica);
    int64_t begin = sh_trace_begin(replica->trace);
    SH_TRY(sh_reducer_finish(b->reducer));
    if (replica->steps->fuses_update)
        sh_trace_end(replica->trace, "optim", "wait, sum and update", replica->step, begin);
    if (replica->fixed == NULL) SH_TRY(take_control(b, total_out));
    sh_reducer_stats stats = sh_reducer_take_stats(b->reducer);
    replica->counts.waited_ns += stats.exposed_ns;
    replica->counts.sent_bytes += stats.sent_bytes;
    replica->counts.dense_bytes += stats.dense_bytes;
    bool agrees = replica->steps->drops_paths && replica->fixed == NULL;  // an exact run has agreed
    return agrees ? agree_on_unused(b) : SH_OK;
}

static sh_status bsp_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    bsp *b = sync->own;
    sh_replica *replica = sync->replica;
    (void)meets_out;
    b->begun = false;
    SH_TRY(replica->ops.compute(replica->ops.self, SH_MEAN_GLOBAL, result_out));
    if (replica->fixed != NULL) {
        sh_reducer_begin(b->reducer, replica->step);
        all_ready(b);
    } else if (!b->begun) {
        SH_TRY(add_nothing(b));
    }
    SH_TRY(finish(b, result_out));
    if (b->at_end) SH_TRY(update_all(b));
    return b->status;
}

/* Exact runs: fits sh_replica_hooks.combine. */
static sh_status combine(void *who, sh_reduce_op op, int64_t *values, size_t count,
                         bool *over_out) {
    bsp *b = who;
    sh_replica *replica = b->replica;
    int64_t begin = sh_clock_now_ns(replica->clock);
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = values,
                    .count = count,
                    .dtype = SH_DTYPE_I64,
                    .op = op,
                    .step = replica->step,
                    .bucket = -1};
    *over_out = false;
    SH_TRY(sh_group_run(replica->group, &call));
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    replica->counts.sent_bytes += call.sent_bytes;
    replica->counts.dense_bytes += call.sent_bytes;
    return SH_OK;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static sh_status make_reducer(bsp *b) {
    sh_replica *replica = b->replica;
    const sh_step_options *steps = replica->steps;
    const sh_reducer_options options = {.group = replica->group,
                                        .params = replica->params,
                                        .gradients = replica->gradients,
                                        .shared = steps->gradients,
                                        .fixed = replica->fixed,
                                        .bucket_bytes = steps->bucket_bytes,
                                        .codec = replica->codec,
                                        .seed = replica->seed,
                                        .shards = steps->shards,
                                        .weights = replica->weights,
                                        .weights_shared = steps->weights,
                                        .fuses_update = steps->fuses_update,
                                        // Clipping needs the whole gradient before any is sent.
                                        .overlap = replica->overlap && !b->clips_own,
                                        .arrived = arrived,
                                        .user = b,
                                        .clock = replica->clock};
    return sh_reducer_create(&options, &b->reducer);
}

/* With a codec that keeps what it leaves out, each worker clips its own gradient before it is
 * encoded: what is decoded has been taken off the residuals, and scaling it down would lose it. */
static void choose_clipping(bsp *b) {
    const sh_replica *replica = b->replica;
    bool any = clips(replica->steps);
    b->clips_own = any && replica->codec->kind != NULL && sh_codec_states(replica->codec) > 0;
    b->at_end = (any && !b->clips_own) || replica->steps->drops_paths;
}

static sh_status make(sh_sync *sync) {
    sh_replica *replica = sync->replica;
    bsp *b = sync->own = sh_alloc(1, sizeof *b);
    if (b == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for gradient buckets");
    b->replica = replica;
    choose_clipping(b);
    size_t params = replica->weights != NULL ? replica->params->count + 1 : 1;
    size_t statistics = replica->weights != NULL ? statistics_sums(replica) : 0;
    b->control = sh_alloc(CONTROL_COUNT + statistics, sizeof *b->control);
    b->used = sh_alloc(params, sizeof *b->used);
    b->unused = sh_alloc(params, sizeof *b->unused);
    if (b->control == NULL || b->used == NULL || b->unused == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for gradient buckets");
    return SH_OK;
}

/* A codec's residuals are read from checkpoints. */
static sh_status bsp_open(sh_sync *sync) {
    SH_TRY(make(sync));
    return make_reducer(sync->own);
}

static sh_status bsp_create(sh_sync *sync) {
    sh_replica *replica = sync->replica;
    if (sync->own == NULL) SH_TRY(make(sync));
    bsp *b = sync->own;
    if (b->reducer == NULL) SH_TRY(make_reducer(b));
    if (replica->fixed != NULL)
        replica->hooks = (sh_replica_hooks){.combine = combine, .who = b};
    else
        replica->hooks = (sh_replica_hooks){
            .begins = begins, .ready = ready, .bucket_begin = bucket_begin, .who = b};
    return SH_OK;
}

static void bsp_destroy(sh_sync *sync) {
    bsp *b = sync->own;
    if (b == NULL) return;
    sh_reducer_destroy(b->reducer);
    sh_free(b->control);
    sh_free(b->used);
    sh_free(b->unused);
    sh_free(b);
    sync->own = NULL;
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

static size_t bsp_blocks(const sh_sync *sync, sh_exchange_state blocks_out[SH_EXCHANGE_STATES]) {
    const bsp *b = sync->own;
    const sh_exchange *exchange =
        b != NULL && b->reducer != NULL ? sh_reducer_exchange(b->reducer) : NULL;
    return exchange != NULL ? sh_exchange_states(exchange, blocks_out) : 0;
}

static void bsp_adopt(sh_sync *sync, int workers_before) {
    sh_exchange_state blocks[SH_EXCHANGE_STATES];
    if (workers_before > 0 && bsp_blocks(sync, blocks) > 0)
        sh_exchange_adopt(sh_reducer_exchange(((bsp *)sync->own)->reducer), workers_before);
}

/* Sharded: the optimizer's state of all ranks. With a codec: one residual describes all workers. */
static sh_status bsp_save(sh_sync *sync) {
    bsp *b = sync->own;
    const sh_replica *replica = sync->replica;
    sh_exchange_state blocks[SH_EXCHANGE_STATES];
    for (int i = 0; replica->steps->shards && i < replica->optim->slot_count; i++)
        SH_TRY(sh_reducer_gather_block(b->reducer, replica->optim->slots[i]));
    if (bsp_blocks(sync, blocks) == 0) return SH_OK;
    return sh_exchange_settle(sh_reducer_exchange(b->reducer));
}

/* Sharded: whole pages between the parts of this rank go back to the system. The blocks stay whole
 * in their addresses, but cost memory only where this rank keeps state. */
static void bsp_saved(sh_sync *sync) {
    const bsp *b = sync->own;
    const sh_optim *optim = sync->replica->optim;
    for (int i = 0; b != NULL && sync->replica->steps->shards && i < optim->slot_count; i++) {
        size_t end = optim->total;  // buckets lie from the last to the first
        for (size_t k = 0; k < sh_reducer_buckets(b->reducer); k++) {
            const sh_bucket *bucket = sh_reducer_bucket(b->reducer, k);
            sh_arena_drop(optim->slots[i] + bucket->high, (end - bucket->high) * sizeof(float));
            end = bucket->low;
        }
        sh_arena_drop(optim->slots[i], end * sizeof(float));
    }
}

/* Messages of a codec are summed like gradients, or gathered. */
static sh_sync_cost bsp_cost(const sh_sync_load *load) {
    double bytes = sh_codec_message_bytes(load->codec, load->params);
    bool gathers = load->codec->kind != NULL && load->codec->kind->gathers;
    return gathers ? sh_cost_gather(load, bytes) : sh_cost_sum(load, bytes);
}

static const sh_sync_family bsp_family = {
    .together = true,
    .open = bsp_open,
    .blocks = bsp_blocks,
    .adopt = bsp_adopt,
    .save = bsp_save,
    .saved = bsp_saved,
    .create = bsp_create,
    .destroy = bsp_destroy,
    .step = bsp_step,
    .cost = bsp_cost,
};

const sh_sync_kind sh_sync_bsp = {
    .name = "bsp",
    .help = "bulk-synchronous: every step is that of one worker with the whole batch",
    .exact = true,
    .family = &bsp_family,
};
