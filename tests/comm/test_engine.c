#include "base/memory.h"
#include "comm/engine_cases.h"
#include "harness.h"

TEST(engine, all_reduces_equal_the_serial_result_at_all_rank_counts) {
    for (int ranks = 1; ranks <= 17; ranks++)
        CHECK_OK(run_engines(ranks, NULL, engine_all_reduces, &(engine_ways){0}));
}

TEST(engine, all_reduces_do_every_operator_on_every_type) {
    for (int ranks = 2; ranks <= 5; ranks++)
        CHECK_OK(run_engines(ranks, NULL, engine_all_reduces, &(engine_ways){.every_pair = true}));
}

TEST(engine, cuts_long_buffers_into_segments) {
    sh_engine_options options = {.segment_bytes = 10000};
    for (int ranks = 2; ranks <= 7; ranks += ranks < 3 ? 1 : 4)
        CHECK_OK(run_engines(ranks, &options, engine_all_reduces, &(engine_ways){0}));
}

/* Two calls at once of so many elements that pieces of the size asked for would be more than 4,096,
 * which is what a tag can number: the tags of one call would be those of the next. */
static sh_status want_too_many_segments(sh_engine *engine, void *argument) {
    enum { COUNT = 250000, SEGMENTS_MOST = 4096 };
    const sh_algorithm *algorithm = sh_algorithm_find(SH_ALLREDUCE, argument);
    int rank = sh_engine_rank(engine), ranks = sh_engine_ranks(engine);
    int steps = algorithm->steps(&(sh_topology){.ranks = ranks});
    float *data = sh_alloc(2 * COUNT, sizeof *data);
    SH_ASSERT(data != NULL);
    sh_call calls[2];
    sh_status status;
    for (int i = 0; i < 2; i++) {
        engine_fill(data + i * COUNT, SH_DTYPE_F32, SH_SUM, rank, COUNT);
        calls[i] = (sh_call){.what = SH_ALLREDUCE,
                             .algorithm = argument,
                             .data = data + i * COUNT,
                             .count = COUNT,
                             .bucket = i};
        SH_TRY_OUT(sh_engine_start(engine, &calls[i]));
    }
    for (int i = 0; i < 2; i++) {
        sh_call *call = &calls[rank % 2 == 0 ? i : 1 - i];
        SH_TRY_OUT(sh_engine_wait(engine, call));
        SH_TRY_OUT(engine_check(call->data, SH_DTYPE_F32, SH_SUM, NULL, ranks, 0, COUNT, argument));
        if (call->messages > (uint64_t)SEGMENTS_MOST * (uint64_t)steps)
            status = SH_FAIL(SH_E_NUMERIC, "%llu messages in %d steps: more than %d segments",
                             (unsigned long long)call->messages, steps, SEGMENTS_MOST);
        if (call->messages < SEGMENTS_MOST / 4)
            status =
                SH_FAIL(SH_E_NUMERIC, "only %llu messages", (unsigned long long)call->messages);
    }
out:
    sh_free(data);
    return status;
}

TEST(engine, cuts_no_buffer_into_more_segments_than_tags_can_number) {
    sh_engine_options options = {.segment_bytes = 64};
    for (int ranks = 2; ranks <= 3; ranks++) {
        CHECK_OK(run_engines(ranks, &options, want_too_many_segments, (char[]){"ring"}));
        CHECK_OK(run_engines(ranks, &options, want_too_many_segments, (char[]){"tree"}));
    }
}

TEST(engine, works_from_a_comm_task) {
    sh_engine_options options = {.task = true};
    for (int ranks = 1; ranks <= 4; ranks++)
        CHECK_OK(run_engines(ranks, &options, engine_all_reduces, &(engine_ways){0}));
}

TEST(engine, all_ranks_end_with_equal_bits) {
    for (int ranks = 2; ranks <= 17; ranks += 3) {
        size_t small = 777, large = 50021;
        CHECK_OK(run_engines(ranks, NULL, engine_equal_bits, &small));
        CHECK_OK(run_engines(ranks, NULL, engine_equal_bits, &large));
    }
}
