/* The message of int8 and qsgd: a norm (float) per block of 512 elements, then the levels, 8 of
 * them in BITS bytes (tensor/kernels/quantise.h), filled up to 4 bytes. */
#ifndef SH_CODEC_LEVELS_H
#define SH_CODEC_LEVELS_H

#include "codec/codec.h"

size_t sh_levels_bytes(size_t count, int bits);
void sh_levels_write(const float *y, size_t count, int bits, const sh_rng *rng, float *left,
                     void *message);
sh_status sh_levels_add(const sh_codec_tensor *tensor, const void *message, int bits, float scale,
                        float *x);

/* Fails unless every norm is a finite number of at least 0. */
sh_status sh_levels_check_norms(const sh_codec_tensor *tensor, const float *norms, size_t count);

#endif
