/* bfloat16: 8 significant bits, the range of a float. Rounded to nearest and summed by the
 * all-reduce, which rounds again after every addition; error feedback, when asked for, returns the
 * first of these roundings. */
#include "codec/feedback.h"
#include "codec/list.h"
#include "tensor/kernels/half.h"

static size_t bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    (void)codec, (void)round;
    return tensor->count * sizeof(uint16_t);
}

static void encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *y,
                   void *message) {
    (void)round;
    sh_half()->to_bf16(y, message, tensor->count, sh_feedback_left(codec, tensor));
}

static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    (void)codec, (void)round;
    sh_half()->from_bf16(message, scale, x, tensor->count);
    return SH_OK;
}

const sh_codec_kind sh_codec_bf16 = {
    .name = "bf16",
    .help = "16 bits: the range of a float, fewer digits; summed in flight",
    .feedback = SH_FEEDBACK_OPTION,
    .states = 1,
    .state_names = {"residual"},
    .rounds = 1,
    .dtype = SH_DTYPE_BF16,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
