/* Shorthand for models: layers by printf-style names and options. */
#ifndef SH_NN_MODELS_COMMON_H
#define SH_NN_MODELS_COMMON_H

#include "nn/net.h"

/* Adds a layer after `input` (SH_AFTER: the one before) with options as run-file text ("" or
 * "{units: 10}"). On failure sets *status (unless it is set already) and does nothing more, so that
 * a model reads as a list of layers with one check at the end. Returns the layer's index. */
enum { SH_AFTER = -3 };
int sh_model_layer(sh_net *net, sh_status *status, const char *kind, const char *name, int input,
                   const char *format, ...) __attribute__((format(printf, 6, 7)));
/* add of two layers. */
int sh_model_add(sh_net *net, sh_status *status, const char *name, int a, int b);

#endif
