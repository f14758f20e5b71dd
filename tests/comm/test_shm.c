#include "comm/transports/shm.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "comm/conformance.h"
#include "comm/ranks.h"
#include "harness.h"

static void run_all(sh_status (*run)(int ranks, sh_rank_body body, void *argument), int ranks) {
    for (const conformance_case *row = conformance_cases; row->name != NULL; row++) {
        if (row->heavy && ranks > 2) continue;
        sh_status status = run(ranks, row->body, NULL);
        if (status != SH_OK) fail_msg("%s, %d ranks: %s", row->name, ranks, sh_error_last()->text);
    }
}

TEST(shm, conforms_with_threads_as_ranks) {
    run_all(run_ranks, 2);
    run_all(run_ranks, 5);
}

TEST(shm, conforms_with_processes_as_ranks) {
    run_all(run_forked, 2);
    run_all(run_forked, 4);
}

static sh_status all_in_a_row(sh_transport *transport, void *argument) {
    (void)argument;
    for (const conformance_case *row = conformance_cases; row->name != NULL; row++)
        if (!row->heavy) SH_TRY(row->body(transport, NULL));
    return SH_OK;
}

TEST(shm, conforms_in_one_long_run) { CHECK_OK(run_ranks(3, all_in_a_row, NULL)); }

static void return_from_death(void *argument) { (void)argument; }

static void die_at_once(void *argument) {
    (void)argument;
    raise(SIGKILL);
}

TEST(shm, a_thread_that_leaves_is_noticed) {
    conformance_death death = {return_from_death, NULL};
    CHECK_FAILS(SH_E_INTERRUPTED, "rank 1 leaves", run_ranks(2, conformance_dies, &death));
    CHECK_FAILS(SH_E_INTERRUPTED, "rank 3 leaves", run_ranks(4, conformance_dies, &death));
}

TEST(shm, a_process_that_is_killed_is_noticed) {
    conformance_death death = {die_at_once, NULL};
    CHECK_FAILS(SH_E_PEER, "rank 3: killed by signal 9", run_forked(4, conformance_dies, &death));
}
