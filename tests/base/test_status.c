#include "base/status.h"

#include <string.h>

#include "harness.h"

static sh_status fail_below(void) {
    SH_FAIL(SH_E_FORMAT, "'%s' ends after %d bytes", "a.idx", 3);
    return sh_error_hint("try: shoal data check %s", "a.idx");
}

static sh_status pass_on(void) {
    SH_TRY(fail_below());
    return SH_OK;
}

TEST(status, keeps_code_text_hint_and_place_on_the_way_up) {
    CHECK_FAILS(SH_E_FORMAT, "'a.idx' ends after 3 bytes", pass_on());
    assert_string_equal(sh_error_last()->hint, "try: shoal data check a.idx");
    assert_non_null(strstr(sh_error_last()->file, "test_status.c"));
    assert_true(sh_error_last()->line > 0);
}

TEST(status, a_new_failure_drops_the_old_hint) {
    fail_below();
    SH_FAIL(SH_E_IO, "another");
    assert_string_equal(sh_error_last()->hint, "");
    sh_error_clear();
    assert_int_equal(sh_error_last()->code, SH_OK);
}

TEST(status, may_quote_its_own_record) {
    SH_FAIL(SH_E_IO, "inner");
    SH_FAIL(SH_E_IO, "outer: %s", sh_error_last()->text);
    assert_string_equal(sh_error_last()->text, "outer: inner");
}

TEST(status, cuts_a_long_message_inside_its_buffer) {
    char word[4096];
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    SH_FAIL(SH_E_IO, "%s", word);
    sh_error_hint("%s", word);
    assert_int_equal(strlen(sh_error_last()->text), sizeof sh_error_last()->text - 1);
    assert_int_equal(strlen(sh_error_last()->hint), sizeof sh_error_last()->hint - 1);
}

TEST(status, adopts_a_record_of_another_task) {
    sh_error error = {.code = SH_E_PEER, .text = "rank 3 left"};
    assert_int_equal(sh_error_adopt(&error), SH_E_PEER);
    assert_string_equal(sh_error_last()->text, "rank 3 left");
}

TEST(status, names_every_code) {
    for (int code = SH_OK; code <= SH_E_PEER; code++) {
        const char *name = sh_status_name((sh_status)code);
        assert_non_null(name);
        assert_string_not_equal(name, "unknown");
    }
    assert_string_equal(sh_status_name((sh_status)1000), "unknown");
}
