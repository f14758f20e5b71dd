/* What messages between workers cost, as text: how it is remembered per machine and in a run's
 * manifest. "link 4e-05 8.5e-09 5e-11 node 4e-07 1e-10 5e-11 large ring": seconds per message, per
 * byte and per byte reduced, between nodes and inside one, and the all-reduce that was the fastest
 * for long buffers, or "-". */
#ifndef SH_RUN_COSTS_H
#define SH_RUN_COSTS_H

#include <stdbool.h>

#include "comm/engine.h"

enum { SH_COSTS_TEXT = 256, SH_COSTS_KEY = 96 };

/* "links mpi 4 ranks on 2 nodes ", the beginning of the key under which costs are remembered. */
const char *sh_costs_key(const char *transport, int ranks, int nodes, char key_out[SH_COSTS_KEY]);
const char *sh_costs_print(const sh_costs *costs, char text_out[SH_COSTS_TEXT]);
/* False: it is none, or no network and no machine has such figures. */
bool sh_costs_parse(const char *text, sh_costs *costs_out);
/* Whether no noise explains it: one link has thrice the rate of the other, or far more latency. */
bool sh_links_differ(const sh_link *a, const sh_link *b);
/* What runs of so many ranks on so many nodes measured on this machine; false: there was none.
 * `name_out` says between whom: "mpi, 4 ranks on 2 nodes". */
bool sh_costs_recall(const char *cache_folder, int ranks, int nodes, sh_costs *costs_out,
                     char name_out[SH_COSTS_KEY]);

/* The file of a cache folder in which choices by measurement are remembered; sh_free it. */
char *sh_choices_path(const char *cache_folder);

#endif
