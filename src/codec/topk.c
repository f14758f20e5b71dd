/* The k = max(1, round(R n)) elements of largest magnitude of each parameter (Aji & Heafield 2017),
 * with error feedback (Stich et al. 2018). Messages: sparse.h. */
#include "codec/feedback.h"
#include "codec/list.h"
#include "codec/sparse.h"

/* At least one element, or a small parameter would never be updated. */
static size_t kept(const sh_codec *codec, const sh_codec_tensor *tensor) {
    return sh_sparse_kept(codec->options.amount, tensor->count);
}

static size_t bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    (void)round;
    return sh_sparse_bytes(kept(codec, tensor));
}

static size_t work_bytes(const sh_codec *codec, const sh_codec_tensor *tensor) {
    return sh_sparse_work_bytes(tensor->count, kept(codec, tensor));
}

static void encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *y,
                   void *message) {
    (void)round;
    size_t k = kept(codec, tensor);
    sh_sparse_write(y, tensor->count, k, tensor->work, message);
    float *left = sh_feedback_left(codec, tensor);
    if (left != NULL) sh_sparse_clear(message, k, left);
}

static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    (void)round;
    return sh_sparse_add(tensor, message, kept(codec, tensor), scale, x);
}

const sh_codec_kind sh_codec_topk = {
    .name = "topk",
    .help = "the largest elements, R of each parameter; the rest is fed back",
    .amount = "R",
    .amount_least = 1e-6,
    .amount_most = 1,
    .amount_initial = 0.01,
    .feedback = SH_FEEDBACK_USUAL,
    .states = 1,
    .state_names = {"residual"},
    .rounds = 1,
    .gathers = true,
    .dtype = SH_DTYPE_BYTE,
    .bytes = bytes,
    .work_bytes = work_bytes,
    .encode = encode,
    .decode = decode,
};
