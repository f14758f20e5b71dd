/* TernGrad (Wen, Xu, Yan, Wu, Wang, Chen, Li, NIPS 2017): every element becomes -s, 0 or s at
 * random, with the right mean:
 *
 *   s = max |g|,  t = s sign(g) b,  P(b = 1) = |g| / s
 *
 * s is each rank's own: the paper shares the largest one to keep the sums short that its server
 * sends back, and here no sums travel.
 *
 * Gradient clipping of the paper: elements beyond `clip` standard deviations of the parameter's
 * gradient are cut first, so that a few large ones do not drown the rest in noise; the mean is then
 * that of the cut gradient. A message: s (float), then 5 elements per byte in base 3, filled up to
 * 4 bytes. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "codec/levels.h"
#include "codec/list.h"
#include "tensor/kernels/quantise.h"

static size_t bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    (void)codec, (void)round;
    return sizeof(float) + sh_round_up(sh_ternary_bytes(tensor->count), 4);
}

/* The scale s: the largest magnitude, cut to `clip` standard deviations. */
static float scaler(const sh_codec *codec, const float *y, size_t count) {
    sh_moments m = sh_quantise()->moments(y, count);
    if (codec->options.clip == 0 || !isfinite(m.largest)) return m.largest;
    double n = (double)count, mean = m.sum / n, variance = m.squares / n - mean * mean;
    double most = codec->options.clip * sqrt(fmax(0, variance));
    // Equal elements have no deviation; nothing sticks out then.
    return most > 0 && most < (double)m.largest ? (float)most : m.largest;
}

static void encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *y,
                   void *message) {
    float *scale = message;
    size_t total = bytes(codec, tensor, round);
    *scale = scaler(codec, y, tensor->count);
    if (total > sizeof(float)) memset((char *)message + total - 4, 0, 4);
    sh_quantise()->ternary(y, tensor->count, *scale, &tensor->own, (uint8_t *)(scale + 1));
}

static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    (void)codec, (void)round;
    const float *most = message;
    SH_TRY(sh_levels_check_norms(tensor, most, 1));
    if (!sh_quantise()->add_ternary((const uint8_t *)(most + 1), tensor->count, scale * *most, x))
        return sh_codec_refuse(tensor, SH_E_FORMAT, "a message has a byte that is not five digits");
    return SH_OK;
}

const sh_codec_kind sh_codec_terngrad = {
    .name = "terngrad",
    .help = "-s, 0 or s at random, 1.6 bits per element, so that the mean is right",
    .clip_initial = 2.5,
    .feedback = SH_FEEDBACK_NEVER,
    .rounds = 1,
    .gathers = true,
    .dtype = SH_DTYPE_BYTE,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
