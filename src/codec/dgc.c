/* Deep gradient compression (Lin, Han, Mao, Wang, Dally, ICLR 2018). Per parameter and rank:
 *
 *   u := m u + g                               momentum correction: momentum before the choice,
 *   v := v + u                                 so that what waits gathers momentum too
 *   send the k largest |v|;  v, u := 0 there   factor masking: sent elements start afresh
 *
 * g is this rank's gradient; the paper's local clipping takes place before (run/step.c).
 *
 * In the warm-up R falls from 25 % by a factor of 4 per stage (75 %, 93.75 %, 98.4 % ... sparse),
 * the stages sharing the warm-up's steps. The optimizer applies no momentum of its own. A parameter
 * that goes dense sends v and keeps u: plain momentum SGD. Small ones always do: where k is 1 or 2
 * of a layer's few weights, an element waits for most of a short run, and sending all of them costs
 * next to nothing. (The authors' code leaves out vectors, PaddlePaddle's what is below 16384.) */
#include <math.h>

#include "codec/list.h"
#include "codec/sparse.h"
#include "tensor/kernels/select.h"

static const double FIRST_RATIO = 0.25, FALL = 0.25;

/* Share of elements that is sent in `step`: the warm-up falls in equal stages from FIRST_RATIO to
 * the final ratio. */
static double ratio_at(const sh_codec_options *options, int64_t step) {
    double ratio = options->amount;
    if (step >= options->warmup_steps || ratio >= FIRST_RATIO) return ratio;
    double stages = ceil(log(ratio / FIRST_RATIO) / log(FALL));
    double stage = floor((double)step * stages / (double)options->warmup_steps);
    return fmax(ratio, FIRST_RATIO * pow(FALL, stage));
}

static size_t kept(const sh_codec *codec, const sh_codec_tensor *tensor) {
    return sh_sparse_kept(ratio_at(&codec->options, codec->step), tensor->count);
}

static size_t bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    (void)round;
    return sh_sparse_bytes(kept(codec, tensor));
}

/* Largest working memory over all stages of the warm-up. */
static size_t work_bytes(const sh_codec *codec, const sh_codec_tensor *tensor) {
    size_t most = 0;
    double last = codec->options.amount;
    for (double ratio = fmax(FIRST_RATIO, last);; ratio = fmax(ratio * FALL, last)) {
        size_t k = sh_sparse_kept(ratio, tensor->count);
        size_t stage = sh_sparse_work_bytes(tensor->count, k);
        if (stage > most) most = stage;
        if (ratio <= last) return most;
    }
}

/* Folds the gradient into velocity u and accumulation v, and offers v for selection. */
static const float *take(const sh_codec *codec, sh_codec_tensor *tensor, const float *x) {
    sh_dgc_update update = {
        .g = x,
        .u = tensor->state[1],
        .v = tensor->state[0],
        .count = tensor->count,
        .momentum = (float)codec->options.momentum,
        .nesterov = codec->options.nesterov,
        .keep = codec->options.error_feedback,
    };
    sh_select()->dgc(&update);
    return tensor->state[0];
}

static void encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *y,
                   void *message) {
    (void)round;
    size_t k = kept(codec, tensor);
    sh_sparse_write(y, tensor->count, k, tensor->work, message);
    sh_sparse_clear(message, k, tensor->state[0]);
    sh_sparse_clear(message, k, tensor->state[1]);
}

static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    (void)round;
    return sh_sparse_add(tensor, message, kept(codec, tensor), scale, x);
}

const sh_codec_kind sh_codec_dgc = {
    .name = "dgc",
    .help = "deep gradient compression: the largest elements, R of each parameter, with momentum",
    .amount = "R",
    .amount_least = 1e-6,
    .amount_most = 1,
    .amount_initial = 0.001,
    .dense_below = 4096,
    .feedback = SH_FEEDBACK_USUAL,
    .owns_momentum = true,
    .keeps_states = true,
    .states = 2,
    .state_names = {"residual", "velocity"},
    .rounds = 1,
    .gathers = true,
    .dtype = SH_DTYPE_BYTE,
    .bytes = bytes,
    .work_bytes = work_bytes,
    .take = take,
    .encode = encode,
    .decode = decode,
};
