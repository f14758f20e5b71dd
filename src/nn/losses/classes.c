/* Losses on class labels, for scores s (rows, classes) and labels y (rows). Rows are samples, or
 * tokens.
 *
 *   cross-entropy    -log softmax(s)_y            ds_j = softmax(s)_j - [j = y]
 *                    with smoothing e the target is (1 - e) [j = y] + e / classes
 *   hinge            sum over j != y of max(0, 1 + s_j - s_y)      (Weston, Watkins 1999)
 *                    ds_j = [1 + s_j - s_y > 0],  ds_y = minus their sum
 *
 * Rows whose label is ignore_index count for nothing: neither in the sum, nor as counted, nor in
 * the gradient. */
#include "nn/loss.h"
#include "tensor/kernels/loss.h"

/* `scale` multiplies gradients, not the sum: 1 / rows makes gradients of a mean. */
static sh_class_loss_options options_of(const sh_loss *loss, double scale) {
    return (sh_class_loss_options){.label_smoothing = (float)loss->options.smoothing,
                                   .grad_scale = (float)scale,
                                   .ignore_index = (int32_t)loss->options.ignore_index};
}

/* Sums, not means: workers add theirs up and divide once by all rows counted. */
static sh_loss_result result_of(sh_class_loss_sum sum) {
    return (sh_loss_result){
        .sum = sum.loss, .counted = (int64_t)sum.counted, .correct = (int64_t)sum.correct};
}

/* Softmax and logarithm in one kernel, which subtracts the greatest score first: large scores do
 * not overflow. */
static sh_loss_result cross_entropy(const sh_loss *loss, const float *prediction,
                                    const void *target, int64_t rows, int64_t width, double scale,
                                    float *gradient) {
    sh_class_loss_options options = options_of(loss, scale);
    return result_of(sh_losses()->softmax_cross_entropy(prediction, target, (size_t)rows,
                                                        (size_t)width, &options, gradient));
}

/* Smoothing has no meaning here; sh_loss_init refuses it. */
static sh_loss_result hinge(const sh_loss *loss, const float *prediction, const void *target,
                            int64_t rows, int64_t width, double scale, float *gradient) {
    sh_class_loss_options options = options_of(loss, scale);
    return result_of(
        sh_losses()->hinge(prediction, target, (size_t)rows, (size_t)width, &options, gradient));
}

const sh_loss_kind sh_loss_kind_cross_entropy = {
    .name = "cross-entropy",
    .help = "softmax and the negative log-likelihood of the class",
    .classes = true,
    .has_smoothing = true,
    .evaluate = cross_entropy,
};

const sh_loss_kind sh_loss_kind_hinge = {
    .name = "hinge",
    .help = "sum of max(0, 1 + s_j - s_y) over the wrong classes",
    .classes = true,
    .evaluate = hinge,
};
