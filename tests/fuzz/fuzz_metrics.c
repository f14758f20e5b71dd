/* Any bytes as the metrics of a run. */
#include "base/status.h"
#include "obs/metrics_read.h"

#include <stdint.h>

static void count(void *lines, const char *event, const json_t *object) {
    SH_ASSERT(event != NULL);
    SH_ASSERT(json_is_object(object));
    ++*(size_t *)lines;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    size_t lines = 0, ends = 0;
    for (size_t i = 0; i < bytes; i++) ends += data[i] == '\n';
    sh_status status = sh_metrics_parse("input", (const char *)data, bytes, count, &lines);
    SH_ASSERT(lines <= ends);
    SH_ASSERT(status == SH_E_FORMAT || lines == ends);
    return 0;
}
