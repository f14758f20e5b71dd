/* IDX from memory, as samples and as labels of itself. */
#include "data/array.h"
#include "data/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    sh_array array;
    sh_source *source = NULL;
    if (sh_idx_parse("fuzz", data, bytes, &array) != SH_OK) return 0;
    if (sh_source_create("fuzz", &source) != SH_OK) return 0;
    sh_source_take_arrays(source, &array, &array, &(sh_read){0});
    sh_source_release(source);
    return 0;
}
