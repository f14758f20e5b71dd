#include "tensor/kernels/tuner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "harness.h"

static const char *const names[] = {"usual", "other", "third"};

/* A clock that only moves when a candidate works. */
typedef struct bench {
    int64_t now_ns, cost_ns[3];
    int64_t late_ns;  // what the very first run takes longer
    int runs[3];
} bench;

static int64_t bench_now(void *self) { return ((bench *)self)->now_ns; }

static void work(void *context, int candidate) {
    bench *b = context;
    b->now_ns += b->cost_ns[candidate] + b->late_ns;
    b->late_ns = 0;
    b->runs[candidate]++;
}

static sh_tuner *tuner_make(const sh_clock *clock, bool measure) {
    sh_tuner *tuner = NULL;
    CHECK_OK(sh_tuner_create(&(sh_tuner_options){.clock = clock, .measure = measure, .threads = 2},
                             &tuner));
    return tuner;
}

static sh_status load(sh_tuner *tuner, const char *json) {
    return sh_tuner_load(tuner, "kernels.json", json, strlen(json), true);
}

TEST(tuner, picks_the_fastest_and_remembers_it) {
    bench b = {.cost_ns = {5000000, 3000000, 4000000}};
    sh_clock clock = {bench_now, &b};
    sh_tuner *tuner = tuner_make(&clock, true);
    assert_false(sh_tuner_knows(tuner, "job", names, 3));
    assert_int_equal(sh_tuner_choose(tuner, "job", names, 3, work, &b), 1);
    assert_true(sh_tuner_knows(tuner, "job", names, 3));
    assert_true(sh_tuner_changed(tuner));
    memset(b.runs, 0, sizeof b.runs);
    b.cost_ns[1] = 90000000;
    assert_int_equal(sh_tuner_choose(tuner, "job", names, 3, NULL, NULL), 1);
    assert_int_equal(b.runs[0] + b.runs[1] + b.runs[2], 0);
    sh_tuner_destroy(tuner);
}

TEST(tuner, stays_with_the_usual_one_on_a_tie_and_times_long_work_once) {
    bench b = {.cost_ns = {70000000, 69900000, 90000000}};
    sh_clock clock = {bench_now, &b};
    sh_tuner *tuner = tuner_make(&clock, true);
    assert_int_equal(sh_tuner_choose(tuner, "job", names, 3, work, &b), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(b.runs[i], 1);
    sh_tuner_destroy(tuner);
}

TEST(tuner, forgives_a_candidate_that_was_once_interrupted) {
    bench b = {.cost_ns = {1000000, 30000000, 30000000}, .late_ns = 40000000};
    sh_clock clock = {bench_now, &b};
    sh_tuner *tuner = tuner_make(&clock, true);
    assert_int_equal(sh_tuner_choose(tuner, "job", names, 3, work, &b), 0);
    sh_tuner_destroy(tuner);
}

TEST(tuner, ends_even_when_work_takes_no_time) {
    bench b = {.cost_ns = {0, 0, 0}};
    sh_clock clock = {bench_now, &b};
    sh_tuner *tuner = tuner_make(&clock, true);
    assert_int_equal(sh_tuner_choose(tuner, "job", names, 3, work, &b), 0);
    sh_tuner_destroy(tuner);
}

TEST(tuner, does_not_measure_when_told_not_to) {
    sh_tuner *tuner = tuner_make(NULL, false);
    assert_true(sh_tuner_knows(tuner, "job", names, 3));
    assert_int_equal(sh_tuner_choose(tuner, "job", names, 3, NULL, NULL), 0);
    assert_false(sh_tuner_changed(tuner));
    assert_int_equal(sh_tuner_threads(tuner), 2);
    sh_tuner_destroy(tuner);
}

TEST(tuner, reloads_what_it_printed) {
    bench b = {.cost_ns = {5000000, 4000000, 3000000}};
    sh_clock clock = {bench_now, &b};
    sh_tuner *first = tuner_make(&clock, true), *second = tuner_make(NULL, false);
    sh_tuner_choose(first, "job \"a\"", names, 3, work, &b);
    char *text = sh_tuner_print(first, false);
    CHECK_OK(load(second, text));
    assert_int_equal(sh_tuner_choose(second, "job \"a\"", names, 3, NULL, NULL), 2);
    char *again = sh_tuner_print(second, true);
    assert_string_equal(text, again);
    assert_false(sh_tuner_changed(second));
    sh_free(text), sh_free(again);
    sh_tuner_destroy(first);
    sh_tuner_destroy(second);
}

TEST(tuner, prints_only_what_this_run_used) {
    sh_tuner *tuner = tuner_make(NULL, false);
    CHECK_OK(load(tuner, "{\"a\": \"other\", \"b\": \"third\"}"));
    sh_tuner_choose(tuner, "b", names, 3, NULL, NULL);
    char *used = sh_tuner_print(tuner, true), *all = sh_tuner_print(tuner, false);
    assert_null(strstr(used, "\"a\""));
    assert_non_null(strstr(used, "\"b\""));
    assert_non_null(strstr(all, "\"a\""));
    sh_free(used), sh_free(all);
    sh_tuner_destroy(tuner);
}

static int threads_of(const char *json) { return sh_choices_threads(json, strlen(json)); }

TEST(tuner, choices_tell_the_threads_they_were_made_for) {
    assert_int_equal(threads_of("{\"gemm nn 46x200x10 t12\": \"packed\"}"), 12);
    assert_int_equal(threads_of("{\"conv-inputs 3x8x8 to 4x8x8 k3x3 s1 n2 direct t3\": \"own\","
                                " \"links shm 2 ranks on 1 node 21\": \"link 1 1\"}"),
                     3);
    assert_int_equal(threads_of("{\"links shm 2 ranks on 1 node 21\": \"link 1 1\"}"), 0);
    assert_int_equal(threads_of("{\"gemm nn 1x2x3 t\": \"a\", \"b t-1\": \"a\", \"t4\": \"a\"}"),
                     0);
    assert_int_equal(threads_of("{\"gemm t3 two\": \"a\", \"c t2x\": \"a\"}"), 0);
    assert_int_equal(threads_of("{}"), 0);
    assert_int_equal(threads_of("no choices"), 0);
}

TEST(tuner, lets_a_later_load_win) {
    sh_tuner *tuner = tuner_make(NULL, false);
    CHECK_OK(load(tuner, "{\"a\": \"other\"}"));
    CHECK_OK(load(tuner, "{\"a\": \"third\"}"));
    assert_int_equal(sh_tuner_choose(tuner, "a", names, 3, NULL, NULL), 2);
    sh_tuner_destroy(tuner);
}

TEST(tuner, remembers_for_the_machine_what_a_resumed_run_chose_otherwise) {
    bench b = {.cost_ns = {5000000, 3000000, 4000000}};
    sh_clock clock = {bench_now, &b};
    sh_tuner *tuner = tuner_make(&clock, true);
    const char manifest[] = "{\"a\": \"other\", \"b\": \"third\", \"c\": \"third\"}";
    CHECK_OK(load(tuner, "{\"a\": \"other\", \"b\": \"usual\", \"d\": \"third\"}"));
    CHECK_OK(sh_tuner_load(tuner, "manifest", manifest, strlen(manifest), false));
    assert_false(sh_tuner_measured(tuner, "a"));  // the run's own, which must stay what it is
    assert_int_equal(sh_tuner_choose(tuner, "b", names, 3, NULL, NULL), 2);
    assert_int_equal(sh_tuner_choose(tuner, "new", names, 3, work, &b), 1);
    char *machine = sh_tuner_print(tuner, false), *used = sh_tuner_print(tuner, true);
    assert_string_equal(machine,
                        "{\n \"a\": \"other\",\n \"b\": \"usual\",\n \"d\": \"third\",\n"
                        " \"new\": \"other\"\n}");
    assert_string_equal(used, "{\n \"b\": \"third\",\n \"new\": \"other\"\n}");
    sh_free(machine), sh_free(used);
    sh_tuner_destroy(tuner);
}

TEST(tuner, decides_anew_for_a_candidate_it_does_not_know) {
    bench b = {.cost_ns = {5000000, 3000000, 4000000}};
    sh_clock clock = {bench_now, &b};
    sh_tuner *tuner = tuner_make(&clock, true);
    CHECK_OK(load(tuner, "{\"job\": \"of another build\", \"text\": 3}"));
    assert_false(sh_tuner_knows(tuner, "text", names, 3));
    assert_false(sh_tuner_knows(tuner, "job", names, 3));
    assert_int_equal(sh_tuner_choose(tuner, "job", names, 3, work, &b), 1);
    char *text = sh_tuner_print(tuner, false);
    assert_null(strstr(text, "another build"));
    sh_free(text);
    sh_tuner_destroy(tuner);
}

TEST(tuner, refuses_what_is_not_a_json_object) {
    const char *const bad[] = {"",
                               "{",
                               "[1, 2]",
                               "\"a\"",
                               "{\"a\": }",
                               "{\"a\": \"b\"",
                               "{\"a\": \"b\", \"a\": \"c\"}",
                               "{\"a\": \"b\"} x",
                               "\xff\xfe"};
    sh_tuner *tuner = tuner_make(NULL, false);
    for (size_t i = 0; i < SH_COUNT(bad); i++)
        CHECK_FAILS(SH_E_FORMAT, "kernels.json", load(tuner, bad[i]));
    char *text = sh_tuner_print(tuner, false);
    assert_string_equal(text, "{}");
    sh_free(text);
    sh_tuner_destroy(tuner);
}

/* A search through all choices for each of them takes half an hour here. */
TEST(tuner, knows_very_many_choices) {
    enum { COUNT = 400000, ROOM = 40 };
    char *json = sh_alloc(COUNT + 1, ROOM), key[ROOM];
    assert_non_null(json);
    size_t at = 0;
    for (int i = 0; i < COUNT; i++)
        at += (size_t)sprintf(json + at, "%c\"gemm nt 128x512x%d t2\": \"plain\"",
                              i == 0 ? '{' : ',', i);
    json[at++] = '}';
    sh_tuner *tuner = tuner_make(NULL, true);
    CHECK_OK(load(tuner, json));
    for (int i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "gemm nt 128x512x%d t2", i);
        assert_string_equal(sh_tuner_recall(tuner, key), "plain");
    }
    assert_null(sh_tuner_recall(tuner, "gemm nt 128x512x400000 t2"));
    sh_tuner_destroy(tuner);
    sh_free(json);
}
