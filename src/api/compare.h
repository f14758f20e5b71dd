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

/* One variant with the memory of its texts. Must not move once it is cleared. */
typedef struct sh_variant {
    /* As the caller sees it: its texts and points are the members below. */
    shoal_variant seen;
    char name[160], folder[96], sync[64], compress[64];  // texts that `seen` points to
    char reason[1024], hint[512];                        // why it did not end well; "" otherwise
    shoal_point *points;                                 // evaluations in order; owned; seen.points
    size_t point_room;                                   // points that there is memory for
} sh_variant;

/* Rows in the order of their training. Owns everything it points to. */
struct shoal_comparison {
    char *title;     // "lenet on mnist, batch 128, seed 1"
    char *folder;    // of the comparison
    double target;   // accuracy; 0: none
    bool simulated;  // variants ran on a virtual clock, so virtual_s is known
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

/* Printers of the whole comparison; they only read it. */
sh_status sh_compare_table(const shoal_comparison *comparison, FILE *file);
sh_status sh_compare_json(const shoal_comparison *comparison, FILE *file);
sh_status sh_compare_picture(const shoal_comparison *comparison, FILE *file);

#endif
