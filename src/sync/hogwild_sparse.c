#include "sync/hogwild_sparse.h"

#include <math.h>

/* Relaxed: each weight stands alone, nothing is published by it. */
static inline float load(const float *from) {
    float value;
    __atomic_load(from, &value, __ATOMIC_RELAXED);
    return value;
}

static inline void store(float *to, float value) { __atomic_store(to, &value, __ATOMIC_RELAXED); }

/* Four sums, so that an addition need not wait for the one before. */
float sh_shared_dot(const float *weights, sh_sparse_row row) {
    float sum[4] = {0};
    size_t i = 0;
    for (; i + 4 <= row.count; i += 4)
        for (size_t k = 0; k < 4; k++)
            sum[k] += load(&weights[row.index[i + k]]) * row.value[i + k];
    for (; i < row.count; i++) sum[0] += load(&weights[row.index[i]]) * row.value[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void sh_shared_add(float *weights, sh_sparse_row row, float factor) {
    for (size_t i = 0; i < row.count; i++) {
        float *weight = &weights[row.index[i]];
        store(weight, load(weight) + factor * row.value[i]);
    }
}

static void forward(const sh_sparse_layer *layer, const sh_sparse_batch *batch,
                    const float *weights) {
    const float *bias = weights + layer->units * layer->features;
    for (size_t i = 0; i < batch->count; i++) {
        sh_sparse_row x = sh_sparse_at(batch->samples, batch->rows[i]);
        for (size_t k = 0; k < layer->units; k++)
            layer->outputs[i * layer->units + k] = sh_shared_dot(weights + k * layer->features, x) +
                                                   (layer->has_bias ? load(&bias[k]) : 0);
    }
}

/* `outputs` hold the gradient of the loss by the outputs. */
static void apply(const sh_sparse_layer *layer, const sh_sparse_batch *batch, float lr,
                  float *weights) {
    float *bias = weights + layer->units * layer->features;
    for (size_t i = 0; i < batch->count; i++) {
        sh_sparse_row x = sh_sparse_at(batch->samples, batch->rows[i]);
        for (size_t k = 0; k < layer->units; k++) {
            float factor = -lr * layer->outputs[i * layer->units + k];
            if (factor == 0) continue;  // a hinge that is satisfied
            sh_shared_add(weights + k * layer->features, x, factor);
            if (layer->has_bias) store(&bias[k], load(&bias[k]) + factor);
        }
    }
}

sh_loss_result sh_sparse_step(const sh_sparse_layer *layer, const sh_sparse_batch *batch, double lr,
                              float *weights) {
    if (batch->count == 0) return (sh_loss_result){0};
    forward(layer, batch, weights);
    sh_loss_result result = layer->loss->kind->evaluate(
        layer->loss, layer->outputs, batch->targets, (int64_t)batch->count, (int64_t)layer->units,
        1 / batch->whole, layer->outputs);
    if (isfinite(result.sum)) apply(layer, batch, (float)lr, weights);
    return result;
}
