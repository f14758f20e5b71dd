#include "harness.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/checkpoint.h"
#include "ckpt/safetensors.h"

/* A small net with batchnorm and two optimizer slots. */
typedef struct fixture {
    sh_param_list params, state;
    float weights[40], state_values[8], slot_values[2][40];
    sh_checkpoint_slot slots[2];
    sh_checkpoint checkpoint;
    char folder[4096];
} fixture;

static void fixture_fill(fixture *f, uint64_t seed) {
    sh_test_fill(f->weights, 40, seed);
    sh_test_fill(f->state_values, 8, seed + 1);
    sh_test_fill(f->slot_values[0], 40, seed + 2);
    sh_test_fill(f->slot_values[1], 40, seed + 3);
}

static void fixture_init(fixture *f, const char *name) {
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

static void fixture_fini(fixture *f) {
    sh_param_list_fini(&f->params);
    sh_param_list_fini(&f->state);
}

/* What the blocks hold, saved. */
static sh_status save_blocks(fixture *f, int64_t step, int keep) {
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
static sh_status save(fixture *f, int64_t step, int keep) {
    fixture_fill(f, (uint64_t)step);
    return save_blocks(f, step, keep);
}

static const char *file_of(const fixture *f, const char *name) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return path;
}

/* Warnings of the last load. */
static char warnings[8192];
static void keep_line(void *self, sh_log_level level, const char *text) {
    (void)self;
    assert_int_equal(level, SH_LOG_WARN);
    strncat(warnings, text, sizeof warnings - strlen(warnings) - 1);
}
static const sh_log log_kept = {.line = keep_line};

/* Loads into fresh blocks and expects the content of `step`. */
static void check_load(const char *path, int64_t step) {
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
static void check_load_fails(const char *path, sh_status code, const char *part) {
    fixture into;
    fixture_init(&into, NULL);
    warnings[0] = '\0';
    CHECK_FAILS(code, part, sh_checkpoint_load(path, &log_kept, &into.checkpoint));
    for (size_t i = 0; i < 40; i++) assert_true(into.weights[i] == 0);
    fixture_fini(&into);
}

/* Flips one bit, or cuts the file when `at` is beyond its end. */
static void damage(const char *path, long at) {
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

static size_t count_files(const char *folder) {
    char command[4200];
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *pipe = popen(command, "r");
    size_t count = 0;
    if (pipe == NULL || fscanf(pipe, "%zu", &count) != 1) fail_msg("cannot list %s", folder);
    pclose(pipe);
    return count;
}

TEST(checkpoint, gives_back_what_was_saved) {
    fixture f;
    fixture_init(&f, "checkpoint_round");
    CHECK_OK(save(&f, 1234, 3));
    assert_true(sh_file_exists(file_of(&f, "model-00001234.safetensors")));
    assert_true(sh_file_exists(file_of(&f, "optimizer-00001234.safetensors")));
    check_load(f.folder, 1234);
    assert_string_equal(warnings, "");
    check_load(file_of(&f, "manifest-00001234.json"), 1234);
    fixture_fini(&f);
}

TEST(checkpoint, is_found_from_the_run_folder) {
    fixture f;
    fixture_init(&f, "checkpoint_run");
    char run[4096];
    snprintf(run, sizeof run, "%s", f.folder);
    strcat(f.folder, "/checkpoints");  // made by the save
    CHECK_OK(save(&f, 5, 3));
    check_load(run, 5);
    char *manifest;
    sh_checkpoint_info info;
    CHECK_OK(sh_checkpoint_find(run, NULL, &manifest, &info));
    assert_string_equal(manifest, file_of(&f, "manifest-00000005.json"));
    assert_int_equal(info.step, 5);
    sh_checkpoint_info_fini(&info);
    sh_free(manifest);
    fixture_fini(&f);
}

static void check_same_file(const fixture *a, const fixture *b, const char *name) {
    char path[4200];
    snprintf(path, sizeof path, "%s", file_of(a, name));
    sh_mapped first, second;
    CHECK_OK(sh_file_map(path, &first));
    CHECK_OK(sh_file_map(file_of(b, name), &second));
    assert_int_equal(first.bytes, second.bytes);
    assert_memory_equal(first.data, second.data, first.bytes);
    sh_file_unmap(&first);
    sh_file_unmap(&second);
}

TEST(checkpoint, equal_content_gives_equal_bytes) {
    fixture a, b;
    fixture_init(&a, "checkpoint_same_a");
    fixture_init(&b, "checkpoint_same_b");
    CHECK_OK(save(&b, 3, 3));  // another history
    CHECK_OK(save(&a, 7, 3));
    CHECK_OK(save(&b, 7, 3));
    check_same_file(&a, &b, "model-00000007.safetensors");
    check_same_file(&a, &b, "optimizer-00000007.safetensors");
    check_same_file(&a, &b, "manifest-00000007.json");
    fixture_fini(&a);
    fixture_fini(&b);
}

TEST(checkpoint, keeps_the_newest) {
    fixture f;
    fixture_init(&f, "checkpoint_keep");
    CHECK_OK(sh_file_write(file_of(&f, "model-00000001.safetensors.tmp.abcdef"), "x", 1));
    CHECK_OK(sh_file_write(file_of(&f, "model-00000002.safetensors"), "x", 1));  // no manifest
    CHECK_OK(sh_file_write(file_of(&f, "model-notes.txt"), "x", 1));             // no such name
    for (int64_t step = 10; step <= 50; step += 10) CHECK_OK(save(&f, step, 2));
    const char *gone[] = {"model-00000030.safetensors", "optimizer-00000030.safetensors",
                          "manifest-00000030.json", "manifest-00000010.json",
                          "model-00000001.safetensors.tmp.abcdef"};
    const char *kept[] = {"model-00000040.safetensors", "optimizer-00000040.safetensors",
                          "manifest-00000040.json",     "model-00000050.safetensors",
                          "manifest-00000050.json",     "model-notes.txt",
                          "model-00000002.safetensors"};
    for (size_t i = 0; i < SH_COUNT(gone); i++) assert_false(sh_file_exists(file_of(&f, gone[i])));
    for (size_t i = 0; i < SH_COUNT(kept); i++) assert_true(sh_file_exists(file_of(&f, kept[i])));
    check_load(f.folder, 50);
    check_load(file_of(&f, "manifest-00000040.json"), 40);
    CHECK_OK(save(&f, 60, 0));  // 0 keeps all
    check_load(file_of(&f, "manifest-00000040.json"), 40);
    fixture_fini(&f);
}

TEST(checkpoint, of_another_branch_none_is_removed) {
    fixture f;
    fixture_init(&f, "checkpoint_branch");
    for (int64_t step = 10; step <= 50; step += 10) CHECK_OK(save(&f, step, 9));
    // A run that went back to step 20 and takes another way from there.
    CHECK_OK(save(&f, 25, 2));
    static const int64_t kept[] = {20, 25, 30, 40, 50};
    char name[64];
    for (size_t i = 0; i < SH_COUNT(kept); i++) {
        snprintf(name, sizeof name, "manifest-%08ld.json", (long)kept[i]);
        check_load(file_of(&f, name), kept[i]);
    }
    assert_int_equal(count_files(f.folder), 3 * SH_COUNT(kept));
    CHECK_OK(save(&f, 35, 2));
    check_load(file_of(&f, "manifest-00000035.json"), 35);
    check_load(file_of(&f, "manifest-00000050.json"), 50);
    assert_false(sh_file_exists(file_of(&f, "manifest-00000025.json")));
    fixture_fini(&f);
}

TEST(checkpoint, the_newest_up_to_a_step_is_found) {
    fixture f;
    fixture_init(&f, "checkpoint_before");
    for (int64_t step = 10; step <= 40; step += 10) CHECK_OK(save(&f, step, 9));
    damage(file_of(&f, "model-00000030.safetensors"), 150);
    char *manifest;
    warnings[0] = '\0';
    CHECK_OK(sh_checkpoint_find_before(f.folder, 35, &log_kept, &manifest));
    assert_string_equal(manifest, file_of(&f, "manifest-00000020.json"));
    sh_free(manifest);
    assert_non_null(strstr(warnings, "manifest-00000030.json' is skipped"));
    assert_null(strstr(warnings, "manifest-00000040.json"));
    CHECK_FAILS(SH_E_IO, "no checkpoint in",
                sh_checkpoint_find_before(f.folder, 9, NULL, &manifest));
    damage(file_of(&f, "model-00000010.safetensors"), 150);
    CHECK_FAILS(SH_E_FORMAT, "holds 1 checkpoint and all are damaged",
                sh_checkpoint_find_before(f.folder, 15, NULL, &manifest));
    fixture_fini(&f);
}

TEST(checkpoint, numbers_that_are_not_finite_are_not_loaded) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < SH_COUNT(bad); i++) {
        fixture f;
        fixture_init(&f, "checkpoint_finite");
        CHECK_OK(save(&f, 1, 9));
        fixture_fill(&f, 2);
        f.weights[39] = bad[i];  // the last of fc.weight
        CHECK_OK(save_blocks(&f, 2, 9));
        check_load_fails(f.folder, SH_E_NUMERIC, "tensor 'fc.weight' holds a NaN or an infinity");
        check_load_fails(file_of(&f, "manifest-00000002.json"), SH_E_NUMERIC, "fc.weight");
        check_load(file_of(&f, "manifest-00000001.json"), 1);
        fixture_fini(&f);
    }
}

TEST(checkpoint, without_a_manifest_there_is_no_snapshot) {
    fixture f;
    fixture_init(&f, "checkpoint_torn");
    CHECK_OK(save(&f, 1, 9));
    CHECK_OK(save(&f, 2, 9));
    assert_int_equal(unlink(file_of(&f, "manifest-00000002.json")), 0);
    check_load(f.folder, 1);
    assert_int_equal(unlink(file_of(&f, "manifest-00000001.json")), 0);
    check_load_fails(f.folder, SH_E_IO, "no checkpoint in");
    fixture_fini(&f);
}

TEST(checkpoint, damaged_snapshots_are_skipped_and_named) {
    static const char *const files[] = {"model-00000002.safetensors",
                                        "optimizer-00000002.safetensors", "manifest-00000002.json"};
    static const long places[] = {3, 100, 150, 1 << 20};
    for (size_t file = 0; file < SH_COUNT(files); file++)
        for (size_t place = 0; place < SH_COUNT(places); place++) {
            fixture f;
            fixture_init(&f, "checkpoint_damaged");
            CHECK_OK(save(&f, 1, 9));
            CHECK_OK(save(&f, 2, 9));
            damage(file_of(&f, files[file]), places[place]);
            check_load(f.folder, 1);
            assert_non_null(strstr(warnings, "manifest-00000002.json' is skipped"));
            fixture into;  // named itself, it is an error
            fixture_init(&into, NULL);
            assert_int_not_equal(
                sh_checkpoint_load(file_of(&f, "manifest-00000002.json"), NULL, &into.checkpoint),
                SH_OK);
            fixture_fini(&into);
            fixture_fini(&f);
        }
}

TEST(checkpoint, missing_files_are_noticed) {
    fixture f;
    fixture_init(&f, "checkpoint_missing");
    CHECK_OK(save(&f, 2, 9));
    assert_int_equal(unlink(file_of(&f, "optimizer-00000002.safetensors")), 0);
    check_load_fails(f.folder, SH_E_FORMAT, "all are damaged");
    check_load_fails(file_of(&f, "manifest-00000002.json"), SH_E_IO, "optimizer-00000002");
    check_load_fails(file_of(&f, "nowhere"), SH_E_IO, "nowhere");
    check_load_fails(file_of(&f, "model-00000002.safetensors"), SH_E_USAGE, "a model alone");
    fixture_fini(&f);
}

/* Loads a good snapshot into a model that `change` made different. */
static void check_misfit(void (*change)(fixture *f), const char *part) {
    fixture f, into;
    fixture_init(&f, "checkpoint_misfit");
    CHECK_OK(save(&f, 2, 9));
    fixture_init(&into, NULL);
    change(&into);
    CHECK_FAILS(SH_E_SHAPE, part, sh_checkpoint_load(f.folder, NULL, &into.checkpoint));
    for (size_t i = 0; i < 40; i++) assert_true(into.weights[i] == 0);
    fixture_fini(&into);
    fixture_fini(&f);
}

static void rename_param(fixture *f) { strcpy(f->params.items[2].name, "head.weight"); }
static void reshape_param(fixture *f) { f->params.items[2].shape = SH_SHAPE(4, 3); }
static void drop_param(fixture *f) { f->params.count = 2; }
static void drop_state(fixture *f) { f->checkpoint.state = NULL; }
static void drop_slots(fixture *f) { f->checkpoint.slot_count = 0; }
static void rename_slot(fixture *f) { f->slots[1].name = "momentum"; }

TEST(checkpoint, the_first_misfit_is_named) {
    check_misfit(rename_param, "tensor 'head.weight' (3x4) is missing");
    check_misfit(reshape_param, "tensor 'fc.weight' is 3x4 there and 4x3 in the model");
    check_misfit(drop_param, "tensor 'fc.weight' is there and not in the model");
    check_misfit(drop_state, "tensor 'bn1.running_mean' is there and not in the model");
    check_misfit(drop_slots, "tensor 'conv1.weight.exp_avg' is there and not in the model");
    check_misfit(rename_slot, "tensor 'conv1.weight.momentum' (4x1x2x3) is missing");
}

/* A codec's state comes and goes with the codec; the optimizer's own does not. */
TEST(checkpoint, optional_slots_start_anew_and_others_are_left_out) {
    static const char *const left_out[] = {"exp_avg_sq", "residual", NULL};
    fixture f, into;
    fixture_init(&f, "checkpoint_optional");
    CHECK_OK(save(&f, 2, 9));
    fixture_init(&into, NULL);
    into.slot_values[1][3] = 7;
    into.slots[1].name = "residual";
    into.slots[1].optional = true;
    CHECK_FAILS(SH_E_SHAPE, "'conv1.weight.exp_avg_sq' is there and not in the model",
                sh_checkpoint_load(f.folder, NULL, &into.checkpoint));
    into.checkpoint.left_out = left_out;
    warnings[0] = '\0';
    CHECK_OK(sh_checkpoint_load(f.folder, &log_kept, &into.checkpoint));
    assert_non_null(strstr(warnings, "starts anew: residual; left out: exp_avg_sq"));
    assert_memory_equal(into.slot_values[0], f.slot_values[0], sizeof f.slot_values[0]);
    assert_true(into.slot_values[1][3] == 7);
    sh_checkpoint_info_fini(&into.checkpoint.info);
    // One that is needed may be missing only where another stands in its place.
    into.slots[1].optional = false;
    into.slots[1].instead = "velocity";
    CHECK_FAILS(SH_E_SHAPE, "'conv1.weight.residual' (4x1x2x3) is missing",
                sh_checkpoint_load(f.folder, NULL, &into.checkpoint));
    into.slots[1].instead = "exp_avg_sq";
    CHECK_OK(sh_checkpoint_load(f.folder, NULL, &into.checkpoint));
    sh_checkpoint_info_fini(&into.checkpoint.info);
    fixture_fini(&into);
    fixture_fini(&f);
}

TEST(checkpoint, works_without_slots_and_texts) {
    fixture f, into;
    fixture_init(&f, "checkpoint_bare");
    fixture_fill(&f, 1);
    f.checkpoint.slot_count = 0;
    f.checkpoint.info = (sh_checkpoint_info){.step = 4, .best = NAN};
    CHECK_OK(sh_checkpoint_save(f.folder, &f.checkpoint, 1));
    assert_false(sh_file_exists(file_of(&f, "optimizer-00000004.safetensors")));
    fixture_init(&into, NULL);
    CHECK_FAILS(SH_E_SHAPE, "'conv1.weight.exp_avg' (4x1x2x3) is missing",
                sh_checkpoint_load(f.folder, NULL, &into.checkpoint));
    into.checkpoint.slot_count = 0;
    CHECK_OK(sh_checkpoint_load(f.folder, NULL, &into.checkpoint));
    assert_true(isnan(into.checkpoint.info.best));
    assert_null(into.checkpoint.info.model);
    assert_memory_equal(into.weights, f.weights, sizeof f.weights);
    sh_checkpoint_info_fini(&into.checkpoint.info);
    fixture_fini(&into);
    fixture_fini(&f);
}

static void check_model(const fixture *f, const char *path) {
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

TEST(checkpoint, a_model_loads_alone) {
    fixture f;
    fixture_init(&f, "checkpoint_model");
    CHECK_OK(save(&f, 8, 1));
    check_model(&f, file_of(&f, "model-00000008.safetensors"));
    check_model(&f, file_of(&f, "manifest-00000008.json"));
    check_model(&f, f.folder);
    assert_int_equal(unlink(file_of(&f, "manifest-00000008.json")), 0);
    check_model(&f, file_of(&f, "model-00000008.safetensors"));
    fixture_fini(&f);
}

TEST(checkpoint, a_model_from_pytorch_loads) {
    fixture f, into;
    fixture_init(&f, "checkpoint_pytorch");
    fixture_fill(&f, 1);
    const int64_t batches = 99;
    sh_tensor_entry entries[6] = {{.name = "bn1.num_batches_tracked",
                                   .type = SH_TENSOR_I64,
                                   .shape = {.rank = 0},
                                   .data = &batches}};
    for (size_t i = 0; i < 3; i++)
        entries[1 + i] = (sh_tensor_entry){.name = f.params.items[i].name,
                                           .type = SH_TENSOR_F32,
                                           .shape = f.params.items[i].shape,
                                           .data = f.weights + f.params.items[i].offset};
    for (size_t i = 0; i < 2; i++)
        entries[4 + i] = (sh_tensor_entry){.name = f.state.items[i].name,
                                           .type = SH_TENSOR_F32,
                                           .shape = f.state.items[i].shape,
                                           .data = f.state_values + f.state.items[i].offset};
    const char *path = file_of(&f, "model.safetensors");
    CHECK_OK(sh_safetensors_write(path, entries, 6, NULL, 0));
    fixture_init(&into, NULL);
    CHECK_OK(sh_checkpoint_load_model(path, NULL, &into.params, into.weights, &into.state,
                                      into.state_values));
    assert_memory_equal(into.weights, f.weights, sizeof f.weights);
    char *text;
    CHECK_FAILS(SH_E_FORMAT, "does not say which model",
                sh_checkpoint_model_text(path, NULL, &text));
    entries[1].type = SH_TENSOR_I32;
    CHECK_OK(sh_safetensors_write(path, entries, 6, NULL, 0));
    CHECK_FAILS(SH_E_UNSUPPORTED, "'conv1.weight' is I32",
                sh_checkpoint_load_model(path, NULL, &into.params, into.weights, &into.state,
                                         into.state_values));
    fixture_fini(&into);
    fixture_fini(&f);
}

/* A file-size limit stands in for a full disk: it strikes in each of the three files in turn. */
TEST(checkpoint, a_full_disk_leaves_the_snapshot_before) {
    fixture f;
    fixture_init(&f, "checkpoint_full");
    CHECK_OK(save(&f, 1, 1));
    size_t files = count_files(f.folder);
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    size_t failures = 0;
    for (rlim_t bytes = 0; bytes < 4096; bytes += 64) {
        limit = (struct rlimit){bytes, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        sh_status status = save(&f, 2, 1);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        if (status == SH_OK) break;
        failures++;
        assert_int_equal(status, SH_E_IO);
        assert_int_equal(count_files(f.folder), files);
        check_load(f.folder, 1);
        assert_string_equal(warnings, "");
    }
    assert_true(failures > 10);
    check_load(f.folder, 2);
    // The same for a snapshot of a step that has one already.
    files = count_files(f.folder);
    limit = (struct rlimit){2048, before.rlim_max};
    for (rlim_t bytes = 0; bytes < 4096; bytes += 512) {
        limit.rlim_cur = bytes;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        (void)save(&f, 2, 1);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(count_files(f.folder), files);
        check_load(f.folder, 2);
        assert_string_equal(warnings, "");
    }
    fixture_fini(&f);
}
