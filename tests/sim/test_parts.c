/* The parts alone: the event queue, the network, the laws of compute times. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "harness.h"
#include "sim/compute.h"
#include "sim/events.h"
#include "sim/network.h"
#include "sim/pool.h"

TEST(events, come_in_order_of_time_and_then_of_queueing) {
    enum { COUNT = 5000 };
    static sh_event events[COUNT];
    static int64_t at[COUNT];
    sh_events queue = {0};
    sh_rng rng = sh_rng_stream(3, SH_RNG_TEST, 0, 0);
    for (int i = 0; i < COUNT; i++) {
        at[i] = (int64_t)sh_rng_below(&rng, 200);
        assert_true(sh_events_push(&queue, &events[i], at[i], (uint64_t)i + 1));
    }
    for (int i = 0; i < COUNT; i += 7) sh_events_take_back(&queue, &events[i]);
    int64_t last_at = -1, now;
    ptrdiff_t last = -1;
    int popped = 0;
    for (; sh_events_next(&queue, &now); popped++) {
        ptrdiff_t index = sh_events_pop(&queue) - events;
        assert_true(index % 7 != 0 && at[index] == now);
        assert_true(now > last_at || (now == last_at && index > last));
        last_at = now;
        last = index;
    }
    assert_int_equal(popped, COUNT - (COUNT + 6) / 7);
    assert_int_equal(queue.live, 0);
    sh_events_fini(&queue);
}

TEST(pool, hands_out_distinct_objects_and_takes_them_again) {
    enum { COUNT = 3000 };
    sh_pool pool = {.bytes = 100};
    char *taken[COUNT];
    for (int i = 0; i < COUNT; i++) {
        taken[i] = sh_pool_take(&pool);
        assert_non_null(taken[i]);
        memset(taken[i], i & 127, 100);
    }
    for (int i = 0; i < COUNT; i++)
        assert_true(taken[i][0] == (i & 127) && taken[i][99] == (i & 127));
    sh_pool_give(&pool, taken[17]);
    assert_ptr_equal(sh_pool_take(&pool), taken[17]);
    sh_pool_fini(&pool);
}

/* ---- The network ----------------------------------------------------------------------------- */

static int64_t travel(sh_network *network, int from, int to, size_t bytes, int64_t now_ns) {
    int64_t lands = sh_network_depart(network, from, to, bytes, now_ns);
    return sh_network_arrive(network, from, to, bytes, lands);
}

static const sh_link gigabit = {.alpha_s = 50e-6, .beta_s = 8e-9};

TEST(network, a_message_takes_alpha_and_its_bytes) {
    sh_network network;
    CHECK_OK(sh_network_init(&network, &(sh_sim_links){.rank = gigabit}, 4, NULL));
    assert_int_equal(travel(&network, 0, 1, 0, 1000), 51000);
    assert_int_equal(travel(&network, 2, 3, 1000000, 0), 8050000);
    assert_int_equal(travel(&network, 2, 2, 1000000, 7), 7);
    sh_network_fini(&network);
}

TEST(network, senders_and_receivers_share_their_wires) {
    sh_network network;
    CHECK_OK(sh_network_init(&network, &(sh_sim_links){.rank = gigabit}, 4, NULL));
    for (int i = 1; i <= 3; i++)  // one sender, three receivers
        assert_int_equal(travel(&network, 0, i, 1000, 0), 50000 + 8000 * i);
    sh_network_fini(&network);
    CHECK_OK(sh_network_init(&network, &(sh_sim_links){.rank = gigabit}, 4, NULL));
    for (int i = 1; i <= 3; i++)  // three senders, one receiver
        assert_int_equal(travel(&network, i, 0, 1000, 0), 50000 + 8000 * i);
    assert_int_equal(travel(&network, 0, 1, 1000, 0), 58000);  // the way out is another wire
    sh_network_fini(&network);
}

TEST(network, racks_and_sites_have_wires_of_their_own) {
    sh_sim_links links = {.rank = {1e-6, 1e-9, 0},
                          .rack_ranks = 2,
                          .rack = {10e-6, 2e-9, 0},
                          .site_racks = 2,
                          .site = {1e-3, 100e-9, 0}};
    sh_network network;
    CHECK_OK(sh_network_init(&network, &links, 8, NULL));
    assert_int_equal(travel(&network, 0, 1, 1000, 0), 1000 + 1000);
    assert_int_equal(travel(&network, 2, 0, 1000, 0), 10000 + 2000);
    assert_int_equal(travel(&network, 3, 1, 1000, 0), 10000 + 4000);  // after rank 2's
    assert_int_equal(travel(&network, 6, 5, 1000, 0), 10000 + 2000);
    assert_int_equal(travel(&network, 7, 2, 1000, 5000000), 5000000 + 1000000 + 100000);
    assert_int_equal(sh_network_rack(&network, 5), 2);
    sh_network_fini(&network);
}

TEST(network, pairs_and_hosts_are_special) {
    sh_sim_pair pairs[] = {{3, 1, {1e-3, 0, 0}}, {0, 2, {2e-3, 1e-6, 0}}};
    sh_sim_links links = {.rank = gigabit, .pairs = pairs, .pair_count = 2};
    const int host[] = {0, 1, 2, 3, 0};
    sh_network network;
    CHECK_OK(sh_network_init(&network, &links, 5, host));
    assert_int_equal(travel(&network, 1, 3, 1000, 0), 1000000);
    assert_int_equal(travel(&network, 2, 0, 1000, 0), 2000000 + 1000000);
    assert_int_equal(travel(&network, 4, 0, 1000, 5), 5);
    assert_int_equal(travel(&network, 4, 1, 1000, 0), 58000);
    assert_int_equal(travel(&network, 0, 1, 1000, 0), 66000);  // behind its guest's message
    sh_network_fini(&network);
    pairs[0].b = 9;
    CHECK_FAILS(SH_E_USAGE, "between ranks 3 and 9 of 5",
                sh_network_init(&network, &links, 5, host));
}

/* ---- Compute times --------------------------------------------------------------------------- */

static void moments(const sh_sim_compute *compute, double *mean_out, double *deviation_out) {
    enum { COUNT = 200000 };
    double sum = 0, squares = 0;
    for (int i = 0; i < COUNT; i++) {
        double x = sh_compute_seconds(compute, 5, i % 4, i / 4, 0);
        sum += x;
        squares += x * x;
    }
    *mean_out = sum / COUNT;
    *deviation_out = sqrt(squares / COUNT - *mean_out * *mean_out);
}

TEST(compute, laws_have_their_mean_and_deviation) {
    double mean, deviation;
    moments(&(sh_sim_compute){.law = SH_LAW_EXPONENTIAL, .mean_s = 0.02}, &mean, &deviation);
    assert_true(fabs(mean / 0.02 - 1) < 0.01 && fabs(deviation / 0.02 - 1) < 0.02);
    moments(&(sh_sim_compute){.law = SH_LAW_LOGNORMAL, .mean_s = 3, .sigma = 0.5}, &mean,
            &deviation);
    assert_true(fabs(mean / 3 - 1) < 0.01);
    assert_true(fabs(deviation / (3 * sqrt(exp(0.25) - 1)) - 1) < 0.02);
    moments(&(sh_sim_compute){.mean_s = 7}, &mean, &deviation);
    assert_true(fabs(mean - 7) < 1e-9 && deviation < 1e-3);
}

TEST(compute, stragglers_and_phases_take_longer) {
    sh_sim_slow slow[] = {{.rank = 2, .factor = 4}, {-1, 3, 10, 20}};
    sh_sim_compute compute = {.mean_s = 1, .slow = slow, .slow_count = 2};
    assert_true(sh_compute_seconds(&compute, 1, 0, 0, 0) == 1);
    assert_true(sh_compute_seconds(&compute, 1, 2, 0, 0) == 4);
    assert_true(sh_compute_seconds(&compute, 1, 2, 0, 10) == 12);
    assert_true(sh_compute_seconds(&compute, 1, 1, 0, 19.9) == 3);
    assert_true(sh_compute_seconds(&compute, 1, 1, 0, 20) == 1);
}

TEST(compute, a_draw_is_a_function_of_seed_rank_and_step) {
    sh_sim_compute compute = {.law = SH_LAW_EXPONENTIAL, .mean_s = 1};
    double first = sh_compute_seconds(&compute, 1, 3, 77, 0);
    assert_true(first == sh_compute_seconds(&compute, 1, 3, 77, 500));
    assert_true(first != sh_compute_seconds(&compute, 2, 3, 77, 0));
    assert_true(first != sh_compute_seconds(&compute, 1, 4, 77, 0));
    assert_true(first != sh_compute_seconds(&compute, 1, 3, 78, 0));
}
