/* Two formats of 16 bits, rounded to nearest and summed by the all-reduce, which rounds again after
 * every addition; error feedback, when asked for, returns the first of these roundings.
 *
 *   fp16    IEEE half precision: 11 significant bits, magnitudes from 6e-8 to 65504
 *   bf16    bfloat16: 8 significant bits, the range of a float */
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
    float *left = sh_feedback_left(codec, tensor);
    if (codec->kind->dtype == SH_DTYPE_F16)
        sh_half()->to_fp16(y, message, tensor->count, left);
    else
        sh_half()->to_bf16(y, message, tensor->count, left);
}

static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    (void)round;
    if (codec->kind->dtype == SH_DTYPE_F16)
        sh_half()->from_fp16(message, scale, x, tensor->count);
    else
        sh_half()->from_bf16(message, scale, x, tensor->count);
    return SH_OK;
}

#define HALF_ROW                                                                           \
    .feedback = SH_FEEDBACK_OPTION, .states = 1, .state_names = {"residual"}, .rounds = 1, \
    .bytes = bytes, .encode = encode, .decode = decode

const sh_codec_kind sh_codec_fp16 = {
    .name = "fp16",
    .help = "16 bits: half precision, summed in flight",
    .dtype = SH_DTYPE_F16,
    HALF_ROW,
};

const sh_codec_kind sh_codec_bf16 = {
    .name = "bf16",
    .help = "16 bits: the range of a float, fewer digits; summed in flight",
    .dtype = SH_DTYPE_BF16,
    HALF_ROW,
};
