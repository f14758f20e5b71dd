/* LIBSVM from memory. */
#include "base/memory.h"
#include "data/reader.h"
#include "data/view.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    sh_read read = {.path = "fuzz"};
    sh_source *source = NULL;
    if (sh_libsvm_parse(&read, data, bytes, &source) != SH_OK || source == NULL) return 0;
    sh_dataset *dataset = NULL;
    sh_normal normal = {0};
    size_t count = source->info.tokens ? source->stored : source->info.count;
    if (sh_view_create(source, 0, count, NULL, &dataset) == SH_OK &&
        sh_view_measure(dataset, "auto", NULL, &normal) == SH_OK &&
        sh_view_normalise(dataset, &normal) == SH_OK) {
        size_t cells = sh_shape_count(&dataset->info.sample);
        size_t values = dataset->info.tokens ? cells : (size_t)dataset->info.values + 1;
        float *x = sh_alloc(cells, sizeof *x), *y = sh_alloc(values, sizeof *y);
        if (x != NULL && y != NULL) dataset->get(dataset, dataset->info.count - 1, x, y);
        sh_free(x);
        sh_free(y);
    }
    sh_free(normal.mean);
    sh_free(normal.scale);
    sh_dataset_destroy(dataset);
    sh_source_release(source);
    return 0;
}
