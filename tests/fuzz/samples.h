/* What every reader's target does with the samples it got: measures and normalises them, and takes
 * the last one out. */
#ifndef FUZZ_SAMPLES_H
#define FUZZ_SAMPLES_H

#include "base/memory.h"
#include "data/reader.h"
#include "data/view.h"

static void take_last(const sh_dataset *dataset) {
    size_t cells = sh_shape_count(&dataset->info.sample);
    size_t values = dataset->info.tokens ? cells : (size_t)dataset->info.values + 1;
    float *x = sh_alloc(cells, sizeof *x), *y = sh_alloc(values, sizeof *y);
    if (x != NULL && y != NULL) dataset->get(dataset, dataset->info.count - 1, x, y);
    sh_free(x);
    sh_free(y);
}

/* Releases the source; NULL: there are no samples. Returns what a target must. */
static int use_samples(sh_source *source) {
    if (source == NULL) return 0;
    sh_dataset *dataset = NULL;
    sh_normal normal = {0};
    size_t count = source->info.tokens ? source->stored : source->info.count;
    if (sh_view_create(source, 0, count, NULL, &dataset) == SH_OK &&
        sh_view_measure(dataset, "auto", NULL, &normal) == SH_OK &&
        sh_view_normalise(dataset, &normal) == SH_OK)
        take_last(dataset);
    sh_free(normal.mean);
    sh_free(normal.scale);
    sh_dataset_destroy(dataset);
    sh_source_release(source);
    return 0;
}

#endif
