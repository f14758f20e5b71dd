/* Layouts: how the layers of a net are spread over the workers of one dimension of the mesh. A
 * layout rewrites the described net (nn/spec.h) of one worker before it is built: it splits
 * parameters and puts in the layers that exchange values. What computes never hears of it.
 *
 * A value is replicated (every worker has all of it), split along a dimension of the sample, or a
 * partial sum (the value is the sum over the workers). Parameters start as parts of the whole ones,
 * so that a split net draws what one worker would draw.
 *
 * One layout is one file and one row in parallel/layouts.h. */
#ifndef SH_PARALLEL_LAYOUT_H
#define SH_PARALLEL_LAYOUT_H

#include "parallel/peers.h"

typedef enum sh_placement { SH_REPLICATED, SH_SPLIT, SH_PARTIAL_SUM } sh_placement;

/* A dimension of `units` x `unit` elements, cut between units; the first `units` % `parts` workers
 * have one unit more. */
typedef struct sh_cut {
    int64_t units, unit;
    int64_t parts, rank;  // workers, and which of them this is
    int64_t dim;          // of the sample
    int64_t axis;         // sh_axis of the workers
} sh_cut;

static inline int64_t sh_cut_begin(const sh_cut *split, int64_t rank) {
    int64_t more = split->units % split->parts;
    return (split->units / split->parts * rank + (rank < more ? rank : more)) * split->unit;
}
static inline int64_t sh_cut_own(const sh_cut *split) {
    return sh_cut_begin(split, split->rank + 1) - sh_cut_begin(split, split->rank);
}
/* This worker's part of a tensor of shape `whole`, cut along `dim`. */
sh_slice sh_cut_slice(const sh_cut *split, const sh_shape *whole, int dim);

/* What a layout did with a layer, for explain. */
typedef struct sh_layout_note {
    char text[96];                         // "columns 0-32 of 65", or why it stays whole
    double forward_bytes, backward_bytes;  // that this worker sends per sample
} sh_layout_note;

typedef struct sh_layout_target {
    int parts, rank;   // workers along the dimension, and which of them this is
    bool splits_loss;  // the loss can take rows of outputs that are split
} sh_layout_target;

/* A rewritten net. */
typedef struct sh_layout_result {
    sh_net_spec net;
    sh_layout_note *notes;  // one per layer of the whole net
    bool loss_is_split;     // the outputs are split by `outputs`
    sh_cut outputs;
} sh_layout_result;

void sh_layout_result_fini(sh_layout_result *result);

typedef struct sh_layout_kind {
    const char *name, *help;
    sh_axis axis;
    /* Rewrites `whole`, which stays as it is. On failure there is nothing to free. */
    sh_status (*rewrite)(const sh_net_spec *whole, const sh_layout_target *target,
                         sh_layout_result *result_out);
} sh_layout_kind;

/* ---- The redistribution table ---- */

/* The layer that takes a value from one placement to another; NULL: none is needed, or none does
 * it. `needs_gradient_sum`: readers of a replicated value that compute parts of its gradient. */
const sh_layer_kind *sh_redistribution(sh_placement from, sh_placement to);
/* A replicated value whose readers each compute a part of its gradient: the sum of these. */
extern const sh_layer_kind sh_layer_kind_sum_gradients;
extern const sh_layer_kind sh_layer_kind_split_embedding;

/* The options of these kinds. */
enum { SH_CUT_OPTIONS = 6 };
extern const sh_option sh_cut_rows[SH_CUT_OPTIONS];

typedef struct sh_split_embedding_spec {
    sh_cut split;  // of the vocabulary
    int64_t width;
    double std;
} sh_split_embedding_spec;

#endif
