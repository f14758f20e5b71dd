/* Inside of a shoal_model, for the files of this folder whose functions take one (model.c,
 * generate.c). Callers of the library see only the name. */
#ifndef SH_API_MODEL_H
#define SH_API_MODEL_H

#include "optim/optim.h"
#include "run/model.h"
#include "shoal/tools.h"

struct shoal_model {
    sh_model model;  // net, loss, blocks and executors
    sh_optim optim;
    sh_data data;        // description of samples and targets; no part of it is open
    float *scaled;       // normalised copy of the caller's samples; NULL until one is needed; owned
    size_t scaled_room;  // floats that there is memory for
    uint64_t seed;       // of initial parameters and dropout
    int64_t step;        // training steps so far
};

#endif
