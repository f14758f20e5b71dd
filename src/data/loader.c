/* Batches go round through two queues: the worker takes from `ready` and gives back to `empty`, the
 * loader task the other way. Without a task (depth 0) the worker makes its batch itself, by the
 * same function, so the depth cannot change what comes. */
#include "data/loader.h"

#include <pthread.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/task.h"
#include "data/augment.h"
#include "data/view.h"
#include "tensor/kernels/loss.h"

/* A share that holds from a batch on. */
typedef struct share_change {
    sh_batch_share share;  // `of` 0: no change is due
    int64_t epoch, index;
} share_change;

/* Shared by the worker and the loader task; comments name the owner or the guard of what changes.
 */
struct sh_loader {
    const sh_dataset *dataset;
    sh_loader_options options;
    size_t sample_count;      // per epoch, of all parts
    size_t own_count;         // the dataset's; sample_count where it is whole
    size_t own_first;         // position of its first sample among all parts
    size_t batch_count;       // per epoch
    size_t x_bytes, y_bytes;  // per sample
    bool augments;

    /* The maker's, that is the task's once it runs. */
    int64_t epoch, index;  // of the next batch
    sh_batch_share share;
    share_change next;  // guarded by lock
    pthread_mutex_t lock;
    int64_t order_epoch;  // that `order` belongs to, -1: none
    uint32_t *order;      // (own_count) when samples are shuffled
    float *scratch;       // one sample, when augmenting
    int32_t *label;       // one target, when those of other workers are counted; NULL: they are not

    sh_arena memory;
    sh_batch *batches;  // (slots)
    size_t slots;
    bool taken;  // depth 0: the one batch is out
    sh_queue *ready, *empty;
    sh_task *task;
};

/* Samples of an epoch. Windows of text overlap, so an epoch is as many as lie side by side: each
 * token is seen about once. */
static size_t samples_per_epoch(const sh_dataset *dataset) {
    size_t count = dataset->info.count;
    if (!dataset->info.tokens) return count;
    return (count - 1) / (size_t)dataset->info.sample.dim[0] + 1;
}

/* Tells whether each worker has data of its own. */
static bool in_parts(const sh_loader *loader) { return loader->dataset->parts.ranks > 0; }

/* Samples of the parts before `rank`; with rank = ranks, of all parts. */
static size_t samples_before(const sh_parts *parts, int rank) {
    size_t count = 0;
    for (int r = 0; r < rank; r++) count += parts->sizes[r];
    return count;
}

/* Samples of a rank's part that an epoch uses. Dropping the last batch drops its size from the
 * epoch; each part leaves out the same fraction, other samples every time. */
static size_t part_used(const sh_loader *loader, int rank) {
    size_t size = loader->dataset->parts.sizes[rank];
    if (!loader->options.drop_last || loader->options.batches > 0) return size;
    size_t kept = loader->batch_count * loader->options.batch;
    return (size_t)((unsigned __int128)size * kept / loader->sample_count);
}

/* Samples of a rank's part that come before batch `index`. Parts of equal size, shifted by a
 * rank's fraction of a sample, add up to batches that differ by one sample at most (Hermite's
 * identity). */
static size_t part_begin(const sh_loader *loader, int rank, size_t index) {
    size_t ranks = (size_t)loader->dataset->parts.ranks, batches = loader->batch_count;
    unsigned __int128 dealt = (unsigned __int128)part_used(loader, rank) * index * ranks;
    unsigned __int128 shift = (unsigned __int128)batches * (size_t)rank;  // below batches * ranks
    return (size_t)((dealt + shift) / ((unsigned __int128)batches * ranks));
}

/* Bytes of one sample's target. */
static size_t target_bytes(const sh_data_info *info) {
    switch (info->target) {
        case SH_TARGET_CLASS:
            return sizeof(int32_t);
        case SH_TARGET_VALUES:
            return (size_t)info->values * sizeof(float);
        case SH_TARGET_TOKENS:
            return sh_shape_count(&info->sample) * sizeof(int32_t);
        case SH_TARGET_NONE:
            break;
    }
    return 0;
}

/* The sample at a position of an epoch. Windows of text start anywhere when shuffled (each position
 * draws its own offset), side by side when not. */
static size_t sample_at(const sh_loader *loader, const sh_rng *rng, uint64_t position) {
    const sh_data_info *info = &loader->dataset->info;
    if (info->tokens) {
        if (!loader->options.shuffle) return position * (size_t)info->sample.dim[0];
        sh_philox_block block = sh_rng_at(rng, position);
        uint64_t word = block.word[0] | (uint64_t)block.word[1] << 32;
        return (size_t)((unsigned __int128)word * info->count >> 64);
    }
    return loader->options.shuffle ? loader->order[position] : position;
}

/* Draws the order of the epoch, once when it begins. The order depends on the seed, the epoch and,
 * for data in parts, the rank, so a resume continues the same one. */
static void set_order(sh_loader *loader) {
    if (loader->order == NULL || loader->order_epoch == loader->epoch) return;
    // Streams 0 and 1 are those of whole data.
    uint32_t stream = in_parts(loader) ? 2 + (uint32_t)loader->dataset->parts.rank : 0;
    sh_rng rng = sh_rng_stream(loader->options.seed, SH_RNG_ORDER, stream, (uint64_t)loader->epoch);
    sh_rng_shuffle(&rng, loader->order, loader->own_count);
    // Remembered, so that the next batch of this epoch draws nothing.
    loader->order_epoch = loader->epoch;
}

/* Writes one sample to its place in the batch, augmented where that is asked for. */
static void put_sample(const sh_loader *loader, const sh_rng *moves, size_t sample,
                       uint64_t position, void *x, void *y) {
    const sh_dataset *dataset = loader->dataset;
    if (loader->options.rows) {
        *(uint32_t *)x = (uint32_t)sh_view_at(dataset, sample);
        dataset->get(dataset, sample, NULL, y);
        return;
    }
    if (!loader->augments) {
        dataset->get(dataset, sample, x, y);
        return;
    }
    const int64_t *dim = dataset->info.sample.dim;
    sh_augment_move move =
        sh_augment_draw(moves, position, loader->options.crop, loader->options.flip);
    dataset->get(dataset, sample, loader->scratch, y);
    sh_augment_apply(move, dim[0], dim[1], dim[2], loader->scratch, x);
}

/* Takes over a new share once its batch has come. Under the lock, since the worker sets it from
 * another task. */
static void take_next_share(sh_loader *loader) {
    pthread_mutex_lock(&loader->lock);
    bool due = loader->next.share.of != 0 &&
               (loader->epoch > loader->next.epoch ||
                (loader->epoch == loader->next.epoch && loader->index >= loader->next.index));
    if (due) {
        loader->share = loader->next.share;
        loader->next.share.of = 0;
    }
    pthread_mutex_unlock(&loader->lock);
}

/* A pending change that was not yet due is replaced. */
void sh_loader_set_share(sh_loader *loader, sh_batch_share share, int64_t epoch, int64_t index) {
    SH_ASSERT(loader->options.shifts);
    pthread_mutex_lock(&loader->lock);
    loader->next.share = share;
    loader->next.epoch = epoch;
    loader->next.index = index;
    pthread_mutex_unlock(&loader->lock);
}

/* Which samples this worker takes for the next batch: returns the first and sets `batch->count`
 * and `batch->whole`. */
static size_t take_range(const sh_loader *loader, sh_batch *batch) {
    const sh_parts *parts = &loader->dataset->parts;
    size_t index = (size_t)loader->index;
    if (in_parts(loader)) {
        batch->whole = 0;
        for (int r = 0; r < parts->ranks; r++)
            batch->whole += part_begin(loader, r, index + 1) - part_begin(loader, r, index);
        size_t first = part_begin(loader, parts->rank, index);
        batch->count = part_begin(loader, parts->rank, index + 1) - first;
        return first;
    }
    size_t first = index * loader->options.batch, left = loader->sample_count - first;
    batch->whole = left < loader->options.batch ? left : loader->options.batch;
    size_t low = sh_share_begin(loader->share, batch->whole);
    batch->count = sh_share_end(loader->share, batch->whole) - low;
    return first + low;
}

/* Rows of targets of some samples: a sample of text has one per token. */
static size_t rows_of(const sh_loader *loader, size_t samples) {
    const sh_data_info *info = &loader->dataset->info;
    return info->target == SH_TARGET_TOKENS ? samples * sh_shape_count(&info->sample) : samples;
}

/* Labels that count among those of the global batch that other workers take. They are read here,
 * too, so that no worker has to ask the others for their counts. */
static size_t count_others(const sh_loader *loader, const sh_rng *offsets, const sh_batch *batch,
                           size_t first) {
    size_t begin = (size_t)loader->index * loader->options.batch, end = begin + batch->whole;
    size_t counted = 0;
    for (size_t i = begin; i < end; i++) {
        if (i == first) i += batch->count;
        if (i >= end) break;
        loader->dataset->get(loader->dataset, sample_at(loader, offsets, i), NULL, loader->label);
        counted +=
            sh_loss_counted(loader->label, rows_of(loader, 1), (int32_t)*loader->options.ignore);
    }
    return counted;
}

/* Rows of the global batch whose label counts. In parts, the fraction seen here stands for all, as
 * other workers' labels cannot be read. */
static double count_rows(const sh_loader *loader, const sh_rng *offsets, const sh_batch *batch,
                         size_t first) {
    double whole = (double)rows_of(loader, batch->whole);
    if (loader->label == NULL) return whole;
    size_t own = rows_of(loader, batch->count);
    // Labels of the own samples are in the batch already.
    size_t counted = sh_loss_counted(batch->y, own, (int32_t)*loader->options.ignore);
    if (!in_parts(loader)) return (double)(counted + count_others(loader, offsets, batch, first));
    return counted > 0 ? whole * ((double)counted / (double)own) : whole;
}

/* Makes the next batch; false after the last. Only the maker calls it: the task, or at depth 0 the
 * worker. */
static bool make_batch(sh_loader *loader, sh_batch *batch) {
    const sh_loader_options *options = &loader->options;
    // epochs 0: the loader never ends.
    if (options->epochs > 0 && loader->epoch >= options->epochs) return false;
    set_order(loader);
    uint64_t epoch = (uint64_t)loader->epoch;
    sh_rng offsets = sh_rng_stream(options->seed, SH_RNG_ORDER, 1, epoch);
    sh_rng moves = sh_rng_stream(options->seed, SH_RNG_AUGMENT, 0, epoch);
    take_next_share(loader);
    size_t first = take_range(loader, batch);
    batch->epoch = loader->epoch;
    batch->index = loader->index;
    batch->position = loader->own_first + first;
    for (size_t i = 0; i < batch->count; i++) {
        size_t sample = sample_at(loader, &offsets, first + i);
        put_sample(loader, &moves, sample, batch->position + i,
                   (char *)batch->x + i * loader->x_bytes, (char *)batch->y + i * loader->y_bytes);
    }
    batch->counted = count_rows(loader, &offsets, batch, first);
    if ((size_t)++loader->index == loader->batch_count) {
        loader->index = 0;
        loader->epoch++;
    }
    return true;
}

/* The loader's task: fills empty slots until the worker closes the queues. */
static sh_status loader_main(void *argument) {
    sh_loader *loader = argument;
    void *batch;
    while (sh_queue_pop(loader->empty, &batch)) {
        if (!make_batch(loader, batch)) break;
        if (!sh_queue_push(loader->ready, batch)) break;
    }
    sh_queue_close(loader->ready);
    return SH_OK;
}

/* Refuses options that the data cannot serve, before any memory is taken. */
static sh_status check_options(const sh_dataset *dataset, const sh_loader_options *options,
                               size_t sample_count, size_t batch_count) {
    if (options->batch == 0) return SH_FAIL(SH_E_USAGE, "a batch must hold at least one sample");
    if (batch_count == 0) {
        SH_FAIL(SH_E_USAGE, "a batch of %zu is larger than the %zu samples of an epoch",
                options->batch, sample_count);
        return sh_error_hint("use a smaller batch");
    }
    if (options->epoch < 0 || options->index < 0 || (size_t)options->index > batch_count)
        return SH_FAIL(SH_E_USAGE, "cannot start at epoch %lld, batch %lld: an epoch has %zu",
                       (long long)options->epoch, (long long)options->index, batch_count);
    if (options->shuffle && !dataset->info.tokens && dataset->info.count > UINT32_MAX)
        return SH_FAIL(SH_E_UNSUPPORTED, "cannot shuffle %zu samples, 2^32 at most",
                       dataset->info.count);
    if (dataset->parts.ranks > 0 && options->shifts) {
        SH_FAIL(SH_E_USAGE, "work cannot move between workers whose data lies in parts");
        return sh_error_hint("do not balance, or give all workers the same data");
    }
    bool augments = options->crop != 0 || options->flip;
    if (augments && (dataset->info.tokens || dataset->info.sample.rank != 3)) {
        SH_FAIL(SH_E_USAGE, "crop and flip are for images");
        return sh_error_hint("remove them: the samples are not (C, H, W)");
    }
    int64_t side = dataset->info.sample.dim[1] < dataset->info.sample.dim[2]
                       ? dataset->info.sample.dim[1]
                       : dataset->info.sample.dim[2];
    if (augments && (options->crop < 0 || options->crop >= side))
        return SH_FAIL(SH_E_USAGE, "a crop of %lld does not fit images of side %lld",
                       (long long)options->crop, (long long)side);
    return SH_OK;
}

/* Samples made here of a batch of `whole`. */
static size_t share_size(const sh_loader *loader, size_t whole) {
    return sh_share_end(loader->share, whole) - sh_share_begin(loader->share, whole);
}

/* Most samples that a batch here can have: decides the size of the slots. */
static size_t batch_room(const sh_loader *loader) {
    if (in_parts(loader))
        return part_used(loader, loader->dataset->parts.rank) / loader->batch_count + 1;
    // A share of a shorter batch may be larger by one sample than its share of the whole one.
    size_t room = share_size(loader, loader->options.batch) + 1;
    return loader->options.shifts || room > loader->options.batch ? loader->options.batch : room;
}

/* Distinct batch sizes, so that nets can be compiled for them beforehand. */
size_t sh_loader_sizes(const sh_loader *loader, size_t sizes_out[2]) {
    size_t batch = loader->options.batch, sizes[2] = {0}, count = 0;
    if (in_parts(loader)) {
        size_t used = part_used(loader, loader->dataset->parts.rank);
        size_t larger = used % loader->batch_count;  // batches with one sample more
        bool mostly = larger > loader->batch_count - larger;
        sizes[mostly] = used / loader->batch_count;
        sizes[!mostly] = larger > 0 ? used / loader->batch_count + 1 : 0;
    } else {
        size_t rest = loader->options.drop_last ? 0 : loader->sample_count % batch;
        sizes[0] = loader->sample_count >= batch ? share_size(loader, batch) : 0;
        sizes[1] = share_size(loader, rest);
    }
    for (int i = 0; i < 2; i++)
        if (sizes[i] > 0 && (count == 0 || sizes[i] != sizes_out[0])) sizes_out[count++] = sizes[i];
    return count;
}

/* One arena for the slots, the order and the scratch sample. */
static sh_status take_memory(sh_loader *loader) {
    size_t room = batch_room(loader);
    size_t x_bytes = sh_round_up(loader->x_bytes * room, SH_ALIGN);
    size_t y_bytes = sh_round_up(loader->y_bytes * room + 1, SH_ALIGN);
    bool has_order = loader->options.shuffle && !loader->dataset->info.tokens;
    size_t order_bytes = has_order ? loader->own_count * sizeof(uint32_t) : 0;
    size_t scratch_bytes = loader->augments ? loader->x_bytes : 0;
    bool counts = loader->options.ignore != NULL && loader->dataset->info.ignores;
    size_t label_bytes = counts ? loader->y_bytes : 0;
    size_t bytes = loader->slots * (x_bytes + y_bytes) + sh_round_up(order_bytes, SH_ALIGN) +
                   sh_round_up(scratch_bytes, SH_ALIGN) + sh_round_up(label_bytes, SH_ALIGN);
    SH_TRY(sh_arena_init(&loader->memory, "batches", bytes));
    for (size_t i = 0; i < loader->slots; i++) {
        loader->batches[i].x = sh_arena_take(&loader->memory, x_bytes);
        loader->batches[i].y = sh_arena_take(&loader->memory, y_bytes);
    }
    if (has_order) loader->order = sh_arena_take(&loader->memory, order_bytes);
    if (loader->augments) loader->scratch = sh_arena_take(&loader->memory, scratch_bytes);
    if (counts) loader->label = sh_arena_take(&loader->memory, label_bytes);
    return SH_OK;
}

/* After the queues have their empty slots. */
static sh_status start_task(sh_loader *loader) {
    SH_TRY(sh_queue_create(loader->slots, &loader->ready));
    SH_TRY(sh_queue_create(loader->slots, &loader->empty));
    for (size_t i = 0; i < loader->slots; i++) sh_queue_push(loader->empty, &loader->batches[i]);
    return sh_task_spawn("loader", loader_main, loader, &loader->task);
}

sh_status sh_loader_create(const sh_dataset *dataset, const sh_loader_options *options,
                           sh_loader **loader_out) {
    const sh_parts *parts = &dataset->parts;
    size_t own = samples_per_epoch(dataset);
    size_t samples = parts->ranks > 0 ? samples_before(parts, parts->ranks) : own;
    size_t batches = options->batch == 0 ? 0 : samples / options->batch;
    if (options->batch != 0 && !options->drop_last && samples % options->batch != 0) batches++;
    if (parts->ranks > 0 && options->batches > 0) batches = options->batches;
    SH_TRY(check_options(dataset, options, samples, batches));
    sh_loader *loader = sh_alloc(1, sizeof *loader);
    if (loader == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for the loader");
    *loader = (sh_loader){.dataset = dataset,
                          .options = *options,
                          .sample_count = samples,
                          .own_count = own,
                          .own_first = samples_before(parts, parts->rank),
                          .batch_count = batches,
                          .x_bytes = options->rows
                                         ? sizeof(uint32_t)
                                         : sh_shape_count(&dataset->info.sample) * sizeof(float),
                          .y_bytes = target_bytes(&dataset->info),
                          .augments = options->crop != 0 || options->flip,
                          .epoch = options->epoch,
                          .index = options->index,
                          .order_epoch = -1,
                          .share = options->share,
                          .slots = options->depth + 1};
    pthread_mutex_init(&loader->lock, NULL);
    if ((size_t)loader->index == batches) {  // the end of an epoch is the start of the next
        loader->index = 0;
        loader->epoch++;
    }
    sh_status status = SH_OK;
    loader->batches = sh_alloc(loader->slots, sizeof *loader->batches);
    if (loader->batches == NULL) status = SH_FAIL(SH_E_MEMORY, "out of memory for the loader");
    if (status == SH_OK) status = take_memory(loader);
    if (status == SH_OK && options->depth > 0) status = start_task(loader);
    if (status != SH_OK) {
        sh_loader_destroy(loader);
        return status;
    }
    *loader_out = loader;
    return SH_OK;
}

void sh_loader_destroy(sh_loader *loader) {
    if (loader == NULL) return;
    if (loader->empty != NULL) sh_queue_close(loader->empty);
    if (loader->ready != NULL) sh_queue_close(loader->ready);
    if (loader->empty != NULL) {  // a closed queue is drained first: leave the task nothing
        void *batch;
        while (sh_queue_pop(loader->empty, &batch)) continue;
    }
    sh_task_wait(loader->task);
    sh_queue_destroy(loader->empty);
    sh_queue_destroy(loader->ready);
    pthread_mutex_destroy(&loader->lock);
    sh_arena_fini(&loader->memory);
    sh_free(loader->batches);
    sh_free(loader);
}

size_t sh_loader_samples(const sh_loader *loader) { return loader->sample_count; }

size_t sh_loader_batches(const sh_loader *loader) { return loader->batch_count; }

/* The batch is the caller's until sh_loader_release. */
sh_status sh_loader_next(sh_loader *loader, const sh_batch **batch_out) {
    if (loader->task == NULL) {
        SH_ASSERT(!loader->taken);
        bool made = make_batch(loader, &loader->batches[0]);
        loader->taken = made;
        *batch_out = made ? &loader->batches[0] : NULL;
        return SH_OK;
    }
    void *batch;
    *batch_out = sh_queue_pop(loader->ready, &batch) ? batch : NULL;
    return SH_OK;
}

/* Gives the slot back to the loader task; the batch must not be read afterwards. */
void sh_loader_release(sh_loader *loader, const sh_batch *batch) {
    SH_ASSERT(batch >= loader->batches);
    SH_ASSERT(batch < loader->batches + loader->slots);
    if (loader->task == NULL)
        loader->taken = false;
    else
        sh_queue_push(loader->empty, &loader->batches[batch - loader->batches]);
}
