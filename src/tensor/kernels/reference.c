/* Plain C versions of activations, losses and layer normalisation, as their definitions read:
 * doubles inside, no blocks, no threads. They are the oracle of tests, so nothing here is clever.
 */
#include "tensor/kernels/reference.h"

#include <math.h>
#include <string.h>

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double normal_cdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
static double gelu_tanh_inner(double x) { return sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x); }

double sh_ref_activation(sh_activation_kind kind, double x) {
    switch (kind) {
        case SH_ACTIVATION_RELU:
            return x > 0 ? x : 0;
        case SH_ACTIVATION_GELU:
            return x * normal_cdf(x);
        case SH_ACTIVATION_GELU_TANH:
            return 0.5 * x * (1.0 + tanh(gelu_tanh_inner(x)));
        case SH_ACTIVATION_SILU:
            return x * sigmoid(x);
        case SH_ACTIVATION_TANH:
            return tanh(x);
        case SH_ACTIVATION_SIGMOID:
            return sigmoid(x);
        default:
            return NAN;
    }
}

double sh_ref_activation_slope(sh_activation_kind kind, double x) {
    double t;
    switch (kind) {
        case SH_ACTIVATION_RELU:
            return x > 0 ? 1 : 0;
        case SH_ACTIVATION_GELU:
            return normal_cdf(x) + x * exp(-0.5 * x * x) / sqrt(2.0 * M_PI);
        case SH_ACTIVATION_GELU_TANH:
            t = tanh(gelu_tanh_inner(x));
            return 0.5 * (1.0 + t) +
                   0.5 * x * (1.0 - t * t) * sqrt(2.0 / M_PI) * (1.0 + 3 * 0.044715 * x * x);
        case SH_ACTIVATION_SILU:
            return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)));
        case SH_ACTIVATION_TANH:
            return 1.0 - tanh(x) * tanh(x);
        case SH_ACTIVATION_SIGMOID:
            return sigmoid(x) * (1.0 - sigmoid(x));
        default:
            return NAN;
    }
}

void sh_ref_softmax(const float *x, float *y, size_t rows, size_t cols) {
    for (size_t row = 0; row < rows; row++) {
        const float *from = x + row * cols;
        double most = -INFINITY, sum = 0;
        for (size_t j = 0; j < cols; j++) most = fmax(most, (double)from[j]);
        for (size_t j = 0; j < cols; j++) sum += exp((double)from[j] - most);
        for (size_t j = 0; j < cols; j++)
            y[row * cols + j] = (float)(exp((double)from[j] - most) / sum);
    }
}

/* Of equals the first. */
static size_t first_largest(const float *x, size_t count) {
    size_t best = 0;
    for (size_t j = 1; j < count; j++)
        if (x[j] > x[best]) best = j;
    return best;
}

/* About the largest, or the exponentials overflow. */
static double log_sum_exp(const float *x, size_t count) {
    double most = (double)x[first_largest(x, count)], sum = 0;
    for (size_t j = 0; j < count; j++) sum += exp((double)x[j] - most);
    return most + log(sum);
}

sh_class_loss_sum sh_ref_softmax_cross_entropy(const float *logits, const int32_t *labels,
                                               size_t rows, size_t classes,
                                               const sh_class_loss_options *options,
                                               float *dlogits) {
    sh_class_loss_sum sum = {0};
    memset(dlogits, 0, rows * classes * sizeof *dlogits);
    for (size_t row = 0; row < rows; row++) {
        if (labels[row] == options->ignore_index) continue;
        const float *x = logits + row * classes;
        double smoothing = (double)options->label_smoothing, normal = log_sum_exp(x, classes);
        for (size_t j = 0; j < classes; j++) {
            double target =
                (j == (size_t)labels[row]) * (1.0 - smoothing) + smoothing / (double)classes;
            double log_p = (double)x[j] - normal;
            sum.loss -= target * log_p;
            dlogits[row * classes + j] =
                (float)((double)options->grad_scale * (exp(log_p) - target));
        }
        sum.counted++;
        sum.correct += first_largest(x, classes) == (size_t)labels[row];
    }
    return sum;
}

sh_class_loss_sum sh_ref_hinge(const float *scores, const int32_t *labels, size_t rows,
                               size_t classes, const sh_class_loss_options *options,
                               float *dscores) {
    sh_class_loss_sum sum = {0};
    memset(dscores, 0, rows * classes * sizeof *dscores);
    for (size_t row = 0; row < rows; row++) {
        if (labels[row] == options->ignore_index) continue;
        const float *s = scores + row * classes;
        size_t label = (size_t)labels[row];
        for (size_t j = 0; j < classes; j++) {
            double margin = 1.0 - (double)s[label] + (double)s[j];
            if (j == label || margin <= 0) continue;
            sum.loss += margin;
            dscores[row * classes + j] += options->grad_scale;
            dscores[row * classes + label] -= options->grad_scale;
        }
        sum.counted++;
        sum.correct += first_largest(s, classes) == label;
    }
    return sum;
}

double sh_ref_mse(double pred, double target, double *slope_out) {
    *slope_out = 2.0 * (pred - target);
    return (pred - target) * (pred - target);
}

double sh_ref_bce_logits(double logit, double target, double *slope_out) {
    *slope_out = sigmoid(logit) - target;
    return fmax(logit, 0) - logit * target + log1p(exp(-fabs(logit)));
}

double sh_ref_huber(double pred, double target, double delta, double *slope_out) {
    double d = pred - target;
    *slope_out = fabs(d) > delta ? copysign(delta, d) : d;
    return fabs(d) > delta ? delta * (fabs(d) - 0.5 * delta) : 0.5 * d * d;
}

/* In two passes. */
static void moments(const float *x, size_t count, double *mean, double *variance) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i];
    *mean = sum / (double)count;
    for (size_t i = 0; i < count; i++) squares += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *variance = squares / (double)count;
}

void sh_ref_layernorm_forward(const float *x, const float *gamma, const float *beta, float eps,
                              size_t rows, size_t C, float *y, float *mean, float *rstd) {
    for (size_t row = 0; row < rows; row++) {
        double mu, variance;
        moments(x + row * C, C, &mu, &variance);
        double r = 1.0 / sqrt(variance + (double)eps);
        mean[row] = (float)mu;
        rstd[row] = (float)r;
        for (size_t i = 0; i < C; i++)
            y[row * C + i] = (float)(((double)x[row * C + i] - mu) * r * (double)gamma[i] +
                                     (beta ? (double)beta[i] : 0.0));
    }
}

static void layernorm_row_back(const sh_layernorm_backward *a, size_t row) {
    size_t C = a->C;
    double rstd = (double)a->rstd[row], mean = (double)a->mean[row], sum = 0, sum_hat = 0;
    const float *dy = a->dy + row * C, *x = a->x + row * C;
    for (size_t i = 0; i < C; i++) {
        double g = (double)dy[i] * (double)a->gamma[i], hat = ((double)x[i] - mean) * rstd;
        sum += g;
        sum_hat += g * hat;
    }
    for (size_t i = 0; i < C; i++) {
        double g = (double)dy[i] * (double)a->gamma[i], hat = ((double)x[i] - mean) * rstd;
        double v = rstd * (g - sum / (double)C - hat * sum_hat / (double)C);
        if (a->residual) v += (double)a->residual[row * C + i];
        a->dx[row * C + i] = (float)v;
    }
}

void sh_ref_layernorm_backward(const sh_layernorm_backward *a) {
    for (size_t i = 0; i < a->C; i++) {
        double dgamma = a->accumulate ? (double)a->dgamma[i] : 0;
        double dbeta = a->accumulate && a->dbeta ? (double)a->dbeta[i] : 0;
        for (size_t row = 0; row < a->rows; row++) {
            double d = (double)a->dy[row * a->C + i];
            dgamma +=
                d * ((double)a->x[row * a->C + i] - (double)a->mean[row]) * (double)a->rstd[row];
            dbeta += d;
        }
        a->dgamma[i] = (float)dgamma;
        if (a->dbeta) a->dbeta[i] = (float)dbeta;
    }
    for (size_t row = 0; row < a->rows; row++) layernorm_row_back(a, row);
}
