#include "base/build.h"

#include <string.h>

#include "harness.h"

TEST(build, has_an_id_that_stays) {
    char text[SH_BUILD_TEXT], again[SH_BUILD_TEXT];
    assert_true(strlen(sh_build_text(text)) >= 16);
    assert_int_equal(strspn(text, "0123456789abcdef"), strlen(text));
    assert_string_equal(sh_build_text(again), text);
}
