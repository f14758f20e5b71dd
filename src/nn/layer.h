/* Layers: one file and one row each (nn/layers/list.h). A layer is a node of the static DAG; it is
 * described first (nn/spec.h: shapes and declared parameters), gets its place in the parameter
 * block when the net is built (nn/net.h), and is compiled to an op, which knows kernels and
 * buffers, once per batch size (nn/executor.h). The layers of `nn` compute only;
 * kinds that exchange values with other workers live in parallel/, and whoever wants them puts them
 * into a described net. */
#ifndef SH_NN_LAYER_H
#define SH_NN_LAYER_H

#include "base/option.h"
#include "base/rng.h"
#include "nn/param.h"

enum { SH_INPUTS_MOST = 8, SH_LAYER_PARAMS_MOST = 4, SH_LAYER_NAME = 64, SH_NET_INPUT = -1 };

typedef struct sh_net_spec sh_net_spec;
typedef struct sh_op sh_op;
typedef struct sh_builder sh_builder;
typedef struct sh_layer_kind sh_layer_kind;

/* How a parameter starts. The papers' rules; element i of the parameter is a function of the seed,
 * the parameter's name and i. */
typedef enum sh_init_rule {
    SH_INIT_CONSTANT,  // scale
    SH_INIT_NORMAL,    // standard deviation = scale
    SH_INIT_HE,        // normal, sqrt(2 / fan_in) (He et al. 2015)
    SH_INIT_XAVIER,    // uniform, sqrt(6 / (fan_in + fan_out)) (Glorot, Bengio 2010)
} sh_init_rule;

typedef struct sh_init {
    sh_init_rule rule;
    double scale;
    int64_t fan_in, fan_out;
} sh_init;

/* A parameter, or an untrained state, as a layer declares it. */
typedef struct sh_param_spec {
    char name[SH_PARAM_NAME];  // "conv1.weight"
    sh_shape shape;
    bool decays;  // as in sh_param
    bool tied;    // the parameter of this name that an earlier layer declares
    sh_init init;
    sh_slice slice;  // of a split parameter, which starts as that part of the whole
} sh_param_spec;

typedef struct sh_layer {
    const sh_layer_kind *kind;
    char name[SH_LAYER_NAME];
    int index;                   // in the net
    uint64_t stream;             // names its random streams: a function of the layer's name
    int inputs[SH_INPUTS_MOST];  // layer indices, SH_NET_INPUT for the data
    int input_count;
    sh_shape in[SH_INPUTS_MOST], out;  // without the batch dimension
    sh_slice slice;                    // of a split output: random draws are by the whole's element
    void *options;                     // kind->options_bytes, or NULL
    sh_param_spec param_specs[SH_LAYER_PARAMS_MOST], state_specs[SH_LAYER_PARAMS_MOST];
    int param_count, state_count;
    double flops;  // of one sample's forward pass

    // Set when the net is built:
    size_t params[SH_LAYER_PARAMS_MOST];  // indices into net->params
    size_t states[SH_LAYER_PARAMS_MOST];  // indices into net->states
} sh_layer;

/* What makes a kind one that communicates: forward and backward only start its exchange, and these
 * wait for it and complete the result. Between the two other ops run, with `progress` called after
 * each. While its exchange is under way such an op uses no scratch; `saved` is its own. */
typedef struct sh_layer_exchange {
    sh_status (*finish_forward)(sh_op *op);
    sh_status (*finish_backward)(sh_op *op);
    void (*progress)(sh_op *op);
} sh_layer_exchange;

struct sh_layer_kind {
    const char *name, *help;
    sh_option_table options;
    size_t options_bytes;
    const char *main_option;  // `- dense: 10` sets this one; NULL: none
    int inputs_least, inputs_most;

    /* Checks the input shapes, sets layer->out and layer->flops, declares parameters. `net` holds
     * the layers before this one. */
    sh_status (*declare)(const sh_net_spec *net, sh_layer *layer);
    /* Adds the layers this one stands for instead of itself (attention with its projections). */
    sh_status (*expand)(sh_net_spec *net, const char *name, const int *inputs, int input_count,
                        const void *options);

    /* Creates kernels and says what it needs (nn/executor.h). NULL: nothing to prepare. */
    sh_status (*build)(sh_op *op, sh_builder *builder);
    void (*begin)(sh_op *op);  // at the start of a step, before any forward; NULL: nothing
    /* What computes cannot fail; what exchanges values with other workers can. */
    sh_status (*forward)(sh_op *op);
    sh_status (*backward)(sh_op *op);
    const sh_layer_exchange *exchange;  // of kinds that communicate; NULL: it computes
    void (*destroy)(sh_op *op);
    const char *(*describe)(const sh_op *op);  // the kernels chosen, for explain; NULL: plain

    bool takes_tokens;  // reads int32 tokens; every other layer reads floats
    bool in_place;      // forward may write over input 0, backward over the output's gradient
    bool reshapes;      // forward and backward only rename the shape: output and input share memory
    bool drops_branch;  // skips the ops that only it reads; its kernel is one bool: skipped now
    bool fuses_relu;    // a following relu can be absorbed (op->relu)
    bool fuses_activation;  // a following layer with `activation` likewise (op->activation)
    bool applies_slopes;    // backward multiplies dx[0] by what op->slopes_from keeps
    bool adds_dx;           // backward adds to dx[0] where dx_added[0] says so
    /* The activation that this layer is, whose slope can be kept in the place of its input; NULL:
     * none. */
    const struct sh_activation_row *(*activation)(const sh_layer *layer);
};

const sh_layer_kind *sh_layer_find(const char *name);  // NULL: unknown
const sh_layer_kind *sh_layer_at(size_t index);        // NULL: past the end
const char *sh_layer_name_at(size_t index);            // for option choices and sh_nearest

/* For declare functions: a parameter `LAYER.name`; untrained state likewise. */
sh_status sh_layer_param(sh_layer *layer, const char *name, sh_shape shape, bool decays,
                         sh_init init);
sh_status sh_layer_state(sh_layer *layer, const char *name, sh_shape shape, float initial);
/* Uses the parameter `full_name` of an earlier layer of `net` instead of one's own. */
sh_status sh_layer_share(const sh_net_spec *net, sh_layer *layer, const char *full_name,
                         sh_shape shape);

#endif
