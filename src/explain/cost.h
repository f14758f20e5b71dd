/* `shoal explain cost`: the alpha-beta formulas of plan/cost.h for a net, layer by layer, as a
 * table or as JSON. */
#ifndef SH_EXPLAIN_COST_H
#define SH_EXPLAIN_COST_H

#include <stdio.h>

#include "plan/cost.h"

/* What `shoal explain cost` shows. `net` is borrowed. */
typedef struct sh_cost_page {
    const sh_cost_net *net;
    sh_cost_layout layout;  // grids of workers for image layers and the rest
    sh_link link;           // alpha and beta that the seconds assume
    double batch;           // samples of a step over all workers
} sh_cost_page;

/* Tables for people: seconds per layer, then each communication with its formula. */
void sh_cost_text(const sh_cost_page *page, FILE *file);
/* The same as one JSON object on one line. Fails only without memory. */
sh_status sh_cost_json(const sh_cost_page *page, FILE *file);

#endif
