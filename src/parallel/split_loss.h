/* Cross-entropy over logits that are split over the workers of a dimension, without gathering them.
 *
 *   all-reduce max    the largest logit of each row
 *   all-reduce sum    sum of exp(logit - largest), the label's logit (from its owner), the sum of
 *                     logits (for label smoothing), and how many logits before the label are as
 *                     large as the largest (for the count of correct rows)
 *
 * 4 doubles and a float a row, whatever the vocabulary. */
#ifndef SH_PARALLEL_SPLIT_LOSS_H
#define SH_PARALLEL_SPLIT_LOSS_H

#include "nn/loss.h"
#include "parallel/layout.h"

typedef struct sh_split_cross_entropy {
    sh_split_loss base;
    sh_cut split;     // of the classes
    float *most;      // a row's largest logit
    double *sums;     // four a row
    size_t capacity;  // rows
} sh_split_cross_entropy;

void sh_split_cross_entropy_init(sh_split_cross_entropy *loss, const sh_cut *split);
void sh_split_cross_entropy_fini(sh_split_cross_entropy *loss);

#endif
