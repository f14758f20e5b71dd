/* Stochastic depth (Huang et al. 2016): the residual branch f that ends here is skipped as a whole
 * with probability p, and scaled when it is not, so that the expectation is that of inference.
 *
 *   y = b f / (1 - p),  b = 0 with probability p, else 1     dx = b dy / (1 - p)
 *
 * b is one draw for the whole part of a batch that a worker computes at once, not per sample,
 * because only then is there work to save. Skipped means not computed: the ops that feed only this
 * layer do not run (executor_fuse.c finds them), and their parameters count as unused in the step.
 */
#include "nn/layers/common.h"
#include "nn/layers/options.h"

static const sh_option rows[] = {
    {.key = "p",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_droppath_spec, p),
     .initial = "0.1",
     .least = 0,
     .most = 0.999,
     .help = "probability that the branch is skipped in a step"},
};

/* Flops of the scaling alone. Those of the branch are counted by its own layers, as if never
 * skipped. */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    layer->out = layer->in[0];
    layer->flops = (double)sh_shape_count(&layer->out);
    return SH_OK;
}

/* The kernel is one bool, "dropped in this step". The executor reads it (decide_skips) to leave out
 * the ops of the branch, so `begin` must have set it before any op of the step runs. */
static sh_status build(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->kernel = sh_alloc(1, sizeof(bool));
    return op->kernel != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for drop-path");
}

/* The draw is a function of (seed, layer, step, shard), so a run repeats exactly. Never dropped
 * outside training. */
static void begin(sh_op *op) {
    const sh_droppath_spec *o = op->layer->options;
    sh_step_context step = sh_op_step(op);
    sh_rng rng = sh_rng_stream(step.seed, SH_RNG_DROP_PATH, (uint32_t)op->layer->stream,
                               (uint64_t)step.step);
    float draw = sh_u32_to_unit(sh_rng_at(&rng, step.shard).word[0]);
    *(bool *)op->kernel = step.training && (double)draw < o->p;
}

/* Where dropped, `from` was not computed and may hold anything, NaN included: zeros are stored, not
 * products with 0. */
static void apply(const sh_op *op, const float *from, float *to) {
    const sh_droppath_spec *o = op->layer->options;
    float scale = sh_op_step(op).training ? (float)(1.0 / (1.0 - o->p)) : 1.0f;
    bool dropped = *(const bool *)op->kernel;
    for (size_t i = 0; i < op->out->count; i++) to[i] = dropped ? 0.0f : from[i] * scale;
}

static sh_status forward(sh_op *op) {
    apply(op, op->in[0]->data, op->out->data);
    return SH_OK;
}

static sh_status backward(sh_op *op) {
    if (op->dx[0] != NULL) apply(op, op->out->grad, op->dx[0]);
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_droppath = {
    .name = "droppath",
    .help = "skips the whole branch before it with probability p in training",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_droppath_spec),
    .main_option = "p",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .begin = begin,
    .forward = forward,
    .backward = backward,
    .destroy = sh_op_free_kernel,
    .in_place = true,
    .drops_branch = true,
};
