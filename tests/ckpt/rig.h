/* What tests of checkpoints share: a small net, its content by step, and damage. */
#ifndef SH_TESTS_CKPT_RIG_H
#define SH_TESTS_CKPT_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/checkpoint.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"
#include "harness.h"

/* A small net with batchnorm and two optimizer slots. */
typedef struct fixture {
    sh_param_list params, state;
    float weights[40], state_values[8], slot_values[2][40];
    sh_checkpoint_slot slots[2];
    sh_checkpoint checkpoint;
    char folder[4096];
} fixture;

static inline void fixture_fill(fixture *f, uint64_t seed) {
    sh_test_fill(f->weights, 40, seed);
    sh_test_fill(f->state_values, 8, seed + 1);
    sh_test_fill(f->slot_values[0], 40, seed + 2);
    sh_test_fill(f->slot_values[1], 40, seed + 3);
}

static inline void fixture_init(fixture *f, const char *name) {
    *f = (fixture){0};
    if (name != NULL) snprintf(f->folder, sizeof f->folder, "%s", sh_test_folder(name));
    CHECK_OK(sh_param_list_add(&f->params, "conv1.weight", SH_SHAPE(4, 1, 2, 3), true, NULL));
    CHECK_OK(sh_param_list_add(&f->params, "conv1.bias", SH_SHAPE(4), false, NULL));
    CHECK_OK(sh_param_list_add(&f->params, "fc.weight", SH_SHAPE(3, 4), true, NULL));
    CHECK_OK(sh_param_list_add(&f->state, "bn1.running_mean", SH_SHAPE(4), false, NULL));
    CHECK_OK(sh_param_list_add(&f->state, "bn1.running_var", SH_SHAPE(4), false, NULL));
    assert_int_equal(f->params.total, 40);
    f->slots[0] = (sh_checkpoint_slot){.name = "exp_avg", .values = f->slot_values[0]};
    f->slots[1] = (sh_checkpoint_slot){.name = "exp_avg_sq", .values = f->slot_values[1]};
    f->checkpoint = (sh_checkpoint){.params = &f->params,
                                    .weights = f->weights,
                                    .state = &f->state,
                                    .state_values = f->state_values,
                                    .slots = f->slots,
                                    .slot_count = 2};
}

static inline void fixture_fini(fixture *f) {
    sh_param_list_fini(&f->params);
    sh_param_list_fini(&f->state);
}

/* What the blocks hold, saved. */
static inline sh_status save_blocks(fixture *f, int64_t step, int keep) {
    f->checkpoint.info = (sh_checkpoint_info){.step = step,
                                              .epoch = 3,
                                              .batch = 17,
                                              .samples = step * 128,
                                              .seed = 0xfedcba9876543210,
                                              .best = 0.1,
                                              .data = (char[]){"b2:0123"},
                                              .model = (char[]){"- dense: 3\n"},
                                              .kernels = (char[]){"{\"conv1\": \"direct\"}"}};
    return sh_checkpoint_save(f->folder, &f->checkpoint, keep);
}

/* Content that follows from the step, saved. */
static inline sh_status save(fixture *f, int64_t step, int keep) {
    fixture_fill(f, (uint64_t)step);
    return save_blocks(f, step, keep);
}

static inline const char *file_of(const fixture *f, const char *name) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return path;
}

/* Warnings of the last load. */
static char warnings[8192];
static inline void keep_line(void *self, sh_log_level level, const char *text) {
    (void)self;
    assert_int_equal(level, SH_LOG_WARN);
    strncat(warnings, text, sizeof warnings - strlen(warnings) - 1);
}
static const sh_log log_kept = {.line = keep_line};

/* Loads into fresh blocks and expects the content of `step`. */
static inline void check_load(const char *path, int64_t step) {
    fixture into, expected;
    fixture_init(&into, NULL);
    fixture_init(&expected, NULL);
    fixture_fill(&expected, (uint64_t)step);
    warnings[0] = '\0';
    CHECK_OK(sh_checkpoint_load(path, &log_kept, &into.checkpoint));
    assert_memory_equal(into.weights, expected.weights, sizeof into.weights);
    assert_memory_equal(into.state_values, expected.state_values, sizeof into.state_values);
    assert_memory_equal(into.slot_values, expected.slot_values, sizeof into.slot_values);
    sh_checkpoint_info *info = &into.checkpoint.info;
    assert_int_equal(info->step, step);
    assert_int_equal(info->epoch, 3);
    assert_int_equal(info->batch, 17);
    assert_int_equal(info->samples, step * 128);
    assert_true(info->seed == 0xfedcba9876543210);
    assert_true(info->best == 0.1);
    assert_string_equal(info->data, "b2:0123");
    assert_string_equal(info->model, "- dense: 3\n");
    assert_string_equal(info->kernels, "{\"conv1\": \"direct\"}");
    sh_checkpoint_info_fini(info);
    fixture_fini(&into);
    fixture_fini(&expected);
}

/* Loading fails and leaves the blocks alone. */
static inline void check_load_fails(const char *path, sh_status code, const char *part) {
    fixture into;
    fixture_init(&into, NULL);
    warnings[0] = '\0';
    CHECK_FAILS(code, part, sh_checkpoint_load(path, &log_kept, &into.checkpoint));
    for (size_t i = 0; i < 40; i++) assert_true(into.weights[i] == 0);
    fixture_fini(&into);
}

/* Flips one bit, or cuts the file when `at` is beyond its end. */
static inline void damage(const char *path, long at) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    if (at >= bytes) {
        assert_int_equal(ftruncate(fileno(file), bytes - 5), 0);
    } else {
        fseek(file, at, SEEK_SET);
        int c = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(c ^ 4, file);
    }
    fclose(file);
}

static inline size_t count_files(const char *folder) {
    char command[4200];
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *pipe = popen(command, "r");
    size_t count = 0;
    if (pipe == NULL || fscanf(pipe, "%zu", &count) != 1) fail_msg("cannot list %s", folder);
    pclose(pipe);
    return count;
}

static inline void check_model(const fixture *f, const char *path) {
    fixture into;
    fixture_init(&into, NULL);
    CHECK_OK(sh_checkpoint_load_model(path, NULL, &into.params, into.weights, &into.state,
                                      into.state_values));
    assert_memory_equal(into.weights, f->weights, sizeof into.weights);
    assert_memory_equal(into.state_values, f->state_values, sizeof into.state_values);
    char *text;
    CHECK_OK(sh_checkpoint_model_text(path, NULL, &text));
    assert_string_equal(text, "- dense: 3\n");
    sh_free(text);
    fixture_fini(&into);
}

#endif
