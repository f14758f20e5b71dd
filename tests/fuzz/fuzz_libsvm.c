/* LIBSVM from memory. */
#include "samples.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    sh_read read = {.path = "fuzz"};
    sh_source *source = NULL;
    if (sh_libsvm_parse(&read, data, bytes, &source) != SH_OK) return 0;
    return use_samples(source);
}
