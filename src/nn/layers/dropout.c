/* Dropout (Srivastava et al. 2014), inverted: y = m x / (1 - p) with m = 1 with probability 1 - p,
 * else 0; dx = m dy / (1 - p). Scaling in training keeps the expectation, so inference is the
 * identity.
 *
 * The mask is a function of (seed, layer, step, sample) and is drawn again in backward: it is never
 * stored, and does not depend on how samples are spread over workers. */
#include "tensor/kernels/dropout.h"

#include "nn/layers/common.h"
#include "nn/layers/options.h"

static const sh_option rows[] = {
    {.key = "p",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_dropout_spec, p),
     .initial = "0.5",
     .least = 0,
     .most = 0.999,
     .help = "part of the elements set to zero in training"},
};

/* An estimate: drawing the mask (Philox) costs more than the product with it. */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    layer->out = layer->in[0];
    layer->flops = 10.0 * (double)sh_shape_count(&layer->out);
    return SH_OK;
}

/* The kernel is an array of N streams of random numbers, one per sample, which `begin` sets anew in
 * each step. */
static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_builder_want(builder, op, 0, 1));
    op->out->block = 1;
    op->kernel = sh_alloc((size_t)op->out->shape.dim[0], sizeof(sh_rng));
    return op->kernel != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for dropout");
}

/* Evaluation, or p = 0: the layer is the identity, and draws nothing. */
static bool is_off(const sh_op *op) {
    const sh_dropout_spec *o = op->layer->options;
    return !sh_op_step(op).training || o->p <= 0;
}

/* step.position is the epoch's index of the batch's first sample, so a sample draws the same mask
 * on whichever worker it lands. */
static void begin(sh_op *op) {
    if (is_off(op)) return;
    sh_step_context step = sh_op_step(op);
    sh_rng *streams = op->kernel;
    for (int64_t i = 0; i < op->out->shape.dim[0]; i++) {
        uint64_t place = (uint64_t)step.step << 32 ^ (step.position + (uint64_t)i);
        streams[i] = sh_rng_stream(step.seed, SH_RNG_DROPOUT, (uint32_t)op->layer->stream, place);
    }
}

/* Masks `count` neighbouring elements, of which the first is element `at` of the whole sample.
 * Element e takes word e % 4 of Philox block e / 4, as the kernel of whole samples does. */
static void apply_run(const sh_rng *stream, float p, const float *from, float *to, uint64_t at,
                      size_t count) {
    int32_t threshold = sh_dropout_threshold(p);
    float scale = 1.0f / (1.0f - p);
    sh_philox_block block = sh_rng_at(stream, at / 4);
    for (size_t i = 0; i < count; i++) {
        uint64_t element = at + i;
        if (element % 4 == 0) block = sh_rng_at(stream, element / 4);
        bool kept = (int32_t)(block.word[element % 4] >> 8) >= threshold;
        to[i] = kept ? from[i] * scale : 0.0f;
    }
}

/* Tensor parallelism: a worker that holds a part of each sample draws the mask of the whole and
 * applies its own elements of it, so that any split gives the same result. */
static void apply_part(const sh_op *op, float p, const float *from, float *to) {
    const sh_slice *part = &op->layer->slice;
    size_t runs = sh_slice_runs(part), count = sh_slice_run_count(part);
    const sh_rng *streams = op->kernel;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < (size_t)op->out->shape.dim[0] * runs; i++)
        apply_run(&streams[i / runs], p, from + i * count, to + i * count,
                  sh_slice_run_begin(part, i % runs), count);
}

/* Forward on activations, backward on gradients: the same linear map. `to` may be `from`. */
static void apply(sh_op *op, const float *from, float *to) {
    const sh_dropout_spec *o = op->layer->options;
    size_t samples = (size_t)op->out->shape.dim[0];
    if (is_off(op)) {
        if (from != to) memcpy(to, from, op->out->count * sizeof *to);
        return;
    }
    if (sh_slice_is_split(&op->layer->slice)) {
        apply_part(op, (float)o->p, from, to);
        return;
    }
    sh_dropout()->apply(from, to, samples, op->out->count / samples, (float)o->p, op->kernel);
}

static sh_status forward(sh_op *op) {
    apply(op, op->in[0]->data, op->out->data);
    return SH_OK;
}

static sh_status backward(sh_op *op) {
    if (op->dx[0] != NULL) apply(op, op->out->grad, op->dx[0]);
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_dropout = {
    .name = "dropout",
    .help = "sets a random part of the elements to zero in training",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_dropout_spec),
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
};
