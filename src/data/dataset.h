/* Data sets: samples by index. A reader (IDX, NPY, CSV, LIBSVM, text, synthetic) opens files into a
 * dataset; a view narrows one to a split; the loader asks for samples in its own order. */
#ifndef SH_DATA_DATASET_H
#define SH_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "tensor/shape.h"

typedef enum sh_target {
    SH_TARGET_NONE,    // inference input
    SH_TARGET_CLASS,   // one int32 per sample: 0 <= label < classes, or the one to ignore
    SH_TARGET_VALUES,  // `values` floats per sample: regression, multi-label
    SH_TARGET_TOKENS,  // one int32 per token: the input shifted by one
} sh_target;

typedef struct sh_data_info {
    size_t count;     // samples
    sh_shape sample;  // (C, H, W), (F) or (T) for tokens
    bool tokens;      // samples are int32 tokens below `classes`
    sh_target target;
    int64_t classes;  // CLASS and TOKENS: number of classes, size of the vocabulary
    int64_t values;   // VALUES: floats per sample
    bool ignores;     // CLASS and TOKENS: some labels are the one that does not count
} sh_data_info;

/* One data set in parts, one for each worker: a dataset then holds this worker's alone. */
typedef struct sh_parts {
    int rank, ranks;      // ranks 0: not in parts
    const size_t *sizes;  // (ranks) samples
} sh_parts;

typedef struct sh_dataset sh_dataset;
struct sh_dataset {
    sh_data_info info;  // classes are those of all parts, the count is this part's
    sh_parts parts;
    /* Writes one sample: floats or int32 tokens to `x`, the target to `y` (int32 or float); what is
     * NULL is left out. Any task, any order; pure. */
    void (*get)(const sh_dataset *dataset, size_t index, void *x, void *y);
    void (*destroy)(sh_dataset *dataset);
};

/* Normalisation: x := (x - mean[c]) * scale[c] per channel (images) or feature (vectors). */
typedef struct sh_normal {
    float *mean, *scale;
    size_t count;  // 0: none
} sh_normal;

/* The workers that hold the parts, seen from one of them. Both functions are collective and give
 * every rank the same bits. */
typedef struct sh_data_team {
    int rank, ranks;
    sh_status (*sum)(void *self, double *values, size_t count);
    sh_status (*max)(void *self, double *values, size_t count);
    void *self;
} sh_data_team;

typedef struct sh_data_options {
    char *train, *test, *validation;  // a name (mnist, digits, shakespeare, synthetic:...) or a
                                      // path; %r in it stands for the rank, %% for a percent sign
    double hold_out;       // part of the training data kept for validation when there is none; NaN:
                           // not set, which is 0, or for text without a test part a tenth
    double hold_out_test;  // the same for testing; only where there is no other test part
    char *labels;          // a label file for `train`, where it does not lie beside the samples; %r
    char *label_column;    // CSV: name or index from 0, negative from the end, or "none"; default
                           // the last
    char *targets;         // "auto" (whole numbers are classes), "classes" or "values"; NULL: auto
    int64_t context;       // text: tokens per sample
    char *tokens;          // text: "chars" or "bytes"
    char *normalise;       // "auto" (mean and deviation of the training set), "none", "unit" (0..1)
    int64_t crop;          // random crop after padding by this many pixels, 0: none
    bool flip;             // random horizontal flip
    char *folder;          // the data cache
    uint64_t seed;         // for splits
    const int64_t *ignore;     // label that does not count and is no class; NULL: all do
    const sh_data_team *team;  // NULL: alone
    int parts;  // alone: parts that %r stands for, all of them read; 0 and 1: the first one
    const struct sh_data *known;  // what a model learned from (facts.h): the data has to fit that,
                                  // and nothing is measured; NULL: the training set decides
} sh_data_options;

extern const struct sh_option_table sh_data_table;  // for sh_data_options; options.c

/* The three parts of the data a run uses. `validation` may be NULL; `test` falls back to the
 * validation part (then both are the same pointer, NULL where there is neither). All share one
 * normalisation, taken from the training set. Only the training part must have targets: who
 * evaluates on another asks for them with sh_data_need_targets. */
typedef struct sh_data {
    sh_dataset *train, *validation, *test;
    sh_data_info info;  // of the training set
    sh_normal normal;
    char *vocabulary;  // text: the characters in token order (UTF-8); NULL for bytes and numbers
    uint64_t fingerprint;  // of the training data, to refuse a resume on other data; of all parts
    size_t *part_sizes;    // what the datasets' `parts` point into
} sh_data;

sh_status sh_data_open(const sh_data_options *options, const sh_log *log, sh_data *data_out);
/* Opens a part, "train", "validation" or "test", for `options->known`, which `data` begins as a
 * copy of. One that has a file of its own needs no other; otherwise all are opened, as above.
 * Nothing to do where it is open; a part that there is not stays NULL. */
sh_status sh_data_open_part(const sh_data_options *options, const char *part, const sh_log *log,
                            sh_data *data);
/* Fails where a part (NULL is welcome) has samples alone, which are enough only to predict. */
sh_status sh_data_need_targets(const sh_dataset *dataset, const char *part);
/* Collective: parts of the data are with others than before, or with nobody: those of this team are
 * all there are now. Nothing to do for data that is not in parts. No loader may use it. */
sh_status sh_data_regroup(sh_data *data, const sh_data_team *team);
void sh_data_close(sh_data *data);

/* One file; `normal` and `vocabulary` come from training and may be NULL. A name gives its test
 * part; "mnist:train" and "mnist:test" choose. */
sh_status sh_dataset_open(const char *path_or_name, const sh_data_options *options,
                          const sh_normal *normal, const char *vocabulary,
                          sh_dataset **dataset_out);
void sh_dataset_destroy(sh_dataset *dataset);

/* Everything that a file or a name holds, as it is, for `shoal data`. */
typedef struct sh_dataset_parts {
    sh_dataset *train, *test;  // NULL: there is none
    bool whole;                // the file is not in parts, and `train` is all of it
} sh_dataset_parts;

/* Fails also where the test part does not fit the other. */
sh_status sh_dataset_open_parts(const char *path_or_name, const sh_data_options *options,
                                sh_dataset_parts *parts_out);
void sh_dataset_close_parts(sh_dataset_parts *parts);

#endif
