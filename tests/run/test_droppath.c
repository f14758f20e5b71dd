/* Parameters that no worker used in a step: a team leaves them alone as one worker does, and what a
 * codec kept back of them still arrives. The workers are simulated. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/safetensors.h"
#include "harness.h"
#include "shoal/shoal.h"

enum { CELLS = 64 * 64, WORKERS = 2 };

/* The branch is the layer `c`. */
#define NET(drop)                                                                  \
    "[flatten, {dense: 64, name: a}, tanh, {dense: 64, name: c}, {droppath: " drop \
    ", name: d}, "                                                                 \
    "{add: , name: j, from: [d, tanh1]}, tanh, dense]"

typedef struct settings {
    const char *model, *workers, *compress, *optimizer, *lr, *decay, *steps;
    bool exact;
    char folder[512];
} settings;

static void train(settings *s, const char *name) {
    snprintf(s->folder, sizeof s->folder, "%s", sh_test_folder(name));
    const char *const pairs[][2] = {
        {"model", s->model},
        {"data", "digits"},
        {"data.batch", "60"},
        {"workers", s->workers},
        {"compress", s->compress != NULL ? s->compress : "none"},
        {"optimizer", s->optimizer},
        {"optimizer.lr", s->lr},
        {"optimizer.weight_decay", s->decay},
        {"steps", s->steps},
        {"exact", s->exact ? "true" : "false"},
        {"checkpoint.every", "100000"},  // the last step is saved anyway
        {"threads", "1"},
        {"out", s->folder},
    };
    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    for (size_t i = 0; i < SH_COUNT(pairs); i++)
        if (shoal_config_set(config, pairs[i][0], pairs[i][1]) != SHOAL_OK)
            fail_msg("%s: %s", pairs[i][0], shoal_error_text());
    const shoal_simulation world = {.size = sizeof world, .link = "1Gbit,100us", .compute = "20ms"};
    if (shoal_simulate(config, NULL, &world, NULL, NULL) != SHOAL_OK)
        fail_msg("%s", shoal_error_text());
    shoal_config_destroy(config);
}

static void read_tensor(const settings *s, const char *part, const char *name, float x_out[CELLS]) {
    char path[600];
    sh_safetensors tensors;
    snprintf(path, sizeof path, "%s/checkpoints/%s-%08d.safetensors", s->folder, part,
             atoi(s->steps));
    CHECK_OK(sh_safetensors_open(path, &tensors));
    const sh_tensor_entry *entry = sh_safetensors_find(&tensors, name);
    assert_non_null(entry);
    assert_int_equal(entry->bytes, CELLS * sizeof(float));
    memcpy(x_out, entry->data, entry->bytes);
    sh_safetensors_close(&tensors);
}

/* A step so small that both runs see nearly the same gradients. What was delivered and what is kept
 * back are then all that the plain run has seen:  plain = coded - lr workers residual. */
static void check_conserves(const char *compress) {
    static float plain[CELLS], coded[CELLS], residual[CELLS];
    settings a = {NET("0.8"), "2", NULL, "sgd", "0.001", "0", "30", false, ""};
    train(&a, "droppath_plain");
    read_tensor(&a, "model", "c.weight", plain);
    settings b = a;
    b.compress = compress;
    train(&b, "droppath_coded");
    read_tensor(&b, "model", "c.weight", coded);
    read_tensor(&b, "optimizer", "c.weight.residual", residual);
    double lost = 0, kept = 0;
    for (size_t i = 0; i < CELLS; i++) {
        double waits = 0.001 * WORKERS * (double)residual[i];
        lost += pow((double)plain[i] - ((double)coded[i] - waits), 2);
        kept += pow(waits, 2);
    }
    assert_true(kept > 0);
    if (sqrt(lost) > 0.1 * sqrt(kept))
        fail_msg("%s: %g of a gradient is lost, %g kept", compress, sqrt(lost), sqrt(kept));
}

TEST(droppath, loses_nothing_of_what_a_codec_kept_back) {
    check_conserves("topk:1%");
    check_conserves("dgc:1%");
    check_conserves("powersgd:1");
}

/* The branch is never taken: momentum and weight decay do not touch it either. All else is as one
 * worker has it, but for the order of sums, which an exact run does not see. */
static void check_unused(bool exact) {
    static float first[CELLS], one[CELLS], two[CELLS];
    settings begin = {NET("0.999"), "1", NULL, "momentum", "0.05", "0.01", "1", exact, ""};
    settings alone = begin, team = begin;
    alone.steps = team.steps = "30";
    team.workers = "2";
    train(&begin, "droppath_begin");
    train(&alone, "droppath_alone");
    train(&team, "droppath_team");
    read_tensor(&begin, "model", "c.weight", first);
    read_tensor(&alone, "model", "c.weight", one);
    read_tensor(&team, "model", "c.weight", two);
    assert_memory_equal(one, first, sizeof first);
    assert_memory_equal(two, first, sizeof first);
    read_tensor(&begin, "model", "a.weight", first);
    read_tensor(&alone, "model", "a.weight", one);
    read_tensor(&team, "model", "a.weight", two);
    assert_memory_not_equal(one, first, sizeof first);
    for (size_t i = 0; i < CELLS; i++) assert_true(fabsf(one[i] - two[i]) <= (exact ? 0 : 1e-5f));
}

TEST(droppath, leaves_unused_parameters_of_a_team_alone) { check_unused(false); }
TEST(droppath, leaves_unused_parameters_of_an_exact_team_alone) { check_unused(true); }
