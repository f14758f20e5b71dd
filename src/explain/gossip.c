/* A communication graph for people and for machines: who listens to whom, with what weight, and
 * how fast disagreement falls. The rate is the second largest eigenvalue (by modulus) of the
 * mixing matrix: after k rounds the difference between models is at most its k-th power of what it
 * was. */
#include "explain/gossip.h"

#include "base/json.h"
#include "base/text.h"

/* Prints one row of the mixing matrix; zeros are dots, so that the pattern shows. */
static void print_row(const sh_graph *graph, int row, FILE *file) {
    fprintf(file, "  %4d ", row);
    for (int column = 0; column < graph->ranks; column++) {
        double weight = sh_graph_mixing(graph, row, column);
        if (weight > 0)
            sh_fprintf(file, " %.3f", weight);
        else
            fprintf(file, "     .");
    }
    fprintf(file, "\n");
}

/* Prints the mixing matrix. Above SH_SHOWN_MATRIX workers only the neighbours of worker 0: the
 * graphs look alike from every worker. */
static void print_matrix(const sh_graph *graph, FILE *file) {
    if (graph->ranks > SH_SHOWN_MATRIX) {
        fprintf(file, "too many workers to show the matrix; worker 0 listens to");
        for (int edge = 0; edge < graph->degree && edge < SH_SHOWN_MATRIX; edge++)
            fprintf(file, " %d", sh_graph_from(graph, 0, edge));
        fprintf(file, "%s\n", graph->degree > SH_SHOWN_MATRIX ? " ..." : "");
        return;
    }
    fprintf(file, "mixing matrix: row i is what worker i takes of each model\n        ");
    for (int column = 0; column < graph->ranks; column++) fprintf(file, "%6d", column);
    fprintf(file, "\n");
    for (int row = 0; row < graph->ranks; row++) print_row(graph, row, file);
}

/* Translates the second eigenvalue into rounds: disagreement after k rounds is at most its k-th
 * power. */
static void print_meaning(double second, FILE *file) {
    sh_fprintf(file, "second eigenvalue (modulus): %.3f\n", second);
    if (second > 0)
        fprintf(file,
                "disagreement falls at least by that factor each round: to 1 %% in %ld rounds\n",
                (long)sh_graph_rounds(second));
    else
        fprintf(file, "one round makes all models equal\n");
}

/* Compares all graphs of as many ranks: degree is what a round costs, the eigenvalue what it
 * achieves. */
static sh_status print_all(const sh_graph *shown, FILE *file) {
    fprintf(file, "\n%-12s  %10s  %10s  %13s\n", "graph", "neighbours", "eigenvalue",
            "rounds to 1 %");
    const sh_graph_kind *kind;
    for (size_t i = 0; (kind = sh_graph_at(i)) != NULL; i++) {
        sh_graph graph;
        SH_TRY(sh_graph_find(kind->name, shown->ranks, &graph));
        double second = sh_graph_second(&graph);
        sh_fprintf(file, "%-12s  %10d  %10.3f  %13ld\n", kind->name, graph.degree, second,
                   (long)sh_graph_rounds(second));
    }
    return SH_OK;
}

/* Degree, weights, matrix, rate, and the other graphs beside it. */
sh_status sh_gossip_text(const sh_graph *graph, FILE *file) {
    fprintf(file, "%s of %d workers%s: %s\n", graph->kind->name, graph->ranks,
            graph->kind->symmetric ? "" : ", directed", graph->kind->help);
    if (graph->kind->grid) fprintf(file, "grid: %d x %d\n", graph->rows, graph->columns);
    sh_fprintf(file, "each sends its model to %d other%s a step and weighs %d models by %.3f\n\n",
               graph->degree, graph->degree == 1 ? "" : "s", graph->degree + 1,
               sh_graph_weight(graph));
    print_matrix(graph, file);
    fprintf(file, "\n");
    print_meaning(sh_graph_second(graph), file);
    return print_all(graph, file);
}

/* Mixing matrix as rows; row i holds the weights that worker i gives to each model. */
static json_t *matrix_json(const sh_graph *graph) {
    json_t *rows = json_array();
    for (int row = 0; row < graph->ranks; row++) {
        json_t *values = json_array();
        for (int column = 0; column < graph->ranks; column++)
            json_array_append_new(values, json_real(sh_graph_mixing(graph, row, column)));
        json_array_append_new(rows, values);
    }
    return rows;
}

/* The same numbers on one line; the matrix only up to SH_SHOWN_MATRIX_JSON workers. */
sh_status sh_gossip_json(const sh_graph *graph, FILE *file) {
    double second = sh_graph_second(graph);
    bool shows = graph->ranks <= SH_SHOWN_MATRIX_JSON;
    json_t *root = json_pack(
        "{s:s, s:i, s:b, s:i, s:i, s:i, s:f, s:f, s:I}", "graph", graph->kind->name, "ranks",
        graph->ranks, "symmetric", graph->kind->symmetric, "rows", graph->rows, "columns",
        graph->columns, "neighbours", graph->degree, "weight", sh_graph_weight(graph),
        "second_eigenvalue", second, "rounds_to_1_percent", (json_int_t)sh_graph_rounds(second));
    if (root != NULL && shows) json_object_set_new(root, "matrix", matrix_json(graph));
    // Jansson reports a lack of memory as NULL or as a failed dump.
    int written = root != NULL ? json_dumpf(root, file, JSON_COMPACT | JSON_REAL_PRECISION(9)) : -1;
    json_decref(root);
    if (written != 0) return SH_FAIL(SH_E_MEMORY, "out of memory for %d workers", graph->ranks);
    fprintf(file, "\n");
    return SH_OK;
}
