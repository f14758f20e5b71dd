/* One worker: it takes every step by itself, with the whole batch. Also who is left when all others
 * have died, until somebody comes back. */
#include <math.h>

#include "sync/list.h"

static sh_status sparse_step(sh_replica *replica, sh_loss_result *result_out) {
    sh_sparse_batch rows;
    SH_TRY(replica->ops.next_sparse(replica->ops.self, &rows));
    double lr = sh_schedule_lr(replica->schedule, replica->step);
    *result_out = sh_sparse_step(replica->ops.sparse, &rows, lr, replica->weights);
    if (isfinite(result_out->sum)) return SH_OK;
    SH_FAIL(SH_E_NUMERIC, "step %ld: the loss is not finite", (long)replica->step + 1);
    return sh_error_hint("lower --lr");
}

static sh_status alone_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    sh_replica *replica = sync->replica;
    const sh_param_list *params = replica->params;
    (void)meets_out;
    if (replica->ops.sparse != NULL) return sparse_step(replica, result_out);
    SH_TRY(replica->ops.compute(replica->ops.self, SH_MEAN_GLOBAL, result_out));
    const sh_fixed_gradient *fixed = replica->fixed;
    if (fixed != NULL) fixed->mean(fixed->self, 0, params->count);
    double scale = 1, squares = sh_replica_clip(replica, 0, params->total);
    if (replica->ops.squares != NULL) SH_TRY(replica->ops.squares(replica->ops.self, &squares));
    if (replica->steps->clip_norm > 0 && replica->gradients != NULL)
        scale = sh_clip_factor(squares, replica->steps->clip_norm, &replica->batch.grad_norm);
    int64_t begin = sh_trace_begin(replica->trace);
    sh_replica_apply(replica, (sh_optim_step){.count = params->count,
                                              .high = params->total,
                                              .unused = replica->batch.unused,
                                              .gradient_scale = (float)scale});
    sh_trace_end(replica->trace, "optim", "update", replica->step, begin);
    return SH_OK;
}

static sh_status alone_create(sh_sync *sync) {
    (void)sync;
    return SH_OK;
}

static void alone_destroy(sh_sync *sync) { (void)sync; }

static sh_status alone_check(sh_scheme scheme, const sh_sync_options *options,
                             const sh_sync_terms *terms) {
    (void)scheme;
    (void)options;
    if (terms->workers == 1) return SH_OK;
    SH_FAIL(SH_E_USAGE, "scheme 'alone' is for one worker, and there are %d", terms->workers);
    return sh_error_hint("use --sync bsp, or one worker");
}

static const sh_sync_family alone_family = {
    .together = true,
    .create = alone_create,
    .destroy = alone_destroy,
    .step = alone_step,
};

const sh_sync_kind sh_sync_alone = {
    .name = "alone",
    .help = "one worker, whatever the scheme says; also who is left when the others have died",
    .exact = true,
    .family = &alone_family,
    .check = alone_check,
};
