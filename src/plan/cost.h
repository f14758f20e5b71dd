/* What a step's communication costs by the alpha-beta formulas of integrated model, batch and
 * domain parallelism (Gholami et al. 2018), layer by layer, with the numbers filled in. A
 * collective is taken to cost alpha ceil(log2 P) + beta (P-1)/P n, an all-reduce twice that; only
 * the busiest rank counts, and nothing is hidden behind computing. The planner's own estimates come
 * from schedules; these formulas are for people, and for a first look at thousands of workers.
 *
 * B samples of a batch, P workers as a grid of `data` x `tensor` x `space`. Weight W_i has |W_i|
 * values, takes d_{i-1} values of a sample and hands d_i on (after pooling). Per layer i:
 *
 *   all-gather of outputs    a log T + B/D (T-1)/T d_i b           tensor T, data D
 *   all-reduce of dX         2 (a log T + B/D (T-1)/T d_{i-1} b)   not for the first layer
 *   all-reduce of dW         2 (a log DS + (DS-1)/DS |W_i|/T b)    space S
 *   halo of X                n a + B/D rows X_W X_C b              n neighbours: 1 if S = 2, else 2
 *   halo of dY               n a + B/D rows Y_W Y_C b              not for the first layer
 *
 * a = alpha in seconds, b = beta in seconds per float32. Of X, d(k-1)+1-s rows cross a boundary (k
 * kernel, s stride, d dilation), of dY floor(d(k-1)/s); an inner rank takes as many, from both its
 * neighbours together. The documents have k/2 for both, which is one neighbour's part at stride 1.
 */
#ifndef SH_PLAN_COST_H
#define SH_PLAN_COST_H

#include "comm/schedule.h"
#include "nn/spec.h"

/* Sizes of the dimensions; 1: none. */
typedef struct sh_cost_grid {
    int64_t data, tensor;
    int64_t space[2];  // rows, columns
} sh_cost_grid;

/* Convolutions and what comes with them (image layers), and all other layers, may have grids of
 * their own. */
typedef struct sh_cost_layout {
    sh_cost_grid image, dense;
} sh_cost_layout;

static inline int64_t sh_cost_grid_workers(const sh_cost_grid *grid) {
    return grid->data * grid->tensor * grid->space[0] * grid->space[1];
}

/* "data=64,tensor=8", "space=4x2", or "{conv: space=4, dense: tensor=4}"; NULL: data. Of a grid
 * without `data`, data fills what `workers` gives; `workers` 0: the product is taken. Fails with
 * SH_E_USAGE where the text is not valid or the products differ from `workers`, or each other. */
sh_status sh_cost_layout_parse(const char *text, int64_t workers, sh_cost_layout *layout_out);
enum { SH_COST_LAYOUT_TEXT = 192 };
const char *sh_cost_layout_text(const sh_cost_layout *layout, char text_out[SH_COST_LAYOUT_TEXT]);

typedef struct sh_cost_layer {
    const char *name;         // borrowed from the described net
    bool image;               // computes on (C, H, W)
    bool weighted;            // otherwise a pooling: it has halos only
    bool dense;               // a matrix product, for which batch and model parallelism compare
    bool first;               // nobody wants the gradient of its input
    double weights, in, out;  // |W_i|, d_{i-1}, d_i
    int64_t kernel[2], stride, dilation;
    sh_shape x, y;  // of a sample
} sh_cost_layer;

typedef struct sh_cost_net {
    sh_cost_layer *layers;
    size_t count;
} sh_cost_net;

/* Borrows the described net. Parameters of layers that are no matrices (normalisation) count with
 * the matrix before them. */
sh_status sh_cost_net_init(sh_cost_net *net, const sh_net_spec *spec);
void sh_cost_net_fini(sh_cost_net *net);

/* times (alphas a + batch (parts - 1) / parts words b); parts 0: without that factor. Of a halo
 * also what the documents have instead: a + batch documents b. */
typedef struct sh_cost_term {
    const char *what;
    int times;
    double alphas, batch, words;
    int64_t parts;
    double documents;  // 0: the same
} sh_cost_term;

enum { SH_COST_TERMS_MOST = 8 };

double sh_cost_seconds(const sh_cost_term *term, const sh_link *link);
/* "2 (9 a + 511/512 * 4096 b)". */
enum { SH_COST_TERM_TEXT = 128 };
const char *sh_cost_term_text(const sh_cost_term *term, char text_out[SH_COST_TERM_TEXT]);

/* The terms of one layer; returns how many. */
int sh_cost_terms(const sh_cost_layer *layer, const sh_cost_grid *grid, double batch,
                  sh_cost_term terms_out[SH_COST_TERMS_MOST]);
double sh_cost_layer_seconds(const sh_cost_layer *layer, const sh_cost_layout *layout, double batch,
                             const sh_link *link);
/* All layers, without what sh_cost_between adds. */
double sh_cost_net_seconds(const sh_cost_net *net, const sh_cost_layout *layout, double batch,
                           const sh_link *link);
/* The redistribution between the grids of image and dense layers, which the formulas leave out.
 * False: there is none. */
bool sh_cost_between(const sh_cost_net *net, const sh_cost_layout *layout, double batch,
                     sh_cost_term *term_out);

/* Model parallelism beats batch parallelism of this dense layer below so many samples: 2 |W| /
 * (d_out + 2 d_in). */
double sh_cost_model_wins_below(const sh_cost_layer *layer);

#endif
