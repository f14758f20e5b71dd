/* Votes between classes: decisions of one class against each other, (N, K (K - 1) / 2) in the order
 * (0,1), (0,2), ... (1,2), ..., become scores (N, K). A decision above 0 is for the first class of
 * its pair. A class has one vote for each decision that it wins; ties are broken by how clearly it
 * wins, which counts less than one vote:
 *
 *   y_k = votes_k + s_k / (3 (|s_k| + 1))
 *   s_k = sum of the decisions of k, with the sign that is positive in favour of k
 *
 * as scikit-learn ranks classes (_ovr_decision_function). Votes are steps, so the gradient is that
 * of the second term:
 *
 *   g_k = dy_k / (3 (|s_k| + 1)^2)     dx_(a,b) = g_a - g_b */
#include <math.h>
#include <string.h>

#include "nn/layers/common.h"

/* The number of classes K that has `pairs` = K (K - 1) / 2 pairs; 0: no K has. */
static int64_t classes_of(int64_t pairs) {
    int64_t classes = 2;
    while (classes * (classes - 1) / 2 < pairs) classes++;
    return classes * (classes - 1) / 2 == pairs ? classes : 0;
}

static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_shape *in = &layer->in[0];
    int64_t classes = in->rank == 1 ? classes_of(in->dim[0]) : 0;
    if (classes == 0)
        return sh_layer_wrong_shape(layer, "a decision for each pair of classes: 1, 3, 6, 10, ...");
    layer->out = SH_SHAPE(classes);
    layer->flops = 4.0 * (double)in->dim[0];
    return SH_OK;
}

/* Backward sums the decisions again, which is cheaper than saving s (N, K). Scratch is s of one
 * row. */
static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_builder_want(builder, op, 0, 1));
    op->out->block = 1;
    op->needs_input = true;
    op->scratch_bytes = (size_t)op->layer->out.dim[0] * sizeof(float);
    return SH_OK;
}

/* s_k and votes of one row x (pairs); votes NULL: not wanted. A decision of exactly 0 votes for the
 * second class. */
static void sums_of(const float *x, size_t classes, float *sum, float *votes) {
    memset(sum, 0, classes * sizeof *sum);
    if (votes != NULL) memset(votes, 0, classes * sizeof *votes);
    for (size_t a = 0; a < classes; a++)
        for (size_t b = a + 1; b < classes; b++, x++) {
            sum[a] += *x;
            sum[b] -= *x;
            if (votes != NULL) votes[*x > 0 ? a : b] += 1;
        }
}

/* Votes are counted in y itself, then the tie-breaking term is added. */
static sh_status forward(sh_op *op) {
    size_t classes = (size_t)op->layer->out.dim[0], pairs = classes * (classes - 1) / 2;
    float *sum = op->scratch;
    for (size_t row = 0; row < op->out->count / classes; row++) {
        float *y = (float *)op->out->data + row * classes;
        sums_of((const float *)op->in[0]->data + row * pairs, classes, sum, y);
        for (size_t k = 0; k < classes; k++) y[k] += sum[k] / (3 * (fabsf(sum[k]) + 1));
    }
    return SH_OK;
}

/* `sum` is s first, and g from the second loop on. */
static sh_status backward(sh_op *op) {
    size_t classes = (size_t)op->layer->out.dim[0], pairs = classes * (classes - 1) / 2;
    float *sum = op->scratch;
    if (op->dx[0] == NULL) return SH_OK;
    for (size_t row = 0; row < op->out->count / classes; row++) {
        const float *dy = op->out->grad + row * classes;
        float *dx = op->dx[0] + row * pairs;
        sums_of((const float *)op->in[0]->data + row * pairs, classes, sum, NULL);
        for (size_t k = 0; k < classes; k++) {
            float size = fabsf(sum[k]) + 1;
            sum[k] = dy[k] / (3 * size * size);
        }
        for (size_t a = 0; a < classes; a++)
            for (size_t b = a + 1; b < classes; b++) *dx++ = sum[a] - sum[b];
    }
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_votes = {
    .name = "votes",
    .help = "decisions between pairs of classes become scores of the classes",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
};
