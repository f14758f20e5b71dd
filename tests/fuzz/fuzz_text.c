/* Text from memory, as characters or as bytes, with a vocabulary or without. */
#include "samples.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static char *const kinds[] = {"chars", "bytes"};
    sh_data_options options = {.context = 2, .tokens = kinds[bytes % 7 == 0]};
    sh_read read = {
        .path = "fuzz", .options = &options, .vocabulary = bytes % 5 == 0 ? "abc" : NULL};
    sh_source *source = NULL;
    if (sh_text_parse(&read, data, bytes, &source) != SH_OK) return 0;
    return use_samples(source);
}
