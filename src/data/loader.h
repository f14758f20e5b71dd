/* The loader: a task that makes batches ahead of the worker. Which sample stands where depends only
 * on (seed, epoch, position); resuming at any (epoch, batch) gives the batches that would have
 * come.
 *
 * Data that all workers can read is one sequence, of whose batches each worker makes its share.
 * Data in parts (dataset->parts) is a sequence per worker: with N samples in all, an epoch has
 * B = N / batch batches, rounded up (down with drop_last), and every worker deals its own samples
 * evenly to them. So all ranks have equally many batches, a worker's differ by one sample at most,
 * and the workers are shifted against each other so that the global batches hardly differ. */
#ifndef SH_DATA_LOADER_H
#define SH_DATA_LOADER_H

#include "data/dataset.h"

/* A worker's part of every batch: of c samples those from c * low / of to c * high / of. */
typedef struct sh_batch_share {
    uint32_t low, high, of;  // of 0: the whole batch
} sh_batch_share;

static inline size_t sh_share_begin(sh_batch_share share, size_t count) {
    return share.of == 0 ? 0 : (size_t)((unsigned __int128)count * share.low / share.of);
}
static inline size_t sh_share_end(sh_batch_share share, size_t count) {
    return share.of == 0 ? count : (size_t)((unsigned __int128)count * share.high / share.of);
}

typedef struct sh_batch {
    size_t count;    // samples here; may be 0 for a share of a short batch
    size_t whole;    // samples of the global batch; below the batch size only at an epoch's end, or
                     // about the batch size where data lies in parts
    double counted;  // rows (samples or tokens) of the global batch whose label is not `ignore`;
                     // where data lies in parts, what its samples here let expect
    void *x;         // (count, sample...) float, or int32 tokens (count, T)
    void *y;         // int32 labels (count) or tokens (count, T), or float values (count, values)
    int64_t epoch;   // from 0
    int64_t index;   // batch within the epoch, from 0
    uint64_t position;  // of its first sample here in the epoch, counted over all parts
} sh_batch;

typedef struct sh_loader_options {
    size_t batch;          // samples of the global batch
    sh_batch_share share;  // which of them are made here; data in parts has no shares
    uint64_t seed;
    bool shuffle;    // false: samples in file order (evaluation)
    bool drop_last;  // leave out the short batch at the end
    int64_t crop;    // augmentation, keyed by (seed, epoch, position)
    bool flip;
    int64_t epochs;        // stop after this many, 0: never
    int64_t epoch, index;  // where to start
    size_t batches;  // data in parts: batches of an epoch, when parts are missing; 0: as above
    size_t depth;    // batches made ahead; 0: made inline by sh_loader_next, no task
    bool rows;       // of sparse data: x gets the numbers of the samples in their source
                     // (uint32_t) instead of their contents
    bool shifts;     // the share may change: memory for a whole batch is taken
    const int64_t *ignore;  // the label that does not count; NULL: all do. Keeps it
} sh_loader_options;

typedef struct sh_loader sh_loader;

/* Text: an epoch is about tokens / context windows, at offsets drawn per position when shuffling,
 * side by side when not. What a crop leaves empty becomes 0, the mean of normalised data.
 * Borrows the dataset. All memory is taken here. */
sh_status sh_loader_create(const sh_dataset *dataset, const sh_loader_options *options,
                           sh_loader **loader_out);
/* Stops the task, also while it waits. */
void sh_loader_destroy(sh_loader *loader);

size_t sh_loader_samples(const sh_loader *loader);  // per epoch, of all workers
size_t sh_loader_batches(const sh_loader *loader);  // per epoch
/* The sizes above 0 that batches have here unless shares shift, the most frequent first; how many
 * there are. */
size_t sh_loader_sizes(const sh_loader *loader, size_t sizes_out[2]);
/* The next batch, owned by the loader until released; NULL after the last. At most depth + 1
 * batches can be out at once. With a depth, several tasks may take and release batches. */
sh_status sh_loader_next(sh_loader *loader, const sh_batch **batch_out);
void sh_loader_release(sh_loader *loader, const sh_batch *batch);
/* Another share from batch `index` of `epoch` on, which must not be made yet: at least depth + 2
 * batches ahead of the one taken last. Memory is for the whole batch only where `share` was whole
 * or `shifts` said that it may grow. */
void sh_loader_set_share(sh_loader *loader, sh_batch_share share, int64_t epoch, int64_t index);

#endif
