#include "ckpt/rig.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

TEST(damage, numbers_that_are_not_finite_are_not_loaded) {
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

TEST(damage, damaged_snapshots_are_skipped_and_named) {
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

/* The place of a tensor's data in a file. */
static long place_of(const char *path, const char *name) {
    sh_safetensors tensors;
    CHECK_OK(sh_safetensors_open(path, &tensors));
    const sh_tensor_entry *entry = sh_safetensors_find(&tensors, name);
    assert_non_null(entry);
    long place = (const char *)entry->data - (const char *)tensors.file.data;
    sh_safetensors_close(&tensors);
    return place;
}

/* Writes the manifest without the checksums of tensors, as it was before there were any. */
static void make_older(const char *path) {
    sh_manifest manifest;
    CHECK_OK(sh_manifest_read(path, &manifest));
    assert_int_equal(manifest.model.tensor_count, 5);
    assert_int_equal(manifest.optimizer.tensor_count, 6);
    sh_free(manifest.model.tensors);
    sh_free(manifest.optimizer.tensors);
    manifest.model.tensors = manifest.optimizer.tensors = NULL;
    manifest.model.tensor_count = manifest.optimizer.tensor_count = 0;
    CHECK_OK(sh_manifest_write(path, &manifest));
    sh_manifest_fini(&manifest);
}

TEST(damage, damage_is_named_by_tensor) {
    fixture f;
    fixture_init(&f, "checkpoint_tensor");
    CHECK_OK(save(&f, 2, 9));
    char manifest[4200], model[4200], optimizer[4200];
    snprintf(manifest, sizeof manifest, "%s", file_of(&f, "manifest-00000002.json"));
    snprintf(model, sizeof model, "%s", file_of(&f, "model-00000002.safetensors"));
    snprintf(optimizer, sizeof optimizer, "%s", file_of(&f, "optimizer-00000002.safetensors"));
    long place = place_of(optimizer, "fc.weight.exp_avg_sq");
    damage(optimizer, place + 5);
    check_load_fails(manifest, SH_E_FORMAT,
                     "tensor 'fc.weight.exp_avg_sq' is not what was written");
    damage(optimizer, place + 5);  // the same bit again: mended
    check_load(manifest, 2);
    place = place_of(model, "conv1.bias");
    damage(model, place);
    check_load_fails(manifest, SH_E_FORMAT, "tensor 'conv1.bias' is not what was written");
    damage(model, place_of(model, "bn1.running_var") + 7);
    check_load_fails(manifest, SH_E_FORMAT, "tensor 'conv1.bias' and 1 more are not");
    damage(model, place_of(model, "bn1.running_var") + 7);
    damage(model, place);
    // In the texts of the header no tensor is damaged; where it cannot be read, nobody knows.
    damage(model, 8 + 30);
    check_load_fails(manifest, SH_E_FORMAT, "and the damage is in its header");
    damage(model, 8 + 30);
    // A manifest from before does not know the tensors.
    make_older(manifest);
    check_load(manifest, 2);
    damage(model, place);
    check_load_fails(manifest, SH_E_FORMAT, "00000002.safetensors' is damaged: its checksum");
    fixture_fini(&f);
}

TEST(damage, missing_files_are_noticed) {
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

static void check_model_fails(const char *path, const char *part) {
    fixture into;
    fixture_init(&into, NULL);
    char *text, *file;
    warnings[0] = '\0';
    CHECK_FAILS(SH_E_FORMAT, part,
                sh_checkpoint_load_model(path, &log_kept, &into.params, into.weights, &into.state,
                                         into.state_values));
    CHECK_FAILS(SH_E_FORMAT, part, sh_checkpoint_model_text(path, NULL, &text));
    CHECK_FAILS(SH_E_FORMAT, part, sh_checkpoint_facts_text(path, NULL, &text, &file));
    for (size_t i = 0; i < 40; i++) assert_true(into.weights[i] == 0);
    fixture_fini(&into);
}

/* Every bit of the file counts: also of one that is named itself. */
TEST(damage, a_damaged_model_beside_its_manifest_is_refused) {
    fixture f;
    fixture_init(&f, "checkpoint_flipped");
    CHECK_OK(save(&f, 8, 1));
    char path[4200], older[4200];
    snprintf(path, sizeof path, "%s", file_of(&f, "model-00000008.safetensors"));
    long place = place_of(path, "fc.weight");
    damage(path, place + 9);
    check_model_fails(path, "tensor 'fc.weight' is not what was written");
    make_older(file_of(&f, "manifest-00000008.json"));
    check_model_fails(path, "its checksum does not hold");
    // Beside the manifest of another file nothing is known of it.
    snprintf(older, sizeof older, "%s", file_of(&f, "copy.safetensors"));
    assert_int_equal(rename(path, older), 0);
    fixture into;
    fixture_init(&into, NULL);
    CHECK_OK(sh_checkpoint_load_model(older, NULL, &into.params, into.weights, &into.state,
                                      into.state_values));
    assert_int_equal(rename(older, path), 0);
    damage(path, place + 9);
    check_model(&f, path);
    // A manifest that cannot be read does not take the model with it.
    damage(file_of(&f, "manifest-00000008.json"), 150);
    warnings[0] = '\0';
    CHECK_OK(sh_checkpoint_load_model(path, &log_kept, &into.params, into.weights, &into.state,
                                      into.state_values));
    assert_non_null(strstr(warnings, "model-00000008.safetensors' is used unchecked"));
    fixture_fini(&into);
    fixture_fini(&f);
}

/* A file-size limit stands in for a full disk: it strikes in each of the three files in turn. */
TEST(damage, a_full_disk_leaves_the_snapshot_before) {
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
