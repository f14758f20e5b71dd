/* Helpers of model files: each adds one layer, and after a failure does nothing more, so that a
 * model reads as a list of layers with one check at the end. */
#ifndef SH_NN_MODELS_COMMON_H
#define SH_NN_MODELS_COMMON_H

#include "nn/layers/options.h"
#include "nn/spec.h"

enum { SH_AFTER = -3 };  // apart from SH_NET_INPUT (-1) and SH_NOT_FOUND (-2)

/* Adds a layer after `input` (SH_AFTER: the one before) and returns its index. `options` as in
 * sh_net_spec_add; the name is a printf format. On failure sets *status; where that is set already,
 * does nothing. */
int sh_model_layer(sh_net_spec *net, sh_status *status, const sh_layer_kind *kind, int input,
                   const void *options, const char *name, ...)
    __attribute__((format(printf, 6, 7)));
/* The sum of two layers. */
int sh_model_add(sh_net_spec *net, sh_status *status, int a, int b, const char *name, ...)
    __attribute__((format(printf, 5, 6)));

#endif
