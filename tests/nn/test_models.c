/* The models: sizes and names as their papers and PyTorch have them, and a step of each. */
#include <stdio.h>

#include "nn/rig.h"

static sh_net *model(const char *text, sh_net_input input) { return rig_net(text, input); }

static sh_net_input typical(const char *name) { return sh_model_find(name)->typical; }

static void check_count(const char *text, sh_net_input input, size_t wanted) {
    sh_net *net = model(text, input);
    if (net->params.total != wanted)
        fail_msg("%s has %zu parameters, not %zu", text, net->params.total, wanted);
    sh_net_destroy(net);
}

TEST(models, have_the_published_numbers_of_parameters) {
    sh_net_input digits = {.sample = SH_SHAPE(1, 28, 28), .outputs = 10};
    sh_net_input flat = {.sample = SH_SHAPE(784), .outputs = 10};
    sh_net_input cifar = {.sample = SH_SHAPE(3, 32, 32), .outputs = 10};
    sh_net_input imagenet = {.sample = SH_SHAPE(3, 224, 224), .outputs = 1000};
    check_count("logistic", digits, 7850);
    check_count("{name: mlp, hidden: [200, 200]}", flat, 199210);
    check_count("{name: mlp, hidden: [200, 200]}", digits, 199210);
    check_count("lenet", digits, 3274634);
    check_count("{name: lenet, hidden: 512}", digits, 1663370);
    check_count("resnet18", cifar, 11173962);
    check_count("resnet18", imagenet, 11689512);
    check_count("resnet34", imagenet, 21797672);
    check_count("resnet50", imagenet, 25557032);
    check_count("alexnet", imagenet, 61100840);
    check_count("vgg11", imagenet, 132863336);
    check_count("gpt2", typical("gpt2"), 124439808);
}

static void check_names(const char *text, sh_net_input input, const char *const *names) {
    sh_net *net = model(text, input);
    for (; *names != NULL; names++)
        if (sh_param_list_find(&net->params, *names) == NULL) fail_msg("%s lacks %s", text, *names);
    sh_net_destroy(net);
}

TEST(models, name_parameters_as_torchvision_and_nanogpt_do) {
    check_names("resnet18", typical("resnet18"),
                (const char *const[]){"conv1.weight", "bn1.weight", "layer1.0.conv1.weight",
                                      "layer2.0.downsample.0.weight", "layer2.0.downsample.1.bias",
                                      "layer4.1.bn2.bias", "fc.weight", "fc.bias", NULL});
    check_names("resnet50", typical("resnet50"),
                (const char *const[]){"layer1.0.conv3.weight", "layer1.0.downsample.0.weight",
                                      "layer3.5.bn3.weight", NULL});
    check_names(
        "{name: gpt, layers: 2, heads: 2, width: 8}", typical("gpt"),
        (const char *const[]){"transformer.wte.weight", "transformer.wpe.weight",
                              "transformer.h.0.ln_1.weight", "transformer.h.0.attn.c_attn.weight",
                              "transformer.h.0.attn.c_proj.bias", "transformer.h.1.mlp.c_fc.weight",
                              "transformer.h.1.mlp.c_proj.bias", "transformer.ln_f.bias", NULL});
}

TEST(models, keep_batchnorm_statistics_as_state) {
    sh_net *net = model("resnet18", typical("resnet18"));
    assert_non_null(sh_param_list_find(&net->states, "layer1.0.bn1.running_mean"));
    assert_non_null(sh_param_list_find(&net->states, "layer2.0.downsample.1.running_var"));
    assert_null(sh_param_list_find(&net->params, "bn1.running_mean"));
    sh_net_destroy(net);
}

TEST(models, all_build_at_their_typical_input) {
    for (size_t i = 0; sh_model_at(i) != NULL; i++) {
        const sh_model_kind *kind = sh_model_at(i);
        sh_net *net = model(kind->name, kind->typical);
        assert_true(net->params.total > 0);
        const sh_shape *out = sh_net_output(net);
        assert_int_equal(out->dim[out->rank - 1], kind->typical.outputs);
        sh_net_destroy(net);
    }
}

/* Small enough for a step in a test, large enough to go through every layer of the model. */
typedef struct small_model {
    const char *name, *text;
    sh_net_input input;
    bool same_in_eval;  // no dropout and no batchnorm
} small_model;

#define IMAGE(c, h, w) \
    { .sample = {.rank = 3, .dim = {c, h, w}}, .outputs = 4 }
#define TOKENS(t, v) \
    { .sample = {.rank = 1, .dim = {t}}, .tokens = true, .outputs = v }

static const small_model small[] = {
    {"linear", "linear", {.sample = {.rank = 1, .dim = {13}}, .outputs = 2}, true},
    {"logistic", "logistic", IMAGE(1, 6, 6), true},
    {"l2svm", "l2svm", IMAGE(1, 6, 6), true},
    {"svm", "{name: svm, vectors: 7, gamma: 0.1}", IMAGE(1, 6, 6), true},
    {"svm", "{name: svm, vectors: 7, experts: 3, kernel: linear}", IMAGE(1, 6, 6), true},
    {"kmeans", "{name: kmeans, k: 4}", IMAGE(1, 6, 6), true},
    {"mlp", "{name: mlp, hidden: [9, 8]}", IMAGE(1, 6, 6), true},
    {"mlp", "{name: mlp, hidden: [19], activation: silu, dropout: 0.5}", IMAGE(1, 6, 6), false},
    {"lenet", "{name: lenet, hidden: 16}", IMAGE(1, 12, 12), true},
    {"alexnet", "alexnet", IMAGE(3, 63, 63), false},
    {"vgg11", "vgg11", IMAGE(3, 32, 32), false},
    {"resnet18", "{name: resnet18, zero_init: true}", IMAGE(3, 9, 9), false},
    {"resnet18", "{name: resnet18, droppath: 0.5}", IMAGE(3, 65, 64), false},
    {"resnet34", "resnet34", IMAGE(3, 12, 11), false},
    {"resnet50", "resnet50", IMAGE(3, 12, 11), false},
    {"gpt", "{name: gpt, layers: 2, heads: 2, width: 12}", TOKENS(7, 11), true},
    {"gpt", "{name: gpt, layers: 1, heads: 3, width: 12, dropout: 0.2, tied: false, bias: false}",
     TOKENS(7, 11), false},
    {"gpt2", "{name: gpt2, layers: 1, heads: 2, width: 8, vocabulary: 19}", TOKENS(7, 11), true},
};

TEST(models, all_have_a_small_version_in_this_test) {
    for (size_t i = 0; sh_model_at(i) != NULL; i++) {
        bool found = false;
        for (size_t k = 0; k < SH_COUNT(small); k++)
            found = found || strcmp(small[k].name, sh_model_name_at(i)) == 0;
        if (!found) fail_msg("no small version of model '%s'", sh_model_name_at(i));
    }
}

static sh_loss loss_of(const char *name) {
    return (sh_loss){.kind = sh_loss_find(name), .options = {.ignore_index = -100, .delta = 1}};
}

static void set_labels(rig *r, int64_t classes) {
    const sh_value *y = r->executor->output;
    int32_t *labels = (int32_t *)r->y;
    size_t rows = y->count / (size_t)y->shape.dim[y->shape.rank - 1];
    for (size_t i = 0; i < rows; i++) labels[i] = (int32_t)(i * 7 % (size_t)classes);
}

/* Cross-entropy on fixed labels; a small step against the gradient lowers it by the step's length
 * times the gradient's. Some bend sharply, some have gradients so long that short steps drown
 * in the weights' last bits, hence the tries. */
static void check_step(const small_model *m) {
    sh_loss loss = loss_of("cross-entropy");
    rig r = rig_make_with(model(m->text, m->input),
                          &(sh_executor_options){.batch = 3, .training = true, .loss = &loss});
    set_labels(&r, m->input.outputs);
    size_t total = r.net->params.total;
    double before = rig_step(&r), norm = rig_norm(r.blocks.gradients, total);
    assert_true(isfinite(before));
    assert_true(norm > 1e-3);
    float *kept = rig_copy(r.blocks.weights, total);
    double ratio = 0;
    for (double fall = 0.1; fall > 1e-3 && fabs(ratio - 1) > 0.1; fall /= 4) {
        double h = fall / (norm * norm);
        for (size_t i = 0; i < total; i++)
            r.blocks.weights[i] = kept[i] - (float)h * r.blocks.gradients[i];
        ratio = (before - rig_loss(&r)) / fall;
    }
    if (!(fabs(ratio - 1) < 0.1)) fail_msg("%s: falls by %.3g of its slope", m->text, ratio);
    sh_free(kept);
    rig_free(&r);
}

TEST(models, all_take_a_step_that_lowers_the_loss_as_far_as_it_should) {
    for (size_t i = 0; i < SH_COUNT(small); i++) check_step(&small[i]);
}

TEST(models, without_dropout_and_batchnorm_say_the_same_in_evaluation) {
    for (size_t i = 0; i < SH_COUNT(small); i++) {
        const small_model *m = &small[i];
        if (!m->same_in_eval) continue;
        rig train = rig_make(m->text, m->input, 3);
        rig eval = rig_make_with(model(m->text, m->input),
                                 &(sh_executor_options){.batch = 3, .training = false});
        eval.step.training = false;
        rig_poison(eval.memory.base, eval.executor->memory_bytes);
        CHECK_OK(sh_executor_forward(train.executor, &train.step, train.x));
        CHECK_OK(sh_executor_forward(eval.executor, &eval.step, eval.x));
        CHECK_CLOSE((float *)train.executor->output->data, (float *)eval.executor->output->data,
                    train.executor->output->count, 1e-6);
        rig_free(&train);
        rig_free(&eval);
    }
}

static double deviation(const sh_net *net, const float *weights, const char *name) {
    const sh_param *p = sh_param_list_find(&net->params, name);
    assert_non_null(p);
    return rig_norm(weights + p->offset, p->count) / sqrt((double)p->count);
}

TEST(models, start_as_their_papers_say) {
    sh_net *lenet = model("lenet", typical("lenet"));
    sh_net *gpt = model("{name: gpt, layers: 8, heads: 2, width: 64}", typical("gpt"));
    sh_net *vgg = model("vgg11", typical("resnet18"));
    sh_net *nets[] = {lenet, gpt, vgg};
    float *w[3];
    for (int i = 0; i < 3; i++) {
        w[i] = sh_alloc(nets[i]->params.total, sizeof(float));
        sh_net_init(nets[i], 3, w[i], NULL);
    }
    assert_true(fabs(deviation(lenet, w[0], "conv2.weight") / sqrt(2.0 / 2400) - 1) < 0.02);
    assert_true(fabs(deviation(lenet, w[0], "fc1.weight") / sqrt(2.0 / 4160) - 1) < 0.02);
    assert_true(deviation(lenet, w[0], "fc1.bias") == 0);
    assert_true(fabs(deviation(vgg, w[2], "conv3.weight") / sqrt(2.0 / 1152) - 1) < 0.02);
    assert_true(fabs(deviation(lenet, w[0], "fc2.weight") / sqrt(2.0 / 1034) - 1) < 0.05);
    assert_true(fabs(deviation(gpt, w[1], "transformer.wte.weight") / 0.02 - 1) < 0.05);
    assert_true(fabs(deviation(gpt, w[1], "transformer.h.3.attn.c_attn.weight") / 0.02 - 1) < 0.05);
    assert_true(fabs(deviation(gpt, w[1], "transformer.h.3.mlp.c_proj.weight") / 0.005 - 1) < 0.05);
    assert_true(deviation(gpt, w[1], "transformer.h.3.attn.c_attn.bias") == 0);
    assert_true(deviation(gpt, w[1], "transformer.ln_f.weight") == 1);
    for (int i = 0; i < 3; i++) sh_free(w[i]), sh_net_destroy(nets[i]);
}

TEST(models, start_alike_from_a_seed_at_any_thread_count) {
    sh_net *net = model("{name: mlp, hidden: [50, 40]}", typical("mlp"));
    size_t total = net->params.total;
    float *a = sh_alloc(total, sizeof *a), *b = sh_alloc(total, sizeof *b);
    omp_set_num_threads(1);
    sh_net_init(net, 4, a, NULL);
    omp_set_num_threads(3);
    sh_net_init(net, 4, b, NULL);
    assert_memory_equal(a, b, total * sizeof *a);
    sh_net_init(net, 5, b, NULL);
    assert_memory_not_equal(a, b, total * sizeof *a);
    sh_free(a), sh_free(b);
    sh_net_destroy(net);
}

TEST(models, refuse_data_they_cannot_take) {
    sh_net *net = NULL;
    sh_node *node = NULL;
    sh_net_input vector = {.sample = SH_SHAPE(9), .outputs = 3};
    sh_net_input tiny = {.sample = SH_SHAPE(3, 16, 16), .outputs = 3};
    CHECK_OK(sh_node_parse("run.yaml", "resnet18", 8, &node));
    CHECK_FAILS(SH_E_SHAPE, "images", sh_net_from_node(node, &vector, &net));
    sh_node_destroy(node);
    CHECK_OK(sh_node_parse("run.yaml", "alexnet", 7, &node));
    CHECK_FAILS(SH_E_SHAPE, "run.yaml:1:1", sh_net_from_node(node, &tiny, &net));
    sh_node_destroy(node);
}
