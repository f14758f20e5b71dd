#include <math.h>
#include <stdlib.h>

#include "data/dataset.h"
#include "data/reader.h"
#include "files.h"

static sh_status parse(const char *text, size_t bytes, int64_t context, const char *vocabulary,
                       sh_source **source_out) {
    sh_data_options options = {.context = context};
    sh_read read = {.path = "t", .options = &options, .vocabulary = vocabulary};
    return sh_text_parse(&read, (const uint8_t *)text, bytes, source_out);
}

TEST(text, numbers_characters_in_code_point_order) {
    const char *text =
        "b\xc3\xa9"
        "a\xe2\x82\xac"
        "ba\n";
    sh_source *source = NULL;
    CHECK_OK(parse(text, strlen(text), 3, NULL, &source));
    assert_string_equal(source->vocabulary, "\nab\xc3\xa9\xe2\x82\xac");
    assert_int_equal(source->info.classes, 5);
    assert_int_equal(source->info.count, 7 - 3);
    const uint8_t want[] = {2, 3, 1, 4, 2, 1, 0};
    assert_memory_equal(source->cells, want, sizeof want);
    sh_source_release(source);
}

TEST(text, targets_are_the_window_moved_by_one) {
    use_folder("text_windows");
    char text[400];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i % 26);
    char *path = put_file("t.txt", text, sizeof text);
    sh_data_options options = {.train = path, .context = 8, .hold_out = 0};
    sh_data data;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    assert_int_equal(data.train->info.count, 400 - 8);
    assert_null(data.validation);
    sh_data_close(&data);
    options.hold_out = NAN;  // not set
    CHECK_OK(sh_data_open(&options, NULL, &data));
    assert_int_equal(data.train->info.count, 360 - 8);
    assert_int_equal(data.validation->info.count, 40 - 8);
    assert_ptr_equal(data.test, data.validation);
    int32_t x[8], y[8];
    data.train->get(data.train, 30, x, y);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(x[i], (30 + i) % 26);
        assert_int_equal(y[i], (31 + i) % 26);
    }
    data.validation->get(data.validation, 31, x, y);
    assert_int_equal(x[0], (360 + 31) % 26);
    assert_int_equal(y[7], 399 % 26);
    assert_string_equal(data.vocabulary, "abcdefghijklmnopqrstuvwxyz");
    sh_data_close(&data);
}

TEST(text, takes_any_byte_as_bytes) {
    const char text[] = "\0\xff\x80z";
    sh_data_options options = {.context = 2, .tokens = "bytes"};
    sh_read read = {.path = "t", .options = &options};
    sh_source *source = NULL;
    CHECK_OK(sh_text_parse(&read, (const uint8_t *)text, sizeof text, &source));
    assert_int_equal(source->info.classes, 256);
    assert_null(source->vocabulary);
    sh_source_release(source);
}

TEST(text, refuses_bad_utf8_with_its_place) {
    const char *bad[] = {"ab\nc\x80", "ab\nc\xc0\x80", "ab\nc\xed\xa0\x80", "ab\nc\xf4\x90\x80\x80",
                         "ab\nc\xe2\x82"};
    sh_source *source = NULL;
    for (size_t i = 0; i < SH_COUNT(bad); i++)
        CHECK_FAILS(SH_E_FORMAT, "not valid UTF-8 at byte 4 (line 2)",
                    parse(bad[i], strlen(bad[i]), 1, NULL, &source));
    CHECK_FAILS(SH_E_FORMAT, "a zero byte", parse("a\0b", 3, 1, NULL, &source));
}

TEST(text, refuses_characters_that_training_never_saw) {
    sh_source *source = NULL;
    CHECK_FAILS(SH_E_FORMAT, "never saw at byte 2", parse("abc", 3, 1, "ab", &source));
    CHECK_OK(parse("abba", 4, 1, "ba", &source));
    assert_memory_equal(source->cells, ((uint8_t[]){1, 0, 0, 1}), 4);
    sh_source_release(source);
}

TEST(text, refuses_less_than_one_window) {
    sh_source *source = NULL;
    CHECK_FAILS(SH_E_FORMAT, "too few for a context of 4", parse("abcd", 4, 4, NULL, &source));
}

TEST(text, keeps_large_vocabularies_in_two_bytes) {
    char text[3 * 1000 + 1];
    for (int i = 0; i < 1000; i++) {
        int point = 0x4e00 + i;
        text[3 * i] = (char)(0xe0 | point >> 12);
        text[3 * i + 1] = (char)(0x80 | (point >> 6 & 63));
        text[3 * i + 2] = (char)(0x80 | (point & 63));
    }
    sh_source *source = NULL;
    CHECK_OK(parse(text, 3000, 4, NULL, &source));
    assert_int_equal(source->info.classes, 1000);
    assert_int_equal(source->cell, SH_CELL_U16);
    assert_int_equal(((const uint16_t *)source->cells)[999], 999);
    sh_source_release(source);
}
