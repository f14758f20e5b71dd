#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/manifest.h"

static char model_text[] = "- dense: \"3\"\n";

static sh_manifest sound(void) {
    sh_manifest manifest = {.info = {.step = 12, .best = NAN, .seed = 1, .model = model_text},
                            .model = {.name = "model-00000012.safetensors", .bytes = 5}};
    memset(manifest.model.checksum, 'a', SH_BLAKE2_HEX - 1);
    return manifest;
}

/* Writes it, checksum and all, and reads it back. */
static sh_status pass(const sh_manifest *manifest, sh_manifest *read_out) {
    char path[4200];
    snprintf(path, sizeof path, "%s/manifest.json", sh_test_folder("manifest"));
    SH_TRY(sh_manifest_write(path, manifest));
    return sh_manifest_read(path, read_out);
}

TEST(manifest, reads_what_it_writes) {
    sh_manifest manifest = sound(), read;
    CHECK_OK(pass(&manifest, &read));
    assert_int_equal(read.info.step, 12);
    assert_true(isnan(read.info.best));
    assert_null(read.info.data);
    assert_string_equal(read.info.model, "- dense: \"3\"\n");
    assert_string_equal(read.model.name, manifest.model.name);
    assert_string_equal(read.model.checksum, manifest.model.checksum);
    assert_int_equal(read.model.bytes, 5);
    assert_int_equal(read.optimizer.name[0], '\0');
    sh_manifest_fini(&read);
}

/* The checksums of a file's tensors; manifests from before them have none. */
TEST(manifest, reads_the_tensors_of_a_file) {
    sh_manifest_tensor tensors[] = {{"fc.weight", "00112233445566778899aabbccddeeff"},
                                    {"fc.bias", "ffeeddccbbaa99887766554433221100"}};
    sh_manifest manifest = sound(), read;
    CHECK_OK(pass(&manifest, &read));
    assert_null(read.model.tensors);
    sh_manifest_fini(&read);
    manifest.model.tensors = tensors;
    manifest.model.tensor_count = 2;
    CHECK_OK(pass(&manifest, &read));
    assert_int_equal(read.model.tensor_count, 2);
    assert_int_equal(read.optimizer.tensor_count, 0);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(read.model.tensors[i].name, tensors[i].name);
        assert_string_equal(read.model.tensors[i].digest, tensors[i].digest);
    }
    sh_manifest_fini(&read);
    tensors[1].digest[31] = '\0';
    CHECK_FAILS(SH_E_FORMAT, "a tensor's checksum is missing", pass(&manifest, &read));
}

TEST(manifest, follows_only_plain_names) {
    static const char *const names[] = {"../model", "/etc/passwd", "a/b", "..", ".hidden", ""};
    for (size_t i = 0; i < SH_COUNT(names); i++) {
        sh_manifest manifest = sound(), read;
        snprintf(manifest.model.name, sizeof manifest.model.name, "%s", names[i]);
        CHECK_FAILS(SH_E_FORMAT, "plain name", pass(&manifest, &read));
    }
}

TEST(manifest, refuses_counts_below_zero) {
    sh_manifest manifest = sound(), read;
    manifest.info.batch = -1;
    CHECK_FAILS(SH_E_FORMAT, "'batch' is not a count", pass(&manifest, &read));
    manifest = sound();
    manifest.model.bytes = -1;
    CHECK_FAILS(SH_E_FORMAT, "'bytes' is not a count", pass(&manifest, &read));
}

TEST(manifest, refuses_texts_that_are_not_utf8) {
    sh_manifest manifest = sound(), read;
    manifest.info.model = (char[]){"\xff"};
    CHECK_FAILS(SH_E_FORMAT, "UTF-8", pass(&manifest, &read));
}

static sh_status parse(const char *text) {
    sh_manifest manifest;
    return sh_manifest_parse("m", text, strlen(text), &manifest);
}

TEST(manifest, refuses_what_is_none) {
    CHECK_FAILS(SH_E_FORMAT, "no map", parse(""));
    CHECK_FAILS(SH_E_FORMAT, "no map", parse("[1]"));
    CHECK_FAILS(SH_E_FORMAT, "does not say", parse("{}"));
    CHECK_FAILS(SH_E_FORMAT, "byte", parse("{\"format\": "));
    CHECK_FAILS(SH_E_UNSUPPORTED, "version 2",
                parse("{\"format\": \"shoal checkpoint\", \"version\": 2}"));
    CHECK_FAILS(SH_E_FORMAT, "'step' is not a count",
                parse("{\"format\": \"shoal checkpoint\", \"version\": 1}"));
}
