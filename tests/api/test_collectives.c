/* Collectives and gossip graphs explained through the public interface: defaults, faults, and what
 * is chosen. */
#include "base/file.h"
#include "rig.h"

static const char *explain(shoal_collective_options options) {
    if (options.collective == NULL) options.collective = "allreduce";
    FILE *paper = rig_paper();
    SUCCEEDS(shoal_explain_collective(&options, RIG_SINK(paper)));
    return rig_read(paper);
}
#define EXPLAIN(...) explain((shoal_collective_options){__VA_ARGS__})

static shoal_status refuse(shoal_collective_options options) {
    if (options.collective == NULL) options.collective = "allreduce";
    FILE *paper = rig_paper();
    shoal_status status = shoal_explain_collective(&options, RIG_SINK(paper));
    if (status != SHOAL_OK) assert_string_equal(rig_read(paper), "");  // no half of an answer
    return status;
}
#define EXPLAIN_REFUSED(code, part, ...) \
    REFUSED(code, part, refuse((shoal_collective_options){__VA_ARGS__}))

TEST(collectives, defaults_are_four_ranks_and_a_mebibyte) {
    const char *text = EXPLAIN(.algorithm = "ring");
    rig_has(text, "allreduce by ring, 4 ranks");
    rig_has(text, "1 MiB");
    rig_has(text, "24 in all, 6 sent by each rank");
}

TEST(collectives, a_sum_and_its_traffic_come_from_the_values) {
    char path[4200];
    snprintf(path, sizeof path, "%s/values.txt", sh_test_folder("collectives"));
    const char *values = "A 1 2 3 4\nB 10 20 30 40\n";
    CHECK_OK(sh_file_write(path, values, strlen(values)));
    const char *text = EXPLAIN(.algorithm = "ring", .values = path);
    rig_has(text, "2 ranks");
    rig_has(text, "result     11 22 33 44");
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "holds 2 ranks, but 3 were asked for", .values = path,
                    .ranks = 3);
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "the values give the size", .values = path, .size_bytes = 64);
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "a barrier moves no values", .collective = "barrier",
                    .values = path);
    EXPLAIN_REFUSED(SHOAL_E_IO, "none.txt", .values = "none.txt");
    rig_hint("a line for each rank");
}

TEST(collectives, the_cheapest_algorithm_depends_on_size_and_links) {
    rig_has(EXPLAIN(.ranks = 8, .size_bytes = 64), "allreduce by halving-doubling");
    // Six ranks are no power of two: halving-doubling would send twice as much.
    rig_has(EXPLAIN(.ranks = 6, .size_bytes = 1 << 26), "allreduce by ring");
    assert_non_null(
        strstr(EXPLAIN(.ranks = 8, .algorithm = "auto", .size_bytes = 64), "halving-doubling"));
}

TEST(collectives, measured_links_are_not_used_where_one_is_named) {
    const char *text = EXPLAIN(.link = "100Mbit,1ms", .cache_folder = "/nonexistent");
    rig_has(text, "100 Mbit/s, 1 ms between nodes");
    assert_null(strstr(text, "as measured"));
}

TEST(collectives, json_tells_what_the_text_tells) {
    const char *text = EXPLAIN(.algorithm = "tree", .ranks = 6, .json = true);
    rig_has(text, "\"collective\":\"allreduce\"");
    rig_has(text, "\"algorithm\":\"tree\"");
    rig_has(text, "\"ranks\":6");
}

TEST(collectives, a_picture_has_an_arrow_for_every_message) {
    char path[4200];
    snprintf(path, sizeof path, "%s/ring.svg", sh_test_folder("collectives-svg"));
    EXPLAIN(.algorithm = "ring", .ranks = 3, .svg = path);
    FILE *svg = fopen(path, "r");
    assert_non_null(svg);
    assert_int_equal(rig_count(rig_read(svg), "marker-end"), 12);
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "too much for a picture", .ranks = 100, .svg = path);
}

TEST(collectives, what_cannot_be_is_refused_before_anything_is_printed) {
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "there is no collective 'allredce'", .collective = "allredce");
    rig_hint("did you mean 'allreduce'?");
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "there is no algorithm 'rign' for allreduce",
                    .algorithm = "rign");
    rig_hint("did you mean 'ring'?");
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "there is no algorithm 'ring' for broadcast",
                    .collective = "broadcast", .algorithm = "ring");
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "-1 ranks are not between 1 and", .ranks = -1);
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "5000 ranks are not between 1 and 4096", .ranks = 5000);
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "the root 4 is none of the 4 ranks", .collective = "broadcast",
                    .root = 4);
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "the root -1", .collective = "broadcast", .root = -1);
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "a multiple of 4 bytes", .size_bytes = 6);
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "a multiple of 4 bytes", .size_bytes = -8);
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "a multiple of 4 bytes", .size_bytes = (int64_t)1 << 60);
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "-2 ranks per node", .per_node = -2);
    EXPLAIN_REFUSED(SHOAL_E_USAGE, "link", .link = "fast");
}

/* ---- Gossip ---- */

TEST(collectives, a_complete_graph_agrees_at_once) {
    FILE *paper = rig_paper();
    SUCCEEDS(shoal_explain_gossip(&(shoal_gossip_options){.graph = "complete", .json = true},
                                  RIG_SINK(paper)));
    const char *text = rig_read(paper);
    rig_has(text, "\"second_eigenvalue\":0.0");
    rig_has(text, "\"neighbours\":3");  // four workers unless others are asked for
}

TEST(collectives, gossip_needs_two_workers_and_a_graph) {
    FILE *paper = rig_paper();
    REFUSED(SHOAL_E_USAGE, "1 workers are not between 2 and 4096",
            shoal_explain_gossip(&(shoal_gossip_options){.ranks = 1}, RIG_SINK(paper)));
    REFUSED(SHOAL_E_USAGE, "not between",
            shoal_explain_gossip(&(shoal_gossip_options){.ranks = 5000}, RIG_SINK(paper)));
    REFUSED(SHOAL_E_USAGE, "no graph 'rign'",
            shoal_explain_gossip(&(shoal_gossip_options){.graph = "rign"}, RIG_SINK(paper)));
    assert_string_equal(rig_read(paper), "");
}
