/* Any bytes as a checkpoint's manifest. */
#include "base/status.h"
#include "ckpt/manifest.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    sh_manifest manifest;
    if (sh_manifest_parse("input", (const char *)data, bytes, &manifest) != SH_OK) return 0;
    SH_ASSERT(strchr(manifest.model.name, '/') == NULL);
    SH_ASSERT(strchr(manifest.optimizer.name, '/') == NULL);
    SH_ASSERT(manifest.info.step >= 0);
    sh_manifest_fini(&manifest);
    return 0;
}
