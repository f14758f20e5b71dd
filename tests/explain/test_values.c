/* Files of numbers, rates and times as people write them. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "harness.h"
#include "explain/units.h"
#include "explain/values.h"

static const char *file_of(const char *text, size_t bytes) {
    static char path[512];
    snprintf(path, sizeof path, "%s/values.txt", sh_test_folder("values"));
    CHECK_OK(sh_file_write(path, text, bytes));
    return path;
}

static sh_status read_text(const char *text, sh_values *values_out) {
    return sh_values_read(file_of(text, strlen(text)), values_out);
}

static void check_example(const char *text) {
    static const double x[] = {17, 11, 1, -9.5, 5, 13, 23, 1400};
    sh_values values;
    CHECK_OK(read_text(text, &values));
    assert_int_equal(values.ranks, 2);
    assert_int_equal(values.count, 4);
    assert_memory_equal(values.x, x, sizeof x);
    assert_string_equal(values.names[0], "A");
    assert_string_equal(values.names[1], "B-2");
    sh_values_fini(&values);
}

TEST(values, may_be_written_in_several_ways) {
    check_example("A 17 11 1 -9.5\nB-2 5 13 23 1.4e3\n");
    check_example("# ranks\n\n  A: 17, 11, 1, -9.5\r\nB-2:5,13,23,1400");
    check_example("A=[17,11,1,-9.5]\nB-2=[5,13,23,1400]\n\n");
    check_example("A\t17;11;1;-9.5\nB-2\t5;13;23;1400\n#");
}

TEST(values, number_ranks_without_names) {
    sh_values values;
    CHECK_OK(read_text("1\nB 2\n3\n", &values));
    assert_string_equal(values.names[0], "0");
    assert_string_equal(values.names[1], "B");
    assert_string_equal(values.names[2], "2");
    sh_values_fini(&values);
}

TEST(values, name_what_is_wrong_and_where) {
    sh_values v;
    CHECK_FAILS(SH_E_FORMAT, "holds no values", read_text("", &v));
    CHECK_FAILS(SH_E_FORMAT, "holds no values", read_text("# nothing\n\n", &v));
    CHECK_FAILS(SH_E_FORMAT, ":2: rank 'B' has no values", read_text("A 1\nB\n", &v));
    CHECK_FAILS(SH_E_SHAPE, ":3: rank 'B' has 1 values, but 'A' in line 1 has 2",
                read_text("A 1 2\n\nB 1\n", &v));
    CHECK_FAILS(SH_E_SHAPE, "has 3 values", read_text("A 1 2\nB 1 2 3\n", &v));
    CHECK_FAILS(SH_E_FORMAT, "value 2 of rank 'A' is no number: 'x7'", read_text("A 1 x7\n", &v));
    CHECK_FAILS(SH_E_FORMAT, "value 1 of rank '0' is out of range", read_text("inf 2\n", &v));
    CHECK_FAILS(SH_E_FORMAT, "out of range: 'nan'", read_text("A nan\n", &v));
    CHECK_FAILS(SH_E_FORMAT, "out of range: '1e300'", read_text("A 1e300\n", &v));
    CHECK_FAILS(SH_E_FORMAT, "a second rank is named 'A'", read_text("A 1\nA 2\n", &v));
    CHECK_FAILS(SH_E_FORMAT, "neither a number nor a name", read_text("<b> 1\n", &v));
    CHECK_FAILS(SH_E_FORMAT, "neither a number nor a name",
                read_text("a-name-that-is-too-long 1\n", &v));
    CHECK_FAILS(SH_E_FORMAT, "neither", sh_values_read(file_of("A\0B 1\n", 6), &v));
    CHECK_FAILS(SH_E_IO, "none.txt", sh_values_read("none.txt", &v));
}

TEST(values, have_bounds) {
    char text[3 * (SH_VALUES_COUNT + 8)] = "";
    sh_values values;
    for (int i = 0; i <= SH_VALUES_RANKS; i++) strcat(text, "1\n");
    CHECK_FAILS(SH_E_USAGE, "more than 64 ranks", read_text(text, &values));
    text[2 * SH_VALUES_RANKS] = '\0';
    CHECK_OK(read_text(text, &values));
    assert_int_equal(values.ranks, SH_VALUES_RANKS);
    sh_values_fini(&values);
    for (int i = 0; i <= SH_VALUES_COUNT; i++) memcpy(text + 2 * i, "1 ", 3);
    CHECK_FAILS(SH_E_USAGE, "more than 4096 values", read_text(text, &values));
}

TEST(link, reads_rates_and_times) {
    sh_link link;
    CHECK_OK(sh_link_parse("1Gbit,50us", "link", &link));
    assert_true(link.alpha_s == 50 * 1e-6 && link.beta_s == 1 / (1e9 / 8));
    assert_true(link.gamma_s == 1 / 10e9);
    CHECK_OK(sh_link_parse("2.5GB,1.5ms,20GB", "link", &link));
    assert_true(link.alpha_s == 1.5 * 1e-3 && link.beta_s == 1 / 2.5e9);
    assert_true(link.gamma_s == 1 / 20e9);
    CHECK_OK(sh_link_parse("100 Mbit,0ns", "link", &link));
    char text[3 * SH_UNIT_TEXT];
    assert_string_equal(sh_link_text(&link, text), "100 Mbit/s, 0 s");
}

TEST(link, refuses_what_is_neither) {
    static const char *const wrong[] = {
        "",          "1Gbit",      "fast,50us",  "1Gbit,50",       "-1Gbit,1us",
        "0Gbit,1us", "1Gbit,-1us", "1Gbit,1us,", "1Gbit,1us,x",    "nanGbit,1us",
        "1GBit,1us", "1Gbit;1us",  "1us,1Gbit",  "1Gbit,1us,1GB,1"};
    sh_link link;
    for (size_t i = 0; i < SH_COUNT(wrong); i++)
        CHECK_FAILS(SH_E_USAGE, "--link", sh_link_parse(wrong[i], "link", &link));
}

TEST(units, are_the_largest_that_fit) {
    char text[SH_UNIT_TEXT];
    assert_string_equal(sh_bytes_text(0, text), "0 B");
    assert_string_equal(sh_bytes_text(1023, text), "1023 B");
    assert_string_equal(sh_bytes_text(1000, text), "1000 B");
    assert_string_equal(sh_bytes_text(1536, text), "1.5 KiB");
    assert_string_equal(sh_bytes_text(25 * 0x1p20, text), "25 MiB");
    assert_string_equal(sh_seconds_text(0.000123456, text), "123 us");
    assert_string_equal(sh_seconds_text(1e-12, text), "0.001 ns");
    assert_string_equal(sh_seconds_text(0, text), "0 s");
    assert_string_equal(sh_rate_text(10e9, text), "10 GB");
}
