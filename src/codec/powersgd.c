/* PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019): one step of power iteration per gradient
 * step finds factors of rank r, whose sums over the ranks are those of the summed matrix:
 *
 *   P = sum over ranks of M_i Q       round 0      M_i = gradient + residual, (rows, columns)
 *   P := orthogonal columns of P                   the same on all ranks
 *   Q = sum over ranks of M_i^T P     round 1      and the start of the next step's iteration
 *   x = P Q^T,  residual_i = M_i - x / ranks
 *
 * P and Q are kept with their vectors in rows. A message is P or Q in floats; an all-reduce adds
 * them. Vectors, and matrices too small to gain, go dense. */
#include <math.h>
#include <string.h>

#include "codec/feedback.h"
#include "codec/list.h"
#include "tensor/kernels/lowrank.h"

/* A vector that loses all but this part of its length to the vectors before it depends on them. */
static const double DEPENDENT = 1e-6;

static size_t rank_of(const sh_codec *codec) { return (size_t)codec->options.amount; }

static sh_lowrank shape_of(const sh_codec *codec, const sh_codec_tensor *tensor) {
    return (sh_lowrank){tensor->rows, tensor->columns, rank_of(codec)};
}

static size_t bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    return rank_of(codec) * (round == 0 ? tensor->rows : tensor->columns) * sizeof(float);
}

static size_t between(const sh_codec *codec, const sh_codec_tensor *tensor) {
    return rank_of(codec) * tensor->rows;
}

static size_t factors(const sh_codec *codec, size_t rows, size_t columns) {
    (void)rows;
    return rank_of(codec) * columns;
}

/* In double: orthogonality is lost in float. */
static double dot(const float *a, const float *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Modified Gram-Schmidt on the rows of p (rank, count). A vector that depends on those before it
 * becomes 0. Double sums in one order: equal bits on all ranks. */
static void orthogonalise(float *p, size_t rank, size_t count) {
    for (size_t j = 0; j < rank; j++) {
        float *now = p + j * count;
        double before = sqrt(dot(now, now, count));
        // Twice is enough (Kahan, Parlett): the second pass removes what rounding left.
        for (size_t pass = 0; pass < 2; pass++)
            for (size_t i = 0; i < j; i++) {
                const float *earlier = p + i * count;
                double along = dot(now, earlier, count);
                for (size_t k = 0; k < count; k++)
                    now[k] = (float)((double)now[k] - along * (double)earlier[k]);
            }
        double length = sqrt(dot(now, now, count));
        double factor = length > DEPENDENT * before ? 1 / length : 0;
        if (isnan(length)) factor = NAN;  // the numbers failed: they stay visible
        for (size_t k = 0; k < count; k++) now[k] = (float)((double)now[k] * factor);
    }
}

/* The last step's Q, brought to length 1 so that its size never drifts. Vectors that are zero (in
 * the first step, or after a step without gradient) or not finite are drawn anew: from zero the
 * iteration would never leave. */
static void refresh(const sh_codec *codec, sh_codec_tensor *tensor) {
    orthogonalise(tensor->factors, rank_of(codec), tensor->columns);
    for (size_t j = 0; j < rank_of(codec); j++) {
        float *q = tensor->factors + j * tensor->columns;
        double squares = dot(q, q, tensor->columns);
        if (squares > 0 && squares < INFINITY) continue;
        for (size_t i = 0; i < tensor->columns; i++) q[i] = sh_rng_normal(&tensor->common);
    }
}

static void encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *y,
                   void *message) {
    sh_lowrank shape = shape_of(codec, tensor);
    if (round == 0) {
        refresh(codec, tensor);
        sh_lowrank_pick()->project(&shape, y, tensor->factors, message);
    } else {
        sh_lowrank_pick()->project_back(&shape, y, tensor->between, message);
    }
}

static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    sh_lowrank shape = shape_of(codec, tensor);
    size_t message_bytes = bytes(codec, tensor, round);
    if (round == 0) {
        memcpy(tensor->between, message, message_bytes);
        orthogonalise(tensor->between, shape.rank, shape.rows);
        return SH_OK;
    }
    memcpy(tensor->factors, message, message_bytes);
    sh_lowrank_pick()->expand(&shape, tensor->between, tensor->factors, scale, x,
                              1 / (float)codec->ranks, sh_feedback_left(codec, tensor));
    return SH_OK;
}

const sh_codec_kind sh_codec_powersgd = {
    .name = "powersgd",
    .help = "two factors of rank RANK per matrix, summed in flight; the rest is fed back",
    .amount = "RANK",
    .amount_least = 1,
    .amount_most = 64,
    .amount_initial = 2,
    .amount_whole = true,
    .feedback = SH_FEEDBACK_USUAL,
    .states = 1,
    .state_names = {"residual"},
    .rounds = 2,
    .dtype = SH_DTYPE_F32,
    .bytes = bytes,
    .between = between,
    .factors = factors,
    .encode = encode,
    .decode = decode,
};
