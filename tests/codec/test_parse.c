#include "codec/codec.h"

#include <string.h>

#include "harness.h"

static sh_codec parsed(const char *text) {
    sh_codec codec;
    CHECK_OK(sh_codec_parse(text, &codec));
    return codec;
}

TEST(parse, reads_names_and_amounts) {
    assert_null(parsed("none").kind);
    assert_string_equal(parsed("fp16").kind->name, "fp16");
    assert_true(parsed("qsgd:3").options.amount == 3);
    assert_true(parsed("topk:1%").options.amount == 0.01);
    assert_true(parsed("topk:0.25").options.amount == 0.25);
    assert_true(parsed("dgc:0.1%").options.amount == 0.001);
    assert_true(parsed("powersgd:4").options.amount == 4);
    assert_true(parsed("randk:100%").options.amount == 1);
}

TEST(parse, an_amount_left_out_is_the_usual_one) {
    assert_true(parsed("qsgd").options.amount == 4);
    assert_true(parsed("topk").options.amount == 0.01);
    assert_true(parsed("randk").options.amount == 0.01);
    assert_true(parsed("dgc").options.amount == 0.001);
    assert_true(parsed("powersgd").options.amount == 2);
    assert_true(parsed("terngrad").options.clip == 2.5);
}

TEST(parse, biased_codecs_feed_errors_back) {
    const char *biased[] = {"int8", "onebit", "topk", "randk", "dgc", "powersgd"};
    const char *others[] = {"fp16", "bf16", "qsgd", "terngrad"};
    for (size_t i = 0; i < SH_COUNT(biased); i++) {
        sh_codec codec = parsed(biased[i]);
        assert_true(codec.options.error_feedback);
        assert_true(sh_codec_states(&codec) >= 1);
    }
    for (size_t i = 0; i < SH_COUNT(others); i++) {
        sh_codec codec = parsed(others[i]);
        assert_false(codec.options.error_feedback);
        assert_int_equal(sh_codec_states(&codec), 0);
    }
}

static void refuses(const char *text, const char *part, const char *hint) {
    sh_codec codec;
    CHECK_FAILS(SH_E_USAGE, part, sh_codec_parse(text, &codec));
    if (strstr(sh_error_last()->hint, hint) == NULL)
        fail_msg("'%s': the hint is '%s'", text, sh_error_last()->hint);
}

TEST(parse, refuses_with_the_nearest_name_and_the_range) {
    refuses("topkk:1%", "no codec 'topkk'", "did you mean 'topk'?");
    refuses("quantum", "no codec 'quantum'", "shoal list codecs");
    refuses("", "no codec ''", "shoal list codecs");
    refuses(":4", "no codec ''", "shoal list codecs");
    refuses("qsgd:9", "BITS is '9'", "a whole number from 2 to 8, as in qsgd:4");
    refuses("qsgd:1", "BITS is '1'", "2 to 8");
    refuses("qsgd:4.5", "BITS is '4.5'", "whole number");
    refuses("qsgd:50%", "BITS is '50%'", "whole number");
    refuses("topk:0", "R is '0'", "fraction or percentage from 0.0001% to 100%");
    refuses("topk:101%", "R is '101%'", "100%");
    refuses("topk:-1%", "R is '-1%'", "100%");
    refuses("topk:nan", "R is 'nan'", "100%");
    refuses("topk:0x1p-4", "R is", "100%");
    refuses("topk:1%%", "R is", "100%");
    refuses("topk:1% ", "R is", "100%");
    refuses("topk:", "R is ''", "as in topk:1%");
    refuses("powersgd:0", "RANK is '0'", "1 to 64");
    refuses("fp16:2", "'fp16' takes no amount", "write 'fp16' alone");
    sh_codec codec;
    CHECK_FAILS(SH_E_USAGE, "takes no amount", sh_codec_parse("none:1", &codec));
}

TEST(parse, refuses_absurdly_long_text) {
    char text[5000];
    memset(text, 'q', sizeof text);
    text[sizeof text - 1] = '\0';
    refuses(text, "no codec 'qqqq", "shoal list codecs");
    memcpy(text, "topk:", 5);
    memset(text + 5, '1', sizeof text - 6);
    refuses(text, "R is '1111", "100%");
}

TEST(parse, text_reads_back_the_same) {
    const char *texts[] = {"none",      "fp16",     "bf16",       "int8",
                           "qsgd:4",    "terngrad", "onebit",     "topk:1%",
                           "randk:10%", "dgc:0.1%", "powersgd:2", "topk:0.05%"};
    for (size_t i = 0; i < SH_COUNT(texts); i++) {
        char text[SH_CODEC_TEXT];
        sh_codec codec = parsed(texts[i]);
        assert_string_equal(sh_codec_text(&codec, text), texts[i]);
    }
}

TEST(parse, check_refuses_what_does_not_fit) {
    sh_codec codec = parsed("qsgd:4");
    codec.options.error_feedback = true;
    CHECK_FAILS(SH_E_USAGE, "no error feedback", sh_codec_check(&codec));
    codec = parsed("topk");
    codec.options.momentum = 0.9;
    CHECK_FAILS(SH_E_USAGE, "applies no momentum", sh_codec_check(&codec));
    codec = parsed("dgc");
    codec.options.momentum = 1;
    CHECK_FAILS(SH_E_USAGE, "momentum is 1", sh_codec_check(&codec));
    codec = parsed("terngrad");
    codec.options.clip = -1;
    CHECK_FAILS(SH_E_USAGE, "clip is -1", sh_codec_check(&codec));
    codec = parsed("dgc");
    codec.options.warmup_steps = -1;
    CHECK_FAILS(SH_E_USAGE, "warm-up", sh_codec_check(&codec));
    codec = parsed("dgc");
    codec.options.amount = 2;
    CHECK_FAILS(SH_E_USAGE, "R is '200%'", sh_codec_check(&codec));
    codec = parsed("dgc");
    codec.options.momentum = 0.9;
    CHECK_OK(sh_codec_check(&codec));
    assert_true(codec.kind->owns_momentum);
}

TEST(registry, rows_are_complete) {
    const sh_codec_kind *kind;
    for (size_t i = 0; (kind = sh_codec_at(i)) != NULL; i++) {
        assert_ptr_equal(sh_codec_find(kind->name), kind);
        assert_true(strlen(kind->help) > 10);
        assert_true(kind->rounds >= 1);
        assert_true((kind->amount == NULL) == (kind->amount_most == 0));
        assert_true((kind->feedback == SH_FEEDBACK_NEVER) == (kind->states == 0));
        for (int s = 0; s < kind->states; s++) assert_non_null(kind->state_names[s]);
    }
    assert_null(sh_codec_find("none"));
}
