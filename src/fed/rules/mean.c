/* Rules that move the model x by the weighted mean of the updates d_i = trained - received:
 *
 *   fedavg, fedprox    x += lr sum w_i d_i / sum w_i          w_i: samples of client i
 *   fednova            x += lr tau sum w_i (d_i / tau_i) / sum w_i
 *                      tau_i: steps of client i, tau: their weighted mean
 *   scaffold           x += lr mean(d_i),  c += share mean(dc_i)
 *   fedbuff            as fedavg, over K updates of any age, w_i = 1 / sqrt(1 + age)
 *
 * Divisions by steps (`per_step`) and weights (`equal_weights`) happen where updates are summed
 * (server_take.c). */
#include "fed/rule.h"

/* FedAvg (McMahan et al. 2017): the mean of the clients' models, weighted by their samples. */
const sh_fed_rule sh_fed_rule_fedavg = {
    .name = "fedavg",
    .help = "mean of the clients' models, weighted by their samples",
    .lr = 1,
    .apply = sh_fed_apply_mean,
};

/* FedProx (Li et al. 2020): clients minimise their loss + amount / 2 |w - received|^2. */
const sh_fed_rule sh_fed_rule_fedprox = {
    .name = "fedprox",
    .help = "fedavg; clients are pulled to the received model",
    .amount = "the strength of the pull",
    .amount_initial = 0.01,
    .amount_most = 1000,
    .lr = 1,
    .proximal = true,
    .apply = sh_fed_apply_mean,
};

/* FedNova (Wang et al. 2020): the mean of the change per step, times the mean of the steps, so that
 * who takes more steps does not pull the model to another optimum. */
static void apply_nova(const sh_fed_rule_options *options, const sh_fed_closing *closing) {
    const float lr = (float)(options->lr * closing->steps);
    for (size_t i = 0; i < closing->params; i++) closing->model[i] += lr * closing->mean[i];
    for (size_t i = closing->params; i < closing->count; i++) closing->model[i] += closing->mean[i];
}

const sh_fed_rule sh_fed_rule_fednova = {
    .name = "fednova",
    .help = "mean change per local step, times the mean number of steps",
    .lr = 1,
    .per_step = true,
    .apply = apply_nova,
};

/* SCAFFOLD (Karimireddy et al. 2020), option II: x += lr mean(dx), c += |S| / N mean(dc). The
 * control variates c are the model's second vector. */
static void apply_scaffold(const sh_fed_rule_options *options, const sh_fed_closing *closing) {
    const float share = (float)closing->share;
    sh_fed_apply_mean(options, closing);
    const float *change = closing->mean + closing->count;
    float *control = closing->model + closing->count;
    for (size_t i = 0; i < closing->params; i++) control[i] += share * change[i];
}

const sh_fed_rule sh_fed_rule_scaffold = {
    .name = "scaffold",
    .help = "control variates correct each client's drift; twice the bytes",
    .lr = 1,
    .controls = true,
    .equal_weights = true,
    .apply = apply_scaffold,
};

/* FedBuff (Nguyen et al. 2022): a new model after every `amount` updates, whatever model they
 * started from; an update that is s models old has weight 1 / sqrt(1 + s). */
const sh_fed_rule sh_fed_rule_fedbuff = {
    .name = "fedbuff",
    .help = "asynchronous: a new model after every K updates of any age",
    .amount = "the number of updates",
    .amount_initial = 10,
    .amount_least = 1,
    .amount_most = 100000,
    .lr = 1,
    .equal_weights = true,
    .buffered = true,
    .apply = sh_fed_apply_mean,
};
