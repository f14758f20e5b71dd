/* Graphs: who gossips with whom, and with what weights. Pure functions of (graph, rank, edge), so
 * that workers, `shoal explain gossip` and the tests read the same matrix.
 *
 * All graphs here look the same from every rank: ranks stand on a grid of rows x columns that wraps
 * round, and edge e leads from every rank by the same shift. So each rank has as many edges out as
 * in, and with equal weights 1 / (degree + 1), its own included, the mixing matrix W is doubly
 * stochastic: rows sum to 1, so that models in agreement stay, and columns, so that their mean
 * stays. Its eigenvalues are those of a convolution, known in closed form. */
#ifndef SH_SYNC_GRAPH_H
#define SH_SYNC_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sh_graph sh_graph;

typedef struct sh_shift {
    int rows, columns;
} sh_shift;

typedef struct sh_graph_kind {
    const char *name, *help;
    bool symmetric;  // an edge leads both ways
    bool grid;       // as square as the number of ranks allows; otherwise one row
    int (*degree)(const sh_graph *graph);
    sh_shift (*shift)(const sh_graph *graph, int edge);
} sh_graph_kind;

struct sh_graph {
    const sh_graph_kind *kind;
    int ranks, rows, columns;
    int degree;  // edges out of each rank, and into it; none leads to itself, no two to one rank
};

const sh_graph_kind *sh_graph_at(size_t index);  // NULL: past the end
/* A kind by its name, of so many ranks. */
sh_status sh_graph_find(const char *name, int ranks, sh_graph *graph_out);

/* The rank that edge `edge` of `rank` leads to, and the one whose edge `edge` leads here. */
int sh_graph_to(const sh_graph *graph, int rank, int edge);
int sh_graph_from(const sh_graph *graph, int rank, int edge);
/* Of every edge, and of a rank's own model. */
static inline double sh_graph_weight(const sh_graph *graph) { return 1.0 / (graph->degree + 1); }
/* W[row][column]: what `row` takes of the model of `column`. */
double sh_graph_mixing(const sh_graph *graph, int row, int column);

/* The second largest modulus among the eigenvalues of W: by this factor, at least, disagreement
 * falls each round. 0: one round is enough. */
double sh_graph_second(const sh_graph *graph);
/* Rounds after which disagreement is 1 % of what it was, or less. */
int64_t sh_graph_rounds(double second);

/* Two colours for partners of unlike roles: ranks of the first ask, those of the other answer, and
 * edges between equal colours are not used. On symmetric graphs the others still join all ranks. */
bool sh_graph_asks(const sh_graph *graph, int rank);

/* One-peer exponential graph, directed, changing with the step: 1, 2, 4, ... ranks on. */
int sh_hop(int64_t step, int ranks);

#endif
