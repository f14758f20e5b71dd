/* Domain parallelism: workers with rows of the images give the loss and the gradients of the whole
 * net on one. */
#include "parallel/layout_team.h"

static void check_teams(const layout_case *c, int most) {
    for (int parts = 2; parts <= most; parts++) team_check(c, &sh_layout_kind_space, parts);
}

TEST(space, splits_a_convolutional_net) {
    check_teams(
        &(layout_case){
            .text = "[{conv: 6, kernel: 5}, relu, {maxpool: 2}, {conv: 16, kernel: 3, padding: 1}, "
                    "relu, {maxpool: 2}, flatten, {dense: 20}, relu, {dropout: 0.3}, dense]",
            .input = {.sample = SH_SHAPE(1, 24, 15), .outputs = 10},
            .batch = 3},
        4);
}

TEST(space, splits_strides_dilation_groups_and_odd_sizes) {
    check_teams(
        &(layout_case){
            .text =
                "[{conv: {channels: 8, kernel: 7, stride: 2, padding: 3}}, relu, {maxpool: "
                "{kernel: 3, stride: 2, padding: 1}}, {conv: {channels: 16, kernel: 3, dilation: "
                "2, "
                "padding: 2, groups: 2}}, tanh, {avgpool: {kernel: 3, stride: 1, padding: 1}}, "
                "{conv: {channels: 8, kernel: 1, bias: false}}, {dropout: 0.2}, globalpool, dense]",
            .input = {.sample = SH_SHAPE(3, 53, 11), .outputs = 10},
            .batch = 2},
        3);
}

TEST(space, splits_a_residual_net_with_batchnorm) {
    check_teams(
        &(layout_case){
            .text =
                "[{conv: 8, padding: 1, bias: false}, batchnorm, {relu: , name: x}, {conv: "
                "{channels: 16, kernel: 1, stride: 2, bias: false}, from: x}, {batchnorm: , name: "
                "short}, {conv: {channels: 16, stride: 2, padding: 1, bias: false}, from: x}, "
                "batchnorm, relu, {conv: {channels: 16, padding: 1, bias: false}}, {batchnorm: , "
                "name: long}, {add: , from: [long, short]}, relu, {conv: 12}, globalpool, dense]",
            .input = {.sample = SH_SHAPE(3, 21, 9), .outputs = 10},
            .batch = 4},
        3);
}

TEST(space, gathers_where_rows_become_too_few) {
    check_teams(&(layout_case){.text = "[{conv: 4, padding: 1}, relu, {maxpool: 4}, {conv: 8, "
                                       "padding: 1}, batchnorm, relu, "
                                       "flatten, dense]",
                               .input = {.sample = SH_SHAPE(1, 12, 12), .outputs = 10},
                               .batch = 3},
                4);
}

TEST(space, refuses_images_with_too_few_rows) {
    layout_case c = {.text = "[{conv: 4, kernel: 7, padding: 3}, flatten, dense]",
                     .input = {.sample = SH_SHAPE(1, 6, 6), .outputs = 10},
                     .batch = 2};
    sh_net_spec whole = described(&c);
    sh_layout_result result;
    sh_layout_target target = {.parts = 4};
    CHECK_FAILS(SH_E_USAGE, "are too small for space=4",
                sh_layout_kind_space.rewrite(&whole, &target, &result));
    sh_net_spec_fini(&whole);
}
