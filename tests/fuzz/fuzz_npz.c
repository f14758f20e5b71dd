/* NPZ from memory: the training part for even inputs, the test part for odd ones. */
#include "samples.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    sh_read read = {.path = "fuzz", .part = bytes % 2 ? SH_PART_TEST : SH_PART_TRAIN};
    sh_source *source = NULL;
    if (sh_npz_parse(&read, data, bytes, &source) != SH_OK) return 0;
    return use_samples(source);
}
