/* Rules with an optimizer on the server (Reddi et al. 2021): the mean update is a gradient with its
 * sign turned. fedavgm has momentum; fedadagrad, fedadam and fedyogi also a second moment, each
 * combining it in its own way:
 *
 *   m = beta1 m + (1 - beta1) d        x += lr m / (sqrt(v) + tau)
 *   fedadagrad v += d^2 · fedadam v = beta2 v + (1 - beta2) d^2
 *   fedyogi    v -= (1 - beta2) d^2 sign(v - d^2) */
#include <math.h>

#include "fed/rule.h"

/* Running statistics of batchnorm are averages, not parameters: they take the whole mean update,
 * without learning rate or moments. */
static void move_states(const sh_fed_closing *closing) {
    for (size_t i = closing->params; i < closing->count; i++) closing->model[i] += closing->mean[i];
}

/* FedAvgM (Hsu et al. 2019): v = beta1 v + d, x += lr v. */
static void apply_momentum(const sh_fed_rule_options *options, const sh_fed_closing *closing) {
    const float beta = (float)options->beta1, lr = (float)options->lr;
    float *velocity = closing->slots[0];
    for (size_t i = 0; i < closing->params; i++) {
        velocity[i] = beta * velocity[i] + closing->mean[i];
        closing->model[i] += lr * velocity[i];
    }
    move_states(closing);
}

const sh_fed_rule sh_fed_rule_fedavgm = {
    .name = "fedavgm",
    .help = "fedavg with momentum on the server",
    .lr = 1,
    .slots = 1,
    .apply = apply_momentum,
};

/* How the second moment v follows from its old value and d^2; the only difference of the three
 * rules. */
typedef float (*second_moment)(float v, float square, float beta2);

/* tau bounds the step where v is small (the paper's adaptivity); without bias correction, as in the
 * paper. slots[0] is m, slots[1] is v, (params) each, kept over rounds. */
static void apply_adaptive(const sh_fed_rule_options *options, const sh_fed_closing *closing,
                           second_moment next) {
    const float beta1 = (float)options->beta1, beta2 = (float)options->beta2;
    const float lr = (float)options->lr, tau = (float)options->tau;
    float *m = closing->slots[0], *v = closing->slots[1];
    for (size_t i = 0; i < closing->params; i++) {
        float d = closing->mean[i];
        m[i] = beta1 * m[i] + (1 - beta1) * d;
        v[i] = next(v[i], d * d, beta2);
        closing->model[i] += lr * m[i] / (sqrtf(v[i]) + tau);
    }
    move_states(closing);
}

/* Adagrad: v only grows, so that steps shrink with the rounds. */
static float add_square(float v, float square, float beta2) {
    (void)beta2;
    return v + square;
}

/* Adam: an exponential mean of d^2. */
static float decay_square(float v, float square, float beta2) {
    return beta2 * v + (1 - beta2) * square;
}

/* Yogi: v moves towards d^2 by a bounded amount, so that one large update does not raise it at
 * once. */
static float approach_square(float v, float square, float beta2) {
    float sign = v > square ? 1.0f : v < square ? -1.0f : 0.0f;
    return v - (1 - beta2) * square * sign;
}

static void apply_adagrad(const sh_fed_rule_options *options, const sh_fed_closing *closing) {
    apply_adaptive(options, closing, add_square);
}

static void apply_adam(const sh_fed_rule_options *options, const sh_fed_closing *closing) {
    apply_adaptive(options, closing, decay_square);
}

static void apply_yogi(const sh_fed_rule_options *options, const sh_fed_closing *closing) {
    apply_adaptive(options, closing, approach_square);
}

/* A learning rate of 0.01 on the server, as parameters move by about lr per round, whatever the
 * size of updates. */
const sh_fed_rule sh_fed_rule_fedadagrad = {
    .name = "fedadagrad",
    .help = "Adagrad on the server",
    .lr = 0.01,
    .slots = 2,
    .apply = apply_adagrad,
};

const sh_fed_rule sh_fed_rule_fedadam = {
    .name = "fedadam",
    .help = "Adam on the server",
    .lr = 0.01,
    .slots = 2,
    .apply = apply_adam,
};

const sh_fed_rule sh_fed_rule_fedyogi = {
    .name = "fedyogi",
    .help = "Yogi on the server",
    .lr = 0.01,
    .slots = 2,
    .apply = apply_yogi,
};
