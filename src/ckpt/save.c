#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/checkpoint.h"
#include "ckpt/folder.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"

static sh_status no_memory(void) { return SH_FAIL(SH_E_MEMORY, "out of memory for a checkpoint"); }

static size_t describe(const sh_param_list *list, const float *values, sh_tensor_entry *entries) {
    for (size_t i = 0; list != NULL && i < list->count; i++)
        entries[i] = (sh_tensor_entry){
            .name = list->items[i].name,
            .type = SH_TENSOR_F32,
            .shape = list->items[i].shape,
            .data = values + list->items[i].offset,
        };
    return list != NULL ? list->count : 0;
}

sh_status sh_checkpoint_save_model(const char *path, const sh_checkpoint *checkpoint) {
    size_t count = checkpoint->params->count;
    if (checkpoint->state != NULL) count += checkpoint->state->count;
    sh_tensor_entry *entries = sh_alloc(count, sizeof *entries);
    if (entries == NULL) return no_memory();
    size_t at = describe(checkpoint->params, checkpoint->weights, entries);
    describe(checkpoint->state, checkpoint->state_values, entries + at);
    // "format: pt" is what PyTorch's own tools look for: it says how tensors are laid out.
    const sh_tensor_note notes[] = {{"format", "pt"}, {"shoal.model", checkpoint->info.model}};
    size_t note_count = checkpoint->info.model != NULL ? 2 : 1;
    sh_status status = sh_safetensors_write(path, entries, count, notes, note_count);
    sh_free(entries);
    return status;
}

static sh_status write_optimizer(const char *path, const sh_checkpoint *checkpoint) {
    enum { NAME = SH_PARAM_NAME + 64 };
    size_t count = 0;
    for (size_t slot = 0; slot < checkpoint->slot_count; slot++)
        count += sh_checkpoint_slot_params(checkpoint, slot)->count;
    sh_tensor_entry *entries = sh_alloc(count, sizeof *entries);
    char(*names)[NAME] = sh_alloc(count, sizeof *names);
    sh_status status = SH_OK;
    if (entries == NULL || names == NULL) {
        status = no_memory();
        goto out;
    }
    for (size_t slot = 0, at = 0; slot < checkpoint->slot_count; slot++) {
        const sh_param_list *params = sh_checkpoint_slot_params(checkpoint, slot);
        describe(params, checkpoint->slots[slot].values, entries + at);
        for (size_t i = 0; i < params->count; i++, at++) {
            snprintf(names[at], NAME, "%s.%s", params->items[i].name, checkpoint->slots[slot].name);
            entries[at].name = names[at];
        }
    }
    status = sh_safetensors_write(path, entries, count, NULL, 0);
out:
    sh_free(names);
    sh_free(entries);
    return status;
}

/* One file of a snapshot: its bytes and checksum are taken from what the disk gives back. */
static sh_status save_part(const char *folder, sh_snapshot_part part,
                           const sh_checkpoint *checkpoint,
                           sh_status (*write)(const char *path, const sh_checkpoint *checkpoint),
                           sh_manifest_file *file_out) {
    char name[SH_SNAPSHOT_NAME];
    char *path = sh_path_join(folder, sh_snapshot_name(part, checkpoint->info.step, name));
    if (path == NULL) return no_memory();
    sh_mapped mapped = {0};
    sh_status status;
    SH_TRY_OUT(write(path, checkpoint));
    SH_TRY_OUT(sh_file_map(path, &mapped));
    snprintf(file_out->name, sizeof file_out->name, "%s", name);
    file_out->bytes = (int64_t)mapped.bytes;
    sh_blake2_hex(mapped.data, mapped.bytes, file_out->checksum);
out:
    sh_file_unmap(&mapped);
    sh_free(path);
    return status;
}

static void remove_part(const char *folder, sh_snapshot_part part, int64_t step) {
    char name[SH_SNAPSHOT_NAME];
    char *path = sh_path_join(folder, sh_snapshot_name(part, step, name));
    if (path != NULL) unlink(path);
    sh_free(path);
}

static sh_status save_files(const char *folder, const char *manifest_path,
                            const sh_checkpoint *checkpoint) {
    sh_manifest manifest = {.info = checkpoint->info};
    SH_TRY(save_part(folder, SH_SNAPSHOT_MODEL, checkpoint, sh_checkpoint_save_model,
                     &manifest.model));
    if (checkpoint->slot_count > 0)
        SH_TRY(save_part(folder, SH_SNAPSHOT_OPTIMIZER, checkpoint, write_optimizer,
                         &manifest.optimizer));
    return sh_manifest_write(manifest_path, &manifest);
}

sh_status sh_checkpoint_save(const char *folder, const sh_checkpoint *checkpoint, int keep) {
    int64_t step = checkpoint->info.step;
    SH_ASSERT(step >= 0);
    SH_TRY(sh_make_folders(folder));
    char name[SH_SNAPSHOT_NAME];
    char *path = sh_path_join(folder, sh_snapshot_name(SH_SNAPSHOT_MANIFEST, step, name));
    if (path == NULL) return no_memory();
    bool rewrites = sh_file_exists(path);
    sh_status status = save_files(folder, path, checkpoint);
    if (status == SH_OK) {
        sh_snapshots_prune(folder, step, keep);
    } else if (!rewrites) {  // a snapshot of this step that was there before keeps its files
        remove_part(folder, SH_SNAPSHOT_MODEL, step);
        remove_part(folder, SH_SNAPSHOT_OPTIMIZER, step);
    }
    sh_free(path);
    return status;
}
