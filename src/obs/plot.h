/* Lines over an axis as an SVG picture: one colour and one dash each, so that they can be told
 * apart in print and by everybody, on a light and on a dark page alike. One task at a time. */
#ifndef SH_OBS_PLOT_H
#define SH_OBS_PLOT_H

#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

typedef struct sh_plot_point {
    double x, y;  // a point that is not finite breaks the line
} sh_plot_point;

typedef struct sh_plot_line {
    const char *name;  // in the legend; UTF-8
    const sh_plot_point *points;
    size_t count;
} sh_plot_line;

/* How the numbers of an axis are written. */
typedef enum sh_plot_unit {
    SH_PLOT_PLAIN,
    SH_PLOT_SECONDS,  // with ms, s, min or h, as the largest asks for
    SH_PLOT_PERCENT,  // of parts of 1
} sh_plot_unit;

typedef struct sh_plot_axis {
    const char *name;
    sh_plot_unit unit;
} sh_plot_axis;

typedef struct sh_plot {
    const char *title;
    sh_plot_axis x, y;  // x begins at 0
    const sh_plot_line *lines;
    size_t line_count;
    double mark;            // a dotted line at this y; NaN: none
    const char *mark_name;  // its name in the legend
} sh_plot;

/* A whole document. Writing errors stay in the file's state. */
void sh_plot_svg(const sh_plot *plot, FILE *file);

/* The smallest of 1, 2 or 5 times a power of ten of which at most `most` fit into low..high. Pure.
 */
double sh_plot_step(double low, double high, int most);

#endif
