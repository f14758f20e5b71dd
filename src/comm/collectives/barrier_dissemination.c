/* Dissemination barrier (Hensgen, Finkel and Manber 1988). R = ceil(log2 P).
 *
 *   latency R alpha    no bytes
 *
 * In round k a rank tells the one 2^k ahead and hears from the one 2^k behind. After R rounds it
 * has heard, directly or by others, from all. The messages are empty, and must travel. */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static int dissemination_steps(const sh_topology *topology) { return sh_rounds(topology->ranks); }

static sh_moves dissemination_step(const sh_topology *topology, int rank, int step) {
    int ranks = topology->ranks, reach = 1 << step;
    return (sh_moves){
        .send = {.peer = (rank + reach) % ranks},
        .receive = {.peer = sh_wrap(rank - reach, ranks)},
        .then = SH_THEN_COPY,
    };
}

static double dissemination_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    (void)bytes;
    return sh_cost_terms(sh_flat_link(topology, links), sh_rounds(topology->ranks), 0, 0);
}

const sh_algorithm sh_algorithm_barrier_dissemination = {
    .name = "dissemination",
    .help = "log2 P rounds of empty messages to ranks 1, 2, 4.. ahead",
    .formula = "R alpha; R = ceil(log2 P)",
    .does = SH_BARRIER,
    .blocks = sh_blocks_one,
    .steps = dissemination_steps,
    .step = dissemination_step,
    .cost = dissemination_cost,
};
