/* Losses on class labels: softmax cross-entropy and the multi-class hinge. */
#include "nn/loss.h"
#include "tensor/kernels/loss.h"

static sh_class_loss_options options_of(const sh_loss *loss, double scale) {
    return (sh_class_loss_options){.label_smoothing = (float)loss->options.smoothing,
                                   .grad_scale = (float)scale,
                                   .ignore_index = (int32_t)loss->options.ignore_index};
}

static sh_loss_result result_of(sh_class_loss_sum sum) {
    return (sh_loss_result){
        .sum = sum.loss, .counted = (int64_t)sum.counted, .correct = (int64_t)sum.correct};
}

static sh_loss_result cross_entropy(const sh_loss *loss, const float *prediction,
                                    const void *target, int64_t rows, int64_t width, double scale,
                                    float *gradient) {
    sh_class_loss_options options = options_of(loss, scale);
    return result_of(sh_losses()->softmax_cross_entropy(prediction, target, (size_t)rows,
                                                        (size_t)width, &options, gradient));
}

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
