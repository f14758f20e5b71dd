#include "sync/graph.h"

#include <complex.h>
#include <math.h>
#include <string.h>

#include "base/option.h"

/* Steps along a dimension that wraps round: none with one place, one with two, else both ways. */
static int ways(int places) { return places < 3 ? places - 1 : 2; }

/* ---- ring: left and right; second eigenvalue 1/3 + 2/3 cos(2 pi / P) ---- */

static int ring_degree(const sh_graph *graph) { return ways(graph->columns); }

static sh_shift ring_shift(const sh_graph *graph, int edge) {
    (void)graph;
    return (sh_shift){0, edge == 0 ? 1 : -1};
}

/* ---- torus: left, right, up and down ---- */

static int torus_degree(const sh_graph *graph) { return ways(graph->columns) + ways(graph->rows); }

static sh_shift torus_shift(const sh_graph *graph, int edge) {
    int along = ways(graph->columns);
    if (edge < along) return (sh_shift){0, edge == 0 ? 1 : -1};
    return (sh_shift){edge == along ? 1 : -1, 0};
}

/* ---- exponential: 1, 2, 4, ... ranks on (Ying et al., NeurIPS 2021), where for even P the second
 * eigenvalue is 1 - 2 / (1 + ceil(log2 P)) ---- */

static int exponential_degree(const sh_graph *graph) {
    int degree = 0;
    while ((1L << degree) < graph->ranks) degree++;
    return degree;
}

static sh_shift exponential_shift(const sh_graph *graph, int edge) {
    (void)graph;
    return (sh_shift){0, 1 << edge};
}

/* ---- complete: everyone; one round makes the models equal ---- */

static int complete_degree(const sh_graph *graph) { return graph->ranks - 1; }

static sh_shift complete_shift(const sh_graph *graph, int edge) {
    (void)graph;
    return (sh_shift){0, edge + 1};
}

static const sh_graph_kind kinds[] = {
    {"ring", "left and right neighbour", true, false, ring_degree, ring_shift},
    {"torus", "four neighbours on a grid that wraps round", true, true, torus_degree, torus_shift},
    {"exponential", "the ranks 1, 2, 4, ... further on", false, false, exponential_degree,
     exponential_shift},
    {"complete", "everyone", true, false, complete_degree, complete_shift},
};

const sh_graph_kind *sh_graph_at(size_t index) {
    return index < SH_COUNT(kinds) ? &kinds[index] : NULL;
}

static const char *name_at(const void *names, size_t index) {
    (void)names;
    return index < SH_COUNT(kinds) ? kinds[index].name : NULL;
}

static sh_status refuse(const char *name) {
    SH_FAIL(SH_E_USAGE, "there is no graph '%s'", name);
    const char *near = sh_nearest(name, name_at, NULL);
    if (near != NULL) return sh_error_hint("did you mean '%s'?", near);
    return sh_error_hint("use ring, torus, exponential or complete");
}

/* The largest divisor that is not above the square root. */
static int square_rows(int ranks) {
    int rows = 1;
    for (int r = 1; (long)r * r <= ranks; r++)
        if (ranks % r == 0) rows = r;
    return rows;
}

sh_status sh_graph_find(const char *name, int ranks, sh_graph *graph_out) {
    const sh_graph_kind *kind = NULL;
    for (size_t i = 0; i < SH_COUNT(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0) kind = &kinds[i];
    if (kind == NULL) return refuse(name);
    sh_graph graph = {.kind = kind, .ranks = ranks, .rows = kind->grid ? square_rows(ranks) : 1};
    graph.columns = ranks / graph.rows;
    graph.degree = kind->degree(&graph);
    *graph_out = graph;
    return SH_OK;
}

static int wrap(int value, int places) { return ((value % places) + places) % places; }

static int moved(const sh_graph *graph, int rank, sh_shift by, int sign) {
    int row = wrap(rank / graph->columns + sign * by.rows, graph->rows);
    int column = wrap(rank % graph->columns + sign * by.columns, graph->columns);
    return row * graph->columns + column;
}

int sh_graph_to(const sh_graph *graph, int rank, int edge) {
    return moved(graph, rank, graph->kind->shift(graph, edge), 1);
}

int sh_graph_from(const sh_graph *graph, int rank, int edge) {
    return moved(graph, rank, graph->kind->shift(graph, edge), -1);
}

double sh_graph_mixing(const sh_graph *graph, int row, int column) {
    if (row == column) return sh_graph_weight(graph);
    for (int edge = 0; edge < graph->degree; edge++)
        if (sh_graph_from(graph, row, edge) == column) return sh_graph_weight(graph);
    return 0;
}

/* A wave with `row` and `column` periods over the grid is an eigenvector of every shift. */
static double modulus(const sh_graph *graph, int row, int column) {
    const double turn = 2 * acos(-1.0);
    double complex sum = 1;
    for (int edge = 0; edge < graph->degree; edge++) {
        sh_shift by = graph->kind->shift(graph, edge);
        double phase =
            (double)row * by.rows / graph->rows + (double)column * by.columns / graph->columns;
        sum += cexp(I * turn * phase);
    }
    return cabs(sum) * sh_graph_weight(graph);
}

double sh_graph_second(const sh_graph *graph) {
    double second = 0;
    for (int i = 1; i < graph->ranks; i++) {
        double m = modulus(graph, i / graph->columns, i % graph->columns);
        if (m > second) second = m;
    }
    return second > 1e-12 ? second : 0;  // what rounding leaves of a zero
}

int64_t sh_graph_rounds(double second) {
    return second > 0.01 ? (int64_t)ceil(log(0.01) / log(second)) : 1;
}

bool sh_graph_asks(const sh_graph *graph, int rank) {
    return (rank / graph->columns + rank % graph->columns) % 2 == 0;
}

int sh_hop(int64_t step, int ranks) {
    int hops = 1;
    while ((1L << hops) < ranks) hops++;
    return (1 << (step % hops)) % ranks;
}
