/* A described net: the list of layers that a model, or a run file, asks for, with options, shapes
 * and declared parameters, before any of them has a place in memory. This is what may still be
 * rewritten; sh_net_build (nn/net.h) turns it into a net.
 *
 *   run file or model ── sh_net_spec_add ──▶ sh_net_spec ── sh_net_build ──▶ sh_net
 *
 * Layers are added in order, each reading earlier ones, so the list is a topological order. */
#ifndef SH_NN_SPEC_H
#define SH_NN_SPEC_H

#include "base/index.h"
#include "nn/layer.h"

/* What the data gives and the loss wants, without the batch dimension. */
typedef struct sh_net_input {
    sh_shape sample;  // (C, H, W), (F) or (T)
    bool tokens;      // int32 below `classes`
    int64_t outputs;  // classes, values or vocabulary: the width of the last layer
} sh_net_input;

/* A name that stands for several layers: "attn" for "attn.c_attn" and "attn.c_proj". */
typedef struct sh_layer_group {
    char name[SH_LAYER_NAME];
    int last;  // the layer added last
} sh_layer_group;

struct sh_net_spec {
    sh_net_input input;
    sh_layer **layers;
    size_t layer_count, layer_capacity;
    sh_index by_name;
    sh_layer_group *groups;
    size_t group_count, group_capacity;
    sh_index groups_by_name;
    char *text;  // the model as a run file would say it, for checkpoints; NULL: not from one
};

enum { SH_NOT_FOUND = -2 };

/* Frees what the struct holds; the struct itself is the caller's. */
void sh_net_spec_fini(sh_net_spec *net);

/* Adds a layer after checking everything. `options` is a filled options struct of the kind, which
 * is copied; NULL: all defaults. `inputs` NULL: the layer before. `index_out` may be NULL; of a
 * kind that stands for several layers it is the last one's. */
sh_status sh_net_spec_add(sh_net_spec *net, const sh_layer_kind *kind, const char *name,
                          const int *inputs, int input_count, const void *options, int *index_out);
/* Index of a layer by name; SH_NOT_FOUND when there is none. "input" is SH_NET_INPUT. */
int sh_net_spec_find(const sh_net_spec *net, const char *name);
/* The same where the name may stand for several layers, of which the last is found. */
int sh_net_spec_find_group(const sh_net_spec *net, const char *name);
/* The shape of a layer's output, or of SH_NET_INPUT. */
const sh_shape *sh_net_spec_shape(const sh_net_spec *net, int index);
/* The layer added last; SH_NET_INPUT for an empty net. */
int sh_net_spec_last(const sh_net_spec *net);

/* Describes what a run file's `model:` asks for: a name, a map {name: mlp, hidden: [512]}, or a
 * list of layers. On failure there is nothing to free. */
sh_status sh_net_spec_read(const sh_node *node, const sh_net_input *input, sh_net_spec *net_out);

/* Models: one file and one row each (nn/models/list.h). */
typedef struct sh_model_kind {
    const char *name, *help;
    sh_option_table options;
    size_t options_bytes;
    sh_status (*describe)(sh_net_spec *net, const void *options);
    const char *loss;  // where the run file names none; NULL: by the targets
    /* Who learns it, unless its option `solver` is sgd (run/learner.h); NULL: gradients. */
    const char *learner;
    /* The sample a model wants when there is no data to say (shoal explain). */
    sh_net_input typical;
} sh_model_kind;

const sh_model_kind *sh_model_find(const char *name);
const sh_model_kind *sh_model_at(size_t index);
const char *sh_model_name_at(size_t index);

#endif
