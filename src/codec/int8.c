/* Bytes: per block of 512 elements the largest magnitude, and each element as a multiple,
 * -127..127, of its 127th part. With error feedback (usual) rounded to nearest; without it at
 * random up or down, so that the mean is right. */
#include "codec/feedback.h"
#include "codec/levels.h"
#include "codec/list.h"

enum { BITS = 8 };

static size_t bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    (void)codec, (void)round;
    return sh_levels_bytes(tensor->count, BITS);
}

static void encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *y,
                   void *message) {
    (void)round;
    float *left = sh_feedback_left(codec, tensor);
    sh_levels_write(y, tensor->count, BITS, left != NULL ? NULL : &tensor->own, left, message);
}

static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    (void)codec, (void)round;
    return sh_levels_add(tensor, message, BITS, scale, x);
}

const sh_codec_kind sh_codec_int8 = {
    .name = "int8",
    .help = "8 bits per element and a scale per 512; what rounding takes is fed back",
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
