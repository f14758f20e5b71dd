#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "harness.h"

static void check(const char *text, const char *wanted) {
    char shown[SH_ESCAPED];
    assert_string_equal(sh_escaped(text, shown), wanted);
    char again[SH_ESCAPED];
    assert_string_equal(sh_escaped(shown, again), wanted);  // nothing is escaped twice
}

TEST(escape, leaves_text_of_every_language) {
    check("plain name_1.csv", "plain name_1.csv");
    check("größe \t 東京 \U0001f41f é", "größe \t 東京 \U0001f41f é");
    check("", "");
}

TEST(escape, shows_what_would_command_or_deceive) {
    check("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m");
    check("a\nshoal: b\r", "a\\nshoal: b\\x0d");
    check("\x7f\x01", "\\x7f\\x01");
    check(
        "\xc2\x9b"
        "2J",
        "\\xc2\\x9b2J");  // C1: CSI
    check(
        "a\xe2\x80\xae"
        "gnp.exe",
        "a\\xe2\\x80\\xaegnp.exe");  // right to left
    check("\xe2\x81\xa6\xe2\x80\xa8", "\\xe2\\x81\\xa6\\xe2\\x80\\xa8");
}

TEST(escape, shows_bytes_that_are_no_character) {
    check("\x9b\xff", "\\x9b\\xff");
    check("\xc3", "\\xc3");                    // cut
    check("\xe2\x82", "\\xe2\\x82");           // cut
    check("\xc0\xaf", "\\xc0\\xaf");           // overlong
    check("\xed\xa0\x80", "\\xed\\xa0\\x80");  // a surrogate
    check("\xf5\x80\x80\x80z", "\\xf5\\x80\\x80\\x80z");
}

TEST(escape, cuts_at_whole_characters_for_every_size) {
    const char *text = "a\x1b\xc3\xa9z";
    const char *const wanted[] = {
        "", "a", "a", "a", "a", "a\\x1b", "a\\x1b", "a\\x1b\xc3\xa9", "a\\x1b\xc3\xa9z"};
    for (size_t size = 1; size <= SH_COUNT(wanted); size++) {
        char *out = malloc(size);  // exact, so that a sanitizer sees what is written behind it
        assert_non_null(out);
        sh_escape(out, size, text, false);
        assert_string_equal(out, wanted[size - 1]);
        free(out);
    }
}

TEST(escape, is_done_where_messages_are_made) {
    CHECK_FAILS(SH_E_IO, "no 'a\\x1bc\\nshoal: fake'",
                SH_FAIL(SH_E_IO, "no '%s'",
                        "a\x1b"
                        "c\nshoal: fake"));
    sh_error_hint("take '%s'", "\x1b]0;x\x07");
    assert_string_equal(sh_error_last()->hint, "take '\\x1b]0;x\\x07'");
    // Lines of the message itself stay.
    CHECK_FAILS(SH_E_IO, "two:\n  one\n  two", SH_FAIL(SH_E_IO, "two:\n%s", "  one\n  two"));
}

static void keep(void *self, sh_log_level level, const char *text) {
    (void)level;
    strcpy(self, text);
}

TEST(escape, is_done_where_log_lines_are_made) {
    char line[1024] = "";
    sh_log log = {.line = keep, .self = line};
    SH_WARN(&log, "run '%s'", "x\x1b[2J\nwarning: y");
    assert_string_equal(line, "run 'x\\x1b[2J\\nwarning: y'");
}

TEST(json_string, takes_any_bytes) {
    json_t *good = sh_json_string(
               "gr\xc3\xb6\xc3\x9f"
               "e\x1b"),
           *bad = sh_json_string("a\xff");
    assert_string_equal(json_string_value(good),
                        "gr\xc3\xb6\xc3\x9f"
                        "e\x1b");
    assert_string_equal(json_string_value(bad), "a\\xff");
    json_decref(good);
    json_decref(bad);
}
