/* Elastic averaging on parameter servers. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "harness.h"
#include "sync/servers.h"

enum { EASGD_STEPS = 24 };

enum { EASGD_NOTED = 4 * (64 + WORKERS_MOST) };  // servers of a seed, and elements of each

static float own_weight[WORKERS_MOST][EASGD_NOTED];

/* Different from element to element, so that codecs have something to leave out. */
static float push_of(size_t index) { return 1.0F + 0.25F * (float)(index % 5); }

/* The first step after a meeting sees the worker's own weights again. */
static sh_status note_own(ps_world *world, int rank, int64_t step, const float *weights,
                          float *gradients) {
    (void)step;
    bool notes = world->met[0][rank] != NULL && isnan(own_weight[rank][0]);
    for (size_t i = 0; i < world->params.total; i++) {
        if (notes) own_weight[rank][i] = weights[i];
        gradients[i] = -push_of(i);
    }
    return SH_OK;
}

/* Long enough that everybody takes a step after the first meeting. */
static void notes_own(ps_world *world) {
    for (int r = 0; r < world->workers; r++) own_weight[r][0] = NAN;
    world->goals[1] = world->goals[0] + EASGD_STEPS * world->workers;
}

static void check_forces(const ps_world *world) {
    double centre = 0, rates = 0;
    for (int64_t index = 0; index < world->goals[0]; index++) rates += world_rate(world, index);
    for (size_t i = 0; i < world->params.total; i++) {
        double sum = (double)world->met[0][0][i];
        centre += fabs(sum);
        for (int r = 0; r < world->workers; r++) sum += (double)own_weight[r][i];
        assert_true(fabs(sum - rates * (double)push_of(i)) < 2e-3);
    }
    assert_true(centre > 0);
}

/* Elastic forces are equal and opposite: what the gradients added is in the workers and the centre,
 * no more and no less. */
TEST(easgd, moves_worker_and_centre_towards_each_other_by_as_much) {
    const char *const schemes[] = {"easgd:1", "easgd:4"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        ps_world world = {.scheme = schemes[i], .lr = 1, .gradient = note_own};
        world_over_seeds(&world, notes_own, check_forces);
        world.schedule = "linear";
        world_over_seeds(&world, notes_own, check_forces);
    }
}

static const char *const elastic_codecs[] = {"fp16",     "bf16",   "int8",     "qsgd:4",
                                             "terngrad", "onebit", "topk:10%", "randk:5%"};

/* Whatever a codec leaves out, it leaves out on both sides. */
TEST(easgd, loses_nothing_through_any_codec) {
    for (size_t i = 0; i < SH_COUNT(elastic_codecs); i++) {
        const ps_world world = {.scheme = "easgd:2",
                                .idle = 64,
                                .codec = elastic_codecs[i],
                                .lr = 1,
                                .gradient = note_own};
        world_over_seeds(&world, notes_own, check_forces);
    }
}

enum { ELASTIC_TOTAL = 7 * 9 + 7 + 5 * 7 + 5 };

static void play_elastic(const char *codec, const char *placement, float *met_out) {
    ps_world world = {.scheme = "easgd:3",
                      .workers = 3,
                      .servers = 2,
                      .placement = placement,
                      .codec = codec,
                      .lr = 0.1,
                      .goals = {900, 2400},
                      .gradient = world_valley};
    const sh_sim_options sim = {.seed = 5, .compute = {.law = SH_LAW_EXPONENTIAL, .mean_s = 1e-3}};
    make_layers(&world);
    assert_int_equal(world.params.total, ELASTIC_TOTAL);
    CHECK_OK(play_world(&world, &sim));
    world_check_meetings(&world);
    memcpy(met_out, world_last(&world), ELASTIC_TOTAL * sizeof *met_out);
    end_world(&world);
}

/* The links are free, so the order of all pushes is the same. */
TEST(easgd, a_codec_that_leaves_nothing_out_changes_nothing) {
    const char *const placements[] = {"range", "variable"};
    for (size_t i = 0; i < SH_COUNT(placements); i++) {
        float plain[ELASTIC_TOTAL], coded[ELASTIC_TOTAL];
        play_elastic(NULL, placements[i], plain);
        play_elastic("topk:100%", placements[i], coded);
        CHECK_CLOSE(coded, plain, ELASTIC_TOTAL, 1e-5);
    }
}

/* Where the workers' valleys have their bottom: the centre comes to it through every codec. */
TEST(easgd, the_centre_comes_to_the_bottom_through_any_codec) {
    float plain[ELASTIC_TOTAL], coded[ELASTIC_TOTAL];
    play_elastic(NULL, "range", plain);
    for (size_t i = 0; i < SH_COUNT(elastic_codecs); i++) {
        play_elastic(elastic_codecs[i], "range", coded);
        double off = 0;
        for (size_t k = 0; k < ELASTIC_TOTAL; k++) off += fabs((double)(coded[k] - plain[k]));
        if (off / ELASTIC_TOTAL > 0.02)
            fail_msg("%s: off by %g on average", elastic_codecs[i], off / ELASTIC_TOTAL);
    }
}
