/* `shoal explain` of a collective: every step as a table, as JSON or as a picture; the terms of its
 * cost; and which algorithm wins at which size. All of it is read from the schedules themselves. */
#ifndef SH_EXPLAIN_COLLECTIVE_H
#define SH_EXPLAIN_COLLECTIVE_H

#include <stdio.h>

#include "comm/schedule.h"
#include "explain/values.h"

enum {
    SH_SHOWN_MOVES = 4096,          // most messages that are listed; above, only the summary
    SH_SHOWN_CELLS = 1024,          // most cells (ranks x blocks) of a picture
    SH_SHOWN_STEPS = 128,           // most steps of a picture
    SH_SHOWN_RANKS = 4096,          // most ranks of a summary
    SH_RANGES_MOST = 8,             // winners from 4 bytes to 4 GiB
    SH_RANK_TEXT = SH_VALUES_NAME,  // a rank's name with its zero
};

/* What `shoal explain collective` is asked about. All pointers are borrowed. */
typedef struct sh_shown {
    const sh_algorithm *algorithm;
    bool chosen;                // the algorithm is the cheapest one; false: the user named it
    sh_topology topology;       // ranks, and which nodes they sit on
    sh_links links;             // alpha, beta and gamma between nodes and inside one
    size_t elements;            // float32 elements of the whole buffer
    const sh_values *values;    // numbers to work through; NULL: none
    const char *measured;       // between whom the links were measured; NULL: they were given
    const sh_algorithm *tried;  // fastest for long buffers by measurement; NULL: none
    double tried_bytes;         // from this buffer size on `tried` is used
} sh_shown;

/* Size of the whole buffer in bytes. */
static inline double sh_shown_bytes(const sh_shown *shown) { return (double)shown->elements * 4; }
/* The rank's name from the values, or its number. */
const char *sh_shown_rank(const sh_shown *shown, int rank, char text_out[SH_RANK_TEXT]);

/* ---- Cost. */

/* The cost taken apart: alpha counts messages, beta bytes sent, gamma bytes reduced. */
typedef struct sh_terms {
    double messages;  // on the critical path, one after another
    double sent;      // bytes per byte of the buffer, by the busiest rank or through its wire
    double reduced;   // bytes reduced per byte of the buffer, by the busiest rank
    // Each term alone; `total_s` may be below their sum.
    double latency_s, bandwidth_s, reduction_s, total_s;
} sh_terms;

/* Prices `algorithm` for a buffer of `bytes`, term by term. Not for native algorithms. */
sh_terms sh_terms_of(const sh_algorithm *algorithm, const sh_topology *topology, double bytes,
                     const sh_links *links);

/* The cheapest at that size; the first of equals. */
const sh_algorithm *sh_cheapest(sh_collective does, const sh_topology *topology, double bytes,
                                const sh_links *links);

/* How many other algorithms with steps of their own serve the same collective. */
int sh_rivals(const sh_algorithm *algorithm);

/* Buffer sizes for which `algorithm` is the cheapest: from_bytes <= size < to_bytes. */
typedef struct sh_size_range {
    const sh_algorithm *algorithm;
    double from_bytes, to_bytes;  // INFINITY: all larger ones
} sh_size_range;

/* Which algorithm is cheapest from 4 bytes to 4 GiB. Returns how many ranges there are, at most
 * SH_RANGES_MOST. */
int sh_size_ranges(sh_collective does, const sh_topology *topology, const sh_links *links,
                   sh_size_range ranges_out[SH_RANGES_MOST]);

/* ---- Messages. */

typedef struct sh_traffic {
    double messages, bytes;          // sums over all ranks
    int least, most;                 // messages that one rank sends
    double bytes_least, bytes_most;  // bytes that one rank sends
} sh_traffic;

/* Counts the traffic by walking all steps of all ranks: O(ranks x steps). */
sh_traffic sh_traffic_of(const sh_shown *shown);
/* Number of messages of all ranks; stops counting just above SH_SHOWN_MOVES. */
int sh_moves_count(const sh_shown *shown);

/* ---- Output. */

/* Prints tables for people, one line per message. */
sh_status sh_collective_text(const sh_shown *shown, FILE *file);
/* The part of the text that compares: terms and prices of all algorithms, winners by size. */
void sh_collective_compare(const sh_shown *shown, FILE *file);
/* Prints one JSON object on one line. */
sh_status sh_collective_json(const sh_shown *shown, FILE *file);
/* One SVG document. Fails where a picture would be too large to read. */
sh_status sh_collective_svg(const sh_shown *shown, FILE *file);

#endif
