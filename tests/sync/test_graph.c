#include <math.h>
#include <string.h>

#include "harness.h"
#include "sync/graph.h"

static const int sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 25};

/* Calls `check` for every graph of every size. */
static void each(void (*check)(const sh_graph *graph)) {
    const sh_graph_kind *kind;
    for (size_t i = 0; (kind = sh_graph_at(i)) != NULL; i++)
        for (size_t s = 0; s < SH_COUNT(sizes); s++) {
            sh_graph graph;
            CHECK_OK(sh_graph_find(kind->name, sizes[s], &graph));
            check(&graph);
        }
}

static void check_stochastic(const sh_graph *graph) {
    for (int i = 0; i < graph->ranks; i++) {
        double row = 0, column = 0;
        for (int j = 0; j < graph->ranks; j++) {
            assert_true(sh_graph_mixing(graph, i, j) >= 0);
            row += sh_graph_mixing(graph, i, j);
            column += sh_graph_mixing(graph, j, i);
        }
        assert_true(fabs(row - 1) < 1e-12);
        assert_true(fabs(column - 1) < 1e-12);
    }
}

TEST(graph, every_mixing_matrix_is_doubly_stochastic) { each(check_stochastic); }

static void check_symmetric(const sh_graph *graph) {
    for (int i = 0; graph->kind->symmetric && i < graph->ranks; i++)
        for (int j = 0; j < i; j++)
            assert_true(sh_graph_mixing(graph, i, j) == sh_graph_mixing(graph, j, i));
}

TEST(graph, symmetric_ones_are) { each(check_symmetric); }

static void check_edges(const sh_graph *graph) {
    for (int rank = 0; rank < graph->ranks; rank++)
        for (int e = 0; e < graph->degree; e++) {
            int to = sh_graph_to(graph, rank, e);
            assert_int_not_equal(to, rank);
            assert_int_equal(sh_graph_from(graph, to, e), rank);
            for (int f = 0; f < e; f++) assert_int_not_equal(to, sh_graph_to(graph, rank, f));
        }
}

TEST(graph, edges_lead_to_distinct_others_and_back) { each(check_edges); }

/* y = W x. */
static void mix(const sh_graph *graph, const double *x, double *y) {
    for (int i = 0; i < graph->ranks; i++) {
        y[i] = 0;
        for (int j = 0; j < graph->ranks; j++) y[i] += sh_graph_mixing(graph, i, j) * x[j];
    }
}

static double norm(const double *x, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* Takes the mean away, which would stay, and the rounding of it that would grow beside the rest. */
static void centre(double *x, int count) {
    double mean = 0;
    for (int i = 0; i < count; i++) mean += x[i] / count;
    for (int i = 0; i < count; i++) x[i] -= mean;
}

/* All matrices are normal, so in the long run a vector without mean shrinks by the second modulus a
 * round; with complex pairs only in the mean over many. */
static void check_second(const sh_graph *graph) {
    enum { ROUNDS = 400, MOST = 32 };
    double x[MOST], y[MOST], logs = 0, second = sh_graph_second(graph);
    for (int i = 0; i < graph->ranks; i++) x[i] = sin(1.7 * i * i + 0.3);
    centre(x, graph->ranks);
    for (int round = 0; round < 2 * ROUNDS; round++) {
        mix(graph, x, y);
        double size = norm(y, graph->ranks) / norm(x, graph->ranks);
        assert_true(size <= second + 1e-9);
        if (second == 0) return;
        if (round >= ROUNDS) logs += log(size);
        for (int i = 0; i < graph->ranks; i++) x[i] = y[i] / norm(y, graph->ranks);
        centre(x, graph->ranks);
    }
    assert_true(fabs(exp(logs / ROUNDS) - second) < 1e-3);
}

TEST(graph, power_iteration_finds_the_second_eigenvalue) { each(check_second); }

static double second_of(const char *name, int ranks) {
    sh_graph graph;
    CHECK_OK(sh_graph_find(name, ranks, &graph));
    return sh_graph_second(&graph);
}

TEST(graph, second_eigenvalues_are_those_of_the_literature) {
    assert_true(fabs(second_of("ring", 4) - 0.333) < 5e-4);
    assert_true(fabs(second_of("ring", 8) - 0.805) < 5e-4);
    assert_true(fabs(second_of("ring", 16) - 0.949) < 5e-4);
    // Ying et al., NeurIPS 2021, theorem 1: 1 - 2 / (1 + ceil(log2 P)) for even P.
    for (int ranks = 4; ranks <= 64; ranks += 2) {
        double wanted = 1 - 2 / (1 + ceil(log2(ranks)));
        assert_true(fabs(second_of("exponential", ranks) - wanted) < 1e-9);
    }
    assert_true(second_of("complete", 9) == 0);
    assert_true(fabs(second_of("torus", 25) - (1 + 2 + 2 * cos(2 * acos(-1.0) / 5)) / 5) < 1e-9);
}

TEST(graph, a_torus_is_as_square_as_it_can_be) {
    sh_graph graph;
    CHECK_OK(sh_graph_find("torus", 12, &graph));
    assert_int_equal(graph.rows, 3);
    assert_int_equal(graph.columns, 4);
    CHECK_OK(sh_graph_find("torus", 7, &graph));  // a ring
    assert_int_equal(graph.rows, 1);
    assert_int_equal(graph.degree, 2);
}

/* Edges between the two colours join all ranks: whatever one knows can reach everyone. */
static void check_colours(const sh_graph *graph) {
    bool reached[32] = {true};
    for (int pass = 0; graph->kind->symmetric && pass < graph->ranks; pass++)
        for (int rank = 0; rank < graph->ranks; rank++)
            for (int e = 0; e < graph->degree; e++) {
                int to = sh_graph_to(graph, rank, e);
                if (sh_graph_asks(graph, rank) == sh_graph_asks(graph, to)) continue;
                reached[to] = reached[to] || reached[rank];
            }
    for (int rank = 0; graph->kind->symmetric && rank < graph->ranks; rank++)
        assert_true(reached[rank]);
    assert_true(sh_graph_asks(graph, 0));
}

TEST(graph, edges_between_the_colours_join_all) { each(check_colours); }

TEST(graph, hops_reach_everyone) {
    for (int ranks = 2; ranks <= 33; ranks++) {
        bool reached[33] = {true}, next[33];
        for (int step = 0; (1 << step) < ranks; step++) {
            memcpy(next, reached, sizeof next);
            for (int rank = 0; rank < ranks; rank++) {
                assert_int_not_equal(sh_hop(step, ranks), 0);
                if (reached[rank]) next[(rank + sh_hop(step, ranks)) % ranks] = true;
            }
            memcpy(reached, next, sizeof next);
        }
        for (int rank = 0; rank < ranks; rank++) assert_true(reached[rank]);
    }
}

TEST(graph, refuses_other_names) {
    sh_graph graph;
    CHECK_FAILS(SH_E_USAGE, "no graph 'rign'", sh_graph_find("rign", 4, &graph));
    assert_non_null(strstr(sh_error_last()->hint, "'ring'"));
}
