#include <zlib.h>

#include "data/blob.h"
#include "data/fetch.h"
#include "data/tar.h"
#include "files.h"

/* One member: header and padded content. Returns the bytes written. */
static size_t put_member(char *at, const char *name, char type, const char *content) {
    size_t bytes = strlen(content), padded = (bytes + 511) / 512 * 512;
    memset(at, 0, 512 + padded);
    snprintf(at, 100, "%s", name);
    snprintf(at + 124, 12, "%011o", (unsigned)bytes);
    at[156] = type;
    memcpy(at + 257,
           "ustar\0"
           "00",
           8);
    memset(at + 148, ' ', 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += (unsigned char)at[i];
    snprintf(at + 148, 8, "%06o", sum);
    memcpy(at + 512, content, bytes);
    return 512 + padded;
}

static size_t make_archive(char *at) {
    size_t used = put_member(at, "package/", '5', "");
    used += put_member(at + used, "package/a", '0', "first");
    used += put_member(at + used, "package/link", '2', "");
    used += put_member(at + used, "package/b", '\0', "second");
    memset(at + used, 0, 1024);
    return used + 1024;
}

TEST(tar, gives_plain_files_in_order) {
    static char archive[16384];
    sh_tar tar = {.source = "a.tar", .data = (uint8_t *)archive, .bytes = make_archive(archive)};
    sh_tar_file file;
    CHECK_OK(sh_tar_next(&tar, &file));
    assert_string_equal(file.name, "package/a");
    assert_int_equal(file.bytes, 5);
    assert_memory_equal(file.data, "first", 5);
    CHECK_OK(sh_tar_next(&tar, &file));
    assert_string_equal(file.name, "package/b");
    assert_memory_equal(file.data, "second", 6);
    CHECK_OK(sh_tar_next(&tar, &file));
    assert_null(file.name);
}

TEST(tar, refuses_damage_and_false_sizes) {
    static char archive[16384];
    size_t bytes = make_archive(archive);
    sh_tar_file file;
    sh_tar cut = {.source = "a.tar", .data = (uint8_t *)archive, .bytes = 512 + 512 + 3};
    CHECK_FAILS(SH_E_FORMAT, "ends within a file", sh_tar_next(&cut, &file));
    archive[512 + 3] ^= 1;
    sh_tar bad = {.source = "a.tar", .data = (uint8_t *)archive, .bytes = bytes};
    CHECK_FAILS(SH_E_FORMAT, "damaged, at byte 512", sh_tar_next(&bad, &file));
}

static void put_packed(const char *name, const char *text) {
    gzFile file = gzopen(test_path(name), "wb");
    assert_int_equal(gzwrite(file, text, (unsigned)strlen(text)), strlen(text));
    gzclose(file);
}

TEST(fetch, finds_packed_files_too) {
    use_folder("fetch_packed");
    put_text("train-images-idx3-ubyte", "a");
    put_text("train-labels-idx1-ubyte", "b");
    put_packed("t10k-images-idx3-ubyte.gz", "c");
    assert_false(sh_data_has("mnist", test_root));
    put_packed("t10k-labels-idx1-ubyte.gz", "d");
    assert_true(sh_data_has("mnist", test_root));
    char plain[SH_SHA256_HEX], packed[SH_SHA256_HEX];
    CHECK_OK(sh_blob_sha256(put_text("c", "c"), NULL, plain));
    CHECK_OK(sh_blob_sha256(test_path("t10k-images-idx3-ubyte.gz"), NULL, packed));
    assert_string_equal(plain, packed);
}

TEST(fetch, needs_nothing_for_the_digits) {
    use_folder("fetch");
    CHECK_OK(sh_data_get("digits", test_root, NULL, NULL));
    assert_true(sh_data_has("digits", test_root));
    assert_false(sh_data_has("mnist", test_root));
    CHECK_FAILS(SH_E_USAGE, "no data named 'imagenet'",
                sh_data_get("imagenet", test_root, NULL, NULL));
}
