/* Writing a snapshot: model, optimizer and state files under waiting names, each read back for its
 * checksum, then all renamed, the manifest last. A kill at any point leaves the old snapshots
 * whole and at most files that the next write removes. */
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

/* Fills entries that point into the block; returns their number. */
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

/* Writes parameters and state. The net's description and the facts of the data travel as notes, so
 * that the file alone suffices to predict. */
sh_status sh_checkpoint_save_model(const char *path, const sh_checkpoint *checkpoint) {
    size_t count = checkpoint->params->count;
    if (checkpoint->state != NULL) count += checkpoint->state->count;
    sh_tensor_entry *entries = sh_alloc(count, sizeof *entries);
    if (entries == NULL) return no_memory();
    size_t at = describe(checkpoint->params, checkpoint->weights, entries);
    describe(checkpoint->state, checkpoint->state_values, entries + at);
    // "format: pt" is what PyTorch's own tools look for: it says how tensors are laid out.
    sh_tensor_note notes[3] = {{"format", "pt"}};
    size_t note_count = 1;
    if (checkpoint->info.model != NULL)
        // Ours begin with "shoal.", so that they do not clash with other tools' notes.
        notes[note_count++] = (sh_tensor_note){"shoal.model", checkpoint->info.model};
    if (checkpoint->info.facts != NULL)
        notes[note_count++] = (sh_tensor_note){"shoal.data", checkpoint->info.facts};
    sh_status status = sh_safetensors_write(path, entries, count, notes, note_count);
    sh_free(entries);
    return status;
}

/* Writes one tensor per parameter and slot, called PARAMETER.SLOT. */
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
    // All parameters of a slot, then those of the next one.
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

/* Name under which a file waits until all files of the snapshot are written. The caller frees
 * it. */
static char *waiting_path(const char *path) { return sh_format("%s.tmp.whole", path); }

/* One file of a snapshot: its bytes and checksums are taken from what the disk gives back. */
static sh_status write_part(const char *path, const sh_checkpoint *checkpoint,
                            sh_status (*write)(const char *path, const sh_checkpoint *checkpoint),
                            sh_manifest_file *file_out) {
    char *waiting = waiting_path(path);
    if (waiting == NULL) return no_memory();
    sh_status status = write(waiting, checkpoint);
    if (status == SH_OK) status = sh_manifest_describe(waiting, strrchr(path, '/') + 1, file_out);
    sh_free(waiting);
    return status;
}

/* Gives a waiting file its name (`place`), or removes it. */
static sh_status end_part(const char *path, bool place) {
    char *waiting = waiting_path(path);
    if (waiting == NULL) return no_memory();
    sh_status status = SH_OK;
    if (!place)
        unlink(waiting);
    else if (rename(waiting, path) != 0)
        status = SH_FAIL(SH_E_IO, "cannot rename '%s': %s", waiting, strerror(errno));
    sh_free(waiting);
    return status;
}

/* Final paths of a snapshot's files. */
typedef char *part_paths[SH_SNAPSHOT_PARTS];

/* Writes all files of a snapshot under their waiting names, the manifest last, as it holds the
 * checksums of the others. */
static sh_status write_parts(part_paths paths, const sh_checkpoint *checkpoint) {
    sh_manifest manifest = {.info = checkpoint->info};
    char *waiting = waiting_path(paths[SH_SNAPSHOT_MANIFEST]);
    sh_status status;
    SH_TRY_OUT(waiting != NULL ? SH_OK : no_memory());
    SH_TRY_OUT(write_part(paths[SH_SNAPSHOT_MODEL], checkpoint, sh_checkpoint_save_model,
                          &manifest.model));
    if (checkpoint->slot_count > 0)
        SH_TRY_OUT(write_part(paths[SH_SNAPSHOT_OPTIMIZER], checkpoint, write_optimizer,
                              &manifest.optimizer));
    SH_TRY_OUT(sh_manifest_write(waiting, &manifest));
out:
    sh_manifest_file_fini(&manifest.model);
    sh_manifest_file_fini(&manifest.optimizer);
    sh_free(waiting);
    return status;
}

/* Writes a snapshot. All files are written under waiting names first, so a snapshot of this step
 * that exists stays as it is until then. Its manifest goes before any file is replaced and the new
 * one comes last, so no mixture of both ever looks whole. */
static sh_status save_files(part_paths paths, const sh_checkpoint *checkpoint) {
    SH_TRY(write_parts(paths, checkpoint));
    unlink(paths[SH_SNAPSHOT_MANIFEST]);
    SH_TRY(end_part(paths[SH_SNAPSHOT_MODEL], true));
    if (checkpoint->slot_count > 0) SH_TRY(end_part(paths[SH_SNAPSHOT_OPTIMIZER], true));
    SH_TRY(end_part(paths[SH_SNAPSHOT_MANIFEST], true));
    sh_sync_folder_of(paths[SH_SNAPSHOT_MANIFEST]);
    return SH_OK;
}

/* Prunes old snapshots only after the new one is whole. */
sh_status sh_checkpoint_save(const char *folder, const sh_checkpoint *checkpoint, int keep) {
    int64_t step = checkpoint->info.step;
    SH_ASSERT(step >= 0);
    SH_TRY(sh_make_folders(folder));
    part_paths paths = {NULL};
    bool named = true;
    for (int part = 0; part < SH_SNAPSHOT_PARTS; part++) {
        char name[SH_SNAPSHOT_NAME];
        paths[part] = sh_path_join(folder, sh_snapshot_name((sh_snapshot_part)part, step, name));
        named = named && paths[part] != NULL;
    }
    sh_status status = named ? save_files(paths, checkpoint) : no_memory();
    if (status == SH_OK) sh_snapshots_prune(folder, step, keep);
    for (int part = 0; part < SH_SNAPSHOT_PARTS; part++) {
        // A failed write leaves no waiting files behind.
        if (status != SH_OK && paths[part] != NULL) (void)end_part(paths[part], false);
        sh_free(paths[part]);
    }
    return status;
}
