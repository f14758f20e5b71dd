/* When a message is there: wires that are shared, racks, sites and pairs with links of their own.
 */
#include "sim/network.h"

#include "harness.h"

static const int64_t US = 1000;

/* 1 byte takes 1 ns on a rank's wire, 4 ns on a rack's and 10 ns on a site's; latencies of 1, 10,
 * 100 us. */
static sh_network network_of(int ranks, int rack_ranks, int site_racks) {
    sh_network network;
    sh_sim_links links = {.rank = {.alpha_s = 1e-6, .beta_s = 1e-9},
                          .rack_ranks = rack_ranks,
                          .rack = {.alpha_s = 1e-5, .beta_s = 4e-9},
                          .site_racks = site_racks,
                          .site = {.alpha_s = 1e-4, .beta_s = 1e-8}};
    CHECK_OK(sh_network_init(&network, &links, ranks, NULL));
    return network;
}

static int64_t send(sh_network *network, int from, int to, size_t bytes, int64_t now) {
    return sh_network_arrive(network, from, to, bytes,
                             sh_network_depart(network, from, to, bytes, now));
}

TEST(network, a_message_takes_the_latency_and_its_bytes) {
    sh_network network = network_of(3, 0, 0);
    assert_int_equal(send(&network, 0, 1, 5000, 0), 1 * US + 5000);
    assert_int_equal(send(&network, 2, 0, 0, 50 * US), 51 * US);
    sh_network_fini(&network);
}

TEST(network, messages_of_one_sender_wait_for_its_wire) {
    sh_network network = network_of(3, 0, 0);
    int64_t first = sh_network_depart(&network, 0, 1, 5000, 0);
    int64_t second = sh_network_depart(&network, 0, 2, 5000, 0);
    assert_int_equal(first, 1 * US);
    assert_int_equal(second, 5000 + 1 * US);
    sh_network_fini(&network);
}

TEST(network, messages_to_one_receiver_wait_for_its_wire) {
    sh_network network = network_of(3, 0, 0);
    int64_t a = sh_network_depart(&network, 0, 2, 5000, 0);
    int64_t b = sh_network_depart(&network, 1, 2, 5000, 0);
    assert_int_equal(sh_network_arrive(&network, 0, 2, 5000, a), 1 * US + 5000);
    assert_int_equal(sh_network_arrive(&network, 1, 2, 5000, b), 1 * US + 10000);
    sh_network_fini(&network);
}

TEST(network, ranks_of_one_rack_share_its_wire_to_the_others) {
    sh_network network = network_of(4, 2, 0);
    assert_int_equal(sh_network_rack(&network, 1), 0);
    assert_int_equal(sh_network_rack(&network, 2), 1);
    // Inside a rack its wire is not used.
    assert_int_equal(sh_network_depart(&network, 0, 1, 5000, 0), 1 * US);
    int64_t first = sh_network_depart(&network, 0, 2, 1000, 100 * US);
    int64_t second = sh_network_depart(&network, 1, 3, 1000, 100 * US);
    assert_int_equal(first, 110 * US);
    assert_int_equal(second, 110 * US + 4000);  // another rank's wire, but the same rack's
    sh_network_fini(&network);
}

TEST(network, the_slowest_wire_and_the_farthest_latency_count) {
    sh_network network = network_of(8, 2, 2);
    assert_int_equal(send(&network, 0, 2, 1000, 0), 10 * US + 4000);
    network = (sh_network_fini(&network), network_of(8, 2, 2));
    assert_int_equal(send(&network, 0, 4, 1000, 0), 100 * US + 10000);
    // A rack of the same site still waits for the rack's wire that the message took.
    assert_int_equal(sh_network_depart(&network, 1, 2, 1000, 0), 4000 + 10 * US);
    sh_network_fini(&network);
}

TEST(network, a_pair_with_a_link_of_its_own_uses_that_both_ways) {
    sh_network network;
    const sh_sim_pair pairs[] = {{.a = 2, .b = 0, .link = {.alpha_s = 5e-6, .beta_s = 2e-9}}};
    sh_sim_links links = {
        .rank = {.alpha_s = 1e-6, .beta_s = 1e-9}, .pairs = pairs, .pair_count = 1};
    CHECK_OK(sh_network_init(&network, &links, 3, NULL));
    assert_int_equal(send(&network, 0, 2, 1000, 0), 5 * US + 2000);
    assert_int_equal(send(&network, 2, 0, 1000, 100 * US), 105 * US + 2000);
    assert_int_equal(send(&network, 0, 1, 1000, 200 * US), 201 * US + 1000);
    sh_network_fini(&network);
}

TEST(network, endpoints_of_one_host_reach_each_other_at_once_and_share_its_wires) {
    sh_network network;
    sh_sim_links links = {.rank = {.alpha_s = 1e-6, .beta_s = 1e-9}};
    CHECK_OK(sh_network_init(&network, &links, 3, (const int[]){0, 1, 0}));
    assert_int_equal(send(&network, 0, 2, 5000, 7), 7);
    assert_int_equal(sh_network_depart(&network, 0, 1, 5000, 0), 1 * US);
    assert_int_equal(sh_network_depart(&network, 2, 1, 5000, 0), 5000 + 1 * US);
    sh_network_fini(&network);
}

TEST(network, what_makes_no_sense_is_refused) {
    sh_network network;
    const sh_sim_pair self[] = {{.a = 1, .b = 1}}, far[] = {{.a = 0, .b = 3}};
    CHECK_FAILS(
        SH_E_USAGE, "between ranks 1 and 1",
        sh_network_init(&network, &(sh_sim_links){.pairs = self, .pair_count = 1}, 3, NULL));
    CHECK_FAILS(SH_E_USAGE, "between ranks 0 and 3",
                sh_network_init(&network, &(sh_sim_links){.pairs = far, .pair_count = 1}, 3, NULL));
    CHECK_FAILS(SH_E_USAGE, "sites are made of racks",
                sh_network_init(&network, &(sh_sim_links){.site_racks = 2}, 3, NULL));
    CHECK_FAILS(SH_E_USAGE, "negative",
                sh_network_init(&network, &(sh_sim_links){.rank = {.alpha_s = -1}}, 3, NULL));
    CHECK_FAILS(SH_E_USAGE, "on the host of rank 5",
                sh_network_init(&network, &(sh_sim_links){0}, 3, (const int[]){0, 5, 0}));
}
