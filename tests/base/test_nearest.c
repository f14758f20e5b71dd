#include "base/option.h"
#include "harness.h"

static const char *word_at(const void *words, size_t index) {
    return ((const char *const *)words)[index];
}

TEST(nearest, finds_slips_swaps_and_abbreviations_and_nothing_else) {
    const char *const words[] = {"batch", "epochs", "momentum",  "weight_decay",
                                 "lr",    "flip",   "clip-norm", NULL};
    assert_string_equal(sh_nearest("bacth", word_at, words), "batch");
    assert_string_equal(sh_nearest("epoch", word_at, words), "epochs");
    assert_string_equal(sh_nearest("weight-deacy", word_at, words), "weight_decay");
    assert_string_equal(sh_nearest("MOM", word_at, words), "momentum");
    assert_string_equal(sh_nearest("lrr", word_at, words), "lr");
    assert_string_equal(sh_nearest("clip", word_at, words), "clip-norm");
    assert_null(sh_nearest("xyzzy", word_at, words));
    assert_null(sh_nearest("", word_at, words));
    assert_null(sh_nearest("q", word_at, words));
}
