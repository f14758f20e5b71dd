/* Tensor parallelism: parts of a net on several workers give the loss and the gradients of the
 * whole net on one. */
#include "parallel/layout_team.h"

static void check_case(const layout_case *c, int parts) {
    team_check(c, &sh_layout_kind_tensor, parts);
}

/* What the workers hold together is less than as many whole nets. */
static void check_split(const layout_case *c, int parts) {
    team t;
    team_init(&t, c, &sh_layout_kind_tensor, parts);
    size_t held = 0;
    for (int r = 0; r < parts; r++) held += t.part[r].net->params.total;
    assert_true(held < (size_t)parts * t.whole.net->params.total);
    team_fini(&t);
}

static void check_teams(const layout_case *c) {
    for (int parts = 2; parts <= TEAM_MOST; parts++) {
        check_case(c, parts);
        check_split(c, parts);
    }
}

TEST(tensor, splits_an_mlp) {
    check_teams(&(layout_case){.text = "[{dense: 37}, relu, dropout, {dense: 23}, gelu, dense]",
                               .input = {.sample = SH_SHAPE(19), .outputs = 10},
                               .batch = 6});
}

TEST(tensor, splits_a_convolutional_net) {
    check_teams(&(layout_case){
        .text = "[{conv: 6, kernel: 5, padding: 2}, relu, {maxpool: 2}, {conv: 16, kernel: 5}, "
                "relu, {maxpool: 2}, flatten, {dense: 20}, relu, {dropout: 0.3}, {dense: 84}, "
                "relu, dense]",
        .input = {.sample = SH_SHAPE(1, 14, 15), .outputs = 10},
        .batch = 5,
        .smoothing = 0.1});
}

TEST(tensor, splits_a_net_with_normalised_channels_and_skip_connections) {
    check_teams(&(layout_case){
        .text = "[{conv: 16, padding: 1, bias: false}, batchnorm, {relu: , name: x}, {conv: 32, "
                "padding: 1, bias: false}, batchnorm, relu, {conv: 16, padding: 1, bias: false}, "
                "{batchnorm: , name: long}, {add: , from: [long, x]}, relu, {conv: 24}, "
                "globalpool, dense]",
        .input = {.sample = SH_SHAPE(3, 6, 7), .outputs = 10},
        .batch = 4});
}

static const char *const gpt =
    "[{embedding: 24, name: wte}, positions, {dropout: 0.1, name: s0}, layernorm, {attention: 4, "
    "name: attn}, {dropout: 0.1, name: d0}, {add: , name: s1, from: [d0, s0]}, layernorm, {dense: "
    "50}, gelu, {dense: 24, name: d1}, {add: , name: s2, from: [d1, s1]}, layernorm, {dense: "
    "{units: 65, bias: false, tie: wte.weight}}]";

/* 65 tokens are 33 + 32, 22 + 22 + 21 and 17 + 16 + 16 + 16. */
TEST(tensor, splits_a_gpt_with_a_vocabulary_of_65) {
    check_teams(&(layout_case){
        .text = gpt, .input = {.sample = SH_SHAPE(11), .tokens = true, .outputs = 65}, .batch = 3});
}

TEST(tensor, gathers_outputs_for_a_loss_that_wants_them_whole) {
    check_teams(&(layout_case){.text = "[{dense: 12}, tanh, {dense: 8}, tanh, {dense: 9}]",
                               .input = {.sample = SH_SHAPE(7), .outputs = 9},
                               .batch = 3,
                               .dense_loss = true});
}

TEST(tensor, splits_models_of_the_list) {
    check_case(
        &(layout_case){
            .text = "lenet", .input = {.sample = SH_SHAPE(1, 28, 28), .outputs = 10}, .batch = 2},
        2);
    check_case(&(layout_case){.text = "{name: gpt, layers: 2, heads: 3, width: 48}",
                              .input = {.sample = SH_SHAPE(16), .tokens = true, .outputs = 65},
                              .batch = 2},
               3);
}

TEST(tensor, says_what_stays_whole_and_why) {
    layout_case c = {
        .text = gpt, .input = {.sample = SH_SHAPE(11), .tokens = true, .outputs = 65}, .batch = 2};
    sh_net_spec whole = described(&c);
    sh_layout_result result;
    sh_layout_target target = {.parts = 6, .rank = 1, .splits_loss = true};
    CHECK_OK(sh_layout_kind_tensor.rewrite(&whole, &target, &result));
    for (size_t i = 0; i < whole.layer_count; i++) {
        const char *name = whole.layers[i]->name, *text = result.notes[i].text;
        if (strcmp(name, "attn.c_attn") == 0)
            assert_string_equal(text, "whole: fewer heads than workers");
        if (strcmp(name, "wte") == 0) assert_string_equal(text, "tokens 11-21 of 65");
    }
    sh_layout_result_fini(&result);
    sh_net_spec_fini(&whole);
}

/* Whole parameters draw the same on all workers; the bias of rows is worker 0's. */
TEST(tensor, adds_the_bias_of_a_layer_split_by_rows_once) {
    layout_case c = {.text = "[{dense: 6, name: a}, relu, {dense: 5, name: b}]",
                     .input = {.sample = SH_SHAPE(4), .outputs = 5},
                     .batch = 2};
    team t;
    team_init(&t, &c, &sh_layout_kind_tensor, 2);
    assert_non_null(sh_param_list_find(&t.part[0].net->params, "b.bias"));
    assert_null(sh_param_list_find(&t.part[1].net->params, "b.bias"));
    team_fini(&t);
}
