/* What a schedule costs where links differ. Ranks move in step; a step takes as long as its slowest
 * rank, and ranks of one node share its wire:
 *
 *   inside a node    alpha + own bytes x beta
 *   between nodes    alpha + bytes of the whole node in this step x beta
 *
 * Sends and receives overlap (full duplex), a reduction comes after its receive. */
#include <math.h>

#include "base/memory.h"
#include "comm/schedule.h"

enum { VISITS_MOST = 1 << 18 };  // rank-steps that a walk may take; beyond, the closed form must do

typedef struct walk {
    const sh_algorithm *algorithm;
    const sh_topology *topology;
    const sh_links *links;
    double block_bytes;
    double *out, *in;  // bytes through the wire of each node in this step (nodes)
} walk;

static bool crosses(const sh_places *places, int rank, int peer) {
    return peer >= 0 && places->node[rank] != places->node[peer];
}

static void load_wires(walk *w, int step) {
    const sh_places *places = w->topology->places;
    for (int k = 0; k < places->nodes; k++) w->out[k] = w->in[k] = 0;
    for (int r = 0; r < w->topology->ranks; r++) {
        sh_move send = w->algorithm->step(w->topology, r, step).send;
        if (!crosses(places, r, send.peer)) continue;
        w->out[places->node[r]] += send.count * w->block_bytes;
        w->in[places->node[send.peer]] += send.count * w->block_bytes;
    }
}

static double move_seconds(const walk *w, int rank, const sh_move *move, const double *wires) {
    if (move->peer < 0) return 0;
    const sh_places *places = w->topology->places;
    bool far = crosses(places, rank, move->peer);
    const sh_link *link = far ? &w->links->between : &w->links->inside;
    double bytes = far ? wires[places->node[rank]] : move->count * w->block_bytes;
    return link->alpha_s + bytes * link->beta_s;
}

static double rank_seconds(const walk *w, int rank, int step) {
    sh_moves moves = w->algorithm->step(w->topology, rank, step);
    double seconds = fmax(move_seconds(w, rank, &moves.send, w->out),
                          move_seconds(w, rank, &moves.receive, w->in));
    if (moves.receive.peer < 0 || moves.then != SH_THEN_REDUCE) return seconds;
    bool far = crosses(w->topology->places, rank, moves.receive.peer);
    const sh_link *link = far ? &w->links->between : &w->links->inside;
    return seconds + moves.receive.count * w->block_bytes * link->gamma_s;
}

static double walk_seconds(walk *w, int steps) {
    double total = 0;
    for (int s = 0; s < steps; s++) {
        load_wires(w, s);
        double slowest = 0;
        for (int r = 0; r < w->topology->ranks; r++) slowest = fmax(slowest, rank_seconds(w, r, s));
        total += slowest;
    }
    return total;
}

double sh_algorithm_price(const sh_algorithm *algorithm, const sh_topology *topology, double bytes,
                          const sh_links *links) {
    if (algorithm->native) return INFINITY;
    const sh_places *places = topology->places;
    bool alike = places == NULL || places->nodes == 1 || places->nodes == topology->ranks;
    int steps = algorithm->steps(topology);
    bool closed = alike || (double)steps * topology->ranks > VISITS_MOST;
    double *wires = closed ? NULL : sh_alloc((size_t)places->nodes, 2 * sizeof *wires);
    if (wires == NULL) return algorithm->cost(topology, bytes, links);
    walk w = {
        .algorithm = algorithm,
        .topology = topology,
        .links = links,
        .block_bytes = bytes / algorithm->blocks(topology),
        .out = wires,
        .in = wires + places->nodes,
    };
    double seconds = walk_seconds(&w, steps);
    sh_free(wires);
    return seconds;
}
