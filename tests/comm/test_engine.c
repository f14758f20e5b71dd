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
