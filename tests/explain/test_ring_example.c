/* The ring of four workers that lectures draw, worked by hand, against all that explain makes of
 * it.
 *
 *   A 17 11 1 9    B 5 13 23 14    D 12 7 2 12    C 3 6 10 8      A -> B -> D -> C -> A
 *
 * Block 0 starts at A: 17 + 5 = 22 at B, + 12 = 34 at D, + 3 = 37 at C. Block 1 starts at B: 13 + 7
 * = 20, + 6 = 26, + 11 = 37 at A. Block 2 starts at D: 2 + 10 = 12, + 1 = 13, + 23 = 36 at B. Block
 * 3 starts at C: 8 + 9 = 17, + 14 = 31, + 12 = 43 at D. Then every sum goes round once. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "explain/collective.h"
#include "explain/play.h"

enum { RANKS = 4, STEPS = 6 };

/* What A, B, D and C hold at the start and after each step. */
static const double held[STEPS + 1][RANKS][RANKS] = {
    {{17, 11, 1, 9}, {5, 13, 23, 14}, {12, 7, 2, 12}, {3, 6, 10, 8}},
    {{17, 11, 1, 17}, {22, 13, 23, 14}, {12, 20, 2, 12}, {3, 6, 12, 8}},
    {{17, 11, 13, 17}, {22, 13, 23, 31}, {34, 20, 2, 12}, {3, 26, 12, 8}},
    {{17, 37, 13, 17}, {22, 13, 36, 31}, {34, 20, 2, 43}, {37, 26, 12, 8}},
    {{37, 37, 13, 17}, {22, 37, 36, 31}, {34, 20, 36, 43}, {37, 26, 12, 43}},
    {{37, 37, 13, 43}, {37, 37, 36, 31}, {34, 37, 36, 43}, {37, 26, 36, 43}},
    {{37, 37, 36, 43}, {37, 37, 36, 43}, {37, 37, 36, 43}, {37, 37, 36, 43}},
};

/* The block that A, B, D and C send in each step. */
static const int sent[STEPS][RANKS] = {
    {0, 1, 2, 3}, {3, 0, 1, 2}, {2, 3, 0, 1},  // to be reduced
    {1, 2, 3, 0}, {0, 1, 2, 3}, {3, 0, 1, 2},  // to be copied
};
static const char *const names = "ABDC";

static sh_shown show(sh_values *values) {
    static const char text[] = "A 17 11 1 9\nB 5 13 23 14\nD 12 7 2 12\nC 3 6 10 8\n";
    CHECK_OK(sh_values_parse("numbers", text, sizeof text - 1, values));
    return (sh_shown){
        .algorithm = sh_algorithm_find(SH_ALLREDUCE, "ring"),
        .topology = {.ranks = RANKS},
        .links = {.inside = {50e-6, 8e-9, 1e-10}},
        .elements = RANKS,
        .values = values,
    };
}

static char *written(const sh_shown *shown, sh_status (*write)(const sh_shown *, FILE *)) {
    static char *text;  // static: GCC takes what is found in it for a pointer to a local
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    CHECK_OK(write(shown, file));
    fclose(file);
    return text;
}

TEST(ring_example, schedule_sends_the_blocks_of_the_lecture) {
    const sh_algorithm *ring = sh_algorithm_find(SH_ALLREDUCE, "ring");
    sh_topology topology = {.ranks = RANKS};
    assert_int_equal(ring->steps(&topology), STEPS);
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < RANKS; r++) {
            sh_moves moves = ring->step(&topology, r, s);
            assert_int_equal(moves.send.peer, (r + 1) % RANKS);
            assert_int_equal(moves.send.first, sent[s][r]);
            assert_int_equal(moves.send.count, 1);
            assert_int_equal(moves.receive.first, sent[s][(r + 3) % RANKS]);
            assert_int_equal(moves.then, s < 3 ? SH_THEN_REDUCE : SH_THEN_COPY);
        }
}

TEST(ring_example, play_holds_the_numbers_worked_by_hand) {
    sh_values values;
    sh_shown shown = show(&values);
    sh_play play;
    CHECK_OK(sh_play_init(&play, shown.algorithm, &shown.topology, &values));
    for (int s = 0; s <= STEPS; s++) {
        assert_memory_equal(play.now, held[s], sizeof held[s]);
        for (int r = 0; r < RANKS; r++)
            for (int b = 0; b < RANKS; b++)
                assert_int_equal(sh_play_is_final(&play, r, b), held[s][r][b] == held[6][r][b]);
        assert_int_equal(sh_play_next(&play), s < STEPS);
    }
    sh_play_fini(&play);
    sh_values_fini(&values);
}

TEST(ring_example, json_holds_them_too) {
    sh_values values;
    sh_shown shown = show(&values);
    char *text = written(&shown, sh_collective_json);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    for (int s = 0; s <= STEPS; s++) {
        json_t *of = s == 0 ? root : json_array_get(json_object_get(root, "steps"), (size_t)s - 1);
        for (size_t r = 0; r < RANKS; r++)
            for (size_t b = 0; b < RANKS; b++) {
                json_t *row = json_array_get(json_object_get(of, "values"), r);
                assert_true(json_number_value(json_array_get(row, b)) == held[s][r][b]);
            }
    }
    json_decref(root);
    free(text);
    sh_values_fini(&values);
}

/* "   1     A     B        0        4 B  reduce  5 + 17 = 22", for every message. */
TEST(ring_example, text_works_every_sum) {
    sh_values values;
    sh_shown shown = show(&values);
    char *text = written(&shown, sh_collective_text), line[128];
    const char *at = text;
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < RANKS; r++) {
            int to = (r + 1) % RANKS, b = sent[s][r], length;
            length = snprintf(line, sizeof line, "\n%4d     %c     %c  %7d        4 B  %s  ", s + 1,
                              names[r], names[to], b, s < 3 ? "reduce" : "copy  ");
            if (s < 3)
                length += snprintf(line + length, sizeof line - (size_t)length,
                                   "%g + %g = ", held[s][to][b], held[s][r][b]);
            snprintf(line + length, sizeof line - (size_t)length, "%g\n", held[s + 1][to][b]);
            const char *found = strstr(at, line);  // in this order
            if (found == NULL)
                fail_msg("no '%s'", line);
            else
                at = found;
        }
    assert_non_null(strstr(text, "\nresult     37 37 36 43  on every rank\n"));
    free(text);
    sh_values_fini(&values);
}

/* Where a block is drawn, from the rectangles of the first row. */
static void find_columns(const char *svg, int left_out[RANKS * RANKS], int *width_out) {
    const char *at = strstr(svg, "class=\"rank\"");
    for (int i = 0; i < RANKS * RANKS; i++) {
        at = strstr(at, "<rect ");
        assert_non_null(at);
        assert_int_equal(
            sscanf(at, "<rect x=\"%d\" y=\"%*d\" width=\"%d\"", &left_out[i], width_out), 2);
        at++;
    }
}

/* The rank and block whose column has this middle; -1: there is none. */
static int column_at(const int left[RANKS * RANKS], int width, int x) {
    for (int i = 0; i < RANKS * RANKS; i++)
        if (x == left[i] + width / 2) return i;
    return -1;
}

TEST(ring_example, picture_shows_every_number_and_every_arrow) {
    sh_values values;
    sh_shown shown = show(&values);
    char *svg = written(&shown, sh_collective_svg);
    int left[RANKS * RANKS], width = 0, x0, x1;
    find_columns(svg, left, &width);
    const char *cell = svg, *arrow = svg;
    double number;
    for (int s = 0; s <= STEPS; s++)
        for (int i = 0; i < RANKS * RANKS; i++, cell++) {
            cell = strstr(cell, "<text class=\"cell\"");
            assert_non_null(cell);
            assert_int_equal(
                sscanf(cell, "<text class=\"cell\" x=\"%d\" y=\"%*d\">%lf<", &x0, &number), 2);
            assert_int_equal(column_at(left, width, x0), i);
            assert_true(number == held[s][i / RANKS][i % RANKS]);
        }
    assert_null(strstr(cell, "<text class=\"cell\""));
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < RANKS; r++, arrow++) {
            // From the block that is sent, above, to the same block of the next rank, below.
            while ((arrow = strstr(arrow, "<path d=\"M")) != NULL &&
                   sscanf(arrow, "<path d=\"M%d %*dC%*d %*d %d %*d", &x0, &x1) != 2)
                arrow++;  // the head of an arrow
            assert_non_null(arrow);
            assert_int_equal(column_at(left, width, x0), r * RANKS + sent[s][r]);
            assert_int_equal(column_at(left, width, x1), (r + 1) % RANKS * RANKS + sent[s][r]);
        }
    free(svg);
    sh_values_fini(&values);
}
