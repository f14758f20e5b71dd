/* Costs by the closed forms of the literature (Thakur, Rabenseifner and Gropp 2005; Chan, Heimlich,
 * Purkayastha and van de Geijn 2007), and what no algorithm can go below. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "explain/collective.h"

static const sh_link wire = {50e-6, 8e-9, 1e-10};

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b)); }

/* ceil(log2 P). */
static int rounds_of(int ranks) {
    int rounds = 0;
    while (1 << rounds < ranks) rounds++;
    return rounds;
}

/* All ranks on one node, or each on its own: the other link must not count. */
static sh_terms terms_of(sh_collective does, const char *name, int ranks, double bytes) {
    const sh_algorithm *row = sh_algorithm_find(does, name);
    assert_non_null(row);
    sh_topology topology = {.ranks = ranks};
    sh_links inside = {.between = {1, 1, 1}, .inside = wire}, between = {wire, {1, 1, 1}};
    sh_terms terms = sh_terms_of(row, &topology, bytes, &inside);
    int node[128];
    for (int r = 0; r < ranks; r++) node[r] = r;
    CHECK_OK(sh_places_create(node, ranks, (sh_places **)(uintptr_t)&topology.places));
    sh_terms apart = sh_terms_of(row, &topology, bytes, &between);
    sh_places_destroy((sh_places *)(uintptr_t)topology.places);
    if (ranks > 1) assert_true(near(terms.total_s, apart.total_s));
    return terms;
}

static void check(sh_collective does, const char *name, int ranks, double messages, double sent,
                  double reduced) {
    const double bytes = 3e6;
    sh_terms t = terms_of(does, name, ranks, bytes);
    if (!near(t.messages, messages) || !near(t.sent, sent) || !near(t.reduced, reduced))
        fail_msg("%s, %d ranks: %g messages, %g n, %g n, not %g, %g, %g", name, ranks, t.messages,
                 t.sent, t.reduced, messages, sent, reduced);
    assert_true(near(t.latency_s, messages * wire.alpha_s));
    assert_true(near(t.bandwidth_s, sent * bytes * wire.beta_s));
    assert_true(near(t.reduction_s, reduced * bytes * wire.gamma_s));
    assert_true(near(t.total_s, t.latency_s + t.bandwidth_s + t.reduction_s));
}

TEST(terms, are_those_of_the_literature_for_any_number_of_ranks) {
    for (int p = 1; p <= 33; p++) {
        double others = p - 1, part = others / p, rounds = rounds_of(p);
        check(SH_ALLREDUCE, "ring", p, 2 * others, 2 * part, part);
        check(SH_ALLREDUCE, "tree", p, 2 * rounds, 2 * rounds, rounds);
        check(SH_REDUCE_SCATTER, "ring", p, others, part, part);
        check(SH_ALLGATHER, "ring", p, others, part, 0);
        check(SH_ALLTOALL, "pairwise", p, others, part, 0);
        check(SH_BROADCAST, "tree", p, rounds, rounds, 0);
        check(SH_BARRIER, "dissemination", p, rounds, 0, 0);
    }
}

TEST(terms, of_halving_and_doubling_are_least_at_powers_of_two) {
    for (int p = 2; p <= 64; p *= 2) {
        double part = (p - 1.) / p, rounds = rounds_of(p);
        check(SH_ALLREDUCE, "halving-doubling", p, 2 * rounds, 2 * part, part);
        check(SH_REDUCE_SCATTER, "halving", p, rounds, part, part);
        check(SH_ALLGATHER, "doubling", p, rounds, part, 0);
        check(SH_BROADCAST, "scatter-gather", p, rounds + p - 1, 2 * part, 0);
    }
}

/* A pipeline of S blocks: the first arrives after P - 1 hops, the others one by one behind it. */
TEST(terms, of_a_chain_are_those_of_a_pipeline) {
    for (int p = 2; p <= 33; p++) check(SH_BROADCAST, "chain", p, p + 30, (p + 30) / 32., 0);
}

/* News of P ranks takes log2 P rounds. The busiest rank of a sum of n bytes must send and reduce
 * (P - 1) / P n, and as much again to hand it round. */
TEST(terms, of_no_algorithm_are_below_the_bounds) {
    const sh_algorithm *row;
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++)
        for (int p = 2; p <= 33 && !row->native; p++) {
            double part = (p - 1.) / p, sent = part, reduced = 0;
            if (row->does == SH_ALLREDUCE) sent = 2 * part;
            if (row->does == SH_BROADCAST) sent = 1;
            if (row->does == SH_BARRIER) sent = 0;
            if (row->does == SH_ALLREDUCE || row->does == SH_REDUCE_SCATTER) reduced = part;
            sh_terms t = terms_of(row->does, row->name, p, 1e6);
            bool holds = t.messages > rounds_of(p) - 1e-9 && t.sent > sent - 1e-9 &&
                         t.reduced > reduced - 1e-9;
            if (!holds)
                fail_msg("%s of %d ranks: %g messages, %g n, %g n", row->name, p, t.messages,
                         t.sent, t.reduced);
        }
}

/* What the busiest rank sends, summed message by message, is what the closed form prices. */
TEST(traffic, of_a_ring_is_alike_on_all_ranks) {
    for (int p = 2; p <= 16; p++) {
        sh_shown shown = {.algorithm = sh_algorithm_find(SH_ALLREDUCE, "ring"),
                          .topology = {.ranks = p},
                          .elements = (size_t)p * 50};
        sh_traffic t = sh_traffic_of(&shown);
        assert_int_equal(t.least, 2 * (p - 1));
        assert_int_equal(t.most, 2 * (p - 1));
        assert_true(t.bytes_least == 2 * (p - 1) * 50 * 4. && t.bytes_most == t.bytes_least);
        assert_true(t.messages == 2. * p * (p - 1) && t.bytes == p * t.bytes_least);
        assert_int_equal(sh_moves_count(&shown), 2 * p * (p - 1));
    }
}

/* Among a power of two ranks, doubling and halving have the fewest messages and the fewest bytes.
 */
TEST(cheapest, is_one_algorithm_where_no_other_is_better_in_anything) {
    sh_links links = {.inside = wire};
    sh_size_range ranges[SH_RANGES_MOST];
    for (int p = 4; p <= 64; p *= 2) {
        sh_topology topology = {.ranks = p};
        assert_int_equal(sh_size_ranges(SH_ALLGATHER, &topology, &links, ranges), 1);
        assert_string_equal(ranges[0].algorithm->name, "doubling");
        assert_int_equal(sh_size_ranges(SH_REDUCE_SCATTER, &topology, &links, ranges), 1);
        assert_string_equal(ranges[0].algorithm->name, "halving");
    }
    assert_int_equal(sh_size_ranges(SH_BARRIER, &(sh_topology){.ranks = 7}, &links, ranges), 1);
}

/* Broadcast among 8: the tree's 3 a + 3 b n against the chain's 38 a + 38/32 b n, and against
 * scatter-gather's 10 a + 1.75 b n, which is cheapest between them. */
TEST(cheapest, broadcast_changes_where_the_closed_forms_meet) {
    sh_links links = {.inside = wire};
    sh_topology topology = {.ranks = 8};
    sh_size_range ranges[SH_RANGES_MOST];
    assert_int_equal(sh_size_ranges(SH_BROADCAST, &topology, &links, ranges), 3);
    assert_string_equal(ranges[0].algorithm->name, "tree");
    assert_string_equal(ranges[1].algorithm->name, "scatter-gather");
    assert_string_equal(ranges[2].algorithm->name, "chain");
    double first = (10 - 3) * wire.alpha_s / ((3 - 1.75) * wire.beta_s);
    double second = (38 - 10) * wire.alpha_s / ((1.75 - 38. / 32) * wire.beta_s);
    assert_true(fabs(ranges[1].from_bytes / first - 1) < 1e-3);
    assert_true(fabs(ranges[2].from_bytes / second - 1) < 1e-3);
}

static char *comparison(sh_collective does, int ranks, const char *tried) {
    static char *text;  // static: GCC takes what is found in it for a pointer to a local
    sh_shown shown = {.topology = {.ranks = ranks}, .links = {.inside = wire}, .elements = 1024};
    shown.algorithm = sh_cheapest(does, &shown.topology, 4096, &shown.links);
    if (tried != NULL) shown.tried = sh_algorithm_find(does, tried), shown.tried_bytes = 0x1p20;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    sh_collective_compare(&shown, file);
    fclose(file);
    return text;
}

TEST(comparison, says_why_an_algorithm_wins) {
    char *text = comparison(SH_ALLREDUCE, 6, NULL);
    assert_non_null(strstr(text, "halving-doubling  6 messages in a row, not 10 as ring\n"));
    assert_non_null(
        strstr(text, "ring              1.67 n bytes, not 3.5 n as halving-doubling\n"));
    assert_null(strstr(text, "when tried"));
    free(text);
    text = comparison(SH_ALLREDUCE, 8, "ring");
    assert_non_null(strstr(text, "no other has fewer messages in a row, none fewer bytes\n"));
    assert_non_null(strstr(text, "From 1 MiB workers take ring"));
    free(text);
    text = comparison(SH_ALLTOALL, 6, NULL);
    assert_non_null(strstr(text, "pairwise          there is no other\n"));
    free(text);
}

/* The row of an algorithm prices 1 KiB: 10 a + (5/3 b + 5/6 c) 1024 for the ring of six. */
TEST(comparison, prices_every_algorithm_in_its_row) {
    char *text = comparison(SH_ALLREDUCE, 6, NULL), wanted[64];
    double us = 1e6 * (10 * 50e-6 + (5. / 3 * 8e-9 + 5. / 6 * 1e-10) * 1024);
    snprintf(wanted, sizeof wanted, "\nring                    10     1.67     0.833 %7.0f us ",
             us);
    if (strstr(text, wanted) == NULL) fail_msg("no '%s' in %s", wanted, text);
    assert_non_null(
        strstr(text, "\nmpi               chosen by the library; only a measurement tells\n"));
    free(text);
}
