/* Splitting one set of samples into those to train on and those held out. What is held out is a
 * function of the data and the seed alone, never of the workers. */
#ifndef SH_DATA_SPLIT_H
#define SH_DATA_SPLIT_H

#include "data/view.h"

typedef struct sh_split {
    double validation, test;  // parts of the samples, 0: none
    uint64_t seed;
} sh_split;

/* Samples are drawn by the seed: of their order drawn by it the test part is the beginning and the
 * validation part the end, so that neither moves when the other one grows. Where the data lies in
 * parts, each is split by itself, whoever holds it. Text is cut in place, since its windows overlap
 * and a random choice would leak: first the training part, then validation, last test. Sets `train`
 * and those of `validation` and `test` that are held out. */
sh_status sh_split_make(sh_source *source, const sh_split *split, sh_data *data);

/* All of it, in file order; nothing where the source is NULL. */
sh_status sh_view_all(sh_source *source, sh_dataset **dataset_out);

#endif
