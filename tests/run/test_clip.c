/* Clipping in a team whose codec keeps what it leaves out: each worker clips its own gradient, and
 * what it clipped arrives whole. The workers are simulated. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/safetensors.h"
#include "harness.h"
#include "shoal/shoal.h"

enum { CELLS = 64 * 64, WORKERS = 4, ROWS = 16, FEATURES = 8 };

typedef struct settings {
    const char *compress, *key, *most;  // `key`: clip.norm or clip.value
    char folder[512];
} settings;

/* All samples are equal, so all workers have the same gradient. */
static void write_samples(const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int column = 0; column < FEATURES; column++) fprintf(file, "f%d,", column);
    fprintf(file, "y\n");
    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < FEATURES; column++) fprintf(file, "%d,", column - 3);
        fprintf(file, "1\n");
    }
    fclose(file);
}

static void train(settings *s, const char *name) {
    char samples[600], workers[16];
    snprintf(s->folder, sizeof s->folder, "%s", sh_test_folder(name));
    snprintf(samples, sizeof samples, "%s/equal.csv", s->folder);
    snprintf(workers, sizeof workers, "%d", WORKERS);
    write_samples(samples);
    const char *const pairs[][2] = {
        {"model", "[flatten, {dense: 64, name: a}, tanh, {dense: 64, name: c}, tanh, dense]"},
        {"data", samples},
        {"data.normalise", "none"},
        {"data.hold_out", "0"},
        {"data.batch", "16"},
        {"workers", workers},
        {"compress", s->compress},
        {s->key, s->most},
        {"optimizer", "sgd"},
        {"optimizer.lr", "0.001"},
        {"steps", "30"},
        {"checkpoint.every", "100000"},  // the last step is saved anyway
        {"threads", "1"},
        {"out", s->folder},
        {"overwrite", "true"},
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
    snprintf(path, sizeof path, "%s/checkpoints/%s-00000030.safetensors", s->folder, part);
    CHECK_OK(sh_safetensors_open(path, &tensors));
    const sh_tensor_entry *entry = sh_safetensors_find(&tensors, name);
    assert_non_null(entry);
    assert_int_equal(entry->bytes, CELLS * sizeof(float));
    memcpy(x_out, entry->data, entry->bytes);
    sh_safetensors_close(&tensors);
}

/* A step so small that both runs see nearly the same gradients. What was delivered and what is kept
 * back are then all that the workers have clipped:  plain = coded - lr workers residual. */
static void check_conserves(const settings *plainly, const char *compress, const char *most) {
    static float plain[CELLS], coded[CELLS], residual[CELLS];
    settings a = *plainly, b = {compress, plainly->key, most, ""};
    train(&a, "clip_plain");
    read_tensor(&a, "model", "c.weight", plain);
    train(&b, "clip_coded");
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
        fail_msg("%s, %s: %g of a gradient is lost, %g kept", compress, b.key, sqrt(lost),
                 sqrt(kept));
}

/* Four equal gradients, each clipped to most / sqrt(4), add up to 2 most. */
TEST(clip, by_norm_loses_nothing_of_what_a_codec_keeps_back) {
    const settings plainly = {"none", "clip.norm", "0.2", ""};
    check_conserves(&plainly, "topk:1%", "0.1");
    check_conserves(&plainly, "dgc:1%", "0.1");
    check_conserves(&plainly, "onebit", "0.1");
}

/* Each clipped to most / 4, they add up to most. */
TEST(clip, by_value_loses_nothing_of_what_a_codec_keeps_back) {
    const settings plainly = {"none", "clip.value", "0.001", ""};
    check_conserves(&plainly, "topk:1%", "0.001");
    check_conserves(&plainly, "dgc:1%", "0.001");
}
