/* The net: a static DAG of layers over one parameter block, built from its description (nn/spec.h).
 * Batch sizes and memory come later, in an executor. */
#ifndef SH_NN_NET_H
#define SH_NN_NET_H

#include "nn/spec.h"

typedef struct sh_net {
    sh_net_input input;
    sh_layer **layers;
    size_t layer_count;
    int first, last;  // it holds the parameters of layers [first, last)
    sh_param_list params, states;
    char *text;  // as in sh_net_spec
} sh_net;

/* Gives every parameter and state of the described layers its place in a block. Takes the layers
 * over, also when it fails: `spec` is empty afterwards. */
sh_status sh_net_build(sh_net_spec *spec, sh_net **net_out);
/* The same, of which only layers [first, last) hold parameters: one stage of a pipeline. A
 * parameter that is tied to a layer outside is held as well; its copies in several ranges are one
 * parameter, whose gradient is the sum of theirs. */
sh_status sh_net_build_range(sh_net_spec *spec, int first, int last, sh_net **net_out);
/* sh_net_spec_read and sh_net_build in one. */
sh_status sh_net_from_node(const sh_node *node, const sh_net_input *input, sh_net **net_out);
void sh_net_destroy(sh_net *net);

/* The shape of what the last layer gives. */
const sh_shape *sh_net_output(const sh_net *net);

/* Draws the parameters and sets the states; both blocks have the lists' sizes. */
void sh_net_init(const sh_net *net, uint64_t seed, float *weights, float *states);
/* Elements [first, first + count) of a parameter or state at the start of training. */
void sh_param_spec_init(const sh_param_spec *spec, uint64_t seed, size_t first, size_t count,
                        float *values_out);

#endif
