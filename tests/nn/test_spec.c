/* Nets from run files: what a list of layers means, and what its mistakes are told. */
#include <stdio.h>
#include <sys/resource.h>

#include "nn/layers/options.h"
#include "nn/rig.h"

static sh_status build(const char *text, sh_net_input input, sh_net **net_out) {
    sh_node *node = NULL;
    SH_TRY(sh_node_parse("run.yaml", text, strlen(text), &node));
    sh_status status = sh_net_from_node(node, &input, net_out);
    sh_node_destroy(node);
    return status;
}

static void refuse(const char *text, sh_net_input input, sh_status code, const char *part,
                   const char *hint) {
    sh_net *net = NULL;
    CHECK_FAILS(code, part, build(text, input, &net));
    assert_null(net);
    if (hint != NULL && strstr(sh_error_last()->hint, hint) == NULL)
        fail_msg("hint \"%s\" lacks \"%s\"", sh_error_last()->hint, hint);
}

static void check_layer(const sh_net *net, size_t index, const char *name, const char *kind,
                        sh_shape out) {
    assert_true(index < net->layer_count);
    assert_string_equal(net->layers[index]->name, name);
    assert_string_equal(net->layers[index]->kind->name, kind);
    assert_true(sh_shape_equal(&net->layers[index]->out, &out));
}

TEST(spec, numbers_layers_without_names_by_kind) {
    sh_net *net = rig_net(
        "- {conv: 4, padding: 1}\n- relu\n- conv: 6\n- relu:\n- maxpool: 2\n"
        "- flatten\n- dense: {units: 7, bias: false}\n- dense\n",
        RIG_IMAGE(2, 8, 8));
    assert_int_equal(net->layer_count, 8);
    check_layer(net, 0, "conv1", "conv", SH_SHAPE(4, 8, 8));
    check_layer(net, 1, "relu1", "relu", SH_SHAPE(4, 8, 8));
    check_layer(net, 2, "conv2", "conv", SH_SHAPE(6, 6, 6));
    check_layer(net, 3, "relu2", "relu", SH_SHAPE(6, 6, 6));
    check_layer(net, 4, "maxpool1", "maxpool", SH_SHAPE(6, 3, 3));
    check_layer(net, 5, "flatten1", "flatten", SH_SHAPE(54));
    check_layer(net, 6, "dense1", "dense", SH_SHAPE(7));
    check_layer(net, 7, "dense2", "dense", SH_SHAPE(3));  // what the data asks for
    assert_int_equal(net->params.count, 4 + 1 + 2);
    sh_net_destroy(net);
}

TEST(spec, joins_branches_by_name) {
    sh_net *net = rig_net(
        "- {name: a, dense: 5}\n- {dense: 5, name: b}\n"
        "- {add: , from: [a, b], name: c}\n- {dense: 4, from: a}\n"
        "- {concat: , from: [dense1, c, input]}\n",
        RIG_VECTOR(6));
    assert_int_equal(net->layers[2]->input_count, 2);
    assert_int_equal(net->layers[2]->inputs[0], 0);
    assert_int_equal(net->layers[2]->inputs[1], 1);
    assert_int_equal(net->layers[3]->inputs[0], 0);
    assert_int_equal(net->layers[4]->inputs[2], SH_NET_INPUT);
    check_layer(net, 4, "concat1", "concat", SH_SHAPE(4 + 5 + 6));
    sh_net_destroy(net);
}

TEST(spec, lets_from_name_an_attention_by_its_own_name) {
    sh_net *net = rig_net(
        "[{embedding: 6, name: e}, {attention: 2, name: look}, {attention: 3}, "
        "{add: , from: [look, attention1, e]}]",
        RIG_TOKENS(5, 7));
    const sh_layer *add = net->layers[net->layer_count - 1];
    assert_string_equal(net->layers[add->inputs[0]]->name, "look.c_proj");
    assert_string_equal(net->layers[add->inputs[1]]->name, "attention1.c_proj");
    sh_net_destroy(net);
}

TEST(spec, builds_models_by_name_and_by_map) {
    sh_net *a = rig_net("mlp", RIG_IMAGE(1, 28, 28));
    sh_net *b = rig_net("{name: mlp, hidden: [20, 30, 40], activation: gelu}", RIG_VECTOR(9));
    assert_non_null(sh_param_list_find(&a->params, "fc3.weight"));
    assert_non_null(sh_param_list_find(&b->params, "fc4.weight"));
    check_layer(b, 5, "gelu3", "gelu", SH_SHAPE(40));
    sh_net_destroy(a);
    sh_net_destroy(b);
}

/* The text goes into checkpoints: it must read back to the same net. */
TEST(spec, keeps_a_text_that_builds_the_same_net) {
    const char *branched =
        "[{conv: 4, name: a}, relu, {conv: {channels: 4, padding: 1}}, "
        "{add: , from: [conv1, a]}, flatten, dense]";
    const char *const texts[] = {"lenet", "{name: mlp, hidden: [20, 30]}", branched};
    for (size_t i = 0; i < SH_COUNT(texts); i++) {
        sh_net *net = rig_net(texts[i], RIG_IMAGE(1, 12, 12)), *again = NULL;
        CHECK_OK(build(net->text, RIG_IMAGE(1, 12, 12), &again));
        assert_int_equal(net->layer_count, again->layer_count);
        assert_int_equal(net->params.total, again->params.total);
        for (size_t k = 0; k < net->layer_count; k++)
            assert_string_equal(net->layers[k]->name, again->layers[k]->name);
        sh_net_destroy(net);
        sh_net_destroy(again);
    }
}

TEST(spec, names_the_place_and_the_nearest_layer) {
    refuse("- dense: 4\n- relo\n", RIG_VECTOR(4), SH_E_USAGE, "run.yaml:2:3: there is no layer",
           "'relu'");
    refuse("- {name: x, convv: 4}\n", RIG_IMAGE(1, 8, 8), SH_E_USAGE, "there is no layer 'convv'",
           "'conv'");
    refuse("- {convv: 4, name: x}\n", RIG_IMAGE(1, 8, 8), SH_E_USAGE, "run.yaml:1:4:", "'conv'");
    refuse("resnet19\n", RIG_IMAGE(3, 32, 32), SH_E_USAGE, "run.yaml:1:1: there is no model",
           "resnet");
    refuse("{name: lenett}\n", RIG_IMAGE(3, 32, 32), SH_E_USAGE, "no model 'lenett'", "'lenet'");
}

TEST(spec, names_the_place_of_a_wrong_option) {
    refuse("- dense: 4\n- {dense: 4, bais: false}\n", RIG_VECTOR(4), SH_E_USAGE, "run.yaml:2:14",
           "bias");
    refuse("- dense: {unitz: 4}\n", RIG_VECTOR(4), SH_E_USAGE, "run.yaml:1:11", "units");
    refuse("- relu: 3\n", RIG_VECTOR(4), SH_E_USAGE, "run.yaml:1:3: layer 'relu' takes no value",
           NULL);
    refuse("- dense: many\n", RIG_VECTOR(4), SH_E_USAGE, "run.yaml:1:3", NULL);
    refuse("- dense: -1\n", RIG_VECTOR(4), SH_E_USAGE, "run.yaml:1:3", NULL);
    refuse("- dense: [4, 5]\n", RIG_VECTOR(4), SH_E_USAGE, "run.yaml:1:3", NULL);
    refuse("- {dense: 4, name: [a]}\n", RIG_VECTOR(4), SH_E_USAGE, "'name' wants", NULL);
    refuse("{name: mlp, hiden: [3]}\n", RIG_VECTOR(4), SH_E_USAGE, "run.yaml:1:13", "hidden");
    refuse("- {dropout: 1.5}\n", RIG_VECTOR(4), SH_E_USAGE, "run.yaml:1:4", NULL);
}

TEST(spec, names_the_layer_and_the_shape_that_does_not_fit) {
    refuse("- conv: 4\n- dense: 3\n", RIG_IMAGE(1, 8, 8), SH_E_SHAPE, "run.yaml:2:3", NULL);
    refuse("- conv: 4\n- dense: 3\n", RIG_IMAGE(1, 8, 8), SH_E_SHAPE, "found 4x6x6", NULL);
    refuse("- dense: 4\n- conv: 3\n", RIG_VECTOR(4), SH_E_SHAPE, "layer 'conv1' (conv) wants",
           NULL);
    refuse("- {conv: 4, kernel: 9}\n", RIG_IMAGE(1, 8, 8), SH_E_SHAPE, "as large as its kernel",
           NULL);
    refuse("- {conv: 4, groups: 3}\n", RIG_IMAGE(3, 8, 8), SH_E_SHAPE, "divisible by 3 groups",
           NULL);
    refuse("- {maxpool: 3, padding: 2}\n", RIG_IMAGE(3, 8, 8), SH_E_SHAPE, "padding", NULL);
    refuse("- {name: a, dense: 4}\n- dense: 5\n- {add: , from: [a, dense1]}\n", RIG_VECTOR(4),
           SH_E_SHAPE, "run.yaml:3:4: layer 'add1' (add) cannot add 4 and 5", NULL);
    refuse("- embedding: 8\n- attention: 3\n", RIG_TOKENS(5, 7), SH_E_SHAPE, "run.yaml:2:3", NULL);
    refuse("- embedding: 8\n", RIG_VECTOR(5), SH_E_SHAPE, "tokens", NULL);
    refuse("- dense: 8\n", RIG_TOKENS(5, 7), SH_E_SHAPE, "cannot read tokens", NULL);
    refuse("- {embedding: 8, name: e}\n- {concat: , from: [e, input]}\n", RIG_TOKENS(5, 7),
           SH_E_SHAPE, "run.yaml:2:4", NULL);
    refuse("- {embedding: {width: 8, vocabulary: 3}}\n", RIG_TOKENS(5, 7), SH_E_SHAPE, "3 rows",
           NULL);
    refuse("gpt\n", RIG_VECTOR(5), SH_E_USAGE, "run.yaml:1:1: a GPT wants text", NULL);
}

TEST(spec, checks_branches) {
    refuse("- {name: first, dense: 4}\n- {dense: 4, from: frist}\n", RIG_VECTOR(4), SH_E_USAGE,
           "run.yaml:2:14: there is no layer 'frist' before this one", "'first'");
    refuse("- {dense: 4, from: later}\n- {name: later, dense: 4}\n", RIG_VECTOR(4), SH_E_USAGE,
           "no layer 'later' before", NULL);
    refuse("- {dense: 4, name: self, from: self}\n", RIG_VECTOR(4), SH_E_USAGE, "'self'", NULL);
    refuse("- {dense: 4, name: a}\n- {add: , from: a}\n", RIG_VECTOR(4), SH_E_USAGE,
           "takes 2 to 8 inputs, found 1", NULL);
    refuse("- {dense: 4, name: a}\n- {relu: , from: [a, a]}\n", RIG_VECTOR(4), SH_E_USAGE,
           "takes 1 to 1 inputs, found 2", NULL);
    refuse("- {dense: 4, name: a}\n- {add: , from: [a, a, a, a, a, a, a, a, a]}\n", RIG_VECTOR(4),
           SH_E_USAGE, "at most 8 inputs", NULL);
    refuse("- {dense: 4, name: a}\n- {add: , from: []}\n", RIG_VECTOR(4), SH_E_USAGE, "found 0",
           NULL);
    refuse("- {dense: 4, name: a}\n- {dense: 4, from: {a: b}}\n", RIG_VECTOR(4), SH_E_USAGE,
           "'from' wants layer names", NULL);
}

TEST(spec, refuses_names_that_clash_or_do_not_fit) {
    refuse("- {dense: 4, name: a}\n- {dense: 4, name: a}\n", RIG_VECTOR(4), SH_E_USAGE,
           "run.yaml:2:4: two layers are called 'a'", NULL);
    refuse("- {dense: 4, name: input}\n", RIG_VECTOR(4), SH_E_USAGE, "'input'", NULL);
    refuse("- {dense: 4, name: \"\"}\n", RIG_VECTOR(4), SH_E_USAGE, "1 to 63", NULL);
    refuse(
        "- {dense: 4, name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n",
        RIG_VECTOR(4), SH_E_USAGE, "1 to 63", NULL);
    refuse(
        "- {embedding: 4}\n- {attention: 1, name: "
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n",
        RIG_TOKENS(4, 4), SH_E_USAGE, "1 to 63", NULL);
}

TEST(spec, refuses_lists_that_are_no_layers) {
    refuse("[]", RIG_VECTOR(4), SH_E_USAGE, "list of layers", NULL);
    refuse("{}", RIG_VECTOR(4), SH_E_USAGE, "wants a name", NULL);
    refuse("{hidden: 3}", RIG_VECTOR(4), SH_E_USAGE, "wants a name", NULL);
    refuse("- [relu]\n", RIG_VECTOR(4), SH_E_USAGE, "a layer is a name or a map", NULL);
    refuse("- {}\n", RIG_VECTOR(4), SH_E_USAGE, "run.yaml:1:3", NULL);
    refuse("- {name: a}\n", RIG_VECTOR(4), SH_E_USAGE, "does not say what it is", NULL);
    refuse("- ~\n", RIG_VECTOR(4), SH_E_USAGE, "a layer is a name or a map", NULL);
}

TEST(spec, ties_weights_that_fit) {
    refuse("- {dense: {units: 4, tie: nobody.weight}}\n", RIG_VECTOR(4), SH_E_USAGE,
           "'nobody.weight', which does not exist", NULL);
    refuse("- {dense: 5, name: a}\n- {dense: {units: 4, tie: a.weight}}\n", RIG_VECTOR(4),
           SH_E_SHAPE, "wants a weight of 4x5, but 'a.weight' is 5x4", NULL);
    sh_net *net =
        rig_net("[{dense: 4, name: a}, {dense: {units: 4, tie: a.weight}}]", RIG_VECTOR(4));
    assert_int_equal(net->params.total, 16 + 4 + 4);
    assert_true(net->layers[1]->param_specs[0].tied);
    sh_net_destroy(net);
}

/* Sizes that no machine has are refused by arithmetic, before anything is allocated for them. */
TEST(spec, refuses_absurd_sizes_without_allocating) {
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    refuse("- dense: 16777216\n- dense: 16777216\n", RIG_VECTOR(4), SH_E_SHAPE, "impossible size",
           NULL);
    refuse("- {conv: 1048576, kernel: 255, padding: 255}\n- {conv: 1048576}\n",
           RIG_IMAGE(3, 2000, 2000), SH_E_SHAPE, "impossible", NULL);
    refuse("- dense: 99999999999999999999\n", RIG_VECTOR(4), SH_E_USAGE, "run.yaml:1:3", NULL);
    refuse("- {embedding: {width: 1048576, vocabulary: 268435456}}\n", RIG_TOKENS(4, 4), SH_E_SHAPE,
           "impossible size", NULL);
    refuse("{name: gpt, width: 1048576, heads: 1}\n", RIG_TOKENS(1024, 65), SH_E_SHAPE, "", NULL);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 20000);  // KiB
}

static void grow_by_concat(sh_net_spec *net, sh_status *status_out, int *steps_out) {
    for (*steps_out = 0; *steps_out < 40 && *status_out == SH_OK; ++*steps_out) {
        char name[32];
        int inputs[8];
        for (int i = 0; i < 8; i++) inputs[i] = sh_net_spec_last(net);
        snprintf(name, sizeof name, "c%d", *steps_out);
        *status_out = sh_net_spec_add(net, &sh_layer_kind_concat, name, inputs, 8, NULL, NULL);
    }
}

TEST(spec, stops_a_net_that_grows_without_end) {
    sh_net_spec net = {.input = RIG_VECTOR(4)};
    sh_status status = SH_OK;
    int steps;
    CHECK_OK(sh_net_spec_add(&net, &sh_layer_kind_dense, "d", NULL, 0, SH_DENSE(.units = 8), NULL));
    grow_by_concat(&net, &status, &steps);
    assert_int_equal(status, SH_E_SHAPE);
    assert_true(steps < 14);
    sh_net_spec_fini(&net);
}

TEST(spec, adds_an_attention_with_default_options) {
    sh_net_spec net = {.input = RIG_TOKENS(5, 7)};
    int index = -5;
    CHECK_OK(sh_net_spec_add(&net, &sh_layer_kind_embedding, "e", NULL, 0, SH_EMBEDDING(.width = 6),
                             NULL));
    CHECK_OK(sh_net_spec_add(&net, &sh_layer_kind_attention, "attn", NULL, 0, NULL, &index));
    assert_int_equal(index, 3);
    assert_string_equal(net.layers[3]->name, "attn.c_proj");
    sh_net_spec_fini(&net);
}

/* Models start from the macros, run files from the option tables. */
static void check_defaults(const sh_layer_kind *kind, const void *macro) {
    void *table = sh_alloc(1, kind->options_bytes);
    CHECK_OK(sh_options_init(kind->options, table));
    char *a = sh_options_print(kind->options, macro), *b = sh_options_print(kind->options, table);
    assert_string_equal(a, b);
    sh_options_fini(kind->options, table);
    sh_free(a), sh_free(b), sh_free(table);
}

TEST(spec, has_one_set_of_defaults_for_models_and_run_files) {
    check_defaults(&sh_layer_kind_dense, SH_DENSE());
    check_defaults(&sh_layer_kind_conv, SH_CONV());
    check_defaults(&sh_layer_kind_maxpool, SH_POOL());
    check_defaults(&sh_layer_kind_avgpool, SH_POOL());
    check_defaults(&sh_layer_kind_batchnorm, SH_BATCHNORM());
    check_defaults(&sh_layer_kind_layernorm, SH_LAYERNORM());
    check_defaults(&sh_layer_kind_dropout, SH_DROPOUT());
    check_defaults(&sh_layer_kind_droppath, SH_DROPPATH());
    check_defaults(&sh_layer_kind_embedding, SH_EMBEDDING());
    check_defaults(&sh_layer_kind_attention, SH_ATTENTION());
    check_defaults(&sh_layer_kind_attention_core, SH_ATTENTION_CORE());
    check_defaults(&sh_layer_kind_gelu, SH_GELU());
}

/* A part of a net, or of a parameter, starts as the whole would: draws are keyed by name and
 * element, not by what stands before. */
TEST(spec, starts_a_parameter_alike_in_any_net_and_in_parts) {
    sh_net *whole = rig_net(
        "[{dense: 7, name: a}, {dense: {units: 6, init: xavier}, name: b}, {dense: 5, name: c}]",
        RIG_VECTOR(3));
    sh_net *part = rig_net("[{dense: {units: 6, init: xavier}, name: b}]", RIG_VECTOR(7));
    float *w = sh_alloc(whole->params.total, sizeof *w),
          *p = sh_alloc(part->params.total, sizeof *p);
    sh_net_init(whole, 9, w, NULL);
    sh_net_init(part, 9, p, NULL);
    const sh_param *b = sh_param_list_find(&whole->params, "b.weight");
    const sh_param *c = sh_param_list_find(&whole->params, "c.weight");
    assert_memory_equal(w + b->offset, p, b->count * sizeof *w);
    float some[13];
    sh_param_spec_init(&whole->layers[1]->param_specs[0], 9, 6, SH_COUNT(some), some);
    assert_memory_equal(w + b->offset + 6, some, sizeof some);
    sh_param_spec_init(&whole->layers[2]->param_specs[0], 9, 3, SH_COUNT(some), some);
    assert_memory_equal(w + c->offset + 3, some, sizeof some);
    sh_free(w), sh_free(p);
    sh_net_destroy(whole);
    sh_net_destroy(part);
}
