/* The alpha-beta formulas against the reference values of AlexNet, and against their own algebra.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "base/memory.h"
#include "base/node.h"
#include "plan/cost.h"

/* AlexNet of 2012 without groups and biases. */
static const char ALEXNET[] =
    "[{conv: 96, kernel: 11, stride: 4, bias: false, name: conv1}, relu,"
    " {maxpool: 3, stride: 2},"
    " {conv: 256, kernel: 5, padding: 2, bias: false, name: conv2}, relu,"
    " {maxpool: 3, stride: 2},"
    " {conv: 384, kernel: 3, padding: 1, bias: false, name: conv3}, relu,"
    " {conv: 384, kernel: 3, padding: 1, bias: false, name: conv4}, relu,"
    " {conv: 256, kernel: 3, padding: 1, bias: false, name: conv5}, relu,"
    " {maxpool: 3, stride: 2}, flatten,"
    " {dense: 4096, bias: false, name: fc6}, relu,"
    " {dense: 4096, bias: false, name: fc7}, relu,"
    " {dense: 1000, bias: false, name: fc8}]";

static const sh_link LINK = {.alpha_s = 2e-6, .beta_s = 1 / 6e9};

typedef struct rig {
    sh_net_spec spec;
    sh_cost_net net;
} rig;

static void open_rig(rig *r, const char *layers, sh_net_input input) {
    sh_node *node = NULL;
    CHECK_OK(sh_node_parse("layers", layers, strlen(layers), &node));
    CHECK_OK(sh_net_spec_read(node, &input, &r->spec));
    sh_node_destroy(node);
    CHECK_OK(sh_cost_net_init(&r->net, &r->spec));
}

static void open_alexnet(rig *r) {
    open_rig(r, ALEXNET, (sh_net_input){.sample = SH_SHAPE(3, 227, 227), .outputs = 1000});
}

static void close_rig(rig *r) {
    sh_cost_net_fini(&r->net);
    sh_net_spec_fini(&r->spec);
}

TEST(cost, alexnet_is_the_one_of_the_reference) {
    rig r;
    open_alexnet(&r);
    static const double travels[] = {69984, 43264, 64896, 64896, 9216, 4096, 4096, 1000};
    double weights = 0;
    int matrix = 0;
    for (size_t i = 0; i < r.net.count; i++) {
        const sh_cost_layer *l = &r.net.layers[i];
        if (!l->weighted) continue;
        weights += l->weights;
        assert_true(l->out == travels[matrix]);
        if (matrix > 0) assert_true(l->in == travels[matrix - 1]);
        matrix++;
    }
    assert_int_equal(matrix, 8);
    assert_true(weights == 62367776);
    close_rig(&r);
}

static void check_ms(const rig *r, const char *layout, int64_t workers, double batch, double ms) {
    sh_cost_layout parsed;
    CHECK_OK(sh_cost_layout_parse(layout, workers, &parsed));
    double seen = 1e3 * sh_cost_net_seconds(&r->net, &parsed, batch, &LINK);
    if (fabs(seen - ms) > 0.005 + 1e-9)
        fail_msg("%s, batch %g: %.4f ms, expected %.2f", layout != NULL ? layout : "data", batch,
                 seen, ms);
}

/* Grids are written tensor x data. */
static void check_grids(const rig *r, double batch, int64_t workers, bool dense_only,
                        const double (*rows)[2], size_t count) {
    for (size_t i = 0; i < count; i++) {
        char layout[96];
        int tensor = (int)rows[i][0];
        if (dense_only)
            snprintf(layout, sizeof layout, "{conv: data=%d, dense: tensor=%d}", (int)workers,
                     tensor);
        else
            snprintf(layout, sizeof layout, "tensor=%d", tensor);
        check_ms(r, layout, workers, batch, rows[i][1]);
    }
}

TEST(cost, batch_uniform_and_dense_only_grids_are_those_of_the_reference) {
    rig r;
    open_alexnet(&r);
    check_ms(&r, NULL, 512, 2048, 83.28);
    check_ms(&r, "data=512", 512, 512, 83.28);
    check_ms(&r, NULL, 64, 256, 82.05);
    check_ms(&r, NULL, 8, 2048, 72.86);
    check_ms(&r, "tensor=8", 8, 2048, 934.77);
    static const double uniform[][2] = {{2, 43.80}, {4, 27.20}, {8, 25.16}, {16, 36.66}};
    static const double dense[][2] = {{8, 15.73}, {16, 11.79}, {32, 11.23}, {64, 13.77}};
    check_grids(&r, 2048, 512, false, uniform, 4);
    check_grids(&r, 2048, 512, true, dense, 4);
    static const double uniform_512[][2] = {{8, 14.21}, {16, 13.19}};
    static const double dense_512[][2] = {{32, 8.50}, {64, 8.23}};
    check_grids(&r, 512, 512, false, uniform_512, 2);
    check_grids(&r, 512, 512, true, dense_512, 2);
    static const double uniform_64[][2] = {{4, 25.96}, {8, 23.93}};
    static const double dense_64[][2] = {{16, 10.56}, {32, 10.00}};
    check_grids(&r, 256, 64, false, uniform_64, 2);
    check_grids(&r, 256, 64, true, dense_64, 2);
    static const double uniform_8[][2] = {{2, 164.81}};
    static const double dense_8[][2] = {{2, 41.29}, {4, 36.78}};
    check_grids(&r, 2048, 8, false, uniform_8, 1);
    check_grids(&r, 2048, 8, true, dense_8, 2);
    close_rig(&r);
}

/* Without latency and far from P = 1 the two cost the same at that batch. */
TEST(cost, model_parallelism_wins_below_the_batch_that_is_named) {
    rig r;
    open_alexnet(&r);
    static const sh_link no_latency = {.beta_s = 1e-9};
    for (size_t i = 0; i < r.net.count; i++) {
        const sh_cost_layer *l = &r.net.layers[i];
        if (!l->dense) continue;
        double below = sh_cost_model_wins_below(l);
        sh_cost_layout batch, model;
        CHECK_OK(sh_cost_layout_parse("data=64", 64, &batch));
        CHECK_OK(sh_cost_layout_parse("tensor=64,data=1", 64, &model));
        double a = sh_cost_layer_seconds(l, &batch, below, &no_latency);
        double b = sh_cost_layer_seconds(l, &model, below, &no_latency);
        assert_true(fabs(a - b) < 1e-9 * a);
        if (strcmp(l->name, "fc6") == 0) assert_true(fabs(below - 3351) < 0.5);
    }
    close_rig(&r);
    open_rig(&r, "[{dense: 4096, bias: false}, {dense: 4096, bias: false}]",
             (sh_net_input){.sample = SH_SHAPE(4096), .outputs = 4096});
    assert_true(fabs(sh_cost_model_wins_below(&r.net.layers[1]) - 2730.67) < 0.01);
    close_rig(&r);
}

static const sh_cost_term *find(const sh_cost_term *terms, int count, const char *what) {
    for (int i = 0; i < count; i++)
        if (strcmp(terms[i].what, what) == 0) return &terms[i];
    return NULL;
}

/* Rows that cross a boundary: 7 for 11x11 with stride 4, 4 for 5x5 with stride 1, where the
 * documents have 5/2 for one of two neighbours. */
TEST(cost, halos_follow_from_kernel_stride_and_both_neighbours) {
    rig r;
    open_alexnet(&r);
    sh_cost_grid grid = {.data = 2, .tensor = 1, .space = {4, 1}};
    sh_cost_term terms[SH_COST_TERMS_MOST];
    int count = sh_cost_terms(&r.net.layers[0], &grid, 64, terms);
    const sh_cost_term *x = find(terms, count, "halo X, rows");
    assert_non_null(x);
    assert_true(x->batch == 32 && x->words == 7 * 227 * 3 && x->alphas == 2);
    assert_null(find(terms, count, "halo dY, rows"));  // nobody wants the gradient of the data
    const sh_cost_term *sum = find(terms, count, "all-reduce dW");
    assert_true(sum->parts == 8 && sum->words == 96 * 3 * 11 * 11);
    count = sh_cost_terms(&r.net.layers[2], &grid, 64, terms);  // conv2
    assert_true(find(terms, count, "halo X, rows")->words == 4 * 27 * 96);
    assert_true(find(terms, count, "halo dY, rows")->words == 4 * 27 * 256);
    grid.space[0] = 2;  // one neighbour: half of what crosses
    count = sh_cost_terms(&r.net.layers[2], &grid, 64, terms);
    assert_true(find(terms, count, "halo X, rows")->words == 2 * 27 * 96);
    assert_true(find(terms, count, "halo X, rows")->alphas == 1);
    grid = (sh_cost_grid){.data = 1, .tensor = 1, .space = {3, 3}};
    count = sh_cost_terms(&r.net.layers[2], &grid, 1, terms);
    assert_true(find(terms, count, "halo X, columns")->words == 4 * 9 * 96);
    close_rig(&r);
    open_rig(&r, "[{conv: 8, kernel: 1}, {conv: 8, kernel: 2, stride: 2}]",
             (sh_net_input){.sample = SH_SHAPE(3, 8, 8), .outputs = 1});
    for (int i = 0; i < 2; i++)
        assert_null(find(terms, sh_cost_terms(&r.net.layers[i], &grid, 1, terms), "halo X, rows"));
    close_rig(&r);
}

/* From 512 shares of the batch to 16, each held by 32 workers. */
TEST(cost, redistribution_between_the_parts_is_told_apart) {
    rig r;
    open_alexnet(&r);
    sh_cost_layout layout;
    sh_cost_term term;
    CHECK_OK(sh_cost_layout_parse("{conv: data=512, dense: tensor=32}", 512, &layout));
    assert_true(sh_cost_between(&r.net, &layout, 2048, &term));
    assert_true(term.alphas == 5 && term.words == 9216 && term.batch == 128. * 31 / 32);
    CHECK_OK(sh_cost_layout_parse("tensor=8", 512, &layout));
    assert_false(sh_cost_between(&r.net, &layout, 2048, &term));
    close_rig(&r);
}

TEST(cost, terms_are_written_with_their_numbers) {
    char text[SH_COST_TERM_TEXT];
    sh_cost_term term = {"all-reduce dW", 2, 9, 1, 37748736, 512, 0};
    assert_string_equal(sh_cost_term_text(&term, text), "2 (9 a + 511/512 * 37748736 b)");
    term = (sh_cost_term){"all-gather Y", 1, 3, 2048. / 64, 4096, 8, 0};
    assert_string_equal(sh_cost_term_text(&term, text), "3 a + 32 * 7/8 * 4096 b");
}

static void check_layout(const char *text, int64_t workers, const char *wanted) {
    sh_cost_layout layout;
    char seen[SH_COST_LAYOUT_TEXT];
    CHECK_OK(sh_cost_layout_parse(text, workers, &layout));
    assert_string_equal(sh_cost_layout_text(&layout, seen), wanted);
    CHECK_OK(sh_cost_layout_parse(seen, workers, &layout));  // and is read back
    assert_string_equal(sh_cost_layout_text(&layout, seen), wanted);
}

TEST(cost, layouts_are_read_and_data_fills_up) {
    check_layout(NULL, 8, "data=8");
    check_layout("tensor=8", 512, "data=64,tensor=8");
    check_layout("tensor=8", 0, "data=1,tensor=8");
    check_layout("space=4x2,data=2", 16, "data=2,space=4x2");
    check_layout("{conv: space=4, dense: tensor=4}", 8,
                 "{conv: \"data=2,space=4\", dense: \"data=2,tensor=4\"}");
}

TEST(cost, wrong_layouts_are_refused) {
    sh_cost_layout layout;
    static const char *const bad[] = {"",
                                      "tensor",
                                      "tensor=0",
                                      "tensor=x",
                                      "tensor=2,",
                                      "tensor=2,tensor=2",
                                      "rows=2",
                                      "space=2x",
                                      "space=2x2x2",
                                      "data=99999999999999999999"};
    for (size_t i = 0; i < SH_COUNT(bad); i++)
        CHECK_FAILS(SH_E_USAGE, "layout", sh_cost_layout_parse(bad[i], 0, &layout));
    CHECK_FAILS(SH_E_USAGE, "makes 4 workers, not 6", sh_cost_layout_parse("tensor=4", 6, &layout));
    CHECK_FAILS(SH_E_USAGE, "makes 1 workers, not 8", sh_cost_layout_parse("data=1", 8, &layout));
    CHECK_FAILS(SH_E_USAGE, "4 and 2 workers",
                sh_cost_layout_parse("{conv: space=4, dense: tensor=2}", 0, &layout));
    CHECK_FAILS(SH_E_USAGE, "one of conv and one of dense",
                sh_cost_layout_parse("{conv: space=4}", 0, &layout));
    CHECK_FAILS(SH_E_USAGE, "priced by its schedule",
                sh_cost_layout_parse("pipe=2,data=2", 4, &layout));
}
