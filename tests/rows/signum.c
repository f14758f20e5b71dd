/* A codec of this test's own: the signs of a running mean of gradients, and their mean size. */
#include <math.h>
#include <string.h>

#include "codec/codec.h"
#include "rows/rows.h"

typedef struct signum_options {
    double beta;  // of the running mean
} signum_options;

static const sh_option rows[] = {
    SH_REAL_ROW(signum_options, beta, "compress.signum_beta", "0.5", 0, 0.999,
                "signum: share of the past in the running mean"),
};

static size_t bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    (void)codec, (void)round;
    return sizeof(float) + (tensor->count + 7) / 8;
}

/* state[1] is the running mean; what is sent of it and not let through waits in state[0]. */
static const float *take(const sh_codec *codec, sh_codec_tensor *tensor, const float *x) {
    const signum_options *own = sh_codec_own(codec);
    for (size_t i = 0; i < tensor->count; i++) {
        tensor->state[1][i] =
            (float)(own->beta * tensor->state[1][i] + (1 - own->beta) * (double)x[i]);
        tensor->state[0][i] += tensor->state[1][i];
    }
    return tensor->state[0];
}

static void encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *y,
                   void *message) {
    (void)codec, (void)round;
    unsigned char *bits = (unsigned char *)message + sizeof(float);
    double sum = 0;
    memset(bits, 0, (tensor->count + 7) / 8);
    for (size_t i = 0; i < tensor->count; i++) {
        sum += fabs((double)y[i]);
        if (y[i] < 0) bits[i / 8] |= (unsigned char)(1 << i % 8);
    }
    float scale = (float)(sum / (double)tensor->count);
    memcpy(message, &scale, sizeof scale);
    for (size_t i = 0; i < tensor->count; i++) tensor->state[0][i] -= y[i] < 0 ? -scale : scale;
}

static sh_status decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x) {
    (void)codec, (void)round;
    const unsigned char *bits = (const unsigned char *)message + sizeof(float);
    float size;
    memcpy(&size, message, sizeof size);
    if (!isfinite(size)) return sh_codec_refuse(tensor, SH_E_NUMERIC, "is not finite");
    for (size_t i = 0; i < tensor->count; i++)
        x[i] += scale * ((bits[i / 8] >> i % 8 & 1) != 0 ? -size : size);
    return SH_OK;
}

const sh_codec_kind row_signum = {
    .name = "signum",
    .help = "signs of a running mean, for this test",
    .own = {{rows, SH_COUNT(rows)}, sizeof(signum_options)},
    .feedback = SH_FEEDBACK_USUAL,
    .keeps_states = true,
    .states = 2,
    .state_names = {"residual", "signum_mean"},
    .rounds = 1,
    .gathers = true,
    .dtype = SH_DTYPE_BYTE,
    .bytes = bytes,
    .take = take,
    .encode = encode,
    .decode = decode,
};
