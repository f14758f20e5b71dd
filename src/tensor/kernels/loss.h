/* Losses with their gradients. Each returns a plain sum (never a mean: the caller knows by what to
 * divide) and writes grad_scale * d(sum)/d(prediction), so a mean over a batch is grad_scale =
 * 1/count. A NULL gradient is not computed; it may overwrite the prediction.
 *
 * Sums are taken over a fixed division of the input and do not depend on the thread count. */
#ifndef SH_TENSOR_KERNELS_LOSS_H
#define SH_TENSOR_KERNELS_LOSS_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/kernels/simd.h"

typedef struct sh_class_loss_options {
    float label_smoothing;  // 0 <= s < 1, cross-entropy only: the share spread over all classes
    float grad_scale;
    int32_t ignore_index;  // rows with this label count for nothing; their gradient is 0
} sh_class_loss_options;

enum { SH_IGNORE_INDEX = -100 };  // the usual value

typedef struct sh_class_loss_sum {
    double loss;
    size_t counted;  // rows not ignored
    size_t correct;  // of these, rows whose first largest score is the label's
} sh_class_loss_sum;

typedef struct sh_loss_kernels {
    /* scores[rows][classes], labels[rows] in [0, classes) or ignore_index (asserted). */
    sh_class_loss_sum (*softmax_cross_entropy)(const float *logits, const int32_t *labels,
                                               size_t rows, size_t classes,
                                               const sh_class_loss_options *options,
                                               float *dlogits);
    /* Sum over j != label of max(0, 1 + s_j - s_label) (Weston and Watkins). */
    sh_class_loss_sum (*hinge)(const float *scores, const int32_t *labels, size_t rows,
                               size_t classes, const sh_class_loss_options *options,
                               float *dscores);
    /* Sums over `count` elements. */
    double (*mse)(const float *pred, const float *target, size_t count, float grad_scale,
                  float *dpred);  // (p - t)^2
    double (*bce_logits)(const float *logits, const float *target, size_t count, float grad_scale,
                         float *dlogits);  // -t log s(x) - (1 - t) log(1 - s(x))
    double (*huber)(const float *pred, const float *target, size_t count, float delta,
                    float grad_scale, float *dpred);  // d^2/2 up to delta, then linear
} sh_loss_kernels;

SH_SIMD_DECLARE(sh_loss_kernels, sh_loss_table);
static inline const sh_loss_kernels *sh_losses(void) { return SH_SIMD_PICK(sh_loss_table); }

/* How many labels are not ignored: what a mean divides by. */
static inline size_t sh_loss_counted(const int32_t *labels, size_t rows, int32_t ignore_index) {
    size_t counted = 0;
    for (size_t row = 0; row < rows; row++) counted += labels[row] != ignore_index;
    return counted;
}

#endif
