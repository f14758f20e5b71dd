/* 1-bit SGD (Seide, Fu, Droppo, Li, Yu, Interspeech 2014): the sign of every element, and for each
 * output of the layer (a column in the paper, where z = W^T v; a row here) the mean of its negative
 * and of its other elements, with error feedback. A message: the means (rows, 2), then the bits in
 * 32-bit words (tensor/kernels/signs.h). */
#include "codec/feedback.h"
#include "codec/list.h"
#include "tensor/kernels/signs.h"

static size_t bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    (void)codec, (void)round;
    return 2 * tensor->rows * sizeof(float) + sh_signs_words(tensor->count) * sizeof(uint32_t);
}

static void encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *y,
                   void *message) {
    (void)round;
    float *means = message;
    sh_signs()->write(y, tensor->rows, tensor->columns, means,
                      (uint32_t *)(means + 2 * tensor->rows), sh_feedback_left(codec, tensor));
}

/* Refuses means that are not finite; the bits are valid whatever they are. */
static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    (void)codec, (void)round;
    const float *means = message;
    bool finite = true;
    for (size_t i = 0; i < 2 * tensor->rows; i++)
        finite &= __builtin_fabsf(means[i]) <= __FLT_MAX__;
    if (!finite) return sh_codec_refuse(tensor, SH_E_NUMERIC, "the gradient is not finite");
    sh_signs()->add(means, (const uint32_t *)(means + 2 * tensor->rows), tensor->rows,
                    tensor->columns, scale, x);
    return SH_OK;
}

const sh_codec_kind sh_codec_onebit = {
    .name = "onebit",
    .help = "the signs, and two means per output; the rest is fed back",
    .feedback = SH_FEEDBACK_USUAL,
    .states = 1,
    .state_names = {"residual"},
    .rounds = 1,
    .gathers = true,
    .dtype = SH_DTYPE_BYTE,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
