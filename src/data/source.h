/* A source: all samples of one file as they lie in memory, before splits and normalisation. Readers
 * make sources; views (view.h) make datasets of them. Bytes stay bytes: MNIST takes 47 MB of mapped
 * file, not 188 MB of floats. */
#ifndef SH_DATA_SOURCE_H
#define SH_DATA_SOURCE_H

#include "data/blob.h"
#include "data/dataset.h"
#include "data/sparse.h"

typedef enum sh_cell {
    SH_CELL_U8,
    SH_CELL_U16,  // tokens of a vocabulary above 256
    SH_CELL_F32,
} sh_cell;

enum { SH_CLASSES_MOST = 65536 };

struct sh_read;  // what is asked of a reader (reader.h)

typedef struct sh_source {
    sh_data_info info;   // tokens: `count` windows, one at each offset
    char *name;          // path, for messages
    const char *format;  // the reader's name
    sh_cell cell;
    const void *cells;      // (stored, sample...), or `stored` tokens in a row
    sh_sparse sparse;       // with rows: the samples, and cells is NULL
    size_t stored;          // samples or tokens in memory
    size_t period;          // sample i is stored at i % period; 0: at i
    const int32_t *labels;  // (stored) for CLASS
    const float *values;    // (stored, info.values) for VALUES
    bool signs;             // the labels were -1 and +1
    char *vocabulary;       // text in characters, else NULL

    // In parts (parts.h); a count of 0: not.
    int first_part, part_count;  // ranks whose samples these are
    size_t *part_sizes;          // (part_count)

    sh_blob blobs[3];   // what the pointers above point into: files
    void *memory[2];    // likewise: samples and targets made here
    size_t view_count;  // views that hold it, beside the opener; main task only
} sh_source;

sh_status sh_source_create(const char *name, sh_source **source_out);
/* Drops one hold; the last one frees. NULL is welcome. */
void sh_source_release(sh_source *source);
sh_source *sh_source_acquire(sh_source *source);

size_t sh_cell_bytes(sh_cell cell);

/* Fails where `bytes` beside what its files take are more than there is room for (room.h). */
sh_status sh_source_room(const sh_source *source, size_t bytes);

/* Turns targets as read into classes or values. Classes: all integral, from 0 (or only -1 and +1,
 * which become 0 and 1) and below SH_CLASSES_MOST; else values. A label to ignore stays what it is,
 * and is no class. read->target forces one of them (NONE: decide here). Keeps `targets` (count
 * doubles) no longer than the call. */
sh_status sh_source_set_targets(sh_source *source, const double *targets,
                                const struct sh_read *read);

/* What every source must satisfy: not empty, shape in bounds. */
sh_status sh_source_check(const sh_source *source);

/* Next steps for faults that several formats know; they end a function as sh_error_hint does. */
sh_status sh_hint_not_finite(void);
sh_status sh_hint_damaged(void);

/* Position of the first NaN or infinity, or `count`. */
size_t sh_find_not_finite(const float *values, size_t count);

#endif
