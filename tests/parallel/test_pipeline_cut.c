/* Cuts into stages against all cuts that there are, on random nets. */
#include "nn/rig.h"

#include <stdio.h>

#include "base/rng.h"
#include "parallel/pipeline_cut.h"

enum { LAYERS_MOST = 10, STAGES_MOST = 6 };

typedef struct trial {
    sh_pipeline pipeline;
    sh_cut_layer layers[LAYERS_MOST];
    sh_cut_problem problem;
} trial;

static double draw(sh_rng *rng) { return (double)sh_rng_below(rng, 20); }  // whole: ties are common

static trial draw_trial(uint64_t seed, int number) {
    sh_rng rng = sh_rng_stream(seed, SH_RNG_TEST, 16, (uint64_t)number);
    trial t = {0};
    int stages = 1 + (int)sh_rng_below(&rng, STAGES_MOST), chunks = 1;
    if (stages % 2 == 0 && sh_rng_below(&rng, 2) == 0) chunks = 2;
    static const char *const names[] = {"gpipe", "1f1b", "interleaved:2"};
    CHECK_OK(sh_pipeline_init(&t.pipeline, names[chunks == 2 ? 2 : sh_rng_below(&rng, 2)],
                              stages / chunks, 1 + (int)sh_rng_below(&rng, 6)));
    int count = 1 + (int)sh_rng_below(&rng, LAYERS_MOST);
    for (int i = 0; i < count; i++)
        t.layers[i] = (sh_cut_layer){draw(&rng),
                                     draw(&rng),
                                     draw(&rng),
                                     draw(&rng),
                                     draw(&rng),
                                     draw(&rng),
                                     sh_rng_below(&rng, 4) > 0};
    t.problem = (sh_cut_problem){.layer_count = count};
    t.problem.memory_bytes = sh_rng_below(&rng, 2) == 0 ? INFINITY : 40 + 20 * draw(&rng);
    return t;
}

/* The figures of a stage from their definition. */
static sh_cut_result judge(const trial *t, const int *cut) {
    sh_cut_result result = {0};
    for (int s = 0; s < sh_pipeline_stages(&t->pipeline); s++) {
        int live = sh_pipeline_live_most(&t->pipeline, s % t->pipeline.ranks);
        if (live > t->pipeline.micros) live = t->pipeline.micros;
        double time = 0, memory = s > 0 ? live * t->layers[cut[s]].border_bytes : 0;
        for (int i = cut[s]; i < cut[s + 1]; i++) {
            time += t->layers[i].forward_s + t->layers[i].data_s + t->layers[i].weight_s;
            memory += t->layers[i].fixed_bytes + live * t->layers[i].live_bytes;
        }
        result.slowest_s = fmax(result.slowest_s, time);
        result.memory_bytes = fmax(result.memory_bytes, memory);
        if (s > 0) result.border_bytes += t->layers[cut[s]].border_bytes;
    }
    return result;
}

static bool is_better(const sh_cut_result *a, const sh_cut_result *b) {
    if (a->slowest_s != b->slowest_s) return a->slowest_s < b->slowest_s;
    return a->border_bytes < b->border_bytes;
}

/* All cuts of stages `stage` on. */
static void try_all(const trial *t, int *cut, int stage, double bound, sh_cut_result *best) {
    int stages = sh_pipeline_stages(&t->pipeline), layers = t->problem.layer_count;
    if (stage == stages) {
        cut[stages] = layers;
        sh_cut_result seen = judge(t, cut);
        if (seen.memory_bytes <= bound && is_better(&seen, best)) *best = seen;
        return;
    }
    for (int at = cut[stage - 1] + 1; at < layers; at++) {
        cut[stage] = at;
        if (t->layers[at].begins) try_all(t, cut, stage + 1, bound, best);
    }
}

static void check_random(uint64_t seed, int number, int *found, int *too_large) {
    trial t = draw_trial(seed, number);
    t.problem.layers = t.layers, t.problem.pipeline = &t.pipeline;
    sh_cut_result best = {.slowest_s = INFINITY}, seen = {0};
    int all[STAGES_MOST + 1] = {0}, cut[STAGES_MOST + 1];
    try_all(&t, all, 1, t.problem.memory_bytes / t.pipeline.chunks, &best);
    sh_status status = sh_cut_find(&t.problem, cut, &seen);
    bool right = status == SH_OK
                     ? seen.slowest_s == best.slowest_s && seen.border_bytes == best.border_bytes
                     : isinf(best.slowest_s);
    if (!right)
        fail_msg("SEED=%llu, net %d: slowest %g, bytes %g; best %g, %g", (unsigned long long)seed,
                 number, seen.slowest_s, seen.border_bytes, best.slowest_s, best.border_bytes);
    if (status == SH_OK) {
        sh_cut_result own = judge(&t, cut);
        assert_true(own.slowest_s == seen.slowest_s && own.border_bytes == seen.border_bytes);
        assert_true(own.memory_bytes == seen.memory_bytes);
        assert_true(own.memory_bytes <= t.problem.memory_bytes / t.pipeline.chunks);
    }
    *found += status == SH_OK;
    *too_large += status == SH_E_MEMORY;
}

TEST(pipeline_cut, is_the_best_of_all_cuts_of_random_nets) {
    const char *seed = getenv("SEED");
    int found = 0, too_large = 0;
    for (int i = 0; i < 3000; i++)
        check_random(seed != NULL ? strtoull(seed, NULL, 10) : 1, i, &found, &too_large);
    assert_true(found > 500 && too_large > 100);
}

TEST(pipeline_cut, says_what_memory_would_do) {
    trial t = {.problem = {.pipeline = &t.pipeline, .layers = t.layers, .layer_count = 3}};
    CHECK_OK(sh_pipeline_init(&t.pipeline, "1f1b", 2, 4));
    for (int i = 0; i < 3; i++)
        t.layers[i] = (sh_cut_layer){.forward_s = 1, .fixed_bytes = 2 << 20, .begins = true};
    t.problem.memory_bytes = 3 << 20;
    int cut[3];
    sh_cut_result result;
    CHECK_FAILS(SH_E_MEMORY, "below 3.0 MiB: the best needs 4.0 MiB",
                sh_cut_find(&t.problem, cut, &result));
    t.problem.layer_count = 1;
    CHECK_FAILS(SH_E_USAGE, "2 stages, but the net has 1 places",
                sh_cut_find(&t.problem, cut, &result));
}

/* x goes to both branches; between them lie what the first has computed and x itself. */
TEST(pipeline_cut, values_that_skip_stages_cross_every_border_between) {
    sh_net *net = rig_net(
        "[{dense: 6, name: x}, {dense: 5, name: a, from: x}, {dense: 4, name: b}, "
        "{dense: 4, name: c, from: x}, {add: , from: [b, c]}, {dense: 3}]",
        RIG_VECTOR(7));
    static const double values[] = {7, 6, 5 + 6, 4 + 6, 4 + 4, 4};
    for (int i = 0; i < 6; i++) assert_true(sh_cut_border_bytes(net, i) == 4 * values[i]);
    sh_net_destroy(net);
}

TEST(pipeline_cut, is_read_back_as_it_is_printed) {
    sh_net *net = rig_net("[{dense: 6, name: a}, {dense: 5, name: b}, {dense: 4, name: c}, dense]",
                          RIG_VECTOR(7));
    int cut[4], again[4];
    CHECK_OK(sh_cut_parse(net, "b,dense1", 3, cut));
    assert_int_equal(cut[1], 1);
    assert_int_equal(cut[2], 3);
    char *text = sh_cut_text(net, cut, 3);
    assert_string_equal(text, "b,dense1");
    CHECK_OK(sh_cut_parse(net, text, 3, again));
    assert_memory_equal(cut, again, sizeof cut);
    sh_free(text);
    CHECK_OK(sh_cut_parse(net, "", 1, cut));
    CHECK_FAILS(SH_E_USAGE, "begins 1 stages behind the first, but there are 2",
                sh_cut_parse(net, "b", 3, cut));
    CHECK_FAILS(SH_E_USAGE, "begins 1 stages", sh_cut_parse(net, "b", 1, cut));
    CHECK_FAILS(SH_E_USAGE, "no layer 'd'", sh_cut_parse(net, "d", 2, cut));
    CHECK_FAILS(SH_E_USAGE, "no layer ''", sh_cut_parse(net, "b,", 3, cut));
    CHECK_FAILS(SH_E_USAGE, "stage 1 has no layers", sh_cut_parse(net, "c,c", 3, cut));
    CHECK_FAILS(SH_E_USAGE, "stage 0 has no layers", sh_cut_parse(net, "a", 2, cut));
    sh_net_destroy(net);
}
