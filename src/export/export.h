/* Models that leave: a trained net as C source without dependencies (export_c.c), for devices on
 * which nothing of Shoal runs, or as an ONNX file (export_onnx.c), for other programs.
 *
 * Both compute what evaluation computes: normalisation of the input first, then every layer in
 * order; dropout and dropped paths do nothing. Each layer that can leave is a row of
 * export_c_layers.c and export_onnx_layers.c; others are refused by name. */
#ifndef SH_EXPORT_EXPORT_H
#define SH_EXPORT_EXPORT_H

#include "data/dataset.h"
#include "nn/net.h"

/* A trained net. Everything is borrowed. */
typedef struct sh_trained {
    const sh_net *net;
    const float *weights,
        *states;  // parameters; running statistics: one block each, as net->params lays out
    const sh_normal *normal;  // count 0: the input is taken as it is
} sh_trained;

/* Writes `path`, which ends in ".c", and the header beside it. `name` begins the names of what the
 * source defines: a C identifier. */
sh_status sh_export_c(const sh_trained *trained, const char *name, const char *path);
/* Writes an ONNX file of operator set 17. */
sh_status sh_export_onnx(const sh_trained *trained, const char *name, const char *path);

/* Fails where a parameter or a running statistic is not finite, and names it. */
sh_status sh_export_check(const sh_trained *trained);

/* The layer whose output this layer's output is, unchanged at inference: itself, unless it only
 * renames the shape or drops values in training. SH_NET_INPUT for the input. */
int sh_export_source_of(const sh_net *net, int layer);

/* Batch normalisation at inference is y = x scale + shift for each channel. Arrays of `channels`.
 */
void sh_export_fold_batchnorm(const sh_trained *trained, const sh_layer *layer, float *scale_out,
                              float *shift_out);

#endif
