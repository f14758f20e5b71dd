/* A small net from run-file text with everything a step needs, for the tests of nn. Kernels are not
 * measured, so every run of a test takes the same ones. */
#ifndef SH_TESTS_NN_RIG_H
#define SH_TESTS_NN_RIG_H

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "nn/executor.h"

static int rig_threads = 2;  // of the rigs made from here on

typedef struct rig {
    sh_net *net;
    sh_tuner *tuner;
    sh_executor *executor;
    sh_arena memory;  // the executor's block
    sh_blocks blocks;
    void *x;   // floats or int32 tokens
    float *y;  // the weights of the linear loss, one per output element
    sh_step_context step;
} rig;

/* sum(prediction * target): its gradient is the target, so what a test sees is the net's own. */
static inline sh_loss_result rig_linear(const sh_loss *loss, const float *prediction,
                                        const void *target, int64_t rows, int64_t width,
                                        double scale, float *gradient) {
    (void)loss;
    const float *weight = target;
    double sum = 0;
    for (int64_t i = 0; i < rows * width; i++) {
        sum += (double)prediction[i] * (double)weight[i];
        if (gradient != NULL) gradient[i] = (float)(scale * (double)weight[i]);
    }
    return (sh_loss_result){.sum = sum, .counted = rows, .correct = -1};
}

static const sh_loss_kind rig_linear_kind = {.name = "linear", .evaluate = rig_linear};
static const sh_loss rig_linear_loss = {.kind = &rig_linear_kind};

static inline sh_net *rig_net(const char *text, sh_net_input input) {
    sh_node *node = NULL;
    sh_net *net = NULL;
    CHECK_OK(sh_node_parse("net", text, strlen(text), &node));
    CHECK_OK(sh_net_from_node(node, &input, &net));
    sh_node_destroy(node);
    return net;
}

static inline sh_tuner *rig_tuner(void) {
    sh_tuner *tuner = NULL;
    omp_set_num_threads(rig_threads);
    CHECK_OK(sh_tuner_create(
        &(sh_tuner_options){.clock = &sh_clock_real, .measure = false, .threads = rig_threads},
        &tuner));
    return tuner;
}

/* How a parameter of the net starts. */
static inline const sh_init *rig_init(const sh_net *net, size_t param) {
    for (size_t i = 0; i < net->layer_count; i++)
        for (int k = 0; k < net->layers[i]->param_count; k++)
            if (net->layers[i]->params[k] == param) return &net->layers[i]->param_specs[k].init;
    fail_msg("no layer has parameter %zu", param);
    return NULL;
}

/* Matrices scaled to keep variance, vectors (biases, norms) moved away from their special starts;
 * no layer's gradient is then zero or hidden below another's. */
static inline void rig_weights(const sh_net *net, float *weights) {
    for (size_t i = 0; i < net->params.count; i++) {
        const sh_param *p = &net->params.items[i];
        float *w = weights + p->offset;
        bool matrix = p->shape.rank > 1;
        double fan = matrix ? (double)(p->count / (size_t)p->shape.dim[0]) : 1.0;
        const sh_init *init = rig_init(net, i);
        bool norm = !matrix && init->rule == SH_INIT_CONSTANT && init->scale != 0;
        sh_test_fill(w, p->count, 100 + i);
        for (size_t j = 0; j < p->count; j++)
            w[j] = matrix ? w[j] * (float)sqrt(3.0 / fan) : 0.3f * w[j] + (norm ? 1.0f : 0.0f);
    }
}

static inline void rig_states(const sh_net *net, float *states) {
    for (size_t i = 0; i < net->layer_count; i++)
        for (int k = 0; k < net->layers[i]->state_count; k++) {
            const sh_param *state = &net->states.items[net->layers[i]->states[k]];
            sh_param_spec_init(&net->layers[i]->state_specs[k], 0, 0, state->count,
                               states + state->offset);
        }
}

static inline void rig_data(rig *r, uint64_t seed) {
    const sh_value *x = r->executor->input, *y = r->executor->output;
    sh_test_fill(r->y, y->count, seed + 1);
    sh_test_fill(r->x, x->count, seed);
    if (!x->tokens) return;
    int32_t *tokens = r->x;
    const float *unit = r->x;
    for (size_t i = 0; i < x->count; i++)
        tokens[i] = (int32_t)((unit[i] + 1) / 2 * (float)r->net->input.outputs);
}

static inline rig rig_make_with(sh_net *net, const sh_executor_options *wanted) {
    rig r = {.net = net, .tuner = rig_tuner()};
    sh_executor_options options = *wanted;
    options.tuner = r.tuner;
    if (options.loss == NULL) options.loss = &rig_linear_loss;
    CHECK_OK(sh_executor_create(r.net, &options, &r.executor));
    r.blocks.weights = sh_alloc(r.net->params.total, sizeof(float));
    size_t gradient_bytes = sh_round_up(r.net->params.total * sizeof(float), SH_ALIGN);
    r.blocks.gradients = aligned_alloc(SH_ALIGN, gradient_bytes ? gradient_bytes : SH_ALIGN);
    assert_non_null(r.blocks.gradients);
    memset(r.blocks.gradients, 0, gradient_bytes);
    r.blocks.states = sh_alloc(r.net->states.total, sizeof(float));
    r.x = sh_alloc(r.executor->input->count, sizeof(float));
    r.y = sh_alloc(r.executor->output->count, sizeof(float));
    CHECK_OK(sh_arena_init(&r.memory, "a test's executor", r.executor->memory_bytes));
    rig_weights(r.net, r.blocks.weights);
    rig_states(r.net, r.blocks.states);
    rig_data(&r, 7);
    sh_executor_bind(r.executor, &r.blocks, r.memory.base);
    r.step = (sh_step_context){.training = true, .seed = 5, .step = 3};
    return r;
}

static inline rig rig_make(const char *text, sh_net_input input, int64_t batch) {
    return rig_make_with(rig_net(text, input),
                         &(sh_executor_options){.batch = batch, .training = true});
}

static inline void rig_free(rig *r) {
    sh_executor_destroy(r->executor);
    sh_net_destroy(r->net);
    sh_tuner_destroy(r->tuner);
    sh_arena_fini(&r->memory);
    sh_free(r->blocks.weights), free(r->blocks.gradients), sh_free(r->blocks.states);
    sh_free(r->x), sh_free(r->y);
}

/* NaN in every byte: what is read before it is written shows. */
static inline void rig_poison(void *memory, size_t bytes) { memset(memory, 0xFF, bytes); }

static inline double rig_loss(rig *r) {
    CHECK_OK(sh_executor_forward(r->executor, &r->step, r->x));
    return sh_executor_loss(r->executor, r->y, 1.0).sum;
}

/* One whole step; the executor's memory is poisoned first, the gradients too unless they are added
 * to.
 */
static inline double rig_step(rig *r) {
    rig_poison(r->memory.base, r->executor->memory_bytes);
    if (!r->step.accumulate) rig_poison(r->blocks.gradients, r->net->params.total * sizeof(float));
    double loss = rig_loss(r);
    CHECK_OK(sh_executor_backward(r->executor, NULL, NULL));
    return loss;
}

static inline float *rig_copy(const float *from, size_t count) {
    float *copy = sh_alloc(count, sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, from, count * sizeof *copy);
    return copy;
}

static inline double rig_norm(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

#define RIG_IMAGE(c, h, w) ((sh_net_input){.sample = SH_SHAPE(c, h, w), .outputs = 3})
#define RIG_VECTOR(f)      ((sh_net_input){.sample = SH_SHAPE(f), .outputs = 3})
#define RIG_TOKENS(t, v)   ((sh_net_input){.sample = SH_SHAPE(t), .tokens = true, .outputs = v})

#endif
