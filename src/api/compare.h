/* A comparison: variants of one run, one after the other, and what became of each.
 *
 *   compare.c          the public functions: folder, runs, outcomes
 *   compare_list.c     comma lists to rows
 *   compare_read.c     a run's metrics to numbers
 *   compare_print.c    rows to a table, JSON and a picture */
#ifndef SH_API_COMPARE_H
#define SH_API_COMPARE_H

#include "run/run.h"
#include "shoal/tools.h"

typedef struct sh_variant {
    shoal_variant seen;  // as the caller sees it: its texts and points are those below
    char name[160], folder[96], sync[64], compress[64];
    char reason[1024], hint[512];
    shoal_point *points;
    size_t point_room;
} sh_variant;

struct shoal_comparison {
    char *title;    // "lenet on mnist, batch 128, seed 1"
    char *folder;   // of the comparison
    double target;  // accuracy; 0: none
    bool simulated;
    sh_variant *rows;
    size_t count;
};

/* Fills rows and count: every combination, each parsed and named. */
sh_status sh_compare_list(const sh_config *config, const shoal_compare_options *options,
                          shoal_comparison *comparison);
/* A variant that was not run: its texts are those of the row, and no number is known. */
void sh_compare_clear(sh_variant *row);
/* The numbers of a row, cleared before, from its run's metrics. */
sh_status sh_compare_read(const char *path, double target, sh_variant *row);

sh_status sh_compare_table(const shoal_comparison *comparison, FILE *file);
sh_status sh_compare_json(const shoal_comparison *comparison, FILE *file);
sh_status sh_compare_picture(const shoal_comparison *comparison, FILE *file);

#endif
