/* What a shoal_model is made of, for the functions of this folder that take one. */
#ifndef SH_API_MODEL_H
#define SH_API_MODEL_H

#include "optim/optim.h"
#include "run/model.h"
#include "shoal/tools.h"

struct shoal_model {
    sh_model model;
    sh_optim optim;
    sh_data data;   // what it learns from; no part of it is open
    float *scaled;  // samples, where they are normalised here
    size_t scaled_room;
    uint64_t seed;
    int64_t step;
};

#endif
