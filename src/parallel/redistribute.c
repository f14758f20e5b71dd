/* Layers that take a value from one placement to another, over the workers of one dimension.
 *
 *   from \ to      replicated                  split
 *   replicated     nothing                     take-part   (backward: all-gather)
 *   split          gather-parts (all-gather)   nothing
 *   partial sum    sum-parts (all-reduce)      -
 *
 * and sum-gradients, which changes nothing in forward and sums over the workers in backward. Where
 * a step has no peers (a search for the layer that broke) nothing is exchanged. */
#include <string.h>

#include "base/memory.h"
#include "nn/layers/common.h"
#include "parallel/layout.h"

#define SPLIT_ROW(field, least_value, text)                                                  \
    {                                                                                        \
        .key = #field, .type = SH_OPTION_INT, .at = offsetof(sh_cut, field), .initial = "1", \
        .least = least_value, .most = 1e15, .help = text                                     \
    }

const sh_option sh_cut_rows[SH_CUT_OPTIONS] = {
    SPLIT_ROW(units, 1, "pieces of the dimension that are not cut"),
    SPLIT_ROW(unit, 1, "elements of a piece"),
    SPLIT_ROW(parts, 1, "workers"),
    SPLIT_ROW(rank, 0, "which worker this is"),
    SPLIT_ROW(dim, 0, "dimension of the sample"),
    SPLIT_ROW(axis, 0, "dimension of the mesh"),
};

/* This worker's part of `whole` along `dim`. */
sh_slice sh_cut_slice(const sh_cut *split, const sh_shape *whole, int dim) {
    return (sh_slice){.whole = *whole,
                      .dim = dim,
                      .groups = 1,
                      .begin = sh_cut_begin(split, split->rank),
                      .end = sh_cut_begin(split, split->rank + 1)};
}

/* The options of these layers are the cut itself. */
static const sh_cut *split_of(const sh_op *op) { return op->layer->options; }

/* NULL: nothing is exchanged, and a worker computes with its own part alone. */
static const sh_peers *peers_of(const sh_op *op) {
    const sh_peers *peers = sh_op_step(op).peers;
    return peers != NULL && peers->engine != NULL ? peers : NULL;
}

/* Sum over the workers of the cut's dimension. Steps are numbered from 1 in calls. */
static sh_call call_of(const sh_op *op, sh_collective what, float *data, size_t count) {
    return (sh_call){.what = what,
                     .group = peers_of(op)->along[split_of(op)->axis],
                     .data = data,
                     .count = count,
                     .dtype = SH_DTYPE_F32,
                     .op = SH_SUM,
                     .step = sh_op_step(op).step + 1};
}

/* Redistribution by sums keeps the shape. */
static sh_status declare_same(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    layer->out = layer->in[0];
    return SH_OK;
}

/* ---- All-reduces, with a start and a finish ---- */

/* Room for the call, which outlives forward while it is under way. */
static sh_status build_sum(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->kernel = sh_alloc(1, sizeof(sh_peer_call));
    return op->kernel != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for an exchange");
}

/* In place where the executor shares memory; otherwise on a copy, as other ops read the input. */
static sh_status start_sum(sh_op *op, const float *from, float *to, size_t count) {
    if (from != to) memcpy(to, from, count * sizeof *to);
    if (peers_of(op) == NULL) return SH_OK;
    sh_call call = call_of(op, SH_ALLREDUCE, to, count);
    return sh_peer_call_start(op->kernel, peers_of(op), &call);
}

static sh_status finish_sum(sh_op *op) { return sh_peer_call_finish(op->kernel, peers_of(op)); }
/* The network advances while other ops compute. */
static void progress_sum(sh_op *op) { sh_peer_call_progress(op->kernel, peers_of(op)); }

/* The gradient of a sum is the gradient of each of its terms: dx = dy on every worker. */
static sh_status pass_gradient(sh_op *op) {
    if (op->dx[0] != NULL && op->dx[0] != op->out->grad)
        memcpy(op->dx[0], op->out->grad, op->out->count * sizeof(float));
    return SH_OK;
}

static sh_status forward_sum_parts(sh_op *op) {
    return start_sum(op, op->in[0]->data, op->out->data, op->out->count);
}

static sh_status forward_nothing(sh_op *op) {
    (void)op;
    return SH_OK;
}

/* dx = sum over workers of dy: each computed the part of its own columns. */
static sh_status backward_sum_gradients(sh_op *op) {
    if (op->dx[0] == NULL) return SH_OK;
    return start_sum(op, op->out->grad, op->dx[0], op->out->count);
}

/* The all-reduce is under way while other ops compute (nn/layer.h). */
static const sh_layer_exchange sums_forward = {finish_sum, forward_nothing, progress_sum};
static const sh_layer_exchange sums_backward = {forward_nothing, finish_sum, progress_sum};

static const sh_layer_kind sum_parts = {
    .name = "sum-parts",
    .help = "sum of the workers' partial sums",
    .options = {sh_cut_rows, SH_CUT_OPTIONS},
    .options_bytes = sizeof(sh_cut),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare_same,
    .build = build_sum,
    .forward = forward_sum_parts,
    .backward = pass_gradient,
    .exchange = &sums_forward,
    .destroy = sh_op_free_kernel,
    .in_place = true,
};

const sh_layer_kind sh_layer_kind_sum_gradients = {
    .name = "sum-gradients",
    .help = "a replicated value, of whose gradient every worker computes a part",
    .options = {sh_cut_rows, SH_CUT_OPTIONS},
    .options_bytes = sizeof(sh_cut),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare_same,
    .build = build_sum,
    .forward = forward_nothing,
    .backward = backward_sum_gradients,
    .exchange = &sums_backward,
    .destroy = sh_op_free_kernel,
    .reshapes = true,
};

/* ---- All-gathers of uneven parts ---- */

/* A value as outer x dimension x inner, the dimension being the one that is split. */
typedef struct extents {
    size_t outer, whole, inner;
    size_t block;  // floats of the largest part: what every worker contributes to an all-gather
} extents;

static extents extents_of(const sh_op *op, const sh_value *value) {
    const sh_cut *split = split_of(op);
    extents e = {.outer = 1, .whole = (size_t)(split->units * split->unit), .inner = 1};
    int at = (int)split->dim + 1;  // behind the batch
    for (int i = 0; i < value->shape.rank; i++)
        if (i != at) *(i < at ? &e.outer : &e.inner) *= (size_t)value->shape.dim[i];
    // ceil(units / parts) units: padded blocks are equal.
    int64_t most = (split->units + split->parts - 1) / split->parts * split->unit;
    e.block = e.outer * (size_t)most * e.inner;
    return e;
}

/* Copies the part of `rank` between its contiguous form and its place in the whole. */
static void copy_part(const sh_cut *split, const extents *e, int64_t rank, float *part,
                      float *whole, bool into_whole) {
    size_t begin = (size_t)sh_cut_begin(split, rank);
    size_t run = ((size_t)sh_cut_begin(split, rank + 1) - begin) * e->inner;
    for (size_t o = 0; o < e->outer; o++) {
        float *there = whole + (o * e->whole + begin) * e->inner;
        memcpy(into_whole ? there : part + o * run, into_whole ? part + o * run : there,
               run * sizeof *part);
    }
}

/* Every worker's `part` becomes the `whole` on all. */
static sh_status gather(sh_op *op, const extents *e, const float *part, float *whole) {
    const sh_cut *split = split_of(op);
    float *blocks = op->scratch;
    size_t own = e->outer * (size_t)sh_cut_own(split) * e->inner;
    // Own block in place, as the all-gather wants it.
    memcpy(blocks + (size_t)split->rank * e->block, part, own * sizeof *part);
    if (peers_of(op) != NULL) {
        sh_call call = call_of(op, SH_ALLGATHER, blocks, (size_t)split->parts * e->block);
        call.bucket = -1;  // no bucket of gradients
        SH_TRY(sh_engine_run(peers_of(op)->engine, &call));
    }
    for (int64_t r = 0; r < split->parts; r++)
        copy_part(split, e, r, blocks + (size_t)r * e->block, whole, true);
    return SH_OK;
}

/* An all-gather wants equal blocks: uneven parts are padded in scratch. */
static sh_status build_gather(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_builder_want(builder, op, 0, 1));
    op->out->block = 1;  // plain layout: copy_part knows no blocks of channels
    extents e = extents_of(op, op->in[0]);
    sh_op_scratch(op, (size_t)split_of(op)->parts * e.block * sizeof(float));  // (parts, block)
    return SH_OK;
}

/* Output dimension is whole again; the rest of the shape stays. */
static sh_status declare_gather(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_cut *split = layer->options;
    layer->out = layer->in[0];
    layer->out.dim[split->dim] = split->units * split->unit;
    return SH_OK;
}

static sh_status forward_gather(sh_op *op) {
    extents e = extents_of(op, op->in[0]);
    return gather(op, &e, op->in[0]->data, op->out->data);
}

/* Everybody has the whole gradient, and takes its part of it: nothing is sent. */
static sh_status backward_gather(sh_op *op) {
    extents e = extents_of(op, op->in[0]);
    if (op->dx[0] != NULL)
        copy_part(split_of(op), &e, split_of(op)->rank, op->dx[0], op->out->grad, false);
    return SH_OK;
}

static const sh_layer_kind gather_parts = {
    .name = "gather-parts",
    .help = "the whole of a value that is split over workers",
    .options = {sh_cut_rows, SH_CUT_OPTIONS},
    .options_bytes = sizeof(sh_cut),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare_gather,
    .build = build_gather,
    .forward = forward_gather,
    .backward = backward_gather,
};

static sh_status declare_take(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_cut *split = layer->options;
    layer->out = layer->in[0];
    layer->out.dim[split->dim] = sh_cut_own(split);
    return SH_OK;
}

/* Nothing is sent either: every worker has the whole value. */
static sh_status forward_take(sh_op *op) {
    extents e = extents_of(op, op->out);
    copy_part(split_of(op), &e, split_of(op)->rank, op->out->data, op->in[0]->data, false);
    return SH_OK;
}

/* All-gather, for every worker has the gradient of its part alone. */
static sh_status backward_take(sh_op *op) {
    extents e = extents_of(op, op->out);
    return op->dx[0] != NULL ? gather(op, &e, op->out->grad, op->dx[0]) : SH_OK;
}

static const sh_layer_kind take_part = {
    .name = "take-part",
    .help = "this worker's part of a replicated value",
    .options = {sh_cut_rows, SH_CUT_OPTIONS},
    .options_bytes = sizeof(sh_cut),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare_take,
    .build = build_gather,
    .forward = forward_take,
    .backward = backward_take,
};

/* Rows: from, columns: to. NULL where nothing is needed or nothing can do it. */
const sh_layer_kind *sh_redistribution(sh_placement from, sh_placement to) {
    static const sh_layer_kind *const table[3][3] = {
        [SH_REPLICATED] = {[SH_SPLIT] = &take_part},
        [SH_SPLIT] = {[SH_REPLICATED] = &gather_parts},
        [SH_PARTIAL_SUM] = {[SH_REPLICATED] = &sum_parts},
    };
    return table[from][to];
}
