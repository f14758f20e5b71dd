/* `shoal explain cost`: the alpha-beta formulas of plan/cost.h for a net, layer by layer, as a
 * table or as JSON. */
#ifndef SH_EXPLAIN_COST_H
#define SH_EXPLAIN_COST_H

#include <stdio.h>

#include "plan/cost.h"

typedef struct sh_cost_page {
    const sh_cost_net *net;
    sh_cost_layout layout;
    sh_link link;
    double batch;
} sh_cost_page;

void sh_cost_text(const sh_cost_page *page, FILE *file);
sh_status sh_cost_json(const sh_cost_page *page, FILE *file);

#endif
