/* The k elements of largest magnitude, exactly, and the sparse message of topk and dgc:
 *
 *   k indices (32 bits, ascending), then k values (float)
 *
 * Among equal magnitudes the lower index wins, so the choice is unique. NaN counts as largest: it
 * is sent, not hidden in a residual. */
#ifndef SH_CODEC_SPARSE_H
#define SH_CODEC_SPARSE_H

#include "codec/codec.h"

/* max(1, round(ratio n)), at most n. */
size_t sh_sparse_kept(double ratio, size_t count);
static inline size_t sh_sparse_bytes(size_t kept) {
    return kept * (sizeof(uint32_t) + sizeof(float));
}
size_t sh_sparse_work_bytes(size_t count, size_t kept);
/* Writes the message of y (count). O(count); `work` as above. */
void sh_sparse_write(const float *y, size_t count, size_t kept, void *work, void *message);
/* Sets the elements that a message of our own names to zero. */
void sh_sparse_clear(const void *message, size_t kept, float *y);
/* x += scale * message. Fails on indices that do not ascend or are out of range. */
sh_status sh_sparse_add(const sh_codec_tensor *tensor, const void *message, size_t kept,
                        float scale, float *x);

#endif
