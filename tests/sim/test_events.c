/* The event queue of the simulator. */
#include "sim/events.h"

#include "base/rng.h"
#include "harness.h"

TEST(events, of_one_time_come_in_the_order_in_which_they_were_queued) {
    enum { COUNT = 200 };
    sh_events events = {0};
    sh_event all[COUNT] = {{0}};
    for (int i = 0; i < COUNT; i++)
        assert_true(sh_events_push(&events, &all[i], 7, 1 + (uint64_t)i));
    for (int i = 0; i < COUNT; i++) assert_ptr_equal(sh_events_pop(&events), &all[i]);
    sh_events_fini(&events);
}

TEST(events, come_in_the_order_of_their_times_whatever_is_queued_and_taken_back) {
    enum { COUNT = 500 };
    sh_rng rng = sh_rng_stream(3, SH_RNG_TEST, 0, 0);
    sh_events events = {0};
    sh_event all[COUNT] = {{0}};
    int64_t at[COUNT] = {0};
    uint64_t order = 0;
    bool queued[COUNT] = {false};
    size_t live = 0;
    for (int round = 0; round < 20000; round++) {
        size_t which = (size_t)sh_rng_below(&rng, COUNT);
        uint64_t what = sh_rng_below(&rng, 10);
        if (what < 5 && !queued[which]) {
            at[which] = (int64_t)sh_rng_below(&rng, 100);
            assert_true(sh_events_push(&events, &all[which], at[which], ++order));
            queued[which] = true;
            live++;
        } else if (what < 7 && queued[which]) {
            sh_events_take_back(&events, &all[which]);
            queued[which] = false;
            live--;
        } else if (what >= 7 && live > 0) {
            int64_t now = -1;
            assert_true(sh_events_next(&events, &now));
            const sh_event *next = NULL;
            for (size_t i = 0; i < COUNT; i++) {
                if (!queued[i]) continue;
                bool earlier = next == NULL || at[i] < at[next - all] ||
                               (at[i] == at[next - all] && all[i].order < next->order);
                if (earlier) next = &all[i];
            }
            assert_int_equal(now, at[next - all]);
            assert_ptr_equal(sh_events_pop(&events), next);
            queued[next - all] = false;
            live--;
        }
        assert_int_equal(events.live, live);
    }
    sh_events_fini(&events);
}
