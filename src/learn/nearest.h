/* The nearest of several centres, for many rows: a matrix product in floats proposes, doubles
 * decide. |x - c|^2 = |x|^2 - 2 x.c + |c|^2, whose product is wrong by at most
 *
 *   e = 2 (width + 4) 2^-24 |x| max|c|
 *
 * so that only centres within 2 e of the least can be the nearest; their distances are taken anew
 * in doubles. What comes out depends on the row and the centres alone: not on the other rows of the
 * product, its kernel, threads or workers. Equal distances go to the lower centre. */
#ifndef SH_LEARN_NEAREST_H
#define SH_LEARN_NEAREST_H

#include "learn/rows.h"

typedef struct sh_centres {
    const float *x;  // (count, width), borrowed
    size_t count, width;
    float *square;       // (count) |c|^2
    double square_most;  // of them
} sh_centres;

/* Room for the squares alone: sh_centres_set gives the centres, which are borrowed. */
sh_status sh_centres_init(sh_centres *centres, size_t count, size_t width);
void sh_centres_set(sh_centres *centres, const float *x);
void sh_centres_fini(sh_centres *centres);

typedef struct sh_neighbour {
    int32_t index;
    double distance;  // squared, to that centre
    double second;    // at most the squared distance to any other; INFINITY: there is none
} sh_neighbour;

/* Scratch of one thread. */
typedef struct sh_nearest_work {
    float *rows, *dots, *row;  // (block, width), (block, count), (width)
    void *packed;              // the product's
    size_t block;              // rows at a time
} sh_nearest_work;

sh_status sh_nearest_work_init(sh_nearest_work *work, size_t width, size_t centres);
void sh_nearest_work_fini(sh_nearest_work *work);

/* The rows listed in `list` (NULL: the `count` rows from `first` on); any number of them. */
void sh_nearest_find(const sh_rows *rows, const sh_centres *centres, size_t first,
                     const uint32_t *list, size_t count, sh_nearest_work *work,
                     sh_neighbour *nearest_out);

/* The same for all rows, by the threads of the team. */
sh_status sh_nearest_all(const sh_rows *rows, const sh_centres *centres, int threads,
                         sh_neighbour *nearest_out);

#endif
