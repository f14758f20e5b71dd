/* Structs of programs that were compiled with another version of the header, and text to sinks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "run/need.h"
#include "shoal/tools.h"

/* shoal_model_options as a later version may have them, and as an earlier one may have had them. */
typedef struct later_options {
    shoal_model_options now;
    const char *initializer;
} later_options;

typedef struct earlier_options {
    size_t size;
    const char *model;
    const int64_t *sample;
    int sample_rank;
    bool tokens;
    int64_t outputs;
} earlier_options;

static const int64_t sample[] = {2};

static shoal_status make(const void *options) {
    shoal_model *model = NULL;
    shoal_status status = shoal_model_create(options, &model);
    shoal_model_destroy(model);
    return status;
}

TEST(abi, takes_the_options_of_an_older_program) {
    // What lies behind the older struct must not be looked at: it would be a loss's name.
    struct {
        earlier_options options;
        const char *loss;
    } program = {{sizeof(earlier_options), "[{dense: 2}]", sample, 1, false, 2}, "nonsense"};
    assert_int_equal(make(&program.options), SHOAL_OK);
    program.options.size += sizeof program.loss;  // and is, where the size says that it belongs
    assert_int_equal(make(&program.options), SHOAL_E_USAGE);
}

TEST(abi, refuses_what_only_a_newer_library_knows) {
    later_options program = {{.size = sizeof program,
                              .model = "[{dense: 2}]",
                              .sample = sample,
                              .sample_rank = 1,
                              .outputs = 2},
                             NULL};
    assert_int_equal(make(&program), SHOAL_OK);
    program.initializer = "he";
    assert_int_equal(make(&program), SHOAL_E_UNSUPPORTED);
    assert_non_null(strstr(shoal_error_text(), "shoal_model_options"));
}

TEST(abi, names_the_struct_whose_size_was_not_set) {
    const shoal_model_options options = {.sample = sample, .sample_rank = 1, .outputs = 2};
    assert_int_equal(make(&options), SHOAL_E_USAGE);
    assert_non_null(strstr(shoal_error_hint(), ".size = sizeof(shoal_model_options)"));
    const shoal_hooks hooks = {.unix_ns = 1}, wild = {.size = SIZE_MAX};
    assert_int_equal(shoal_data_get("digits", &hooks), SHOAL_E_USAGE);
    assert_non_null(strstr(shoal_error_hint(), "sizeof(shoal_hooks)"));
    assert_int_equal(shoal_data_get("digits", &wild), SHOAL_E_USAGE);
}

TEST(abi, fills_results_as_far_as_the_program_knows_them) {
    const shoal_result found = {.loss = 1, .accuracy = 0.5, .samples = 7};
    shoal_result result = {.size = offsetof(shoal_result, samples), .samples = -1};
    sh_struct_give(&found, sizeof found, &result);
    assert_true(result.loss == 1 && result.accuracy == 0.5);
    assert_int_equal(result.samples, -1);
    assert_int_equal(result.size, offsetof(shoal_result, samples));
    struct {
        shoal_result now;
        int64_t later;
    } wide = {{.size = sizeof wide}, 9};
    sh_struct_give(&found, sizeof found, &wide);
    assert_int_equal(wide.now.samples, 7);
    assert_int_equal(wide.later, 0);
}

TEST(abi, statuses_and_versions_have_names) {
    assert_string_equal(shoal_status_name(SHOAL_OK), "SHOAL_OK");
    assert_string_equal(shoal_status_name(SHOAL_E_PEER), "SHOAL_E_PEER");
    assert_string_equal(shoal_status_name((shoal_status)99), "SHOAL_E_UNKNOWN");
    assert_string_equal(shoal_status_name((shoal_status)-1), "SHOAL_E_UNKNOWN");
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", SHOAL_VERSION_MAJOR, SHOAL_VERSION_MINOR,
             SHOAL_VERSION_PATCH);
    assert_string_equal(shoal_version(), text);
    assert_int_equal(shoal_version_number(), SHOAL_VERSION_NUMBER);
}

typedef struct text {
    char *bytes;
    size_t length, room;  // room: what it takes before it is full
} text;

static bool take(void *user, const char *piece, size_t bytes) {
    text *t = user;
    if (t->length + bytes > t->room) return false;
    t->bytes = realloc(t->bytes, t->length + bytes + 1);
    memcpy(t->bytes + t->length, piece, bytes);
    t->length += bytes;
    t->bytes[t->length] = '\0';
    return true;
}

TEST(sink, gets_all_text_in_order) {
    text t = {.room = 1 << 20};
    const shoal_sink sink = {&t, take};
    assert_int_equal(shoal_config_help(true, &sink), SHOAL_OK);
    assert_true(t.length > BUFSIZ);  // more than one piece
    assert_memory_equal(t.bytes, "### ", 4);
    assert_int_equal(t.bytes[t.length - 1], '\n');
    const char *first = strstr(t.bytes, "`epochs`"), *last = strstr(t.bytes, "`out`");
    assert_true(first != NULL && last != NULL);
    free(t.bytes);
}

TEST(sink, that_is_full_fails_the_call) {
    text t = {.room = 10};
    const shoal_sink sink = {&t, take};
    assert_int_equal(shoal_doctor(NULL, true, &sink), SHOAL_E_IO);
    assert_int_equal(t.length, 0);
    assert_int_equal(shoal_config_help(false, &sink), SHOAL_E_IO);
}
