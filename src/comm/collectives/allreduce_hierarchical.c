/* Hierarchical all-reduce: inside the nodes, between them, inside again. K nodes; the smallest has
 * L ranks, the largest M.
 *
 *   inside the nodes   2(M-1) alpha    2(M-1)/L n bytes    reduced (M-1)/L n
 *   between them       2(K-1) alpha    2(K-1)/K n bytes through the wire of a node
 *
 * The buffer has L slices. In each node rank number i < L collects slice i from all ranks of the
 * node, pair by pair; ranks beyond L only give. Then the owners of a slice, one per node, run a
 * ring all-reduce over its K blocks, all L rings at once; then the owners hand their slices round
 * the node. Nodes may differ in size and ranks be placed in any order. With one node this is
 * `direct`, with one rank per node it is `ring`. */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

/* A rank's view of the topology. */
typedef struct view {
    int nodes, least, most;
    int node, index, size;  // of the rank: its node, its place there, how many are there
    const int *member;      // ranks by node, NULL: rank i is number i
    int start;              // of its node in `member`
} view;

static view view_of(const sh_topology *topology, int rank) {
    const sh_places *places = topology->places;
    int ranks = topology->ranks;
    if (places == NULL)
        return (view){.nodes = 1, .least = ranks, .most = ranks, .index = rank, .size = ranks};
    int node = places->node[rank], start = places->start[node];
    return (view){
        .nodes = places->nodes,
        .least = places->least,
        .most = places->most,
        .node = node,
        .index = places->index[rank],
        .size = places->start[node + 1] - start,
        .member = places->member,
        .start = start,
    };
}

static int neighbour(const view *v, int index) {
    return v->member != NULL ? v->member[v->start + index] : index;
}

static int hierarchical_blocks(const sh_topology *topology) {
    view v = view_of(topology, 0);
    return v.least * v.nodes;
}

static int hierarchical_steps(const sh_topology *topology) {
    view v = view_of(topology, 0);
    return 2 * (v.most - 1) + 2 * (v.nodes - 1);
}

/* Slices, K blocks each, travel inside the node: to their owners, or from them. */
static sh_moves inside_moves(const view *v, int distance, bool gathers) {
    if (distance >= v->size) return SH_IDLE;
    int to = sh_wrap(v->index + distance, v->size), from = sh_wrap(v->index - distance, v->size);
    int given = gathers ? v->index : to, taken = gathers ? from : v->index;
    sh_move send = {neighbour(v, to), given * v->nodes, v->nodes};
    sh_move receive = {neighbour(v, from), taken * v->nodes, v->nodes};
    return (sh_moves){
        .send = given < v->least ? send : SH_NO_MOVE,
        .receive = taken < v->least ? receive : SH_NO_MOVE,
        .then = gathers ? SH_THEN_COPY : SH_THEN_REDUCE,
    };
}

/* The ring of the owners of one slice; its ranks are the nodes. */
static sh_moves between_moves(const sh_topology *topology, const view *v, int step) {
    if (v->index >= v->least) return SH_IDLE;
    sh_topology ring = {.ranks = v->nodes};
    sh_moves moves = sh_algorithm_allreduce_ring.step(&ring, v->node, step);
    const int *start = topology->places->start;
    moves.send.peer = v->member[start[moves.send.peer] + v->index];
    moves.receive.peer = v->member[start[moves.receive.peer] + v->index];
    moves.send.first += v->index * v->nodes;
    moves.receive.first += v->index * v->nodes;
    return moves;
}

static sh_moves hierarchical_step(const sh_topology *topology, int rank, int step) {
    view v = view_of(topology, rank);
    int inside = v.most - 1, between = 2 * (v.nodes - 1);
    if (step < inside) return inside_moves(&v, step + 1, false);
    if (step < inside + between) return between_moves(topology, &v, step - inside);
    return inside_moves(&v, step - inside - between + 1, true);
}

static double hierarchical_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    view v = view_of(topology, 0);
    double peers = v.most - 1, slices = peers / v.least * bytes;
    double nodes = v.nodes - 1, wire = nodes / v.nodes * bytes;
    return sh_cost_terms(&links->inside, 2 * peers, 2 * slices, slices) +
           sh_cost_terms(&links->between, 2 * nodes, 2 * wire, wire / v.least);
}

const sh_algorithm sh_algorithm_allreduce_hierarchical = {
    .name = "hierarchical",
    .by_node = true,
    .help = "inside the nodes, between them, inside again; spares the wires between nodes",
    .formula =
        "inside 2(M-1) alpha + 2(M-1)/L n beta + (M-1)/L n gamma, between 2(K-1) alpha + "
        "2(K-1)/K n beta + (K-1)/(K L) n gamma; K nodes of L to M ranks",
    .does = SH_ALLREDUCE,
    .blocks = hierarchical_blocks,
    .steps = hierarchical_steps,
    .step = hierarchical_step,
    .cost = hierarchical_cost,
};
