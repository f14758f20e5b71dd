/* What explain says of a pipeline: the chart, the tables, JSON and the picture. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "explain/pipeline.h"

static sh_pipe_question question_of(const char *schedule, int ranks, int micros) {
    sh_pipe_question question = {.times = {1, 1, 1}, .value_bytes = 1024};
    CHECK_OK(sh_pipeline_init(&question.pipeline, schedule, ranks, micros));
    return question;
}

static char *written(const sh_pipe_question *question,
                     sh_status (*write)(const sh_pipe_question *, FILE *)) {
    static char *text;  // static: GCC takes what is found in it for a pointer to a local
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    CHECK_OK(write(question, file));
    fclose(file);
    return text;
}

/* Drawn by hand: two ranks, two micro-batches. */
TEST(pipeline, chart_shows_who_computes_what_when) {
    sh_pipe_question question = question_of("1f1b", 2, 2);
    char *text = written(&question, sh_pipeline_text_page);
    assert_non_null(strstr(text,
                           "rank  0  0>>1>>......0<<<<<...1<<<<<\n"
                           "rank  1  ...0>>0<<<<<1>>1<<<<<......\n"));
    assert_non_null(strstr(text, "one step: makespan 9, idle 33.33 % of it\n"));
    free(text);
    question = question_of("zb-h1", 2, 2);
    text = written(&question, sh_pipeline_text_page);
    assert_non_null(strstr(text,
                           "rank  0  0>>1>>...0<<0==1<<1==\n"
                           "rank  1  ...0>>0<<1>>1<<0==1==\n"));
    free(text);
}

TEST(pipeline, charts_too_wide_for_text_are_left_out) {
    sh_pipe_question question = question_of("1f1b", 4, 100);
    char *text = written(&question, sh_pipeline_text_page);
    assert_non_null(strstr(text, "too long for a chart in text"));
    assert_null(strstr(text, "rank  0  "));
    free(text);
}

/* 8 values forward and 8 gradients back over each of three edges. */
TEST(pipeline, json_lists_every_action_and_message) {
    sh_pipe_question question = question_of("1f1b", 4, 8);
    char *text = written(&question, sh_pipeline_json);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_true(json_real_value(json_object_get(root, "makespan")) == 33);
    assert_true(json_real_value(json_object_get(root, "closed_form")) == 33);
    json_t *ranks = json_object_get(root, "per_rank");
    size_t counts[SH_PIPE_KINDS] = {0};
    for (size_t r = 0; r < json_array_size(ranks); r++) {
        json_t *actions = json_object_get(json_array_get(ranks, r), "actions");
        for (size_t i = 0; i < json_array_size(actions); i++) {
            const char *kind =
                json_string_value(json_object_get(json_array_get(actions, i), "kind"));
            for (int k = 0; k < SH_PIPE_KINDS; k++)
                counts[k] += strcmp(kind, sh_pipe_kind_name((sh_pipe_kind)k)) == 0;
        }
    }
    assert_int_equal(counts[SH_PIPE_FORWARD], 32);
    assert_int_equal(counts[SH_PIPE_BACKWARD], 32);
    assert_int_equal(counts[SH_PIPE_SEND_VALUE], 24);
    assert_int_equal(counts[SH_PIPE_RECEIVE_VALUE], 24);
    assert_int_equal(counts[SH_PIPE_SEND_GRADIENT], 24);
    assert_int_equal(counts[SH_PIPE_RECEIVE_GRADIENT], 24);
    assert_int_equal(counts[SH_PIPE_UPDATE], 4);
    json_decref(root);
    free(text);
}

/* A message of 1 MB at 1 MB a second adds a second for each of the stages that it must pass, both
 * ways: (m + p - 1) 3 + 2 (p - 1). */
TEST(pipeline, messages_take_the_time_of_their_link) {
    sh_pipe_question question = question_of("gpipe", 3, 1);
    question.seconds = question.linked = true;
    question.link = (sh_link){.beta_s = 1e-6};
    question.value_bytes = 1e6;
    sh_pipe_answer answer;
    CHECK_OK(sh_pipe_answer_init(&answer, &question));
    assert_true(fabs(answer.makespan_s - 13) < 1e-9);
    assert_true(isnan(answer.closed_s));
    sh_pipe_answer_fini(&answer);
}

TEST(pipeline, the_picture_has_a_box_for_every_part) {
    sh_pipe_question question = question_of("zb-h1", 4, 8);
    char *text = written(&question, sh_pipeline_svg);
    int boxes = 0;
    for (const char *at = text; (at = strstr(at, ", micro-batch ")) != NULL; at++) boxes++;
    assert_int_equal(boxes, 3 * 4 * 8);
    assert_non_null(strstr(text, "</svg>\n"));
    free(text);
    question = question_of("gpipe", 65, 2);
    char *end = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&end, &bytes);
    CHECK_FAILS(SH_E_USAGE, "too much for a picture", sh_pipeline_svg(&question, file));
    fclose(file);
    free(end);
}
