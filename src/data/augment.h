/* Random crop and flip of images. What happens to a sample depends on (seed, epoch, position). */
#ifndef SH_DATA_AUGMENT_H
#define SH_DATA_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"

typedef struct sh_augment_move {
    int64_t down, right;  // where the crop starts, relative to the image; -crop..crop
    bool flip;
} sh_augment_move;

/* `rng` is the stream (seed, SH_RNG_AUGMENT, 0, epoch). */
sh_augment_move sh_augment_draw(const sh_rng *rng, uint64_t position, int64_t crop, bool flip);

/* Copies (C, H, W) from `from` to `to` through the move. What lies outside becomes 0, which is the
 * mean of normalised data. */
void sh_augment_apply(sh_augment_move move, int64_t C, int64_t H, int64_t W, const float *from,
                      float *to);

#endif
