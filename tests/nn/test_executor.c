/* Executors: what shares memory does not change a bit, nothing is read before it is written, and
 * branches that are skipped leave whole gradients behind. */
#include <stdio.h>

#include "nn/rig.h"

static const char *const resnet_like =
    "[{conv: 8, padding: 1, bias: false}, batchnorm, {relu: , name: x}, {conv: 16, kernel: 1, "
    "stride: 2, bias: false, from: x}, {batchnorm: , name: short}, {conv: 16, stride: 2, padding: "
    "1, bias: false, from: x}, batchnorm, relu, {conv: 16, padding: 1, bias: false}, {batchnorm: , "
    "name: long}, {add: , from: [long, short]}, {relu: , name: y}, {conv: 16, padding: 1}, {conv: "
    "16, padding: 1}, {add: , from: [conv6, y]}, relu, globalpool, dense]";
static const char *const gpt_like =
    "[{embedding: 12, name: wte}, positions, {dropout: 0.1, name: s0}, layernorm, {attention: 3}, "
    "{dropout: 0.1, name: d0}, {add: , name: s1, from: [d0, s0]}, layernorm, {dense: 48}, gelu, "
    "{dense: 12, name: d1}, {add: , name: s2, from: [d1, s1]}, layernorm, {attention: 2}, {add: , "
    "name: s3, from: [attention2.c_proj, s2]}, layernorm, {dense: {units: 17, bias: false, tie: "
    "wte.weight}}]";
static const char *const lenet_like =
    "[{conv: 8, kernel: 5, padding: 2}, relu, {maxpool: 2}, {conv: 16, kernel: 5, padding: 2}, "
    "relu, {maxpool: 2}, flatten, {dense: 20}, relu, dropout, dense]";
static const char *const tangled =
    "[{dense: 6, name: a}, {tanh: , name: b, from: a}, {relu: , name: c, from: a}, {silu: , name: "
    "d, from: b}, {add: , name: e, from: [d, b, c]}, {sigmoid: , name: f, from: e}, {add: , name: "
    "g, from: [e, e, f, a]}, {concat: , name: h, from: [g, f, input]}, softmax, {dense: 6, name: "
    "i}, {add: , name: j, from: [a, i]}, relu, dense]";

typedef struct named_net {
    const char *text;
    sh_net_input input;
} named_net;

#define IMAGE(c, h, w) \
    { .sample = {.rank = 3, .dim = {c, h, w}}, .outputs = 3 }
#define VECTOR(f) \
    { .sample = {.rank = 1, .dim = {f}}, .outputs = 3 }
#define TOKENS(t, v) \
    { .sample = {.rank = 1, .dim = {t}}, .tokens = true, .outputs = v }

/* C strings above are not constants, so the table is filled at run time. */
static named_net net_at(size_t index) {
    const named_net nets[] = {
        {resnet_like, IMAGE(3, 9, 8)}, {gpt_like, TOKENS(11, 17)}, {lenet_like, IMAGE(1, 12, 13)},
        {tangled, VECTOR(6)},          {NULL, VECTOR(1)},
    };
    return nets[index];
}

static float *output_of(const rig *r) {
    return rig_copy(r->executor->output->data, r->executor->output->count);
}

static void check_sharing(const named_net *n, int64_t batch) {
    rig packed = rig_make(n->text, n->input, batch);
    rig apart =
        rig_make_with(rig_net(n->text, n->input),
                      &(sh_executor_options){.batch = batch, .training = true, .no_sharing = true});
    assert_true(packed.executor->memory_bytes < apart.executor->memory_bytes);
    for (int step = 0; step < 3; step++) {
        packed.step.step = apart.step.step = step;
        CHECK_OK(sh_executor_forward(packed.executor, &packed.step, packed.x));
        CHECK_OK(sh_executor_forward(apart.executor, &apart.step, apart.x));
        assert_memory_equal(packed.executor->output->data, apart.executor->output->data,
                            packed.executor->output->count * sizeof(float));
        double a = rig_step(&packed), b = rig_step(&apart);
        assert_true(a == b);
        assert_memory_equal(packed.blocks.gradients, apart.blocks.gradients,
                            packed.net->params.total * sizeof(float));
        assert_true(rig_norm(packed.blocks.gradients, packed.net->params.total) > 0.1);
    }
    assert_memory_equal(packed.blocks.states, apart.blocks.states,
                        packed.net->states.total * sizeof(float));
    rig_free(&packed);
    rig_free(&apart);
}

TEST(executor, shares_memory_without_changing_a_bit) {
    for (size_t i = 0; net_at(i).text != NULL; i++) {
        named_net n = net_at(i);
        check_sharing(&n, 1);
        check_sharing(&n, 5);
    }
}

/* rig_step poisons the block, so a NaN here is a buffer that was read before it was written. */
/* Activations that lie in gradients not yet written change nothing, and the executor needs less. */
TEST(executor, keeps_activations_in_idle_gradients_without_changing_a_bit) {
    size_t saved = 0;
    for (size_t i = 0; net_at(i).text != NULL; i++) {
        named_net n = net_at(i);
        rig own = rig_make(n.text, n.input, 3);
        rig lent = rig_make_with(
            rig_net(n.text, n.input),
            &(sh_executor_options){.batch = 3, .training = true, .gradients_idle = true});
        assert_true(lent.executor->memory_bytes <= own.executor->memory_bytes);
        saved += own.executor->memory_bytes - lent.executor->memory_bytes;
        for (int step = 0; step < 3; step++) {
            own.step.step = lent.step.step = step;
            double a = rig_step(&own), b = rig_step(&lent);
            assert_true(a == b);
            assert_memory_equal(own.blocks.gradients, lent.blocks.gradients,
                                own.net->params.total * sizeof(float));
        }
        rig_free(&own);
        rig_free(&lent);
    }
    assert_true(saved > 0);
}

TEST(executor, reads_nothing_before_it_is_written) {
    for (size_t i = 0; net_at(i).text != NULL; i++) {
        named_net n = net_at(i);
        rig r = rig_make(n.text, n.input, 3);
        assert_true(isfinite(rig_step(&r)));
        for (size_t k = 0; k < r.net->params.total; k++)
            assert_true(isfinite((double)r.blocks.gradients[k]));
        rig_free(&r);
    }
}

TEST(executor, gives_the_same_results_for_a_smaller_last_batch_in_the_same_memory) {
    for (size_t i = 0; net_at(i).text != NULL; i++) {
        named_net n = net_at(i);
        rig full = rig_make(n.text, n.input, 6), alone = rig_make(n.text, n.input, 2);
        sh_executor *last = NULL;
        sh_executor_options options = {
            .batch = 2, .training = true, .loss = &rig_linear_loss, .tuner = full.tuner};
        CHECK_OK(sh_executor_create(full.net, &options, &last));
        assert_true(last->memory_bytes <= full.executor->memory_bytes);
        sh_executor_bind(last, &full.blocks, full.memory.base);
        rig_step(&full);  // leaves its traces in the memory
        rig_step(&alone);
        CHECK_OK(sh_executor_forward(last, &alone.step, alone.x));
        sh_executor_loss(last, alone.y, 1.0);
        CHECK_OK(sh_executor_backward(last, NULL, NULL));
        assert_memory_equal(full.blocks.gradients, alone.blocks.gradients,
                            full.net->params.total * sizeof(float));
        rig_step(&full);  // and the full executor still works
        assert_true(rig_norm(full.blocks.gradients, full.net->params.total) > 0.1);
        sh_executor_destroy(last);
        rig_free(&full);
        rig_free(&alone);
    }
}

TEST(executor, for_evaluation_agrees_with_training_and_takes_less_memory) {
    for (size_t i = 0; net_at(i).text != NULL; i++) {
        named_net n = net_at(i);
        rig train = rig_make(n.text, n.input, 3);
        rig eval = rig_make_with(rig_net(n.text, n.input),
                                 &(sh_executor_options){.batch = 3, .training = false});
        train.step.training = eval.step.training = false;
        rig_poison(eval.memory.base, eval.executor->memory_bytes);
        assert_true(eval.executor->memory_bytes < train.executor->memory_bytes);
        CHECK_OK(sh_executor_forward(train.executor, &train.step, train.x));
        float *x = output_of(&train);
        double a = rig_loss(&train), b = rig_loss(&eval);
        assert_true(isfinite(a));
        float *y = output_of(&eval);
        CHECK_CLOSE(x, y, train.executor->output->count, 1e-6);
        assert_true(fabs(a - b) < 1e-4);
        sh_free(x), sh_free(y);
        rig_free(&train);
        rig_free(&eval);
    }
}

static bool lives_meet(const sh_value *a, const sh_value *b) {
    const char *x = a->data, *y = b->data;
    return x < y + b->count * sizeof(float) && y < x + a->count * sizeof(float);
}

TEST(executor, lets_an_element_wise_layer_work_in_place_and_flatten_cost_nothing) {
    rig r =
        rig_make("[{conv: 8}, tanh, {conv: 8}, flatten, sigmoid, dense]", RIG_IMAGE(2, 7, 7), 2);
    for (size_t i = 0; i < r.executor->op_count; i++) {
        const sh_op *op = r.executor->ops[i];
        if (strcmp(op->kind->name, "sigmoid") == 0 || strcmp(op->kind->name, "flatten") == 0)
            assert_ptr_equal(op->in[0]->data, op->out->data);
        if (strcmp(op->kind->name, "conv") == 0 && op->in[0]->data_class >= 0)
            assert_false(lives_meet(op->in[0], op->out));
    }
    rig_free(&r);
}

TEST(executor, lets_the_loss_write_its_gradient_over_an_output_that_backward_does_not_read) {
    rig plain = rig_make("[{dense: 6}, gelu, dense]", RIG_VECTOR(4), 3);
    rig read = rig_make("[{dense: 6}, gelu, dense, tanh]", RIG_VECTOR(4), 3);
    assert_ptr_equal(plain.executor->output->grad, plain.executor->output->data);
    assert_ptr_not_equal(read.executor->output->grad, read.executor->output->data);
    rig_free(&plain);
    rig_free(&read);
}

TEST(executor, names_the_first_layer_whose_output_is_not_finite) {
    rig r = rig_make("[{dense: 6}, tanh, {dense: 5, name: broken}, {dense: 4}, dense]",
                     RIG_VECTOR(4), 3);
    assert_null(sh_executor_first_bad(r.executor, &r.step, r.x));
    const sh_param *weight = sh_param_list_find(&r.net->params, "broken.weight");
    r.blocks.weights[weight->offset + 3] = INFINITY;
    const sh_op *bad = sh_executor_first_bad(r.executor, &r.step, r.x);
    assert_non_null(bad);
    assert_string_equal(sh_op_name(bad), "broken");
    rig_free(&r);
}

/* A relu that turned NaN into 0 would hide a net that broke. */
TEST(executor, shows_what_is_not_a_number_through_an_absorbed_relu) {
    for (int64_t batch = 1; batch < 40; batch += 19) {
        rig r = rig_make("[{dense: 37, name: a}, relu, dense]", RIG_VECTOR(4), batch);
        r.blocks.weights[sh_param_list_find(&r.net->params, "a.weight")->offset] = NAN;
        const sh_op *bad = sh_executor_first_bad(r.executor, &r.step, r.x);
        assert_non_null(bad);
        assert_string_equal(sh_op_name(bad), "a");
        rig_free(&r);
    }
}

TEST(executor, refuses_a_layer_that_nothing_uses) {
    sh_net *net = rig_net("[{dense: 6, name: a}, {dense: 5, name: lost}, {dense: 4, from: a}]",
                          RIG_VECTOR(4));
    sh_tuner *tuner = rig_tuner();
    sh_executor *executor = NULL;
    sh_executor_options options = {.batch = 2, .training = true, .tuner = tuner};
    CHECK_FAILS(SH_E_USAGE, "nothing uses the output of layer 'lost'",
                sh_executor_create(net, &options, &executor));
    assert_null(executor);
    sh_net_destroy(net);
    sh_tuner_destroy(tuner);
}

TEST(executor, refuses_a_net_without_layers_and_an_absurd_batch) {
    sh_net *net = NULL;
    sh_net_input input = RIG_VECTOR(1 << 20);
    sh_tuner *tuner = rig_tuner();
    sh_executor *executor = NULL;
    sh_executor_options options = {.batch = (int64_t)1 << 40, .training = true, .tuner = tuner};
    CHECK_OK(sh_net_build(&(sh_net_spec){.input = input}, &net));
    CHECK_FAILS(SH_E_USAGE, "no layers", sh_executor_create(net, &options, &executor));
    sh_net_destroy(net);
    net = rig_net("[relu]", input);
    CHECK_FAILS(SH_E_SHAPE, "too large", sh_executor_create(net, &options, &executor));
    sh_net_destroy(net);
    sh_tuner_destroy(tuner);
}

TEST(executor, runs_nets_without_parameters_and_of_a_mere_reshape) {
    const char *const texts[] = {"[flatten]", "[relu, {maxpool: 2}]", "[flatten, softmax]"};
    for (size_t i = 0; i < SH_COUNT(texts); i++) {
        rig r = rig_make(texts[i], RIG_IMAGE(2, 4, 4), 3);
        assert_true(isfinite(rig_step(&r)));
        rig_free(&r);
    }
}

/* What on_grad_ready heard. */
typedef struct heard {
    size_t order[64], count;
} heard;

static void hear(void *user, size_t param) {
    heard *h = user;
    assert_true(h->count < 64);
    h->order[h->count++] = param;
}

TEST(executor, reports_each_gradient_once_and_tied_ones_after_their_last_writer) {
    rig r = rig_make(gpt_like, (sh_net_input)TOKENS(11, 17), 2);
    heard h = {.count = 0};
    rig_loss(&r);
    CHECK_OK(sh_executor_backward(r.executor, hear, &h));
    assert_int_equal(h.count, r.net->params.count);
    for (size_t i = 0; i < h.count; i++)
        for (size_t k = 0; k < i; k++) assert_int_not_equal(h.order[i], h.order[k]);
    assert_string_equal(r.net->params.items[h.order[h.count - 1]].name, "wte.weight");
    rig_free(&r);
}

TEST(executor, allocates_nothing_while_it_runs) {
    rig r = rig_make(resnet_like, (sh_net_input)IMAGE(3, 9, 8), 4);
    rig_step(&r);
    uint64_t before = sh_alloc_calls();
    for (int i = 0; i < 5; i++) rig_step(&r);
    assert_int_equal(sh_alloc_calls(), before);
    rig_free(&r);
}

/* ---- Steps that nobody wants any more ---- */

static bool count_down(void *left) { return (*(int *)left)-- <= 0; }

TEST(executor, a_step_that_stops_leaves_the_rest_out_and_the_next_one_is_whole) {
    named_net n = net_at(2);
    rig whole = rig_make(n.text, n.input, 3), broken = rig_make(n.text, n.input, 3);
    int ops = (int)whole.executor->op_count;
    for (int at = 0; at < 2 * ops; at++) {
        int left = at;
        sh_step_context step = broken.step;
        step.stops = count_down;
        step.stops_self = &left;
        CHECK_OK(sh_executor_forward(broken.executor, &step, broken.x));
        assert_true(broken.executor->stopped == (at < ops));
        if (at < ops) continue;
        sh_executor_loss(broken.executor, broken.y, 1);
        CHECK_OK(sh_executor_backward(broken.executor, NULL, NULL));
        assert_true(broken.executor->stopped);
    }
    assert_true(rig_step(&broken) == rig_step(&whole));
    assert_false(broken.executor->stopped);
    assert_memory_equal(broken.blocks.gradients, whole.blocks.gradients,
                        whole.net->params.total * sizeof(float));
    rig_free(&whole);
    rig_free(&broken);
}
