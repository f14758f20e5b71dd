/* What layouts share: a net under rewriting, layer by layer, with the placement of every value. */
#ifndef SH_PARALLEL_REWRITE_H
#define SH_PARALLEL_REWRITE_H

#include "parallel/layout.h"

/* A layer's output, or the data, in the rewritten net. */
typedef struct sh_rewritten {
    int index;  // the layer that has it; SH_NET_INPUT for the data
    sh_placement placement;
    sh_cut split;  // of a split one
    int whole;     // the replicated version; SH_NOT_FOUND: not made yet
    int summed;    // the same, for readers that compute parts of its gradient
    bool trained;  // a parameter stands before it
} sh_rewritten;

typedef struct sh_rewriting {
    const sh_net_spec *from;
    sh_layout_target target;
    sh_axis axis;
    sh_layout_result *to;
    sh_rewritten *values;  // the data first
} sh_rewriting;

/* Begins an empty net of the same input; `fini` keeps the result unless `status` is a failure. */
sh_status sh_rewriting_init(sh_rewriting *r, const sh_net_spec *from,
                            const sh_layout_target *target, sh_axis axis, sh_layout_result *to);
sh_status sh_rewriting_fini(sh_rewriting *r, sh_status status);

static inline sh_rewritten *sh_rewritten_of(const sh_rewriting *r, int layer) {
    return &r->values[layer + 1];
}
static inline sh_layout_note *sh_note_of(const sh_rewriting *r, const sh_layer *layer) {
    return &r->to->notes[layer->index];
}
void sh_note(const sh_rewriting *r, const sh_layer *layer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds `layer` with the given inputs and options in place of its own, and starts of parameters as
 * in the whole net. */
sh_status sh_rewrite_layer(sh_rewriting *r, const sh_layer *layer, const sh_layer_kind *kind,
                           const int *inputs, const void *options, sh_layer **layer_out);
/* The same as it is, on replicated inputs. */
sh_status sh_rewrite_whole(sh_rewriting *r, const sh_layer *layer);
/* Parameter `index` of the new layer is the part of the whole one cut by `split` along `dim`. */
void sh_rewrite_slice(const sh_rewriting *r, const sh_layer *whole, sh_layer *layer, int index,
                      const sh_slice *part);

/* Index of the replicated version of a layer's output; with `sums`, one whose gradient is summed
 * over the workers. */
sh_status sh_rewrite_replicated(sh_rewriting *r, int layer, bool sums, int *index_out);
/* Adds the layer that takes what was added last for `layer` to another placement. */
sh_status sh_rewrite_redistribute(sh_rewriting *r, const sh_layer *layer, sh_placement from,
                                  sh_placement to, const sh_cut *split, int *index_out);

/* How many layers read a layer's output, and the first of them (NULL: none). */
int sh_readers(const sh_net_spec *net, int layer, const sh_layer **first_out);

#endif
