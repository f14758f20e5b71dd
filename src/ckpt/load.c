/* Reading checkpoints. Nothing is copied into the model before everything was checked: the
 * manifest's own checksum, the files' checksums, names and shapes against the net, and that no
 * value is NaN. A damaged snapshot is passed over for the one before, with a warning. */
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
#include "ckpt/match.h"

static sh_status no_memory(void) { return SH_FAIL(SH_E_MEMORY, "out of memory for a checkpoint"); }

/* Path of a file in the folder of `manifest`. NULL: out of memory. The caller frees it. */
static char *beside(const char *manifest, const char *name) {
    const char *slash = strrchr(manifest, '/');
    int folder_length = slash != NULL ? (int)(slash - manifest) + 1 : 0;
    return sh_format("%.*s%s", folder_length, manifest, name);
}

/* Checks one file that `manifest` names against size and checksum; a part that the snapshot lacks
 * is fine. */
static sh_status check_file(const char *manifest, const sh_manifest_file *file) {
    if (file->name[0] == '\0') return SH_OK;
    char *path = beside(manifest, file->name);
    sh_status status = path != NULL ? sh_manifest_check(path, file) : no_memory();
    sh_free(path);
    return status;
}

/* Reads a manifest and makes sure that its files are what it says. The caller finishes it. */
static sh_status read_whole(const char *path, sh_manifest *manifest_out) {
    sh_manifest manifest;
    SH_TRY(sh_manifest_read(path, &manifest));
    sh_status status = check_file(path, &manifest.model);
    if (status == SH_OK) status = check_file(path, &manifest.optimizer);
    if (status == SH_OK)
        *manifest_out = manifest;
    else
        sh_manifest_fini(&manifest);
    return status;
}

/* Tells "no snapshot at all" from "only damaged ones", since the next steps differ. */
static sh_status none_found(const char *folder, size_t damaged) {
    if (damaged > 0) {
        SH_FAIL(SH_E_FORMAT, "'%s' holds %zu checkpoint%s and all are damaged", folder, damaged,
                damaged == 1 ? "" : "s");
        return sh_error_hint("bring one back from a copy, or start the run anew");
    }
    SH_FAIL(SH_E_IO, "there is no checkpoint in '%s'", folder);
    return sh_error_hint("give a run's folder, its checkpoints folder or a manifest");
}

/* Finds the newest whole snapshot of a folder up to step `most`. Damaged ones are skipped with a
 * warning, so that a crash while writing costs one interval. */
static sh_status newest(const char *folder, int64_t most, const sh_log *log, char **path_out,
                        sh_manifest *manifest_out) {
    int64_t *steps = NULL;
    size_t count = 0, damaged = 0;
    SH_TRY(sh_snapshots_list(folder, &steps, &count));
    char *found = NULL;
    for (size_t i = 0; found == NULL && i < count; i++) {
        // Snapshots later than asked for are passed over.
        if (steps[i] > most) continue;
        char name[SH_SNAPSHOT_NAME];
        char *path = sh_path_join(folder, sh_snapshot_name(SH_SNAPSHOT_MANIFEST, steps[i], name));
        if (path == NULL) break;
        if (read_whole(path, manifest_out) == SH_OK) {
            found = path;
        } else {
            SH_WARN(log, "checkpoint '%s' is skipped: %s", path, sh_error_last()->text);
            damaged++;
            sh_free(path);
        }
    }
    sh_free(steps);
    if (found == NULL) return none_found(folder, damaged);
    *path_out = found;
    return SH_OK;
}

/* Looks in `folder`/checkpoints if there is such a folder, else in `folder`. The caller frees the
 * path and finishes the manifest. */
static sh_status find_in(const char *folder, int64_t most, const sh_log *log, char **path_out,
                         sh_manifest *manifest_out) {
    char *inside = sh_path_join(folder, "checkpoints");
    if (inside == NULL) return no_memory();
    sh_status status =
        newest(sh_is_folder(inside) ? inside : folder, most, log, path_out, manifest_out);
    sh_free(inside);
    return status;
}

/* Checks that the path exists, for a clear message before anything is opened. */
static sh_status check_there(const char *path) {
    if (access(path, F_OK) == 0) return SH_OK;
    SH_FAIL(SH_E_IO, "cannot open '%s': %s", path, strerror(errno));
    return sh_error_hint("give a run's folder, its checkpoints folder, a manifest or a model file");
}

/* Resolves a run's folder, a checkpoints folder or a manifest. A damaged manifest that was named
 * itself is an error. The caller frees the path and finishes the manifest. */
static sh_status find(const char *path, const sh_log *log, char **path_out,
                      sh_manifest *manifest_out) {
    SH_TRY(check_there(path));
    if (!sh_is_folder(path)) {
        SH_TRY(read_whole(path, manifest_out));
        *path_out = sh_strdup(path);
        if (*path_out != NULL) return SH_OK;
        sh_manifest_fini(manifest_out);
        return no_memory();
    }
    return find_in(path, INT64_MAX, log, path_out, manifest_out);
}

/* For recovery: excludes snapshots of steps that this run has yet to reach, which an earlier run
 * may have left. */
sh_status sh_checkpoint_find_before(const char *folder, int64_t step, const sh_log *log,
                                    char **manifest_out) {
    sh_manifest manifest;
    SH_TRY(find_in(folder, step, log, manifest_out, &manifest));
    sh_manifest_fini(&manifest);
    return SH_OK;
}

/* Moves the info out of the manifest, so that finishing it leaves the texts alone. */
static sh_checkpoint_info take_info(sh_manifest *manifest) {
    sh_checkpoint_info info = manifest->info;
    manifest->info = (sh_checkpoint_info){0};
    return info;
}

sh_status sh_checkpoint_find(const char *path, const sh_log *log, char **manifest_out,
                             sh_checkpoint_info *info_out) {
    sh_manifest manifest;
    SH_TRY(find(path, log, manifest_out, &manifest));
    if (info_out != NULL) *info_out = take_info(&manifest);
    sh_manifest_fini(&manifest);
    return SH_OK;
}

/* Slots that come and go with the codec and the number of workers; worth a warning, no failure. */
typedef struct slot_changes {
    char anew[64];  // slots that the file lacks
    char left[64];  // that only the file has
} slot_changes;

/* Appends a slot's name to a list for the warning; a long list is cut. */
static void add_name(char text[64], const char *name) {
    size_t length = strlen(text);
    snprintf(text + length, 64 - length, "%s%s", length > 0 ? ", " : "", name);
}

/* Pairs optimizer and codec slots with the file's tensors. Slots of a codec that is no longer used
 * may stay behind in the file. */
static sh_status match_slots(sh_match *match, const sh_checkpoint *into, slot_changes *change) {
    for (size_t i = 0; i < into->slot_count; i++) {
        const sh_checkpoint_slot *slot = &into->slots[i];
        const sh_param_list *params = sh_checkpoint_slot_params(into, i);
        bool may_lack =
            slot->optional || (slot->instead != NULL && sh_match_has(match, params, slot->instead));
        if (may_lack && !sh_match_has(match, params, slot->name))
            add_name(change->anew, slot->name);
        else
            SH_TRY(sh_match_list(match, params, slot->name, slot->values));
    }
    uint32_t found = 0;
    SH_TRY(sh_match_end(match, into->left_out, &found));
    for (size_t i = 0; found >> i != 0; i++)
        if ((found >> i & 1) != 0) add_name(change->left, into->left_out[i]);
    return SH_OK;
}

/* Warns about slots that start anew or were left out, since the run then goes on differently. */
static void tell_change(const char *source, const slot_changes *change, const sh_log *log) {
    if (change->anew[0] == '\0' && change->left[0] == '\0') return;
    SH_WARN(log, "'%s' is of another codec or number of workers; starts anew: %s; left out: %s",
            source, change->anew[0] != '\0' ? change->anew : "nothing",
            change->left[0] != '\0' ? change->left : "nothing");
}

/* Opens the files of a snapshot, compares them with the model and only then copies, so that a
 * misfit leaves all blocks unchanged. */
static sh_status load_blocks(const char *manifest_path, const sh_manifest *manifest,
                             const sh_log *log, const sh_checkpoint *into) {
    slot_changes change = {0};
    sh_safetensors model = {0}, optimizer = {0};
    char *model_path = beside(manifest_path, manifest->model.name);
    // Without slots the name is empty and this is only the folder; it is not opened then.
    char *optimizer_path = beside(manifest_path, manifest->optimizer.name);
    sh_status status = SH_OK;
    sh_match match = {.source = model_path, .tensors = &model};
    sh_match slots = {.source = optimizer_path, .tensors = &optimizer};
    if (model_path == NULL || optimizer_path == NULL) {
        status = no_memory();
        goto out;
    }
    SH_TRY_OUT(sh_safetensors_open(model_path, &model));
    if (manifest->optimizer.name[0] != '\0')
        SH_TRY_OUT(sh_safetensors_open(optimizer_path, &optimizer));
    else
        slots.source = manifest_path;  // has no slots: what is missing is missing there
    SH_TRY_OUT(sh_match_list(&match, into->params, NULL, into->weights));
    // Only the weights are paired so far, so only they are checked.
    SH_TRY_OUT(sh_match_check_finite(&match));
    SH_TRY_OUT(sh_match_list(&match, into->state, NULL, into->state_values));
    SH_TRY_OUT(sh_match_end(&match, NULL, NULL));
    SH_TRY_OUT(match_slots(&slots, into, &change));
    // From here on nothing can fail.
    sh_match_copy(&match);
    sh_match_copy(&slots);
    tell_change(slots.source, &change, log);
out:
    sh_match_fini(&match);
    sh_match_fini(&slots);
    sh_safetensors_close(&model);
    sh_safetensors_close(&optimizer);
    sh_free(model_path);
    sh_free(optimizer_path);
    return status;
}

/* A folder means its newest whole snapshot. A model file alone is refused: it has no optimizer
 * state and no position. */
sh_status sh_checkpoint_load(const char *path, const sh_log *log, sh_checkpoint *into) {
    if (sh_name_ends_in(path, ".safetensors")) {
        SH_FAIL(SH_E_USAGE, "'%s' is a model alone, without the state of its run", path);
        return sh_error_hint("resume from the run's folder or from a manifest");
    }
    char *manifest_path = NULL;
    sh_manifest manifest;
    SH_TRY(find(path, log, &manifest_path, &manifest));
    // find() sets it on success.
    SH_ASSERT(manifest_path != NULL);
    sh_status status = load_blocks(manifest_path, &manifest, log, into);
    if (status == SH_OK) into->info = take_info(&manifest);
    sh_manifest_fini(&manifest);
    sh_free(manifest_path);
    return status;
}

/* Checks a model file against the manifest beside it, if one names it. If that manifest cannot be
 * read, a warning suffices: the model file may be all that is left. */
static sh_status check_alone(const char *path, const sh_log *log) {
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    sh_snapshot_part part;
    int64_t step;
    char manifest_name[SH_SNAPSHOT_NAME];
    if (!sh_snapshot_parse(name, &part, &step) || part != SH_SNAPSHOT_MODEL) return SH_OK;
    char *manifest_path = beside(path, sh_snapshot_name(SH_SNAPSHOT_MANIFEST, step, manifest_name));
    if (manifest_path == NULL) return no_memory();
    sh_manifest manifest = {0};
    sh_status status = SH_OK;
    if (sh_file_exists(manifest_path) && sh_manifest_read(manifest_path, &manifest) != SH_OK)
        SH_WARN(log, "'%s' is used unchecked: %s", path, sh_error_last()->text);
    // A manifest that names another file says nothing about this one.
    if (strcmp(manifest.model.name, name) == 0) status = sh_manifest_check(path, &manifest.model);
    // Damage, in contrast to a file that cannot be read.
    if (status == SH_E_FORMAT)
        status = sh_error_hint(
            "take another checkpoint, or bring it back from a copy; a file that "
            "was changed on purpose can be used from another folder");
    sh_manifest_fini(&manifest);
    sh_free(manifest_path);
    return status;
}

/* Model file that `path` means: itself, or that of the snapshot it leads to. The caller frees
 * it. */
static sh_status model_file(const char *path, const sh_log *log, char **file_out) {
    SH_TRY(check_there(path));
    if (!sh_is_folder(path) && !sh_name_ends_in(path, ".json")) {
        SH_TRY(check_alone(path, log));
        *file_out = sh_strdup(path);
        return *file_out != NULL ? SH_OK : no_memory();
    }
    char *manifest_path = NULL;
    sh_manifest manifest;
    SH_TRY(find(path, log, &manifest_path, &manifest));
    SH_ASSERT(manifest_path != NULL);
    *file_out = beside(manifest_path, manifest.model.name);
    sh_manifest_fini(&manifest);
    sh_free(manifest_path);
    return *file_out != NULL ? SH_OK : no_memory();
}

/* Loads weights and running statistics alone, for evaluation and transfer. */
sh_status sh_checkpoint_load_model(const char *path, const sh_log *log, const sh_param_list *params,
                                   float *weights, const sh_param_list *state,
                                   float *state_values) {
    char *file;
    SH_TRY(model_file(path, log, &file));
    sh_safetensors tensors = {0};
    sh_match match = {.source = file, .tensors = &tensors};
    sh_status status;
    SH_TRY_OUT(sh_safetensors_open(file, &tensors));
    SH_TRY_OUT(sh_match_list(&match, params, NULL, weights));
    SH_TRY_OUT(sh_match_check_finite(&match));
    SH_TRY_OUT(sh_match_list(&match, state, NULL, state_values));
    SH_TRY_OUT(sh_match_end(&match, NULL, NULL));
    sh_match_copy(&match);
out:
    sh_match_fini(&match);
    sh_safetensors_close(&tensors);
    sh_free(file);
    return status;
}

/* Copies a note of a model file; NULL if it has none. */
static sh_status read_note(const char *file, const char *key, char **text_out) {
    sh_safetensors tensors = {0};
    SH_TRY(sh_safetensors_open(file, &tensors));
    // Borrowed from the mapping, hence the copy.
    const char *note = sh_safetensors_note(&tensors, key);
    *text_out = note != NULL ? sh_strdup(note) : NULL;
    bool failed = note != NULL && *text_out == NULL;
    sh_safetensors_close(&tensors);
    return failed ? no_memory() : SH_OK;
}

/* The net's description as YAML, from the notes of the model file. Files of other programs have
 * none, so that is an error with a next step. */
sh_status sh_checkpoint_model_text(const char *path, const sh_log *log, char **text_out) {
    char *file, *text = NULL;
    SH_TRY(model_file(path, log, &file));
    sh_status status = read_note(file, "shoal.model", &text);
    if (status == SH_OK && text == NULL) {
        SH_FAIL(SH_E_FORMAT, "'%s' does not say which model it belongs to", file);
        status = sh_error_hint("name the model as well");
    }
    if (status == SH_OK) *text_out = text;
    sh_free(file);
    return status;
}

/* A missing note is no error here: the caller then measures or asks. */
sh_status sh_checkpoint_facts_text(const char *path, const sh_log *log, char **text_out,
                                   char **file_out) {
    char *file, *text = NULL;
    SH_TRY(model_file(path, log, &file));
    sh_status status = read_note(file, "shoal.data", &text);
    bool found = status == SH_OK && text != NULL;
    if (status == SH_OK) {
        *text_out = text;
        *file_out = found ? file : NULL;
    }
    if (!found) sh_free(file);
    return status;
}
