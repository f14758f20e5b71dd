/* IEEE half precision: 11 significant bits, magnitudes from 6e-8 to 65504. Rounded to nearest and
 * summed by the all-reduce, which rounds again after every addition; error feedback, when asked
 * for, returns the first of these roundings. */
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
    sh_half()->to_fp16(y, message, tensor->count, sh_feedback_left(codec, tensor));
}

static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    (void)codec, (void)round;
    sh_half()->from_fp16(message, scale, x, tensor->count);
    return SH_OK;
}

const sh_codec_kind sh_codec_fp16 = {
    .name = "fp16",
    .help = "16 bits: half precision, summed in flight",
    .feedback = SH_FEEDBACK_OPTION,
    .states = 1,
    .state_names = {"residual"},
    .rounds = 1,
    .dtype = SH_DTYPE_F16,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
