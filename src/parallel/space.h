/* What the layers of domain parallelism have in common: an image whose rows are spread over the
 * workers of the dimension `space`, and the exchange of halos with the two neighbours. */
#ifndef SH_PARALLEL_SPACE_H
#define SH_PARALLEL_SPACE_H

#include "nn/executor.h"
#include "nn/layers/options.h"
#include "parallel/layout.h"
#include "parallel/space_rows.h"

/* How a windowed layer is spread: rows of the whole image before and after it. */
typedef struct sh_space_cut {
    sh_window window;
    int64_t in_rows, out_rows;
    int parts, rank;
} sh_space_cut;

/* The options of the layers below: the layer's own, then the cut, which the layout fills in. */
typedef struct sh_space_conv_spec {
    sh_conv_spec conv;
    sh_space_cut cut;
} sh_space_conv_spec;
typedef struct sh_space_pool_spec {
    sh_pool_spec pool;
    sh_space_cut cut;
} sh_space_pool_spec;
typedef struct sh_space_mean_spec {
    sh_space_cut cut;
} sh_space_mean_spec;

extern const sh_layer_kind sh_layer_kind_space_conv, sh_layer_kind_space_maxpool,
    sh_layer_kind_space_avgpool, sh_layer_kind_space_mean, sh_layer_kind_space_batchnorm;

/* Rows of an image as one block: (planes, rows, row), a row being width x lanes floats. */
typedef struct sh_row_block {
    float *data;
    sh_rows rows;
} sh_row_block;

typedef struct sh_halo_exchange {
    const sh_peers *peers;  // NULL: nobody to exchange with; what others own is zero
    int parts, rank;
    int64_t total;       // rows of the whole image
    size_t planes, row;  // floats
    float *message;      // sh_halo_floats of scratch
    int64_t step;
} sh_halo_exchange;

/* Rows that worker `rank` wants of this image, in terms of the layer. */
typedef sh_rows (*sh_wanted)(const sh_space_cut *cut, int rank);

/* `own` holds this worker's rows; fills `want`, whose rows are those that `wanted` says, with its
 * own and its neighbours'. All workers along space call it. */
sh_status sh_halo_run(const sh_halo_exchange *exchange, const sh_space_cut *cut, sh_wanted wanted,
                      const sh_row_block *own, const sh_row_block *want);
/* Floats of messages. */
size_t sh_halo_floats(const sh_halo_exchange *exchange, const sh_space_cut *cut, sh_wanted wanted);
/* Whether all that workers want lies with themselves or a neighbour. */
bool sh_halo_reaches_neighbours_only(const sh_space_cut *cut, int64_t total, sh_wanted wanted);
/* Copies the rows that both hold; rows of `to` that `from` does not have become zero. */
void sh_rows_copy(const sh_row_block *from, const sh_row_block *to, size_t planes, size_t row);

/* Whether a layer cut like this asks for rows of its neighbours alone. */
bool sh_space_conv_reaches(const sh_space_cut *cut);
bool sh_space_pool_reaches(const sh_space_cut *cut);

/* The groups of two across this worker's boundaries. Collective over the run. */
sh_status sh_space_open(const sh_mesh_shape *shape, sh_peers *peers);
void sh_space_close(sh_peers *peers);

/* What an image of the op's value looks like to an exchange. */
sh_halo_exchange sh_space_exchange(const sh_op *op, const sh_space_cut *cut, const sh_value *value,
                                   int64_t total, float *message);
const sh_peers *sh_space_peers(const sh_op *op);

/* A gradient of parameters, of this worker's rows alone, that is summed over the workers while
 * other layers compute. */
sh_status sh_space_sum_start(const sh_op *op, sh_peer_call *call, float *values, size_t count);

#endif
