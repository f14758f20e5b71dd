/* Any bytes as a safetensors file: whatever is accepted must lie inside the input. */
#include "base/status.h"
#include "ckpt/safetensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    sh_safetensors tensors;
    if (sh_safetensors_parse("input", data, bytes, &tensors) != SH_OK) return 0;
    size_t covered = 0;
    for (size_t i = 0; i < tensors.count; i++) {
        const sh_tensor_entry *entry = &tensors.entries[i];
        const uint8_t *from = entry->data;
        SH_ASSERT(strlen(entry->name) < bytes);
        SH_ASSERT(entry->bytes <= bytes);
        SH_ASSERT(from >= data);
        SH_ASSERT(from + entry->bytes <= data + bytes);
        covered += entry->bytes;
    }
    SH_ASSERT(covered <= bytes);
    for (size_t i = 0; i < tensors.note_count; i++)
        SH_ASSERT(sh_safetensors_note(&tensors, tensors.notes[i].key) != NULL);
    sh_safetensors_close(&tensors);
    return 0;
}
