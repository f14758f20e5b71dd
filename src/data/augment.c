/* Random crop and flip. Both are drawn from the stream of the epoch at the sample's position, so
 * the same sample looks the same whoever loads it, with any number of workers. */
#include "data/augment.h"

#include <string.h>

/* Draws crop and flip of one sample. One block of the generator has all that is needed, so the
 * block's index is the position. */
sh_augment_move sh_augment_draw(const sh_rng *rng, uint64_t position, int64_t crop, bool flip) {
    sh_philox_block block = sh_rng_at(rng, position);
    uint64_t choices = (uint64_t)(2 * crop + 1);  // -crop .. crop
    return (sh_augment_move){
        .down = (int64_t)(block.word[0] * choices >> 32) - crop,
        .right = (int64_t)(block.word[1] * choices >> 32) - crop,
        .flip = flip && (block.word[2] & 1) != 0,
    };
}

/* Mirrors a row in place. */
static void reverse_row(float *row, int64_t W) {
    for (int64_t i = 0, j = W - 1; i < j; i++, j--) {
        float kept = row[i];
        row[i] = row[j];
        row[j] = kept;
    }
}

/* Copies an image through the move, row by row; what the crop moves in from outside is 0. */
void sh_augment_apply(sh_augment_move move, int64_t C, int64_t H, int64_t W, const float *from,
                      float *to) {
    // Columns first .. last-1 of the result have a source in the image.
    int64_t first = move.right < 0 ? -move.right : 0;
    int64_t last = move.right > 0 ? W - move.right : W;
    if (first > W) first = W;
    if (last < first) last = first;
    for (int64_t c = 0; c < C; c++)
        for (int64_t h = 0; h < H; h++) {
            float *row = to + (c * H + h) * W;
            int64_t line = h + move.down;
            if (line < 0 || line >= H) {
                memset(row, 0, (size_t)W * sizeof *row);
                continue;
            }
            const float *source = from + (c * H + line) * W;
            memset(row, 0, (size_t)first * sizeof *row);
            memcpy(row + first, source + first + move.right, (size_t)(last - first) * sizeof *row);
            memset(row + last, 0, (size_t)(W - last) * sizeof *row);
            if (move.flip) reverse_row(row, W);
        }
}
