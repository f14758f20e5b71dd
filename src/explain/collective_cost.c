/* A cost taken apart. alpha, beta and gamma enter the price linearly, so pricing with only one of
 * them set gives that term alone, and with that one at 1 it counts messages or bytes. Borders
 * between the ranges of two algorithms are found by bisection over the size. */
#include <math.h>

#include "explain/collective.h"

/* Searched buffer sizes in bytes: one float32 to 4 GiB. */
static const double SIZE_LEAST = 4, SIZE_MOST = 0x1p32;

/* Copies of both links that keep one term: 'a' alpha, 'b' beta or 'g' gamma. `one` sets that term
 * to 1, so that a price counts messages or bytes instead of seconds. */
static sh_links only(const sh_links *links, char term, bool one) {
    sh_links part = {0};
    const sh_link *from[] = {&links->between, &links->inside};
    sh_link *to[] = {&part.between, &part.inside};
    for (int i = 0; i < 2; i++) {
        if (term == 'a') to[i]->alpha_s = one ? 1 : from[i]->alpha_s;
        if (term == 'b') to[i]->beta_s = one ? 1 : from[i]->beta_s;
        if (term == 'g') to[i]->gamma_s = one ? 1 : from[i]->gamma_s;
    }
    return part;
}

/* Six prices: each of the three terms once counted and once in seconds. Counts are at one byte, so
 * they read as multiples of n. */
sh_terms sh_terms_of(const sh_algorithm *algorithm, const sh_topology *topology, double bytes,
                     const sh_links *links) {
    double *parts[2][3];  // [0] counts, [1] seconds
    sh_terms terms = {0};
    parts[0][0] = &terms.messages, parts[0][1] = &terms.sent, parts[0][2] = &terms.reduced;
    parts[1][0] = &terms.latency_s, parts[1][1] = &terms.bandwidth_s;
    parts[1][2] = &terms.reduction_s;
    for (int i = 0; i < 3; i++) {
        sh_links ones = only(links, "abg"[i], true), seconds = only(links, "abg"[i], false);
        *parts[0][i] = sh_algorithm_price(algorithm, topology, 1, &ones);
        *parts[1][i] = sh_algorithm_price(algorithm, topology, bytes, &seconds);
    }
    terms.total_s = sh_algorithm_price(algorithm, topology, bytes, links);
    return terms;
}

/* Cheapest algorithm at `bytes`. Of equals the first row wins, as in the engine's choice. */
const sh_algorithm *sh_cheapest(sh_collective does, const sh_topology *topology, double bytes,
                                const sh_links *links) {
    const sh_algorithm *best = NULL, *row;
    double least = INFINITY;
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++) {
        if (row->does != does || row->native) continue;
        double seconds = sh_algorithm_price(row, topology, bytes, links);
        // Equal costs may differ in the last bits: a later row must be truly cheaper.
        if (best != NULL && !(seconds < least * (1 - 1e-9))) continue;
        best = row;
        least = seconds;
    }
    return best;
}

/* Bisects the border between two winners in [low, high] to a byte or to a relative 1e-4. Uses the
 * geometric mean, since sizes span nine orders of magnitude. */
static double find_border(sh_collective does, const sh_topology *topology, const sh_links *links,
                          double low, double high) {
    const sh_algorithm *below = sh_cheapest(does, topology, low, links);
    while (high - low > 1 && high / low > 1.0001) {
        double middle = sqrt(low * high);  // geometric mean
        if (sh_cheapest(does, topology, middle, links) == below)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* Doubles the size from 4 bytes to 4 GiB and bisects where the winner changes. An algorithm that
 * wins only between two powers of two would be missed; the cost functions are too flat for that. */
int sh_size_ranges(sh_collective does, const sh_topology *topology, const sh_links *links,
                   sh_size_range ranges_out[SH_RANGES_MOST]) {
    int count = 1;
    ranges_out[0] = (sh_size_range){sh_cheapest(does, topology, SIZE_LEAST, links), 0, INFINITY};
    // A barrier has no size, so one comparison is enough.
    double step = does == SH_BARRIER ? SIZE_MOST : 2, low = SIZE_LEAST;
    for (double size = low * step; size <= SIZE_MOST && count < SH_RANGES_MOST; size *= step) {
        const sh_algorithm *best = sh_cheapest(does, topology, size, links);
        if (best != ranges_out[count - 1].algorithm) {
            double border = find_border(does, topology, links, low, size);
            ranges_out[count - 1].to_bytes = border;
            ranges_out[count++] = (sh_size_range){best, border, INFINITY};
        }
        low = size;
    }
    return count;
}

/* Stops just above the limit, since a ring of 10,000 ranks has 200 million messages. */
int sh_moves_count(const sh_shown *shown) {
    const sh_algorithm *algorithm = shown->algorithm;
    int count = 0, steps = algorithm->native ? 0 : algorithm->steps(&shown->topology);
    for (int s = 0; s < steps; s++)
        for (int r = 0; r < shown->topology.ranks && count <= SH_SHOWN_MOVES; r++)
            count += algorithm->step(&shown->topology, r, s).send.peer >= 0;
    return count;
}

/* Counts over the schedule itself and not by a formula, hence exact also for uneven blocks. */
sh_traffic sh_traffic_of(const sh_shown *shown) {
    const sh_algorithm *algorithm = shown->algorithm;
    const sh_topology *topology = &shown->topology;
    int blocks = algorithm->blocks(topology), steps = algorithm->steps(topology);
    sh_traffic t = {.least = steps, .bytes_least = INFINITY};  // a rank sends at most once per step
    for (int r = 0; r < topology->ranks; r++) {
        int messages = 0;
        double bytes = 0;
        for (int s = 0; s < steps; s++) {
            sh_move send = algorithm->step(topology, r, s).send;
            if (send.peer < 0) continue;
            messages++;
            bytes +=
                4. *
                (double)sh_stretch_range(shown->elements, blocks, send.first, send.count).count;
        }
        t.messages += messages;
        t.bytes += bytes;
        if (messages < t.least) t.least = messages;
        if (messages > t.most) t.most = messages;
        t.bytes_least = fmin(t.bytes_least, bytes);
        t.bytes_most = fmax(t.bytes_most, bytes);
    }
    return t;
}
