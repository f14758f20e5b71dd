/* The loss of k-means: minus the greatest output, which of the layer `centres` is the squared
 * distance to the nearest centre. The sum over all rows is the inertia. Targets are not looked at,
 * and `correct` is unknown (-1).
 *
 *   loss = -max_j y_j     dy_j = -1 at the first greatest output, else 0 */
#include <string.h>

#include "nn/loss.h"

/* `gradient` may be the prediction itself: each row is read before it is overwritten. */
static sh_loss_result nearest(const sh_loss *loss, const float *prediction, const void *target,
                              int64_t rows, int64_t width, double scale, float *gradient) {
    (void)loss;
    (void)target;
    sh_loss_result result = {.counted = rows, .correct = -1};
    for (int64_t row = 0; row < rows; row++) {
        const float *y = prediction + row * width;
        int64_t best = 0;
        for (int64_t j = 1; j < width; j++)
            if (y[j] > y[best]) best = j;
        result.sum -= (double)y[best];
        if (gradient == NULL) continue;
        memset(gradient + row * width, 0, (size_t)width * sizeof *gradient);
        gradient[row * width + best] = (float)-scale;
    }
    return result;
}

const sh_loss_kind sh_loss_kind_nearest = {
    .name = "nearest",
    .help = "minus the greatest output: k-means, whatever the targets",
    .any_target = true,
    .evaluate = nearest,
};
