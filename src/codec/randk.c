/* Random elements (Wangni et al. 2018; Stich et al. 2018). The parameter is cut into k = max(1,
 * round(R n)) stretches of nearly equal length and one element is drawn from each, from the random
 * numbers that all ranks share: the indices are the same everywhere, so only values travel and an
 * all-reduce adds them. One per stretch has every element's chance at 1 / length, like a draw of k
 * from all, with less variance and in ascending order.
 *
 * With error feedback (usual) values are sent as they are. Without it they are multiplied by the
 * length of their stretch, which makes the mean right. */
#include "codec/feedback.h"
#include "codec/list.h"
#include "codec/sparse.h"
#include "tensor/kernels/vector.h"

static size_t kept(const sh_codec *codec, const sh_codec_tensor *tensor) {
    return sh_sparse_kept(codec->options.amount, tensor->count);
}

static size_t bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    (void)round;
    return kept(codec, tensor) * sizeof(float);
}

typedef struct pick {
    size_t index, length;  // of its stretch
} pick;

/* The first of `k` stretches begins at 0, the last ends at `count`; count and k are below 2^32. */
static pick pick_at(sh_rng *rng, size_t count, size_t k, size_t i) {
    size_t first = i * count / k, end = (i + 1) * count / k;
    return (pick){.index = first + sh_rng_below(rng, end - first), .length = end - first};
}

static void encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *y,
                   void *message) {
    (void)round;
    float *values = message, *left = sh_feedback_left(codec, tensor);
    size_t k = kept(codec, tensor);
    sh_rng rng = tensor->common;
    for (size_t i = 0; i < k; i++) {
        pick p = pick_at(&rng, tensor->count, k, i);
        values[i] = left != NULL ? y[p.index] : y[p.index] * (float)p.length;
        if (left != NULL) left[p.index] = 0;
    }
}

/* Draws the same indices again from the common stream. */
static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    (void)round;
    const float *values = message;
    size_t k = kept(codec, tensor);
    sh_rng rng = tensor->common;
    sh_vector()->fill(x, 0, tensor->count);
    for (size_t i = 0; i < k; i++) x[pick_at(&rng, tensor->count, k, i).index] = scale * values[i];
    return SH_OK;
}

const sh_codec_kind sh_codec_randk = {
    .name = "randk",
    .help = "elements drawn at random, R of each parameter, the same on all workers",
    .amount = "R",
    .amount_least = 1e-6,
    .amount_most = 1,
    .amount_initial = 0.01,
    .feedback = SH_FEEDBACK_USUAL,
    .states = 1,
    .state_names = {"residual"},
    .rounds = 1,
    .dtype = SH_DTYPE_F32,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
