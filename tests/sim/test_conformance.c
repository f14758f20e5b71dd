/* The simulator is a transport like the others. */
#include "comm/conformance.h"
#include "harness.h"
#include "sim/simulated.h"

static void run_all(int ranks, const sh_sim_options *options) {
    for (const conformance_case *row = conformance_cases; row->name != NULL; row++) {
        if (row->heavy && ranks > 2) continue;
        sh_status status = run_simulated(ranks, options, row->body, NULL);
        if (status != SH_OK) fail_msg("%s, %d ranks: %s", row->name, ranks, sh_error_last()->text);
    }
}

TEST(sim, conforms) {
    run_all(2, NULL);
    run_all(5, NULL);
}

TEST(sim, conforms_on_free_links) { run_all(4, &(sh_sim_options){0}); }

TEST(sim, conforms_where_messages_overtake_each_other) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        sh_sim_options options = {.seed = seed, .links = simulated_links()};
        options.faults = (sh_sim_faults){.delay_s = 300e-6, .hold = 0.1, .hold_s = 10e-3};
        print_message("seed %d\n", (int)seed);
        run_all(3, &options);
    }
}

static sh_status all_in_a_row(sh_transport *transport, void *argument) {
    (void)argument;
    for (const conformance_case *row = conformance_cases; row->name != NULL; row++)
        if (!row->heavy) SH_TRY(row->body(transport, NULL));
    return SH_OK;
}

TEST(sim, conforms_in_one_long_run) { CHECK_OK(run_simulated(3, NULL, all_in_a_row, NULL)); }

static void return_from_death(void *argument) { (void)argument; }

TEST(sim, a_rank_that_leaves_is_noticed) {
    conformance_death death = {return_from_death, NULL};
    CHECK_FAILS(SH_E_INTERRUPTED, "rank 1 leaves",
                run_simulated(2, NULL, conformance_dies, &death));
    CHECK_FAILS(SH_E_INTERRUPTED, "rank 3 leaves",
                run_simulated(4, NULL, conformance_dies, &death));
}

TEST(sim, takes_no_virtual_time_on_free_links) {
    CHECK_OK(run_simulated(3, &(sh_sim_options){0}, all_in_a_row, NULL));
    assert_true(simulated_seconds() < 0.1);  // ranks that look up in vain, no more
}
