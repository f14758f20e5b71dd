/* A model in memory: the net, its blocks, and a plan per batch size it has met. */
#ifndef SH_TRAIN_MODEL_H
#define SH_TRAIN_MODEL_H

#include "nn/plan.h"

enum { SH_PLANS_MOST = 16 };

typedef struct sh_model {
    sh_net *net;
    sh_loss loss;
    sh_tuner *tuner;
    const sh_trace *trace;  // borrowed, may be NULL
    sh_blocks blocks;
    sh_arena weights, gradients;  // weights also hold the states
    sh_arena work;                // shared by all plans
    sh_plan *plans[SH_PLANS_MOST];
    int plan_count;
    sh_plan *current;  // that ran backward last
} sh_model;

/* Takes net and tuner over, also on failure. Parameters are drawn from the seed. */
sh_status sh_model_init(sh_model *model, sh_net *net, const sh_loss *loss, sh_tuner *tuner,
                        uint64_t seed);
void sh_model_fini(sh_model *model);

/* The plan of a batch size, made on first use; memory may move then, never later. */
sh_status sh_model_plan(sh_model *model, int64_t batch, bool training, sh_plan **plan_out);

/* Takes the block of the gradients, if there is none yet. */
sh_status sh_model_gradients(sh_model *model);

/* Refuses what does not fit into this machine, before the system would kill the process. */
sh_status sh_memory_check(const char *what, size_t bytes);

#endif
