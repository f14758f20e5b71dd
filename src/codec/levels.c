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
sh_status sh_levels_check_norms(const char *name, const float *norms, size_t count) {
    bool positive = true, finite = true;
    for (size_t i = 0; i < count; i++) {
        positive &= !(norms[i] < 0);
        finite &= norms[i] <= __FLT_MAX__;
    }
    if (!positive) return SH_FAIL(SH_E_FORMAT, "'%s': a message has a negative norm", name);
    if (!finite) return SH_FAIL(SH_E_NUMERIC, "'%s': a gradient is not finite", name);
    return SH_OK;
}

sh_status sh_levels_add(const char *name, const void *message, size_t count, int bits, float scale,
                        float *x) {
    const uint8_t *packed = (const uint8_t *)message + norms_bytes(count);
    SH_TRY(sh_levels_check_norms(name, message, sh_quantise_norms(count)));
    if (!sh_quantise()->add_levels(message, packed, count, bits, scale, x))
        return SH_FAIL(SH_E_FORMAT, "'%s': a message has a level that %d bits do not have", name,
                       bits);
    return SH_OK;
}
