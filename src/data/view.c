/* A view: some samples of a source in some order, normalised as they are read. It is what the rest
 * of the program knows as a dataset. Reading a sample is pure and allocates nothing, so any task
 * may do it. */
#include "data/view.h"

#include <string.h>

#include "base/memory.h"

typedef struct view {
    sh_dataset base;
    sh_source *source;
    size_t first;
    uint32_t *index;      // NULL: a range
    size_t cells;         // per sample
    size_t channels;      // of the normalisation, 0: none
    size_t inner;         // cells per channel; 1: one mean per feature
    float *mean, *scale;  // (channels)
} view;

static const view *view_of(const sh_dataset *dataset) { return (const view *)dataset; }

const sh_source *sh_view_source(const sh_dataset *dataset) { return view_of(dataset)->source; }

/* Place of a sample in its source. */
size_t sh_view_at(const sh_dataset *dataset, size_t index) {
    const view *v = view_of(dataset);
    SH_DCHECK(index < dataset->info.count);
    size_t at = v->index != NULL ? v->index[index] : v->first + index;
    return v->source->period != 0 ? at % v->source->period : at;
}

/* Bytes to floats without normalisation. These loops are plain, so that the compiler turns them
 * into vector code. */
static void bytes_plain(const uint8_t *from, size_t count, float *restrict x) {
    for (size_t i = 0; i < count; i++) x[i] = (float)from[i];
}

/* Normalises a channel of an image: one mean and scale for all of its pixels. */
static void bytes_channel(const uint8_t *from, size_t count, float mean, float scale,
                          float *restrict x) {
    for (size_t i = 0; i < count; i++) x[i] = ((float)from[i] - mean) * scale;
}

/* Normalises a vector: a mean and scale per feature. */
static void bytes_features(const uint8_t *from, size_t count, const float *mean, const float *scale,
                           float *restrict x) {
    for (size_t i = 0; i < count; i++) x[i] = ((float)from[i] - mean[i]) * scale[i];
}

/* As bytes_channel, from floats. */
static void floats_channel(const float *from, size_t count, float mean, float scale,
                           float *restrict x) {
    for (size_t i = 0; i < count; i++) x[i] = (from[i] - mean) * scale;
}

/* As bytes_features, from floats. */
static void floats_features(const float *from, size_t count, const float *mean, const float *scale,
                            float *restrict x) {
    for (size_t i = 0; i < count; i++) x[i] = (from[i] - mean[i]) * scale[i];
}

/* Writes the target of a sample: its class, or its values. */
static void put_target(const view *v, size_t at, void *y) {
    if (y == NULL) return;
    size_t values = (size_t)v->base.info.values;
    if (v->base.info.target == SH_TARGET_CLASS)
        *(int32_t *)y = v->source->labels[at];
    else if (v->base.info.target == SH_TARGET_VALUES)
        memcpy(y, v->source->values + at * values, values * sizeof(float));
}

/* `get` of byte samples: reads and normalises in one pass, into floats. */
static void get_bytes(const sh_dataset *dataset, size_t index, void *x, void *y) {
    const view *v = view_of(dataset);
    size_t at = sh_view_at(dataset, index), inner = v->inner;
    const uint8_t *from = (const uint8_t *)v->source->cells + at * v->cells;
    put_target(v, at, y);
    if (x == NULL) return;
    if (v->channels == 0)
        bytes_plain(from, v->cells, x);
    else if (inner == 1)
        bytes_features(from, v->cells, v->mean, v->scale, x);
    else
        for (size_t c = 0; c < v->channels; c++)
            bytes_channel(from + c * inner, inner, v->mean[c], v->scale[c], (float *)x + c * inner);
}

/* `get` of float samples. */
static void get_floats(const sh_dataset *dataset, size_t index, void *x, void *y) {
    const view *v = view_of(dataset);
    size_t at = sh_view_at(dataset, index), inner = v->inner;
    const float *from = (const float *)v->source->cells + at * v->cells;
    put_target(v, at, y);
    if (x == NULL) return;
    if (v->channels == 0)
        memcpy(x, from, v->cells * sizeof *from);
    else if (inner == 1)
        floats_features(from, v->cells, v->mean, v->scale, x);
    else
        for (size_t c = 0; c < v->channels; c++)
            floats_channel(from + c * inner, inner, v->mean[c], v->scale[c],
                           (float *)x + c * inner);
}

/* Writes a sparse sample dense, as whoever asks a dataset for a sample wants it. */
static void get_sparse(const sh_dataset *dataset, size_t index, void *x, void *y) {
    const view *v = view_of(dataset);
    size_t at = sh_view_at(dataset, index);
    put_target(v, at, y);
    if (x == NULL) return;
    sh_sparse_expand(&v->source->sparse, at, x);
    float *cells = x;
    for (size_t i = 0; i < v->channels; i++) cells[i] = (cells[i] - v->mean[i]) * v->scale[i];
}

/* The window and the same moved by one: the target of each token is the next. */
static void get_tokens_u8(const sh_dataset *dataset, size_t index, void *x, void *y) {
    const view *v = view_of(dataset);
    const uint8_t *from = (const uint8_t *)v->source->cells + sh_view_at(dataset, index);
    int32_t *restrict inputs = x, *restrict targets = y;
    if (inputs != NULL)
        for (size_t i = 0; i < v->cells; i++) inputs[i] = from[i];
    if (targets != NULL)
        for (size_t i = 0; i < v->cells; i++) targets[i] = from[i + 1];
}

/* Windows of tokens stored in 16 bits, for vocabularies above 256 tokens; as get_tokens_u8. */
static void get_tokens_u16(const sh_dataset *dataset, size_t index, void *x, void *y) {
    const view *v = view_of(dataset);
    const uint16_t *from = (const uint16_t *)v->source->cells + sh_view_at(dataset, index);
    int32_t *restrict inputs = x, *restrict targets = y;
    if (inputs != NULL)
        for (size_t i = 0; i < v->cells; i++) inputs[i] = from[i];
    if (targets != NULL)
        for (size_t i = 0; i < v->cells; i++) targets[i] = from[i + 1];
}

/* Gives up the view's hold on its source. */
static void view_destroy(sh_dataset *dataset) {
    view *v = (view *)dataset;
    sh_source_release(v->source);
    sh_free(v->index);
    sh_free(v->mean);
    sh_free(v->scale);
    sh_free(v);
}

/* Takes over `index`, also on failure; NULL: `count` samples from `first` on. */
sh_status sh_view_create(sh_source *source, size_t first, size_t count, uint32_t *index,
                         sh_dataset **dataset_out) {
    view *v = sh_alloc(1, sizeof *v);
    if (v == NULL) {
        sh_free(index);
        return SH_FAIL(SH_E_MEMORY, "out of memory for a view of '%s'", source->name);
    }
    v->base.info = source->info;
    v->base.destroy = view_destroy;
    // The view keeps the source alive.
    v->source = sh_source_acquire(source);
    v->first = first;
    v->index = index;
    v->cells = sh_shape_count(&source->info.sample);
    v->base.info.count = count;
    if (source->info.tokens) {
        v->base.get = source->cell == SH_CELL_U8 ? get_tokens_u8 : get_tokens_u16;
        SH_ASSERT(count > v->cells);
        v->base.info.count = count - v->cells;
    } else if (source->sparse.rows > 0) {
        v->base.get = get_sparse;
    } else {
        v->base.get = source->cell == SH_CELL_U8 ? get_bytes : get_floats;
    }
    *dataset_out = &v->base;
    return SH_OK;
}

/* Copies mean and scale into the view. Tokens have neither. */
sh_status sh_view_normalise(sh_dataset *dataset, const sh_normal *normal) {
    view *v = (view *)dataset;
    if (normal == NULL || normal->count == 0 || dataset->info.tokens) return SH_OK;
    const sh_shape *sample = &dataset->info.sample;
    size_t channels = (size_t)sample->dim[0];  // features where the rank is 1
    if (normal->count != channels) {
        char text[SH_SHAPE_TEXT];
        SH_FAIL(SH_E_SHAPE, "'%s' has samples of shape %s; training had %zu %s", v->source->name,
                sh_shape_text(sample, text), normal->count,
                sample->rank == 1 ? "features" : "channels");
        return sh_error_hint("use data of the shape the model was trained on");
    }
    float *mean = sh_alloc(channels, sizeof *mean), *scale = sh_alloc(channels, sizeof *scale);
    if (mean == NULL || scale == NULL) {
        sh_free(mean);
        sh_free(scale);
        return SH_FAIL(SH_E_MEMORY, "out of memory for normalising '%s'", v->source->name);
    }
    memcpy(mean, normal->mean, channels * sizeof *mean);
    memcpy(scale, normal->scale, channels * sizeof *scale);
    sh_free(v->mean);
    sh_free(v->scale);
    v->mean = mean;
    v->scale = scale;
    v->channels = channels;
    v->inner = v->cells / channels;
    return SH_OK;
}

/* FNV-1a. */
static uint64_t mix_bytes(uint64_t hash, const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3;  // NOLINT FNV-1a
    return hash;
}

/* Mixes one sparse row in. */
static uint64_t mix_row(uint64_t hash, const sh_sparse *sparse, size_t row) {
    size_t start = sparse->start[row], count = sparse->start[row + 1] - start;
    hash = mix_bytes(hash, sparse->index + start, count * sizeof *sparse->index);
    return mix_bytes(hash, sparse->value + start, count * sizeof *sparse->value);
}

/* Begins a hash with the sizes, so that data sets of different sizes do not pass for equal, even
 * where the sampled contents agree. */
static uint64_t mix_sizes(const sh_dataset *dataset) {
    const sh_data_info *info = &dataset->info;
    const int64_t sizes[] = {(int64_t)info->count, info->tokens, info->target,
                             info->classes,        info->values, (int64_t)view_of(dataset)->cells};
    return mix_bytes(0xcbf29ce484222325, sizes, sizeof sizes);
}

/* Hash of the sizes and of evenly spaced samples: cheap enough for every start, and it tells one
 * data set from another. */
uint64_t sh_view_fingerprint(const sh_dataset *dataset) {
    enum { SAMPLES_MOST = 256, SAMPLE_BYTES_MOST = 4096 };
    const view *v = view_of(dataset);
    const sh_data_info *info = &dataset->info;
    uint64_t hash = mix_sizes(dataset);
    size_t cell = sh_cell_bytes(v->source->cell), bytes = v->cells * cell;
    size_t picks = info->count < SAMPLES_MOST ? info->count : SAMPLES_MOST;
    for (size_t i = 0; i < picks; i++) {
        size_t at = sh_view_at(dataset, i * (info->count / picks));
        size_t offset = (info->tokens ? at : at * v->cells) * cell;
        if (v->source->sparse.rows > 0)
            hash = mix_row(hash, &v->source->sparse, at);
        else
            hash = mix_bytes(hash, (const uint8_t *)v->source->cells + offset,
                             bytes < SAMPLE_BYTES_MOST ? bytes : SAMPLE_BYTES_MOST);
        if (info->target == SH_TARGET_CLASS)
            hash = mix_bytes(hash, &v->source->labels[at], sizeof(int32_t));
    }
    return hash;
}

/* The shift brings the high bits of a word back to where they count. */
static uint64_t mix_word(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;  // NOLINT 2^64 over the golden ratio
    return hash ^ hash >> 32;
}

static uint64_t mix_words(uint64_t hash, const void *data, size_t bytes) {
    const uint8_t *at = data, *end = at + bytes / sizeof hash * sizeof hash;
    uint64_t word;
    for (; at < end; at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = mix_word(hash, word);
    }
    word = 0;
    memcpy(&word, at, bytes % sizeof word);
    return bytes % sizeof word != 0 ? mix_word(hash, word) : hash;
}

/* Mixes consecutive samples with their targets in. Windows of tokens overlap, so they are taken as
 * the one row they lie in. */
static uint64_t mix_samples(uint64_t hash, const view *v, size_t at, size_t count) {
    const sh_source *source = v->source;
    const sh_sparse *sparse = &source->sparse;
    size_t cell = sh_cell_bytes(source->cell), values = (size_t)v->base.info.values;
    if (sparse->rows > 0) {
        size_t start = sparse->start[at], stored = sparse->start[at + count] - start;
        hash = mix_words(hash, sparse->start + at, (count + 1) * sizeof *sparse->start);
        hash = mix_words(hash, sparse->index + start, stored * sizeof *sparse->index);
        hash = mix_words(hash, sparse->value + start, stored * sizeof *sparse->value);
    } else if (v->base.info.tokens) {
        hash =
            mix_words(hash, (const uint8_t *)source->cells + at * cell, (count + v->cells) * cell);
    } else {
        hash = mix_words(hash, (const uint8_t *)source->cells + at * v->cells * cell,
                         count * v->cells * cell);
    }
    if (v->base.info.target == SH_TARGET_CLASS)
        hash = mix_words(hash, source->labels + at, count * sizeof *source->labels);
    else if (v->base.info.target == SH_TARGET_VALUES)
        hash =
            mix_words(hash, source->values + at * values, count * values * sizeof *source->values);
    return hash;
}

/* Hash of every sample; workers compare it before they train together. */
uint64_t sh_view_checksum(const sh_dataset *dataset) {
    const view *v = view_of(dataset);
    uint64_t hash = mix_sizes(dataset);
    size_t count = dataset->info.count, period = v->source->period;
    if (period != 0 && count > period) count = period;
    if (v->index == NULL && period == 0) return mix_samples(hash, v, v->first, count);
    for (size_t i = 0; i < count; i++) hash = mix_samples(hash, v, sh_view_at(dataset, i), 1);
    return hash;
}

void sh_dataset_destroy(sh_dataset *dataset) {
    if (dataset != NULL) dataset->destroy(dataset);
}
