/* A model in memory: the net, its blocks, and an executor per batch size it has met. */
#ifndef SH_RUN_MODEL_H
#define SH_RUN_MODEL_H

#include "data/dataset.h"
#include "data/loader.h"
#include "nn/executor.h"
#include "shoal/shoal.h"

enum { SH_EXECUTORS_MOST = 16 };

/* Where the gradients live, if not in memory of the model's own: in memory that peers map. */
typedef struct sh_block_source {
    sh_status (*take)(void *self, size_t bytes, void **memory_out);  // NULL: the model's own
    void *self;
} sh_block_source;

/* The worker's main task alone computes with it. Executors point into the blocks, so these move
 * only through the functions below. */
typedef struct sh_model {
    sh_net *net;
    sh_loss loss;
    sh_tuner *tuner;
    const sh_trace *trace;  // borrowed, may be NULL
    sh_blocks blocks;
    sh_arena weights, gradients;  // weights also hold the states
    float *own_weights;           // in that arena, also while blocks.weights lie elsewhere
    sh_block_source gradient_source;
    sh_arena work;  // shared by all executors
    sh_executor *executors[SH_EXECUTORS_MOST];
    int executor_count;
    bool *param_unused;            // of the executor that ran backward last
    struct sh_run_layout *layout;  // run/split.h; NULL: the net is whole
    bool gradients_idle;           // for the executors to come (nn/executor.h)
} sh_model;

/* What data of this kind gives a net, and wants of it. */
static inline sh_net_input sh_model_input(const sh_data_info *info) {
    bool values = info->target == SH_TARGET_VALUES;
    return (sh_net_input){.sample = info->sample,
                          .tokens = info->tokens,
                          .outputs = values ? info->values : info->classes};
}

/* Takes net and tuner over, also on failure. Parameters are drawn from the seed. */
sh_status sh_model_init(sh_model *model, sh_net *net, const sh_loss *loss, sh_tuner *tuner,
                        uint64_t seed);
void sh_model_fini(sh_model *model);

/* From now on the weights are those in `memory` (total floats, 64-byte aligned, borrowed until they
 * move again); NULL: the model's own again, with what is in them. Contents are not copied. */
void sh_model_place_weights(sh_model *model, float *memory);

/* The same for good: what the weights are moves along, and their old memory is given back. */
void sh_model_move_weights(sh_model *model, float *memory);

/* The same for the gradients; the model's own are given up, and NULL leaves none. */
void sh_model_place_gradients(sh_model *model, float *memory);

/* The gradient block, zeroed; training executors take it themselves. Collective where workers
 * share. */
sh_status sh_model_take_gradients(sh_model *model);

/* The executor of a batch size, made on first use; memory may move then, never later. */
sh_status sh_model_executor(sh_model *model, int64_t batch, bool training,
                            sh_executor **executor_out);

/* Forward over `count` samples, not for training; the outputs are the executor's. */
sh_status sh_model_forward(sh_model *model, uint64_t seed, const void *x, int64_t count,
                           sh_executor **executor_out);
/* The same over all batches of a loader, in their order: `visit` sees each, with the executor that
 * holds its outputs; NULL: this worker has no sample of it. */
sh_status sh_model_forward_all(sh_model *model, uint64_t seed, sh_loader *loader,
                               void (*visit)(void *user, const sh_batch *batch,
                                             sh_executor *executor),
                               void *user);
/* What sums over so many samples say of a model with this loss. */
shoal_result sh_result_of(const sh_loss *loss, double sum, double counted, double correct,
                          int64_t samples);

/* The loss of a step came out as no number: fails and names the first layer that is to blame. */
sh_status sh_model_explain_bad(const sh_model *model, sh_executor *executor,
                               const sh_step_context *step, const void *x, double loss);

/* Parameters, running statistics and what is known of the data, as one safetensors file. */
sh_status sh_model_save(const sh_model *model, const sh_data *data, const char *path);
/* What a checkpoint tells of the data its model learned from; `*has_out` false: nothing, it is an
 * older one. Caller closes. */
sh_status sh_model_known(const char *path, const sh_log *log, bool *has_out, sh_data *data_out);

/* Refuses what does not fit into this machine, before the system would kill the process. */
sh_status sh_memory_check(const char *what, size_t bytes);

#endif
