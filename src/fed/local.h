/* What a client does with its data in a round: some steps of the run's own optimizer from the
 * received model on, by the code that every run trains with. */
#ifndef SH_FED_LOCAL_H
#define SH_FED_LOCAL_H

#include "run/run.h"

typedef struct sh_fed_local_options {
    int64_t epochs;  // over the client's data
    int64_t steps;   // instead, unless 0
    uint64_t round;  // from 1; with `client` it keys the order of samples and all other draws
    uint64_t client;
    bool head_only;               // of the parameters only those of the last layer that has any
    double proximal;              // pull to the received model (fedprox); 0: none
    const float *server_control;  // scaffold: the server's control variates, behind its model,
    const float *own_control;     // and the client's (params); NULL: none
} sh_fed_local_options;

typedef struct sh_fed_trained {
    uint64_t samples;  // of the client
    int64_t steps;
    double effective_steps;  // as fednova counts them
    double loss;             // mean over the samples of all steps
} sh_fed_trained;

/* Elements of a federated vector: the run's parameters, then its running statistics. */
static inline size_t sh_fed_count(const shoal_run *run) {
    return run->model.net->params.total + run->model.net->states.total;
}

/* Makes optimizer and schedule of a run that trains in rounds; the schedule counts rounds. */
sh_status sh_fed_local_prepare(shoal_run *run, int64_t rounds);
/* The run's model becomes `model`, a federated vector; and the other way round. */
void sh_fed_local_set(shoal_run *run, const float *model);
void sh_fed_local_get(const shoal_run *run, float *model_out);
/* Trains the run's model, which was set to `model`, on `data`. `update_out` gets what changed, and
 * behind it, with control variates, how the client's own are to change. */
sh_status sh_fed_local_train(shoal_run *run, const sh_dataset *data,
                             const sh_fed_local_options *options, const float *model,
                             float *update_out, sh_fed_trained *trained_out);

#endif
