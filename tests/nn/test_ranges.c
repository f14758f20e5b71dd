/* Executors of ranges of layers: a net cut into stages, with several micro-batches in flight, gives
 * the gradients, losses and running statistics of the whole net, bit for bit. */
#include "nn/rig.h"

static const char *const resnet_like =
    "[{conv: 8, padding: 1, bias: false}, batchnorm, {relu: , name: x}, {conv: 16, kernel: 1, "
    "stride: 2, bias: false, from: x}, {batchnorm: , name: short}, {conv: 16, stride: 2, padding: "
    "1, bias: false, from: x}, batchnorm, relu, {conv: 16, padding: 1, bias: false}, {batchnorm: , "
    "name: long}, {add: , from: [long, short]}, {relu: , name: y}, {maxpool: 2}, globalpool, "
    "dense]";
static const char *const gpt_like =
    "[{embedding: 12, name: wte}, positions, {dropout: 0.1, name: s0}, layernorm, {attention: 3}, "
    "{add: , name: s1, from: [attention1.c_proj, s0]}, layernorm, {dense: 48}, gelu, {dense: 12, "
    "name: d1}, {add: , name: s2, from: [d1, s1]}, layernorm, {dense: {units: 17, bias: false, "
    "tie: wte.weight}}]";

enum { MICRO = 3, BATCH = 2, STAGES_MOST = 3 };

/* Stage s has layers [cut[s], cut[s + 1]); every micro-batch has an executor per stage. */
typedef struct pipeline {
    rig *whole;
    int stages, cut[STAGES_MOST + 1];
    sh_executor *part[STAGES_MOST][MICRO];
    sh_arena memory[STAGES_MOST][MICRO];
    sh_blocks blocks;
    float *gradients[STAGES_MOST];  // of a tied weight every stage has its own
    sh_tuner *tuner;
    double loss[MICRO];
} pipeline;

static pipeline pipeline_make(rig *whole, const int *cut, int stages) {
    pipeline p = {.whole = whole, .stages = stages, .tuner = rig_tuner()};
    memcpy(p.cut, cut, (size_t)(stages + 1) * sizeof *cut);
    size_t total = whole->net->params.total;
    p.blocks.weights = rig_copy(whole->blocks.weights, total);
    p.blocks.states = sh_alloc(whole->net->states.total, sizeof(float));
    rig_states(whole->net, p.blocks.states);
    for (int s = 0; s < stages; s++) {
        p.blocks.gradients = p.gradients[s] = sh_alloc(total, sizeof(float));
        for (int m = 0; m < MICRO; m++) {
            sh_executor_options options = {.batch = BATCH,
                                           .training = true,
                                           .loss = &rig_linear_loss,
                                           .tuner = p.tuner,
                                           .first = cut[s],
                                           .last = cut[s + 1],
                                           .input_gradients = s > 0};
            CHECK_OK(sh_executor_create(whole->net, &options, &p.part[s][m]));
            CHECK_OK(sh_arena_init(&p.memory[s][m], "stage", p.part[s][m]->memory_bytes + 64));
            rig_poison(p.memory[s][m].base, p.part[s][m]->memory_bytes);
            sh_executor_bind(p.part[s][m], &p.blocks, p.memory[s][m].base);
        }
    }
    return p;
}

static void pipeline_free(pipeline *p) {
    for (int s = 0; s < p->stages; s++) {
        for (int m = 0; m < MICRO; m++) {
            sh_executor_destroy(p->part[s][m]);
            sh_arena_fini(&p->memory[s][m]);
        }
        sh_free(p->gradients[s]);
    }
    sh_free(p->blocks.weights), sh_free(p->blocks.states);
    sh_tuner_destroy(p->tuner);
}

static const void *data_of(const rig *r, int m) {
    size_t count = r->executor->input->count;
    return (const char *)r->x + (size_t)m * count * sizeof(float);
}

static void check_border(const sh_port *above, const sh_port *below, size_t count) {
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(above[i].layer, below[i].layer);
        assert_int_equal(above[i].value->block, below[i].value->block);
        assert_int_equal(above[i].value->count, below[i].value->count);
        if (above[i].layer == SH_NET_INPUT) continue;
        assert_true(!above[i].value->needs_grad || below[i].value->needs_grad);
    }
}

static void forward(pipeline *p, int s, int m) {
    sh_executor *e = p->part[s][m];
    const void *inputs[8] = {data_of(p->whole, m)};
    if (s > 0) {
        const sh_executor *before = p->part[s - 1][m];
        assert_int_equal(e->inputs.count, before->outputs.count);
        check_border(before->outputs.items, e->inputs.items, e->inputs.count);
        for (size_t i = 0; i < e->inputs.count; i++)
            inputs[i] = before->outputs.items[i].value->data;
    }
    sh_step_context step = p->whole->step;
    step.position = (uint64_t)(m * BATCH);
    CHECK_OK(sh_executor_forward_range(e, &step, inputs));
}

static void backward(pipeline *p, int s, int m) {
    sh_executor *e = p->part[s][m];
    if (s == p->stages - 1)
        p->loss[m] =
            sh_executor_loss(e, p->whole->y + (size_t)m * p->whole->executor->output->count, 1.0)
                .sum;
    for (size_t i = 0; s < p->stages - 1 && i < e->outputs.count; i++) {
        sh_value *to = e->outputs.items[i].value, *from = p->part[s + 1][m]->inputs.items[i].value;
        if (to->grad != NULL) memcpy(to->grad, from->grad, to->count * sizeof(float));
    }
    e->step.accumulate = m > 0;
    CHECK_OK(sh_executor_backward(e, NULL, NULL));
}

/* Micro-batches one after another through one executor of the whole net. */
static void whole_step(rig *r, double *loss_out) {
    for (int m = 0; m < MICRO; m++) {
        sh_step_context step = r->step;
        step.position = (uint64_t)(m * BATCH);
        step.accumulate = m > 0;
        CHECK_OK(sh_executor_forward(r->executor, &step, data_of(r, m)));
        loss_out[m] =
            sh_executor_loss(r->executor, r->y + (size_t)m * r->executor->output->count, 1.0).sum;
        CHECK_OK(sh_executor_backward(r->executor, NULL, NULL));
    }
}

/* All forward before all backward, or each stage's backward as early as one-forward-one-backward
 * has it: stage s holds up to stages - s micro-batches. */
static void run_stages(pipeline *p, bool early) {
    int ahead[STAGES_MOST], done[STAGES_MOST] = {0}, begun[STAGES_MOST] = {0};
    for (int s = 0; s < p->stages; s++) ahead[s] = early ? p->stages - s : MICRO;
    while (done[0] < MICRO)
        for (int s = 0; s < p->stages; s++) {
            bool arrived = s == 0 || begun[s - 1] > begun[s];
            if (begun[s] < MICRO && arrived && begun[s] - done[s] < ahead[s])
                forward(p, s, begun[s]++);
            bool returned = s == p->stages - 1 ? begun[s] > done[s] : done[s + 1] > done[s];
            if (returned && (early || begun[s] == MICRO)) backward(p, s, done[s]++);
        }
}

/* Data for all micro-batches. */
static void widen(rig *r) {
    size_t x = r->executor->input->count, y = r->executor->output->count;
    r->x = realloc(r->x, MICRO * x * sizeof(float));
    r->y = realloc(r->y, MICRO * y * sizeof(float));
    sh_test_fill(r->y, MICRO * y, 8);
    sh_test_fill(r->x, MICRO * x, 7);
    int32_t *tokens = r->x;
    const float *unit = r->x;
    for (size_t i = 0; r->executor->input->tokens && i < MICRO * x; i++)
        tokens[i] = (int32_t)((unit[i] + 1) / 2 * (float)r->net->input.outputs);
}

static bool is_exact(const rig *r, const int *cut, int stages) {
    bool all = true, exact = true;
    for (int s = 1; s < stages; s++) {
        CHECK_OK(sh_net_cut_is_exact(r->net, cut[s], &exact));
        all = all && exact;
    }
    return all;
}

/* Gradients of tied weights are summed over the stages, in another order than in the whole. */
static void check_gradients(const pipeline *p, bool exact) {
    const sh_param_list *params = &p->whole->net->params;
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *param = &params->items[i];
        const float *whole = p->whole->blocks.gradients + param->offset;
        float *sum = p->gradients[0] + param->offset;
        for (int s = 1; s < p->stages; s++)
            for (size_t k = 0; k < param->count; k++) sum[k] += p->gradients[s][param->offset + k];
        if (exact && strcmp(param->name, "wte.weight") != 0)
            assert_memory_equal(whole, sum, param->count * sizeof(float));
        CHECK_CLOSE(whole, sum, param->count, 1e-5);
    }
}

static void check_cut(const char *text, sh_net_input input, const int *cut, int stages,
                      bool early) {
    rig whole = rig_make(text, input, BATCH);
    widen(&whole);
    double loss[MICRO];
    pipeline p = pipeline_make(&whole, cut, stages);
    whole_step(&whole, loss);
    run_stages(&p, early);
    size_t total = whole.net->params.total;
    assert_true(rig_norm(whole.blocks.gradients, total) > 0.1);
    bool exact = is_exact(&whole, cut, stages);
    check_gradients(&p, exact);
    if (exact) {
        for (int m = 0; m < MICRO; m++) assert_true(loss[m] == p.loss[m]);
        assert_memory_equal(whole.blocks.states, p.blocks.states,
                            whole.net->states.total * sizeof(float));
    }
    pipeline_free(&p);
    rig_free(&whole);
}

/* Every cut into two, and many into three. */
static void check_cuts(const char *text, sh_net_input input) {
    sh_net *net = rig_net(text, input);
    int layers = (int)net->layer_count;
    sh_net_destroy(net);
    for (int a = 1; a < layers; a++) {
        check_cut(text, input, (int[]){0, a, layers}, 2, a % 2 == 0);
        if (a + 2 < layers) check_cut(text, input, (int[]){0, a, a + 2, layers}, 3, a % 2 == 1);
    }
}

TEST(ranges, of_a_net_with_skip_connections_give_the_bits_of_the_whole) {
    check_cuts(resnet_like, RIG_IMAGE(3, 9, 8));
}

TEST(ranges, of_a_net_with_tied_weights_and_dropout_give_the_bits_of_the_whole) {
    check_cuts(gpt_like, RIG_TOKENS(11, 17));
}

TEST(ranges, a_cut_through_a_dropped_branch_or_a_kept_slope_is_not_exact) {
    bool exact;
    sh_net *net = rig_net(
        "[{dense: 4, name: a}, {dense: 4}, gelu, {dense: 4}, droppath, {add: , "
        "from: [droppath1, a]}, dense]",
        RIG_VECTOR(4));
    const bool expected[] = {true, true, false, false, false, true, true};
    for (int cut = 1; cut < 7; cut++) {
        CHECK_OK(sh_net_cut_is_exact(net, cut, &exact));
        assert_int_equal(exact, expected[cut]);
    }
    sh_net_destroy(net);
}

/* The gradient of the data itself, against finite differences. */
TEST(ranges, hand_out_the_gradient_of_the_data) {
    rig r = rig_make_with(
        rig_net("[{conv: 8, padding: 1}, tanh, flatten, {dense: 5}, gelu, dense]",
                RIG_IMAGE(2, 5, 4)),
        &(sh_executor_options){.batch = 2, .training = true, .input_gradients = true});
    rig_step(&r);
    size_t count = r.executor->input->count;
    float *gradient = rig_copy(r.executor->input->grad, count), *x = r.x;
    for (size_t i = 0; i < count; i += 7) {
        float kept = x[i], step = 1e-2f;
        x[i] = kept + step;
        double above = rig_loss(&r);
        x[i] = kept - step;
        double below = rig_loss(&r);
        x[i] = kept;
        assert_true(fabs((above - below) / (2 * (double)step) - (double)gradient[i]) < 2e-3);
    }
    sh_free(gradient);
    rig_free(&r);
}

/* A stage's net holds the parameters of its layers alone, and draws them like the whole. */
TEST(ranges, a_net_of_a_range_holds_and_draws_its_own_parameters) {
    sh_net_input input = RIG_TOKENS(11, 17);
    rig whole = rig_make(gpt_like, input, BATCH);
    sh_net_init(whole.net, 5, whole.blocks.weights, whole.blocks.states);
    int layers = (int)whole.net->layer_count;
    for (int cut = 1; cut < layers; cut++) {
        sh_node *node = NULL;
        sh_net_spec spec;
        sh_net *upper = NULL;
        CHECK_OK(sh_node_parse("net", gpt_like, strlen(gpt_like), &node));
        CHECK_OK(sh_net_spec_read(node, &input, &spec));
        sh_node_destroy(node);
        CHECK_OK(sh_net_build_range(&spec, cut, layers, &upper));
        float *weights = sh_alloc(upper->params.total, sizeof *weights);
        sh_net_init(upper, 5, weights, NULL);
        assert_true(upper->params.total <= whole.net->params.total);
        assert_non_null(sh_param_list_find(&upper->params, "wte.weight"));  // tied to the head
        for (size_t i = 0; i < upper->params.count; i++) {
            const sh_param *own = &upper->params.items[i];
            const sh_param *same = sh_param_list_find(&whole.net->params, own->name);
            assert_non_null(same);
            assert_memory_equal(weights + own->offset, whole.blocks.weights + same->offset,
                                own->count * sizeof(float));
        }
        sh_free(weights);
        sh_net_destroy(upper);
    }
    rig_free(&whole);
}
