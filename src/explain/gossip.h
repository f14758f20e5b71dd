/* `shoal explain` of gossip: the mixing matrix of a graph, its second eigenvalue and what that
 * means, beside the other graphs. Read from the graphs themselves (sync/graph.h). */
#ifndef SH_EXPLAIN_GOSSIP_H
#define SH_EXPLAIN_GOSSIP_H

#include <stdio.h>

#include "sync/graph.h"

enum { SH_SHOWN_MATRIX = 16, SH_SHOWN_MATRIX_JSON = 256 };  // ranks of a matrix that is shown

/* Prints degree, weights, matrix and convergence rate, beside the other graphs. Fails if one of
 * them does not exist for that many ranks. */
sh_status sh_gossip_text(const sh_graph *graph, FILE *file);
/* Prints one JSON object on one line. Fails only without memory. */
sh_status sh_gossip_json(const sh_graph *graph, FILE *file);

#endif
