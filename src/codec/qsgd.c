/* QSGD (Alistarh, Grubic, Li, Tomioka, Vojnovic, NIPS 2017): blocks of 512 elements, each with a
 * norm, and every element at random one of the two levels beside it, so that the mean is right:
 *
 *   Q(v) = norm sign(v) xi / s,  xi = floor(s |v| / norm) or one more,  s = 2^(BITS-1) - 1
 *
 * As in the paper's experiments the norm is the block's largest magnitude, which has less variance
 * than its L2 norm. Levels are packed in BITS bits, the sign included. */
#include "codec/levels.h"
#include "codec/list.h"

static int bits_of(const sh_codec *codec) { return (int)codec->options.amount; }

static size_t bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    (void)round;
    return sh_levels_bytes(tensor->count, bits_of(codec));
}

static void encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *y,
                   void *message) {
    (void)round;
    sh_levels_write(y, tensor->count, bits_of(codec), &tensor->own, NULL, message);
}

static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    (void)round;
    return sh_levels_add(tensor, message, bits_of(codec), scale, x);
}

const sh_codec_kind sh_codec_qsgd = {
    .name = "qsgd",
    .help = "BITS bits per element, rounded at random so that the mean is right",
    .amount = "BITS",
    .amount_least = 2,
    .amount_most = 8,
    .amount_initial = 4,
    .amount_whole = true,
    .feedback = SH_FEEDBACK_NEVER,
    .rounds = 1,
    .gathers = true,
    .dtype = SH_DTYPE_BYTE,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
