/* Sparse rows against weights that other cores write at the same time: what a step of Hogwild does
 * for each sample. Only the weights of a row's non-zeros are read, and only these are written. */
#ifndef SH_SYNC_HOGWILD_SPARSE_H
#define SH_SYNC_HOGWILD_SPARSE_H

#include "data/sparse.h"
#include "nn/loss.h"

/* One row: `count` values and the features they belong to. */
typedef struct sh_sparse_row {
    const uint32_t *index;
    const float *value;
    size_t count;
} sh_sparse_row;

static inline sh_sparse_row sh_sparse_at(const sh_sparse *sparse, size_t row) {
    size_t start = sparse->start[row];
    return (sh_sparse_row){sparse->index + start, sparse->value + start,
                           sparse->start[row + 1] - start};
}

/* The row times the weights, by relaxed loads. */
float sh_shared_dot(const float *weights, sh_sparse_row row);
/* weights += factor * row, each element by a relaxed load and a relaxed store: what another core
 * adds between the two is lost. */
void sh_shared_add(float *weights, sh_sparse_row row, float factor);

/* A net of one dense layer, y = W x + b, as its parameter block has it. */
typedef struct sh_sparse_layer {
    size_t features, units;
    bool has_bias;  // (units) behind the weight (units, features)
    const sh_loss *loss;
    float *outputs;  // (most samples of a batch, units)
} sh_sparse_layer;

/* Samples of a batch by their row, with targets as the loss wants them. */
typedef struct sh_sparse_batch {
    const sh_sparse *samples;
    const uint32_t *rows;
    const void *targets;
    size_t count;
    double whole;  // what the gradient is the mean over
} sh_sparse_batch;

/* A step of SGD with the batch's mean gradient: the outputs of all samples from the weights as they
 * are, the loss, and the update of the weights whose features occur. Up to rounding what the dense
 * layer and plain SGD do. A loss that is not finite is returned and nothing is updated. */
sh_loss_result sh_sparse_step(const sh_sparse_layer *layer, const sh_sparse_batch *batch, double lr,
                              float *weights);

#endif
