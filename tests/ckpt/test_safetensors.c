#include "harness.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/safetensors.h"

static const float matrix[6] = {1, 2, 3, 4, 5, 6};
static const int64_t scalar = -7;
static const unsigned char flags[3] = {1, 0, 1};

static const sh_tensor_entry entries[] = {
    {.name = "conv1.weight", .type = SH_TENSOR_F32, .shape = SH_SHAPE(2, 3), .data = matrix},
    {.name = "flags", .type = SH_TENSOR_BOOL, .shape = SH_SHAPE(3), .data = flags},
    {.name = "empty", .type = SH_TENSOR_F64, .shape = SH_SHAPE(0, 4), .data = NULL},
    {.name = "a\"quote\\", .type = SH_TENSOR_I64, .shape = {.rank = 0}, .data = &scalar},
};
static const sh_tensor_note notes[] = {{"format", "pt"}, {"model", "a: 1\nb: [2]\n"}};

static char path[4200];
static const char *test_path(const char *name) {
    snprintf(path, sizeof path, "%s/t.safetensors", sh_test_folder(name));
    return path;
}

TEST(safetensors, gives_back_what_was_written) {
    const char *file = test_path("safetensors_round");
    CHECK_OK(sh_safetensors_write(file, entries, SH_COUNT(entries), notes, 2));
    sh_safetensors tensors;
    CHECK_OK(sh_safetensors_open(file, &tensors));
    assert_int_equal(tensors.count, SH_COUNT(entries));
    for (size_t i = 0; i < SH_COUNT(entries); i++) {
        const sh_tensor_entry *found = sh_safetensors_find(&tensors, entries[i].name);
        assert_non_null(found);
        assert_int_equal(found->type, entries[i].type);
        assert_true(sh_shape_equal(&found->shape, &entries[i].shape));
        if (found->bytes != 0) assert_memory_equal(found->data, entries[i].data, found->bytes);
    }
    assert_int_equal(tensors.entries[0].bytes, sizeof matrix);
    assert_string_equal(tensors.entries[0].name, "conv1.weight");
    assert_string_equal(sh_safetensors_note(&tensors, "model"), "a: 1\nb: [2]\n");
    assert_null(sh_safetensors_note(&tensors, "other"));
    assert_null(sh_safetensors_find(&tensors, "conv1.bias"));
    sh_safetensors_close(&tensors);
}

/* The whole file, byte for byte, as the format's description gives it. */
TEST(safetensors, bytes_are_as_the_format_says) {
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}";
    const char *file = test_path("safetensors_bytes");
    sh_tensor_entry entry = entries[0];
    entry.name = "w";
    CHECK_OK(sh_safetensors_write(file, &entry, 1, notes, 1));
    sh_mapped mapped;
    CHECK_OK(sh_file_map(file, &mapped));
    uint64_t length;
    memcpy(&length, mapped.data, sizeof length);
    assert_int_equal(length % 8, 0);
    assert_int_equal(mapped.bytes, 8 + length + sizeof matrix);
    assert_memory_equal(mapped.data + 8, header, sizeof header - 1);
    for (size_t i = sizeof header - 1; i < length; i++) assert_int_equal(mapped.data[8 + i], ' ');
    assert_memory_equal(mapped.data + 8 + length, matrix, sizeof matrix);
    sh_file_unmap(&mapped);
}

TEST(safetensors, refuses_names_it_cannot_store) {
    const char *file = test_path("safetensors_names");
    sh_tensor_entry twice[2] = {entries[0], entries[0]};
    CHECK_FAILS(SH_E_FORMAT, "called 'conv1.weight'",
                sh_safetensors_write(file, twice, 2, NULL, 0));
    twice[0].name = "__metadata__";
    CHECK_FAILS(SH_E_FORMAT, "__metadata__", sh_safetensors_write(file, twice, 1, NULL, 0));
    twice[0].name = "\xff\xfe";
    CHECK_FAILS(SH_E_FORMAT, "UTF-8", sh_safetensors_write(file, twice, 1, NULL, 0));
    assert_false(sh_file_exists(file));
}

TEST(safetensors, every_cut_file_is_refused) {
    const char *file = test_path("safetensors_cut");
    CHECK_OK(sh_safetensors_write(file, entries, SH_COUNT(entries), notes, 2));
    sh_mapped mapped;
    CHECK_OK(sh_file_map(file, &mapped));
    for (size_t bytes = 0; bytes < mapped.bytes; bytes++) {
        // An exact copy, so that a sanitizer sees a read beyond the end.
        unsigned char *copy = sh_alloc(bytes, 1);
        memcpy(copy, mapped.data, bytes);
        sh_safetensors tensors;
        CHECK_FAILS(SH_E_FORMAT, "not a sound safetensors file",
                    sh_safetensors_parse("cut", copy, bytes, &tensors));
        sh_free(copy);
    }
    sh_file_unmap(&mapped);
}

/* `header` with `data_bytes` of zeros behind it. */
static sh_status parse(const char *header, size_t data_bytes) {
    uint64_t length = strlen(header);
    unsigned char *file = sh_alloc(8 + length + data_bytes, 1);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    sh_safetensors tensors;
    sh_status status = sh_safetensors_parse("x", file, 8 + length + data_bytes, &tensors);
    if (status == SH_OK) sh_safetensors_close(&tensors);
    sh_free(file);
    return status;
}

#define T(dtype, shape, offsets) \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

TEST(safetensors, takes_what_others_write) {
    CHECK_OK(parse("{}", 0));
    CHECK_OK(parse("{\"a\":" T("F32", "1", "0,4") "}   ", 4));
    CHECK_OK(parse("{\"b\":" T("F16", "3", "4,10") ",\"a\":" T("F32", "", "0,4") "}", 10));
    CHECK_OK(parse("{\"a\":" T("I8", "0", "2,2") ",\"b\":" T("U8", "2", "0,2") "}", 2));
}

TEST(safetensors, refuses_hostile_headers) {
    CHECK_FAILS(SH_E_FORMAT, "no map", parse("", 0));
    CHECK_FAILS(SH_E_FORMAT, "no map", parse("[]", 0));
    CHECK_FAILS(SH_E_FORMAT, "header", parse("{\"a\":", 0));
    CHECK_FAILS(SH_E_FORMAT, "no map", parse("{\"a\":1}", 0));
    CHECK_FAILS(SH_E_FORMAT, "no dtype", parse("{\"a\":{}}", 0));
    CHECK_FAILS(SH_E_FORMAT, "unknown dtype 'F31'", parse("{\"a\":" T("F31", "1", "0,4") "}", 4));
    CHECK_FAILS(SH_E_FORMAT, "no size", parse("{\"a\":" T("F32", "-1", "0,4") "}", 4));
    CHECK_FAILS(SH_E_FORMAT, "no size", parse("{\"a\":" T("F32", "1.0", "0,4") "}", 4));
    CHECK_FAILS(SH_E_FORMAT, "has 4 bytes", parse("{\"a\":" T("F32", "2", "0,4") "}", 4));
    CHECK_FAILS(SH_E_FORMAT, "lies at 0 to 8", parse("{\"a\":" T("F32", "2", "0,8") "}", 4));
    CHECK_FAILS(SH_E_FORMAT, "lies at 4 to 0", parse("{\"a\":" T("F32", "1", "4,0") "}", 4));
    CHECK_FAILS(SH_E_FORMAT, "lies at -4", parse("{\"a\":" T("F32", "1", "-4,0") "}", 4));
    CHECK_FAILS(SH_E_FORMAT, "no data_offsets", parse("{\"a\":" T("F32", "1", "0") "}", 4));
    CHECK_FAILS(SH_E_FORMAT, "belong to no tensor", parse("{\"a\":" T("F32", "1", "0,4") "}", 5));
    CHECK_FAILS(SH_E_FORMAT, "overlaps",
                parse("{\"a\":" T("U8", "4", "0,4") ",\"b\":" T("U8", "4", "3,7") "}", 7));
    CHECK_FAILS(SH_E_FORMAT, "gap",
                parse("{\"a\":" T("U8", "4", "0,4") ",\"b\":" T("U8", "4", "5,9") "}", 9));
    CHECK_FAILS(SH_E_FORMAT, "duplicate",
                parse("{\"a\":" T("U8", "1", "0,1") ",\"a\":" T("U8", "1", "1,2") "}", 2));
    CHECK_FAILS(SH_E_FORMAT, "metadata", parse("{\"__metadata__\":{\"a\":1}}", 0));
    CHECK_FAILS(SH_E_UNSUPPORTED, "7 dimensions",
                parse("{\"a\":" T("U8", "1,1,1,1,1,1,1", "0,1") "}", 1));
    // 2^62 elements of 4 bytes would be 0 bytes modulo 2^64.
    CHECK_FAILS(SH_E_FORMAT, "has 0 bytes",
                parse("{\"a\":" T("F32", "4611686018427387904", "0,0") "}", 0));
    CHECK_FAILS(SH_E_FORMAT, "has 0 bytes",
                parse("{\"a\":" T("F32", "2147483648,2147483648", "0,0") "}", 0));
    CHECK_FAILS(SH_E_FORMAT, "header",
                parse("{\"a\":" T("F32", "99999999999999999999", "0,0") "}", 0));
}

TEST(safetensors, refuses_headers_that_would_eat_memory_or_stack) {
    enum { MANY = 3 << 20 };
    char *text = sh_alloc(MANY + 1, 1);
    memset(text, '[', MANY);
    memcpy(text, "{\"a\":", 5);
    CHECK_FAILS(SH_E_FORMAT, "nests too deeply", parse(text, 0));
    for (size_t i = 5; i + 3 <= MANY; i += 3) memcpy(text + i, "[],", 3);
    CHECK_FAILS(SH_E_FORMAT, "too many values", parse(text, 0));
    sh_free(text);
    const unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, '{', '}'};
    sh_safetensors tensors;
    CHECK_FAILS(SH_E_FORMAT, "promises a header",
                sh_safetensors_parse("x", huge, sizeof huge, &tensors));
}

TEST(safetensors, missing_and_empty_files_are_named) {
    const char *file = test_path("safetensors_missing");
    sh_safetensors tensors;
    CHECK_FAILS(SH_E_IO, "t.safetensors", sh_safetensors_open(file, &tensors));
    CHECK_OK(sh_file_write(file, "", 0));
    CHECK_FAILS(SH_E_FORMAT, "only 0 bytes", sh_safetensors_open(file, &tensors));
}
