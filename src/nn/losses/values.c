/* Losses on float targets t (rows, width). Each is the mean over a row's elements, summed over
 * rows, so that a model with more outputs does not train with larger steps.
 *
 *   mse      (p - t)^2                                       dp = 2 (p - t)
 *   bce      -t log s(p) - (1 - t) log(1 - s(p))             dp = s(p) - t,  s the sigmoid
 *   huber    d^2 / 2 for |d| <= delta, d = p - t             dp = d
 *            delta (|d| - delta / 2) beyond                  dp = delta sign(d) */
#include "nn/loss.h"
#include "tensor/kernels/loss.h"

/* A value is neither right nor wrong: `correct` is unknown (-1). */
static sh_loss_result row_means(double sum, int64_t rows, int64_t width) {
    return (sh_loss_result){.sum = sum / (double)width, .counted = rows, .correct = -1};
}

static sh_loss_result mse(const sh_loss *loss, const float *prediction, const void *target,
                          int64_t rows, int64_t width, double scale, float *gradient) {
    (void)loss;
    double sum = sh_losses()->mse(prediction, target, (size_t)(rows * width),
                                  (float)(scale / (double)width), gradient);
    return row_means(sum, rows, width);
}

/* Of logits: a sigmoid layer before it would be applied twice. */
static sh_loss_result bce(const sh_loss *loss, const float *prediction, const void *target,
                          int64_t rows, int64_t width, double scale, float *gradient) {
    (void)loss;
    double sum = sh_losses()->bce_logits(prediction, target, (size_t)(rows * width),
                                         (float)(scale / (double)width), gradient);
    return row_means(sum, rows, width);
}

static sh_loss_result huber(const sh_loss *loss, const float *prediction, const void *target,
                            int64_t rows, int64_t width, double scale, float *gradient) {
    double sum =
        sh_losses()->huber(prediction, target, (size_t)(rows * width), (float)loss->options.delta,
                           (float)(scale / (double)width), gradient);
    return row_means(sum, rows, width);
}

const sh_loss_kind sh_loss_kind_mse = {
    .name = "mse", .help = "squared error, mean over outputs", .evaluate = mse};
const sh_loss_kind sh_loss_kind_bce = {
    .name = "bce", .help = "binary cross-entropy of logits, mean over outputs", .evaluate = bce};
const sh_loss_kind sh_loss_kind_huber = {
    .name = "huber",
    .help = "quadratic up to delta, then linear",
    .has_delta = true,
    .evaluate = huber,
};
