/* What the layers of a net take, for cutting it into stages (pipeline_cut.h): measured on this
 * machine, or estimated from their work. Layers that the whole net computes in one op, or skips as
 * one branch, belong together: figures stand at the first of them, and a stage may begin there
 * alone, so that stages have the bits of the whole. */
#ifndef SH_PARALLEL_PIPELINE_PROFILE_H
#define SH_PARALLEL_PIPELINE_PROFILE_H

#include "base/clock.h"
#include "nn/executor.h"
#include "parallel/pipeline_cut.h"

typedef struct sh_profile_options {
    const sh_net *net;
    int64_t samples;     // of a micro-batch
    double param_bytes;  // per parameter: itself, its gradient, the optimizer's state
    // Of measurements alone:
    const sh_loss *loss;
    sh_tuner *tuner;
    const sh_clock *clock;
    sh_blocks blocks;  // weights are read; gradients and states are written
} sh_profile_options;

/* Times in multiplications and additions: good for comparing layers, not in seconds. `layers_out`
 * has one entry per layer. */
sh_status sh_profile_estimate(const sh_profile_options *options, sh_cut_layer *layers_out);
/* Runs every part of the net a few times, with values that are made up. The states change: they are
 * to be set anew. */
sh_status sh_profile_measure(const sh_profile_options *options, sh_cut_layer *layers_out);

#endif
