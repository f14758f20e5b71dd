/* The net: a static DAG of layers over one parameter block. Layers are added in order; each takes
 * earlier layers as inputs, so the list is already a topological order. Batch sizes and memory come
 * later, in a plan. */
#ifndef SH_NN_NET_H
#define SH_NN_NET_H

#include "nn/layer.h"

/* What the data gives and the loss wants, without the batch dimension. */
typedef struct sh_net_input {
    sh_shape sample;  // (C, H, W), (F) or (T)
    bool tokens;      // int32 below `classes`
    int64_t outputs;  // classes, values or vocabulary: the width of the last layer
} sh_net_input;

struct sh_net {
    sh_net_input input;
    sh_layer **layers;
    size_t layer_count, layer_capacity;
    sh_param_list params, states;
    sh_init *inits;         // one per parameter
    float *state_initials;  // one per state
    size_t init_capacity, state_capacity;
    char *text;  // the model as a run file would say it, for checkpoints
};

sh_status sh_net_create(const sh_net_input *input, sh_net **net_out);
void sh_net_destroy(sh_net *net);

/* Adds a layer after checking everything. `options` is a filled options struct of the kind (taken
 * over bit by bit; NULL: all defaults). `inputs` NULL: the layer before. Returns its index. */
sh_status sh_net_add(sh_net *net, const char *kind, const char *name, const int *inputs,
                     int input_count, const void *options, int *index_out);
/* The same with options as a run file would say them: "{units: 10, bias: false}". */
sh_status sh_net_add_text(sh_net *net, const char *kind_name, const char *name, const int *inputs,
                          int input_count, const char *text);
/* Index of a layer by name; -2 when there is none. "input" is SH_NET_INPUT. */
int sh_net_find(const sh_net *net, const char *name);
const sh_shape *sh_net_shape(const sh_net *net, int index);
/* The layer added last; SH_NET_INPUT for an empty net. */
int sh_net_last(const sh_net *net);

/* Draws the parameters and sets the states; both blocks have the lists' sizes. */
void sh_net_init(const sh_net *net, uint64_t seed, float *weights, float *states);

/* From a run file's `model:`: a name, a map {name: mlp, hidden: [512]}, or a list of layers. */
sh_status sh_net_from_node(const sh_node *node, const sh_net_input *input, sh_net **net_out);

/* Models: one file and one row each (nn/models/list.h). */
typedef struct sh_model_kind {
    const char *name, *help;
    sh_option_table options;
    size_t options_bytes;
    sh_status (*build)(sh_net *net, const void *options);
    /* The sample a model wants when there is no data to say (shoal explain). */
    sh_net_input typical;
} sh_model_kind;

const sh_model_kind *sh_model_find(const char *name);
const sh_model_kind *sh_model_at(size_t index);
const char *sh_model_name_at(size_t index);

#endif
