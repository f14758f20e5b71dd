/* Figures of layers for cutting: where stages may begin, and that every part of a net can be
 * measured alone. */
#include "nn/rig.h"

#include "parallel/pipeline_profile.h"

static const char gpt[] = "{name: gpt, layers: 2, heads: 2, width: 8, dropout: 0.1}";
static const char mixed[] =
    "[{conv: 8, padding: 1}, batchnorm, {relu: , name: x}, {conv: 8, padding: 1}, {batchnorm: , "
    "name: b}, {add: , from: [b, x]}, {maxpool: 2}, relu, flatten, {dense: 6}, gelu, dense]";

static sh_profile_options options_of(rig *r) {
    return (sh_profile_options){.net = r->net,
                                .samples = 2,
                                .param_bytes = 12,
                                .loss = &rig_linear_loss,
                                .tuner = r->tuner,
                                .clock = &sh_clock_real,
                                .blocks = r->blocks};
}

static void check_profile(const char *text, sh_net_input input) {
    rig_threads = 1;
    rig r = rig_make(text, input, 2);
    sh_profile_options options = options_of(&r);
    int count = (int)r.net->layer_count;
    sh_cut_layer *guessed = sh_alloc((size_t)count, sizeof *guessed);
    sh_cut_layer *measured = sh_alloc((size_t)count, sizeof *measured);
    CHECK_OK(sh_profile_estimate(&options, guessed));
    CHECK_OK(sh_profile_measure(&options, measured));
    double params = 0;
    for (int i = 0; i < count; i++) {
        bool exact = true;
        if (i > 0) CHECK_OK(sh_net_cut_is_exact(r.net, i, &exact));
        assert_true(guessed[i].begins == exact && measured[i].begins == exact);
        assert_true(measured[i].border_bytes == (exact ? 2 * sh_cut_border_bytes(r.net, i) : 0));
        assert_true(exact ? measured[i].forward_s > 0 && measured[i].live_bytes > 0
                          : measured[i].forward_s == 0);
        assert_true(measured[i].data_s >= 0 && measured[i].weight_s >= 0);
        params += measured[i].fixed_bytes / 12;
    }
    assert_true(measured[0].data_s == 0);                // nobody wants the gradient of the data
    assert_true(params >= (double)r.net->params.total);  // tied ones lie in several parts
    sh_free(guessed), sh_free(measured);
    rig_free(&r);
}

TEST(pipeline_profile, parts_of_a_net_are_measured_one_by_one) {
    check_profile(mixed, RIG_IMAGE(3, 8, 8));
    check_profile(gpt, RIG_TOKENS(6, 17));
}

/* A layer with ten times the work of its neighbours is alone in its stage. */
TEST(pipeline_profile, estimates_follow_the_work) {
    rig_threads = 1;
    rig r = rig_make("[{dense: 10}, {dense: 100}, {dense: 100}, {dense: 10}, {dense: 10}]",
                     RIG_VECTOR(10), 2);
    sh_profile_options options = options_of(&r);
    sh_cut_layer layers[5];
    CHECK_OK(sh_profile_estimate(&options, layers));
    sh_pipeline pipeline;
    CHECK_OK(sh_pipeline_init(&pipeline, "1f1b", 3, 4));
    sh_cut_problem problem = {&pipeline, layers, 5, INFINITY};
    sh_cut_result result;
    int cut[4];
    CHECK_OK(sh_cut_find(&problem, cut, &result));
    assert_int_equal(cut[1], 2);
    assert_int_equal(cut[2], 3);
    rig_free(&r);
}
