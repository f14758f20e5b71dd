/* What explain says of gossip: the matrix, how fast the models agree, and how the graphs compare.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "explain/gossip.h"

static char *written(const char *name, int ranks, sh_status (*write)(const sh_graph *, FILE *)) {
    sh_graph graph;
    CHECK_OK(sh_graph_find(name, ranks, &graph));
    static char *text;  // static: GCC takes what is found in it for a pointer to a local
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    CHECK_OK(write(&graph, file));
    fclose(file);
    return text;
}

/* The row of a graph in the table that ends the text. */
typedef struct row {
    int neighbours;
    double eigenvalue;
    long rounds;
} row;

static row row_of(const char *text, const char *name) {
    char heading[32];
    snprintf(heading, sizeof heading, "\n%s ", name);
    const char *line = strstr(strstr(text, "\ngraph "), heading);
    assert_non_null(line);
    row found;
    assert_int_equal(sscanf(line + strlen(heading), "%d %lf %ld", &found.neighbours,
                            &found.eigenvalue, &found.rounds),
                     3);
    return found;
}

TEST(gossip, a_smaller_eigenvalue_never_takes_more_rounds) {
    static const char *const names[] = {"ring", "torus", "exponential", "complete"};
    for (int ranks = 2; ranks <= 40; ranks++) {
        char *text = written("ring", ranks, sh_gossip_text);
        for (size_t i = 0; i < SH_COUNT(names); i++)
            for (size_t k = 0; k < SH_COUNT(names); k++) {
                row a = row_of(text, names[i]), b = row_of(text, names[k]);
                if (a.eigenvalue < b.eigenvalue) assert_true(a.rounds <= b.rounds);
            }
        row complete = row_of(text, "complete");
        assert_int_equal(complete.neighbours, ranks - 1);
        assert_int_equal(complete.rounds, 1);
        free(text);
    }
}

/* Repeated multiplication instead of logarithms. */
TEST(gossip, rounds_are_the_first_that_leave_a_hundredth) {
    static const double seconds[] = {0,    1e-6,   0.0099, 0.0101, 0.09,
                                     0.11, 1. / 3, 0.6,    0.949,  0.9999};
    for (size_t i = 0; i < SH_COUNT(seconds); i++) {
        double left = seconds[i];
        int64_t rounds = 1;
        for (; left > 0.01; rounds++) left *= seconds[i];
        assert_int_equal(sh_graph_rounds(seconds[i]), rounds);
    }
}

/* Circulant by hand: 1/3 + 2/3 cos(2 pi k / 4) is 1, 1/3, -1/3, 1/3. A third falls below a
 * hundredth with its fifth power. */
TEST(gossip, text_has_the_matrix_and_its_meaning) {
    char *text = written("ring", 4, sh_gossip_text);
    assert_non_null(strstr(text,
                           "     0  0.333 0.333     . 0.333\n"
                           "     1  0.333 0.333 0.333     .\n"
                           "     2      . 0.333 0.333 0.333\n"
                           "     3  0.333     . 0.333 0.333\n"));
    assert_non_null(strstr(text, "second eigenvalue (modulus): 0.333\n"));
    assert_non_null(strstr(text, "each round: to 1 % in 5 rounds\n"));
    assert_int_equal(row_of(text, "ring").rounds, 5);
    free(text);
    text = written("complete", 4, sh_gossip_text);
    assert_non_null(strstr(text, "one round makes all models equal\n"));
    free(text);
}

/* Directed: worker i hears those that reach it with 1, 2, 4 steps, which are i - 1, i - 2, i - 4.
 */
TEST(gossip, json_has_what_each_worker_takes_of_the_others) {
    char *text = written("exponential", 6, sh_gossip_json);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "neighbours")), 3);
    assert_true(json_is_false(json_object_get(root, "symmetric")));
    assert_int_equal(json_integer_value(json_object_get(root, "rounds_to_1_percent")), 7);
    json_t *rows = json_object_get(root, "matrix");
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 6; k++) {
            int steps = (i - k + 6) % 6;
            double wanted = steps == 0 || steps == 1 || steps == 2 || steps == 4 ? 0.25 : 0;
            assert_true(json_real_value(
                            json_array_get(json_array_get(rows, (size_t)i), (size_t)k)) == wanted);
        }
    json_decref(root);
    free(text);
}

TEST(gossip, a_matrix_too_large_to_read_is_left_out) {
    char *text = written("torus", 17 * 17, sh_gossip_text);
    assert_non_null(strstr(text, "too many workers to show the matrix; worker 0 listens to"));
    assert_null(strstr(text, "mixing matrix"));
    free(text);
    text = written("torus", 17 * 17, sh_gossip_json);
    assert_null(strstr(text, "\"matrix\""));
    free(text);
    text = written("torus", 16 * 16, sh_gossip_json);
    assert_non_null(strstr(text, "\"matrix\""));
    free(text);
}
