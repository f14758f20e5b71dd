#include "ckpt/rig.h"

#include <math.h>

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
