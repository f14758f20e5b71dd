/* The message that int8 and qsgd share: a norm per block, then packed levels. Decoding checks
 * every norm and level, as the bytes come from another rank. */
#include "codec/levels.h"

#include <string.h>

#include "base/memory.h"
#include "tensor/kernels/quantise.h"

static size_t norms_bytes(size_t count) { return sh_quantise_norms(count) * sizeof(float); }

size_t sh_levels_bytes(size_t count, int bits) {
    return norms_bytes(count) + sh_round_up(sh_quantise_bytes(count, bits), 4);
}

void sh_levels_write(const float *y, size_t count, int bits, const sh_rng *rng, float *left,
                     void *message) {
    size_t total = sh_levels_bytes(count, bits);
    if (total >= 4) memset((char *)message + total - 4, 0, 4);  // what fills up is zero
    sh_quantise()->levels(y, count, bits, rng, message, (uint8_t *)message + norms_bytes(count),
                          left);
}

/* A norm that is not finite says that the gradient was not: the numbers failed, not the sender. */
sh_status sh_levels_check_norms(const sh_codec_tensor *tensor, const float *norms, size_t count) {
    bool positive = true, finite = true;
    for (size_t i = 0; i < count; i++) {
        positive &= !(norms[i] < 0);
        finite &= norms[i] <= __FLT_MAX__;
    }
    if (!positive) return sh_codec_refuse(tensor, SH_E_FORMAT, "a message has a negative norm");
    if (!finite) return sh_codec_refuse(tensor, SH_E_NUMERIC, "the gradient is not finite");
    return SH_OK;
}

sh_status sh_levels_add(const sh_codec_tensor *tensor, const void *message, int bits, float scale,
                        float *x) {
    size_t count = tensor->count;
    const uint8_t *packed = (const uint8_t *)message + norms_bytes(count);
    SH_TRY(sh_levels_check_norms(tensor, message, sh_quantise_norms(count)));
    if (!sh_quantise()->add_levels(message, packed, count, bits, scale, x))
        return sh_codec_refuse(tensor, SH_E_FORMAT, "a message has a level out of range");
    return SH_OK;
}
