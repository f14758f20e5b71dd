/* What explain says of a collective: the numbers worked through, the winners, and the output. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/walker.h"
#include "harness.h"
#include "explain/collective.h"
#include "explain/play.h"
#include "explain/units.h"

/* The play agrees with the executor of the schedule tests, and ends with what was promised. */
static void check_play(const sh_algorithm *algorithm, int ranks, size_t count) {
    enum { MOST = 17 * 40 };
    double x[MOST];
    float first[MOST * 17] = {0};
    bool gathers = algorithm->does == SH_ALLGATHER;
    size_t elements = gathers ? count * (size_t)ranks : count;
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < count; i++) {
            double value = (double)((r + 3) * (int)(i + 5) % 23);
            x[(size_t)r * count + i] = value;
            first[(size_t)r * elements + (gathers ? (size_t)r * count : 0) + i] = (float)value;
        }
    sh_values values = {.ranks = ranks, .count = count, .x = x};
    sh_topology topology = {.ranks = ranks, .root = ranks / 2};
    sh_play play;
    CHECK_OK(sh_play_init(&play, algorithm, &topology, &values));
    while (sh_play_next(&play)) continue;
    walker w;
    walker_init(&w, algorithm, &topology, elements, first);
    walker_run(&w);
    for (size_t i = 0; i < (size_t)ranks * elements; i++) assert_true(play.now[i] == w.data[i]);
    for (int r = 0; r < ranks; r++)
        for (int b = 0; b < play.blocks; b++)
            if (algorithm->does != SH_REDUCE_SCATTER || b == r)
                assert_true(sh_play_is_final(&play, r, b));
    walker_fini(&w);
    sh_play_fini(&play);
}

TEST(play, ends_with_what_the_collective_promises) {
    const sh_algorithm *row;
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++)
        for (int ranks = 1; ranks <= 17 && !row->native; ranks++)
            check_play(row, ranks, row->does == SH_ALLTOALL ? (size_t)ranks * 2 : 37);
}

TEST(cheapest, is_what_a_search_finds) {
    sh_links links = {.between = {50e-6, 8e-9, 1e-10}, .inside = {1e-6, 2e-10, 1e-10}};
    for (int ranks = 2; ranks <= 17; ranks++) {
        for (int does = 0; does < SH_BARRIER; does++) {
            sh_topology topology = {.ranks = ranks};
            sh_size_range ranges[SH_RANGES_MOST];
            int count = sh_size_ranges((sh_collective)does, &topology, &links, ranges);
            assert_true(ranges[0].from_bytes == 0 && isinf(ranges[count - 1].to_bytes));
            for (double bytes = 4; bytes < 0x1p32; bytes *= 1.37) {
                int k = 0;
                while (bytes >= ranges[k].to_bytes) k++;
                double price = sh_algorithm_price(ranges[k].algorithm, &topology, bytes, &links);
                const sh_algorithm *row;
                for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++)
                    if ((int)row->does == does)  // at a border both cost nearly the same
                        assert_true(price <=
                                    1.001 * sh_algorithm_price(row, &topology, bytes, &links));
            }
        }
    }
}

/* The textbook's picture: few ranks that are no power of two, a slow network. */
TEST(cheapest, changes_from_few_messages_to_few_bytes) {
    sh_links links = {.inside = {50e-6, 8e-9, 1e-10}};
    sh_topology topology = {.ranks = 6};
    sh_size_range ranges[SH_RANGES_MOST];
    assert_int_equal(sh_size_ranges(SH_ALLREDUCE, &topology, &links, ranges), 2);
    assert_string_equal(ranges[0].algorithm->name, "halving-doubling");
    assert_string_equal(ranges[1].algorithm->name, "ring");
    // 6a + 3.5bn + 1.75cn = 10a + 5/3 bn + 5/6 cn
    double border = 4 * 50e-6 / ((3.5 - 5. / 3) * 8e-9 + (1.75 - 5. / 6) * 1e-10);
    assert_true(fabs(ranges[1].from_bytes / border - 1) < 1e-3);
}

TEST(terms, add_up_on_links_that_are_alike) {
    sh_links links = {.inside = {50e-6, 8e-9, 1e-10}};
    sh_topology topology = {.ranks = 5};
    const sh_algorithm *ring = sh_algorithm_find(SH_ALLREDUCE, "ring");
    sh_terms t = sh_terms_of(ring, &topology, 1e6, &links);
    assert_true(t.messages == 8);
    assert_true(fabs(t.sent - 1.6) < 1e-12 && fabs(t.reduced - 0.8) < 1e-12);
    double sum = t.latency_s + t.bandwidth_s + t.reduction_s;
    assert_true(fabs(sum / t.total_s - 1) < 1e-12);
}

/* ---- Output ---------------------------------------------------------------------------------- */

static char *written(const sh_shown *shown, sh_status (*write)(const sh_shown *, FILE *)) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    CHECK_OK(write(shown, file));
    fclose(file);
    return text;
}

static sh_shown show(sh_collective does, const char *name, int ranks) {
    return (sh_shown){
        .algorithm = sh_algorithm_find(does, name),
        .topology = {.ranks = ranks},
        .links = {.between = {50e-6, 8e-9, 1e-10}, .inside = {1e-6, 2e-10, 1e-10}},
        .elements = 1024,
    };
}

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part)) count++;
    return count;
}

TEST(text, has_a_row_per_message) {
    sh_shown shown = show(SH_ALLREDUCE, "ring", 4);
    char *text = written(&shown, sh_collective_text);
    assert_int_equal(count_of(text, "  reduce\n"), 12);
    assert_int_equal(count_of(text, "  copy\n"), 12);
    assert_non_null(strstr(text, "24 in all, 6 sent by each rank"));
    assert_null(strstr(text, " \n"));
    free(text);
}

TEST(text, sums_up_what_is_too_long_to_list) {
    sh_shown shown = show(SH_ALLREDUCE, "ring", 512);
    char *text = written(&shown, sh_collective_text);
    assert_non_null(strstr(text, "more than 4096 messages: too many to list"));
    assert_non_null(strstr(text, "523264 in all, 1022 sent by each rank"));
    assert_int_equal(count_of(text, "  reduce\n"), 0);
    free(text);
}

TEST(text, and_picture_exist_for_every_algorithm) {
    const sh_algorithm *row;
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++) {
        for (int ranks = 1; ranks <= 9; ranks += 2) {
            sh_shown shown = show(row->does, row->name, ranks);
            free(written(&shown, sh_collective_text));
            if (row->native) continue;
            char *svg = written(&shown, sh_collective_svg);
            assert_int_equal(strncmp(svg, "<svg ", 5), 0);
            assert_non_null(strstr(svg, "</svg>\n"));
            // An arrow per message.
            assert_int_equal(count_of(svg, "marker-end"), (int)sh_traffic_of(&shown).messages);
            assert_int_equal(count_of(svg, ">step "), row->steps(&shown.topology));
            free(svg);
        }
    }
}

TEST(picture, refuses_what_nobody_could_read) {
    sh_shown shown = show(SH_ALLREDUCE, "ring", 65);
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    CHECK_FAILS(SH_E_USAGE, "65 ranks", sh_collective_svg(&shown, file));
    shown = show(SH_ALLREDUCE, "mpi", 4);
    CHECK_FAILS(SH_E_USAGE, "the library's own", sh_collective_svg(&shown, file));
    fclose(file);
    assert_int_equal(bytes, 0);
    free(text);
}

TEST(json, is_valid_for_every_algorithm) {
    const sh_algorithm *row;
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++) {
        sh_shown shown = show(row->does, row->name, 6);
        char *text = written(&shown, sh_collective_json);
        json_error_t error;
        json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
        assert_non_null(root);
        assert_string_equal(json_string_value(json_object_get(root, "algorithm")), row->name);
        json_t *steps = json_object_get(root, "steps");
        if (!row->native)
            assert_int_equal(json_array_size(steps), (size_t)row->steps(&shown.topology));
        json_decref(root);
        free(text);
    }
}
