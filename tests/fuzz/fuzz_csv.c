/* CSV from memory. The first byte chooses the label column. */
#include "samples.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char column[] = {bytes > 0 ? (char)data[0] : (char)0x30, 0};
    sh_data_options options = {.label_column = bytes % 2 ? column : NULL};
    sh_read read = {.path = "fuzz", .options = &options};
    sh_source *source = NULL;
    if (sh_csv_parse(&read, data, bytes, &source) != SH_OK) return 0;
    return use_samples(source);
}
