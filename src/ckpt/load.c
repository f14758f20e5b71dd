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

/* The path of a file that lies beside `manifest`. NULL: out of memory. */
static char *beside(const char *manifest, const char *name) {
    const char *slash = strrchr(manifest, '/');
    int folder_length = slash != NULL ? (int)(slash - manifest) + 1 : 0;
    return sh_format("%.*s%s", folder_length, manifest, name);
}

/* `file` is one that `manifest` names. */
static sh_status check_file(const char *manifest, const sh_manifest_file *file) {
    if (file->name[0] == '\0') return SH_OK;
    char *path = beside(manifest, file->name);
    sh_status status = path != NULL ? sh_manifest_check(path, file) : no_memory();
    sh_free(path);
    return status;
}

/* Reads a manifest and makes sure that its files are what it says. Caller finishes it. */
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

/* No snapshot at all, or only damaged ones: different next steps. */
static sh_status none_found(const char *folder, size_t damaged) {
    if (damaged > 0) {
        SH_FAIL(SH_E_FORMAT, "'%s' holds %zu checkpoint%s and all are damaged", folder, damaged,
                damaged == 1 ? "" : "s");
        return sh_error_hint("bring one back from a copy, or start the run anew");
    }
    SH_FAIL(SH_E_IO, "there is no checkpoint in '%s'", folder);
    return sh_error_hint("give a run's folder, its checkpoints folder or a manifest");
}

/* The newest whole snapshot of a folder, up to step `most`. */
static sh_status newest(const char *folder, int64_t most, const sh_log *log, char **path_out,
                        sh_manifest *manifest_out) {
    int64_t *steps = NULL;
    size_t count = 0, damaged = 0;
    SH_TRY(sh_snapshots_list(folder, &steps, &count));
    char *found = NULL;
    for (size_t i = 0; found == NULL && i < count; i++) {
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

/* Caller frees the path and finishes the manifest. */
static sh_status find_in(const char *folder, int64_t most, const sh_log *log, char **path_out,
                         sh_manifest *manifest_out) {
    char *inside = sh_path_join(folder, "checkpoints");
    if (inside == NULL) return no_memory();
    sh_status status =
        newest(sh_is_folder(inside) ? inside : folder, most, log, path_out, manifest_out);
    sh_free(inside);
    return status;
}

/* A clear message before anything is opened. */
static sh_status check_there(const char *path) {
    if (access(path, F_OK) == 0) return SH_OK;
    SH_FAIL(SH_E_IO, "cannot open '%s': %s", path, strerror(errno));
    return sh_error_hint("give a run's folder, its checkpoints folder, a manifest or a model file");
}

/* Caller frees the path and finishes manifest->info. */
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

/* For recovery: not a snapshot that this run has yet to reach. */
sh_status sh_checkpoint_find_before(const char *folder, int64_t step, const sh_log *log,
                                    char **manifest_out) {
    sh_manifest manifest;
    SH_TRY(find_in(folder, step, log, manifest_out, &manifest));
    sh_manifest_fini(&manifest);
    return SH_OK;
}

/* The manifest's texts, to be kept. */
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

/* What comes and goes with the codec and the number of workers is worth a word, no more. */
typedef struct slot_changes {
    char anew[64];  // slots that the file lacks
    char left[64];  // that only the file has
} slot_changes;

/* Slots that a message lists. */
static void add_name(char text[64], const char *name) {
    size_t length = strlen(text);
    snprintf(text + length, 64 - length, "%s%s", length > 0 ? ", " : "", name);
}

/* Optimizer and codec state; state of a codec that is not used any more may stay behind. */
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

/* A warning, since the run goes on otherwise than before. */
static void tell_change(const char *source, const slot_changes *change, const sh_log *log) {
    if (change->anew[0] == '\0' && change->left[0] == '\0') return;
    SH_WARN(log, "'%s' is of another codec or number of workers; starts anew: %s; left out: %s",
            source, change->anew[0] != '\0' ? change->anew : "nothing",
            change->left[0] != '\0' ? change->left : "nothing");
}

/* Opens the files of a snapshot and compares them with the model, before anything is copied. */
static sh_status load_blocks(const char *manifest_path, const sh_manifest *manifest,
                             const sh_log *log, const sh_checkpoint *into) {
    slot_changes change = {0};
    sh_safetensors model = {0}, optimizer = {0};
    char *model_path = beside(manifest_path, manifest->model.name);
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
    SH_TRY_OUT(sh_match_check_finite(&match));
    SH_TRY_OUT(sh_match_list(&match, into->state, NULL, into->state_values));
    SH_TRY_OUT(sh_match_end(&match, NULL, NULL));
    SH_TRY_OUT(match_slots(&slots, into, &change));
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

/* A folder means its newest whole snapshot. */
sh_status sh_checkpoint_load(const char *path, const sh_log *log, sh_checkpoint *into) {
    if (sh_name_ends_in(path, ".safetensors")) {
        SH_FAIL(SH_E_USAGE, "'%s' is a model alone, without the state of its run", path);
        return sh_error_hint("resume from the run's folder or from a manifest");
    }
    char *manifest_path = NULL;
    sh_manifest manifest;
    SH_TRY(find(path, log, &manifest_path, &manifest));
    SH_ASSERT(manifest_path != NULL);
    sh_status status = load_blocks(manifest_path, &manifest, log, into);
    if (status == SH_OK) into->info = take_info(&manifest);
    sh_manifest_fini(&manifest);
    sh_free(manifest_path);
    return status;
}

/* A model file that lies beside the manifest which names it must be what that says. Where the
 * manifest itself cannot be read, a warning: the file may be all that is left. */
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
    if (strcmp(manifest.model.name, name) == 0) status = sh_manifest_check(path, &manifest.model);
    if (status == SH_E_FORMAT)
        status = sh_error_hint(
            "take another checkpoint, or bring it back from a copy; a file that "
            "was changed on purpose can be used from another folder");
    sh_manifest_fini(&manifest);
    sh_free(manifest_path);
    return status;
}

/* The model file that `path` means: itself, or that of the snapshot it leads to. sh_free it. */
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

/* Weights and running statistics alone, for evaluation and transfer. */
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

/* A note of a model file, NULL: it has none. */
static sh_status read_note(const char *file, const char *key, char **text_out) {
    sh_safetensors tensors = {0};
    SH_TRY(sh_safetensors_open(file, &tensors));
    const char *note = sh_safetensors_note(&tensors, key);
    *text_out = note != NULL ? sh_strdup(note) : NULL;
    bool failed = note != NULL && *text_out == NULL;
    sh_safetensors_close(&tensors);
    return failed ? no_memory() : SH_OK;
}

/* The net's description, as YAML, from the notes of the model file. */
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
