#include "data/vocabulary.h"

#include <string.h>

#include "base/memory.h"
#include "harness.h"

static const char letters[] = "\nab\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x9f";  // newline a b é € fish

static void check_round_trip(const char *vocabulary, const char *text, const int32_t *expected,
                             size_t count) {
    int32_t *tokens = NULL;
    size_t found = 0;
    char back[64] = "";
    CHECK_OK(sh_vocabulary_encode(vocabulary, text, &tokens, &found));
    assert_int_equal(found, count);
    for (size_t i = 0, at = 0; i < count; i++) {
        assert_int_equal(tokens[i], expected[i]);
        at += sh_vocabulary_decode(vocabulary, tokens[i], back + at);
    }
    assert_string_equal(back, text);
    sh_free(tokens);
}

TEST(vocabulary, characters_of_every_length_come_back) {
    check_round_trip(letters, "b\xc3\xa9\xf0\x9f\x90\x9f\na\xe2\x82\xac",
                     (int32_t[]){2, 3, 5, 0, 1, 4}, 6);
}

TEST(vocabulary, bytes_are_their_own_tokens) {
    check_round_trip(NULL, "a\xff\n", (int32_t[]){'a', 0xff, '\n'}, 3);
}

TEST(vocabulary, an_unknown_character_is_named_with_its_place) {
    int32_t *tokens = NULL;
    size_t count = 0;
    CHECK_FAILS(SH_E_USAGE, "no 'z' (byte 2",
                sh_vocabulary_encode(letters, "abz", &tokens, &count));
    // A character that the text cuts off is no other one.
    CHECK_FAILS(SH_E_USAGE, "(byte 1", sh_vocabulary_encode(letters, "a\xf0\x9f", &tokens, &count));
    assert_null(tokens);
}

TEST(vocabulary, a_token_that_there_is_not_has_no_bytes) {
    char bytes[4];
    assert_int_equal(sh_vocabulary_decode(letters, 6, bytes), 0);
    assert_int_equal(sh_vocabulary_decode(letters, -1, bytes), 0);
    assert_int_equal(sh_vocabulary_decode(NULL, 256, bytes), 0);
}
