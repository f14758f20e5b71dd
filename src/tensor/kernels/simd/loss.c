/* Losses and their gradients in one pass over the scores. A loss is a sum in double over ranges
 * that depend on the input alone, so it has the same bits at any thread count. */
#include "tensor/kernels/loss.h"

#include <stdbool.h>

#include "base/status.h"
#include "tensor/kernels/simd/rows.h"

/* Work is cut into at most PARTS ranges that depend on the input alone; each leaves its sum in its
 * place and the places are added in order. */
enum { PARTS = 64, BLOCK = 1024 };

/* Tells whether `label` is predicted. Of equal scores the first counts, as in NumPy and PyTorch. */
static bool is_first_largest(const float *scores, size_t label, float most) {
    if (scores[label] != most) return false;
    for (size_t j = 0; j < label; j++)
        if (scores[j] == most) return false;
    return true;
}

/* Sum of a row's scores, which label smoothing needs. */
static double row_sum(const float *x, size_t count) {
    double total = 0;
    for (size_t at = 0; at < count; at += ROW_BLOCK) {
        size_t i = at, end = least(count, at + ROW_BLOCK);
        vf sum = {0};
        for (; i + LANES <= end; i += LANES) sum += vf_load(x + i);
        if (i < end) sum += vf_load_part(x + i, end - i, 0);
        total += (double)vf_sum(sum);
    }
    return total;
}

/* loss = log(sum exp(x_j)) - (1 - s) x_label - s mean(x)
 * grad = softmax - (1 - s) [j = label] - s/classes */
static void cross_entropy_row(const float *logits, size_t label, size_t classes,
                              const sh_class_loss_options *options, float *dlogits,
                              sh_class_loss_sum *into) {
    float most = row_max(logits, classes), at_label = logits[label];
    double smoothing = (double)options->label_smoothing;
    double target = (1.0 - smoothing) * (double)at_label;
    if (smoothing > 0) target += smoothing * row_sum(logits, classes) / (double)classes;
    into->correct += is_first_largest(logits, label, most);
    into->counted++;

    double sum = row_exp_sum(logits, classes, most, dlogits);
    into->loss += (double)most + log(sum) - target;
    if (dlogits == NULL) return;
    double scale = (double)options->grad_scale;
    row_affine(dlogits, dlogits, classes, (float)(scale / sum),
               (float)(-scale * smoothing / (double)classes));
    dlogits[label] -= (float)(scale * (1.0 - smoothing));
}

/* Multi-class hinge loss (Weston, Watkins): sum over j of max(0, 1 - x_label + x_j). Every
 * violated margin moves its class down and the label up by one unit of gradient. */
static void hinge_row(const float *scores, size_t label, size_t classes,
                      const sh_class_loss_options *options, float *dscores,
                      sh_class_loss_sum *into) {
    float most = row_max(scores, classes), floor = 1.0f - scores[label];
    into->correct += is_first_largest(scores, label, most);
    into->counted++;
    double loss = 0;
    size_t violated = 0;  // margins, each one unit of the label's gradient
    for (size_t j = 0; j < classes; j++) {
        float margin = floor + scores[j];
        bool violates = !(margin <= 0) && j != label;  // NaN counts, so that it shows
        if (violates) loss += (double)margin;
        violated += violates;
        if (dscores != NULL) dscores[j] = violates ? options->grad_scale : 0.0f;
    }
    into->loss += loss;
    if (dscores != NULL) dscores[label] = -options->grad_scale * (float)violated;
}

/* Loss of one row; adds to `into`, writes the gradient unless it is NULL. */
typedef void (*class_row)(const float *scores, size_t label, size_t classes,
                          const sh_class_loss_options *options, float *dscores,
                          sh_class_loss_sum *into);

/* Losses of one range of rows. Ignored labels count for nothing and get a gradient of 0. */
static sh_class_loss_sum class_rows(class_row row_of, const float *scores, const int32_t *labels,
                                    size_t rows, size_t classes,
                                    const sh_class_loss_options *options, float *dscores) {
    sh_class_loss_sum sum = {0};
    for (size_t row = 0; row < rows; row++) {
        float *gradient = dscores ? dscores + row * classes : NULL;
        if (labels[row] == options->ignore_index) {
            if (gradient) memset(gradient, 0, classes * sizeof *gradient);
            continue;
        }
        SH_ASSERT(labels[row] >= 0 && (size_t)labels[row] < classes);
        row_of(scores + row * classes, (size_t)labels[row], classes, options, gradient, &sum);
    }
    return sum;
}

/* Ranges over threads, their sums added in ascending order. */
static sh_class_loss_sum class_loss(class_row row_of, const float *scores, const int32_t *labels,
                                    size_t rows, size_t classes,
                                    const sh_class_loss_options *options, float *dscores) {
    if (rows * classes < PARALLEL_LEAST)
        return class_rows(row_of, scores, labels, rows, classes, options, dscores);
    sh_class_loss_sum part[PARTS];
    size_t each = (rows + PARTS - 1) / PARTS, parts = (rows + each - 1) / each;
#pragma omp parallel for schedule(static)
    for (size_t p = 0; p < parts; p++) {
        size_t at = p * each;
        part[p] = class_rows(row_of, scores + at * classes, labels + at, least(each, rows - at),
                             classes, options, dscores ? dscores + at * classes : NULL);
    }
    sh_class_loss_sum sum = {0};
    for (size_t p = 0; p < parts; p++) {
        sum.loss += part[p].loss;
        sum.counted += part[p].counted;
        sum.correct += part[p].correct;
    }
    return sum;
}

/* Entry points of the losses with class labels: sums over the rows that count. */
static sh_class_loss_sum softmax_cross_entropy(const float *logits, const int32_t *labels,
                                               size_t rows, size_t classes,
                                               const sh_class_loss_options *options,
                                               float *dlogits) {
    return class_loss(cross_entropy_row, logits, labels, rows, classes, options, dlogits);
}

static sh_class_loss_sum hinge(const float *scores, const int32_t *labels, size_t rows,
                               size_t classes, const sh_class_loss_options *options,
                               float *dscores) {
    return class_loss(hinge_row, scores, labels, rows, classes, options, dscores);
}

/* One vector of an element-wise loss: returns the losses and writes the slopes. `setting` is the
 * loss's parameter, such as Huber's delta. */
typedef vf (*element_loss)(vf pred, vf target, float setting, vf *slope);

/* (pred - target)^2; slope 2 (pred - target). */
LANE_FUNCTION vf mse_of(vf pred, vf target, float setting, vf *slope) {
    (void)setting;
    vf d = pred - target;
    *slope = d + d;
    return d * d;
}

/* Binary cross-entropy of logits: max(x, 0) - x target + log(1 + exp(-|x|)), which overflows for
 * no x. Slope: sigmoid(x) - target. */
LANE_FUNCTION vf bce_of(vf x, vf target, float setting, vf *slope) {
    (void)setting;
    *slope = vf_sigmoid(x) - target;
    vf positive = vf_keep(~(x <= 0.0f), x);
    return positive - x * target + vf_log1p_unit(vf_exp(-vf_abs(x)));
}

/* Huber loss: d^2 / 2 up to |d| = delta, linear beyond; the slope is d cut to +-delta. */
LANE_FUNCTION vf huber_of(vf pred, vf target, float delta, vf *slope) {
    vf d = pred - target, a = vf_abs(d);
    vi far = a > delta;
    *slope = vf_select(far, vf_with_sign(vf_all(delta), d), d);
    return vf_select(far, delta * (a - 0.5f * delta), 0.5f * d * d);
}

/* Loss of at most BLOCK elements, in float lanes. The last part vector is added lane by lane, as f
 * of its filler need not be 0. */
LANE_FUNCTION double block_loss(element_loss f, const float *pred, const float *target,
                                size_t count, float setting, float scale, float *dpred) {
    vf sum = {0}, slope;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        sum += f(vf_load(pred + i), vf_load(target + i), setting, &slope);
        if (dpred != NULL) vf_store(dpred + i, slope * scale);
    }
    float rest = 0;
    if (i < count) {
        size_t left = count - i;
        vf last =
            f(vf_load_part(pred + i, left, 0), vf_load_part(target + i, left, 0), setting, &slope);
        if (dpred != NULL) vf_store_part(dpred + i, slope * scale, left);
        for (size_t j = 0; j < left; j++) rest += last[j];
    }
    return (double)vf_sum(sum) + (double)rest;
}

/* Loss of a whole array. The PARTS ranges depend on the length alone and are added in order, so
 * the bits do not depend on the thread count. */
LANE_FUNCTION double elements(element_loss f, const float *pred, const float *target, size_t count,
                              float setting, float scale, float *dpred) {
    double part[PARTS] = {0}, total = 0;
    size_t blocks = (count + BLOCK - 1) / BLOCK, each = (blocks + PARTS - 1) / PARTS;
#pragma omp parallel for schedule(static) if (count >= PARALLEL_LEAST)
    for (size_t p = 0; p < PARTS; p++)
        for (size_t block = p * each; block < least(blocks, (p + 1) * each); block++) {
            size_t at = block * BLOCK;
            part[p] += block_loss(f, pred + at, target + at, least(BLOCK, count - at), setting,
                                  scale, dpred ? dpred + at : NULL);
        }
    for (size_t p = 0; p < PARTS; p++) total += part[p];
    return total;
}

/* Entry points of the element-wise losses: sums, not means. */
static double mse(const float *pred, const float *target, size_t count, float grad_scale,
                  float *dpred) {
    return elements(mse_of, pred, target, count, 0, grad_scale, dpred);
}

static double bce_logits(const float *logits, const float *target, size_t count, float grad_scale,
                         float *dlogits) {
    return elements(bce_of, logits, target, count, 0, grad_scale, dlogits);
}

static double huber(const float *pred, const float *target, size_t count, float delta,
                    float grad_scale, float *dpred) {
    return elements(huber_of, pred, target, count, delta, grad_scale, dpred);
}

const sh_loss_kernels SH_SIMD(sh_loss_table) = {
    .softmax_cross_entropy = softmax_cross_entropy,
    .hinge = hinge,
    .mse = mse,
    .bce_logits = bce_logits,
    .huber = huber,
};
