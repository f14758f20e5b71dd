/* What a run of several threads says on a busy machine. */
#include "run/load.h"

#include <math.h>
#include <string.h>

#include "harness.h"

TEST(load, beyond_the_cores_advises_one_thread) {
    char text[SH_LOAD_TEXT];
    assert_true(sh_load_advice(10.04, 2, 2, text));
    assert_string_equal(text,
                        "the machine has load 10.0 on 2 cores, and threads wait for each other: "
                        "--threads 1 is likely to be faster");
    assert_true(sh_load_advice(1.5, 1, 4, text));
    assert_non_null(strstr(text, "load 1.5 on 1 core,"));
}

TEST(load, up_to_the_cores_is_no_news) {
    char text[SH_LOAD_TEXT];
    assert_false(sh_load_advice(2.0, 2, 2, text));
    assert_false(sh_load_advice(0, 2, 8, text));
    assert_false(sh_load_advice(NAN, 2, 2, text));
    assert_false(sh_load_advice(1, -1, 2, text));  // the system does not say
}

TEST(load, is_no_matter_for_one_thread) {
    char text[SH_LOAD_TEXT];
    assert_false(sh_load_advice(100, 2, 1, text));
}
