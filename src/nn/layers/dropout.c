/* Dropout (Srivastava et al. 2014): in training an element survives with 1-p and is scaled by
 * 1/(1-p). The mask is a function of (seed, layer, step, sample) and is drawn again in backward, so
 * it is never stored and does not depend on how samples are spread over workers. */
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

static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    layer->out = layer->in[0];
    layer->flops = 10.0 * (double)sh_shape_count(&layer->out);
    return SH_OK;
}

/* The streams are made anew each step; the kernel keeps one per sample. */
static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_builder_want(builder, op, 0, 1));
    op->out->block = 1;
    op->kernel = sh_alloc((size_t)op->out->shape.dim[0], sizeof(sh_rng));
    return op->kernel != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for dropout");
}

static bool is_off(const sh_op *op) {
    const sh_dropout_spec *o = op->layer->options;
    return !sh_op_step(op).training || o->p <= 0;
}

static void begin(sh_op *op) {
    if (is_off(op)) return;
    sh_step_context step = sh_op_step(op);
    sh_rng *streams = op->kernel;
    for (int64_t i = 0; i < op->out->shape.dim[0]; i++) {
        uint64_t place = (uint64_t)step.step << 32 ^ (step.position + (uint64_t)i);
        streams[i] = sh_rng_stream(step.seed, SH_RNG_DROPOUT, (uint32_t)op->layer->stream, place);
    }
}

/* Elements of one run, which begins at element `at` of the whole sample. */
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

/* A part of the sample takes the mask of the whole. */
static void apply_part(const sh_op *op, float p, const float *from, float *to) {
    const sh_slice *part = &op->layer->slice;
    size_t runs = sh_slice_runs(part), count = sh_slice_run_count(part);
    const sh_rng *streams = op->kernel;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < (size_t)op->out->shape.dim[0] * runs; i++)
        apply_run(&streams[i / runs], p, from + i * count, to + i * count,
                  sh_slice_run_begin(part, i % runs), count);
}

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
