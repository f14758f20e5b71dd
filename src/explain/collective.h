/* `shoal explain` of a collective: every step as a table, as JSON or as a picture; the terms of its
 * cost; and which algorithm wins at which size. All of it is read from the schedules themselves. */
#ifndef SH_EXPLAIN_COLLECTIVE_H
#define SH_EXPLAIN_COLLECTIVE_H

#include <stdio.h>

#include "comm/schedule.h"
#include "explain/values.h"

enum {
    SH_SHOWN_MOVES = 4096,  // messages that are listed; beyond, only the summary
    SH_SHOWN_CELLS = 1024,  // ranks x blocks of a picture
    SH_SHOWN_STEPS = 128,   // of a picture
    SH_SHOWN_RANKS = 4096,  // of a summary
    SH_RANGES_MOST = 8,
    SH_RANK_TEXT = SH_VALUES_NAME,
};

typedef struct sh_shown {
    const sh_algorithm *algorithm;
    bool chosen;  // by its price, not by the user
    sh_topology topology;
    sh_links links;
    size_t elements;            // float32, of the whole buffer
    const sh_values *values;    // NULL: none
    const char *measured;       // between whom the links were measured; NULL: they were given
    const sh_algorithm *tried;  // the fastest for long buffers when tried; NULL: nobody did
    double tried_bytes;         // from here on
} sh_shown;

static inline double sh_shown_bytes(const sh_shown *shown) { return (double)shown->elements * 4; }
/* The rank's name from the values, or its number. */
const char *sh_shown_rank(const sh_shown *shown, int rank, char text_out[SH_RANK_TEXT]);

/* ---- Cost. */

typedef struct sh_terms {
    double messages;  // one after another
    double sent;      // bytes per byte of the buffer, by the busiest rank or through its wire
    double reduced;   // likewise
    double latency_s, bandwidth_s, reduction_s, total_s;
} sh_terms;

sh_terms sh_terms_of(const sh_algorithm *algorithm, const sh_topology *topology, double bytes,
                     const sh_links *links);

/* The cheapest at that size; the first of equals. */
const sh_algorithm *sh_cheapest(sh_collective does, const sh_topology *topology, double bytes,
                                const sh_links *links);

/* How many other algorithms with steps of their own serve the same collective. */
int sh_rivals(const sh_algorithm *algorithm);

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
    double messages, bytes;  // of all ranks
    int least, most;         // messages that one rank sends
    double bytes_least, bytes_most;
} sh_traffic;

/* Walks all steps of all ranks. */
sh_traffic sh_traffic_of(const sh_shown *shown);
/* Messages of all ranks, counted up to one more than SH_SHOWN_MOVES. */
int sh_moves_count(const sh_shown *shown);

/* ---- Output. */

sh_status sh_collective_text(const sh_shown *shown, FILE *file);
/* The part of the text that compares: terms and prices of all algorithms, winners by size. */
void sh_collective_compare(const sh_shown *shown, FILE *file);
sh_status sh_collective_json(const sh_shown *shown, FILE *file);
/* One SVG document. Fails where a picture would be too large to read. */
sh_status sh_collective_svg(const sh_shown *shown, FILE *file);

#endif
