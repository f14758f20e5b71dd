/* Messages that no codec of ours wrote. */
#include "rig.h"

#include <math.h>

static const char *const texts[] = {"fp16",     "bf16",   "int8",      "qsgd:2", "qsgd:3",
                                    "qsgd:4",   "qsgd:7", "terngrad",  "onebit", "topk:5%",
                                    "randk:5%", "dgc:5%", "powersgd:2"};

enum { ROWS = 12, COLUMNS = 61, N = ROWS * COLUMNS };

/* A rig whose message is one that the codec wrote for round 0. */
static void rig_sent(rig *r, const char *text) {
    sh_codec codec = codec_of(text);
    rig_init(r, &codec, ROWS, COLUMNS, 0);
    rig_step(r, 1, 0);
    float *x = filled(N, 1, 1);
    sh_codec_encode(&r->codec, &r->tensor, 0, x, r->message);
    free(x);
}

static sh_status receive(rig *r, size_t bytes) {
    float x[N] = {0};
    return sh_codec_decode(&r->codec, &r->tensor, 0, r->message, bytes, 1, x);
}

TEST(hostile, any_other_size_fails) {
    for (size_t t = 0; t < SH_COUNT(texts); t++) {
        rig r;
        rig_sent(&r, texts[t]);
        size_t right = sh_codec_bytes(&r.codec, &r.tensor, 0);
        CHECK_OK(receive(&r, right));
        const size_t wrong[] = {0, 1, right - 1, right - 4, right + 1, 2 * right, SIZE_MAX};
        for (size_t w = 0; w < SH_COUNT(wrong); w++)
            CHECK_FAILS(SH_E_FORMAT, "bytes instead of", receive(&r, wrong[w]));
        rig_fini(&r);
    }
}

/* Decodes the message into the middle of a block, and looks at what lies around it. */
static sh_status receive_guarded(rig *r, size_t bytes, float x_out[N]) {
    enum { GUARD = 64 };
    float x[GUARD + N + GUARD], before[GUARD];
    for (int i = 0; i < GUARD; i++) before[i] = x[i] = x[GUARD + N + i] = (float)(i + 1);
    memset(x + GUARD, 0, N * sizeof *x);
    sh_status status = sh_codec_decode(&r->codec, &r->tensor, 0, r->message, bytes, 1, x + GUARD);
    assert_memory_equal(x, before, sizeof before);
    assert_memory_equal(x + GUARD + N, before, sizeof before);
    memcpy(x_out, x + GUARD, N * sizeof *x);
    return status;
}

/* Passes, or fails in a way that a run reports; a second time exactly so, and the message stays
 * what it was. Returns whether it passes. */
static bool check_verdict(rig *r, size_t bytes) {
    float first[N], second[N];
    unsigned char *sent = block(bytes);
    memcpy(sent, r->message, bytes);
    sh_status status = receive_guarded(r, bytes, first);
    assert_true(status == SH_OK || status == SH_E_FORMAT || status == SH_E_NUMERIC);
    if (status != SH_OK) assert_non_null(strstr(sh_error_last()->text, "'weight' from rank 0"));
    assert_int_equal(receive_guarded(r, bytes, second), status);
    assert_memory_equal(first, second, sizeof first);
    assert_memory_equal(sent, r->message, bytes);
    free(sent);
    return status == SH_OK;
}

/* How many random messages pass: all where any bytes are floats, next to none where levels, digits
 * or ascending indices must be found; of onebit's all but those whose means are not finite. */
static void check_passed(const char *text, int passed, int trials) {
    static const char *const floats[] = {"fp16", "bf16", "randk:5%", "powersgd:2"};
    int least = 0, most = trials / 20;
    for (size_t i = 0; i < SH_COUNT(floats); i++)
        if (strcmp(text, floats[i]) == 0) least = most = trials;
    if (strcmp(text, "onebit") == 0) {
        least = trials / 2;
        most = trials - 1;
    }
    if (passed < least || passed > most) fail_msg("%s: %d of %d pass", text, passed, trials);
}

TEST(hostile, random_bytes_fail_or_pass_within_bounds) {
    enum { TRIALS = 200 };
    for (size_t t = 0; t < SH_COUNT(texts); t++) {
        rig r;
        rig_sent(&r, texts[t]);
        size_t bytes = sh_codec_bytes(&r.codec, &r.tensor, 0);
        assert_true(check_verdict(&r, bytes));
        sh_rng rng = sh_rng_stream(3, SH_RNG_TEST, (uint32_t)t, 0);
        int passed = 0;
        for (int trial = 0; trial < TRIALS; trial++) {
            for (size_t i = 0; i < bytes; i++) r.message[i] = (unsigned char)sh_rng_u32(&rng);
            passed += check_verdict(&r, bytes);
        }
        check_passed(texts[t], passed, TRIALS);
        memset(r.message, 0xFF, bytes);
        check_verdict(&r, bytes);
        rig_fini(&r);
    }
}

static void put(rig *r, size_t word, uint32_t value) {
    memcpy(r->message + 4 * word, &value, sizeof value);
}

static void put_float(rig *r, size_t word, float value) {
    memcpy(r->message + 4 * word, &value, sizeof value);
}

TEST(hostile, norms_must_be_numbers) {
    const char *const all[] = {"int8", "qsgd:4", "terngrad", "onebit"};
    for (size_t t = 0; t < SH_COUNT(all); t++) {
        rig r;
        rig_sent(&r, all[t]);
        size_t bytes = sh_codec_bytes(&r.codec, &r.tensor, 0);
        put_float(&r, 0, NAN);
        CHECK_FAILS(SH_E_NUMERIC, "'weight' from rank 0: the gradient is not finite",
                    receive(&r, bytes));
        put_float(&r, 0, INFINITY);
        CHECK_FAILS(SH_E_NUMERIC, "not finite", receive(&r, bytes));
        put_float(&r, 0, -1);
        if (t < 3) CHECK_FAILS(SH_E_FORMAT, "negative norm", receive(&r, bytes));
        rig_fini(&r);
    }
}

TEST(hostile, a_gradient_that_is_not_finite_says_so) {
    const char *const all[] = {"int8", "qsgd:4", "terngrad", "onebit"};
    const float values[] = {NAN, INFINITY, -INFINITY};
    for (size_t t = 0; t < SH_COUNT(all); t++)
        for (size_t v = 0; v < SH_COUNT(values); v++) {
            rig r;
            rig_sent(&r, all[t]);
            float *x = filled(N, 1, 1);
            x[N - 3] = values[v];
            sh_codec_encode(&r.codec, &r.tensor, 0, x, r.message);
            CHECK_FAILS(SH_E_NUMERIC, "not finite",
                        receive(&r, sh_codec_bytes(&r.codec, &r.tensor, 0)));
            free(x);
            rig_fini(&r);
        }
}

TEST(hostile, indices_must_ascend_within_the_parameter) {
    const char *const all[] = {"topk:5%", "dgc:5%"};
    for (size_t t = 0; t < SH_COUNT(all); t++) {
        rig r;
        rig_sent(&r, all[t]);
        size_t bytes = sh_codec_bytes(&r.codec, &r.tensor, 0), kept = bytes / 8;
        uint32_t last;
        memcpy(&last, r.message + 4 * (kept - 1), sizeof last);
        put(&r, kept - 1, N);
        CHECK_FAILS(SH_E_FORMAT, "an index behind the last", receive(&r, bytes));
        put(&r, kept - 1, UINT32_MAX);
        CHECK_FAILS(SH_E_FORMAT, "an index behind", receive(&r, bytes));
        put(&r, kept - 1, last);
        CHECK_OK(receive(&r, bytes));
        put(&r, 1, last);
        CHECK_FAILS(SH_E_FORMAT, "do not ascend", receive(&r, bytes));
        put(&r, 1, 0), put(&r, 0, 0);  // the same twice
        CHECK_FAILS(SH_E_FORMAT, "do not ascend", receive(&r, bytes));
        rig_fini(&r);
    }
}

TEST(hostile, levels_and_digits_must_exist) {
    const char *const all[] = {"int8", "qsgd:2", "qsgd:3", "qsgd:4", "qsgd:7"};
    for (size_t t = 0; t < SH_COUNT(all); t++) {
        rig r;
        rig_sent(&r, all[t]);
        r.message[4 * 2] = 0xFF;  // behind the two norms: all ones is no level
        CHECK_FAILS(SH_E_FORMAT, "a level out of range",
                    receive(&r, sh_codec_bytes(&r.codec, &r.tensor, 0)));
        rig_fini(&r);
    }
    rig r;
    rig_sent(&r, "terngrad");
    r.message[4] = 243;
    CHECK_FAILS(SH_E_FORMAT, "not five digits",
                receive(&r, sh_codec_bytes(&r.codec, &r.tensor, 0)));
    rig_fini(&r);
}
