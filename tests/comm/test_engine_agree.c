/* Ranks that do not start the same calls in the same order are told at once what each started. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/engine_cases.h"
#include "harness.h"

/* Far longer than the test may take: whoever waits it out says something else. */
static const int64_t never_ns = 60000000000;

static void both_are_named(const engine_difference *row, const char *text) {
    bool named = strstr(text, "rank 1 started") != NULL && strstr(text, "rank 0 started") != NULL &&
                 strstr(text, row->words[0]) != NULL && strstr(text, row->words[1]) != NULL;
    if (!named) fail_msg("%s: '%s'", row->name, text);
}

TEST(engine_agree, two_ranks_both_name_what_both_started) {
    for (const engine_difference *row = engine_differences; row->name != NULL; row++)
        for (int task = 0; task < 2; task++) {
            engine_dispute job = {.row = row};
            sh_engine_options options = {.timeout_ns = never_ns, .task = task != 0};
            assert_int_equal(run_engines(2, &options, engine_differs, &job), SH_E_SHAPE);
            for (int rank = 0; rank < 2; rank++) both_are_named(row, job.text[rank]);
        }
}

TEST(engine_agree, one_of_three_that_differs_is_named) {
    for (const engine_difference *row = engine_differences; row->name != NULL; row++) {
        engine_dispute job = {.row = row};
        CHECK_FAILS(
            SH_E_SHAPE, "rank 1 started",
            run_engines(3, &(sh_engine_options){.timeout_ns = never_ns}, engine_differs, &job));
    }
}

enum { BUCKETS = 3, EACH = 2000 };

/* Three all-reduces under way; rank 1 starts the last two in the other order. */
static sh_status swap(sh_engine *engine, void *argument) {
    const char *algorithm = argument;
    static const int order[2][BUCKETS] = {{0, 1, 2}, {0, 2, 1}};
    float data[BUCKETS][EACH] = {{0}};
    sh_call calls[BUCKETS];
    sh_status status = SH_OK;
    for (int i = 0; i < BUCKETS; i++) {
        int bucket = order[sh_engine_rank(engine) == 1][i];
        calls[i] = (sh_call){.what = SH_ALLREDUCE,
                             .algorithm = algorithm,
                             .data = data[bucket],
                             .count = EACH,
                             .bucket = bucket};
        if (status == SH_OK) status = sh_engine_start(engine, &calls[i]);
    }
    for (int i = 0; status == SH_OK && i < BUCKETS; i++) status = sh_engine_wait(engine, &calls[i]);
    return status;
}

TEST(engine_agree, buckets_in_another_order_are_not_summed) {
    static char names[][8] = {"ring", "tree", "direct"};
    for (size_t i = 0; i < 3; i++) {
        CHECK_FAILS(SH_E_SHAPE, "of bucket 2, 8000 bytes", run_engines(2, NULL, swap, names[i]));
        CHECK_FAILS(SH_E_SHAPE, "of bucket 1, 8000 bytes", run_engines(4, NULL, swap, names[i]));
    }
}

/* A rank that is merely late is waited for, and told about it all the while. */
static sh_status come_late(sh_engine *engine, void *argument) {
    (void)argument;
    float data[EACH] = {0};
    for (int i = 0; i < 200; i++) {
        sh_call call = {.what = SH_ALLREDUCE, .algorithm = "ring", .data = data, .count = EACH};
        call.bucket = i;
        if (i % 40 == 39 && sh_engine_rank(engine) == 1) usleep(20000);
        SH_TRY(sh_engine_run(engine, &call));
    }
    return sh_engine_barrier(engine);
}

TEST(engine_agree, a_late_rank_is_no_difference) {
    CHECK_OK(run_engines(3, NULL, come_late, NULL));
    CHECK_OK(run_engines(3, &(sh_engine_options){.task = true}, come_late, NULL));
}
