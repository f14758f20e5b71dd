/* One file of a snapshot and what its manifest says of it: size, checksum, and a digest per
 * tensor, so that a damaged file is reported by the tensor that changed. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"

void sh_manifest_file_fini(sh_manifest_file *file) {
    sh_free(file->tensors);
    *file = (sh_manifest_file){0};
}

/* Digest of one tensor's bytes, shortened: it only has to tell which tensor changed. */
static void digest_of(const sh_tensor_entry *entry, char digest_out[SH_MANIFEST_DIGEST]) {
    char whole[SH_BLAKE2_HEX];
    sh_blake2_hex(entry->data, entry->bytes, whole);
    memcpy(digest_out, whole, SH_MANIFEST_DIGEST - 1);
    digest_out[SH_MANIFEST_DIGEST - 1] = '\0';
}

/* Digests of all tensors of a file, in the order of their data. */
static sh_status describe_tensors(const sh_safetensors *tensors, sh_manifest_file *file) {
    file->tensors = sh_alloc(tensors->count, sizeof *file->tensors);
    if (file->tensors == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a checkpoint's manifest");
    file->tensor_count = tensors->count;
    for (size_t i = 0; i < tensors->count; i++) {
        sh_manifest_tensor *tensor = &file->tensors[i];
        snprintf(tensor->name, sizeof tensor->name, "%s", tensors->entries[i].name);
        digest_of(&tensors->entries[i], tensor->digest);
    }
    return SH_OK;
}

/* Reads the file back from disk, so that the checksum is of what was really written. */
sh_status sh_manifest_describe(const char *path, const char *name, sh_manifest_file *file_out) {
    sh_safetensors tensors;
    SH_TRY(sh_safetensors_open(path, &tensors));
    sh_manifest_file file = {.bytes = (int64_t)tensors.file.bytes};
    snprintf(file.name, sizeof file.name, "%s", name);
    sh_blake2_hex(tensors.file.data, tensors.file.bytes, file.checksum);
    sh_status status = describe_tensors(&tensors, &file);
    sh_safetensors_close(&tensors);
    if (status == SH_OK) *file_out = file;
    return status;
}

/* Names the first tensor that differs from its digest, and how many more there are. False: none
 * differs, or the file is too damaged to tell. */
static bool name_damaged(const sh_mapped *mapped, const sh_manifest_file *file, char *text_out,
                         size_t size) {
    sh_safetensors tensors;
    const char *first = NULL;
    size_t damaged = 0;
    // A damaged header cannot tell where tensors lie.
    if (sh_safetensors_parse("", mapped->data, mapped->bytes, &tensors) != SH_OK) return false;
    for (size_t i = 0; i < file->tensor_count; i++) {
        const sh_tensor_entry *entry = sh_safetensors_find(&tensors, file->tensors[i].name);
        char digest[SH_MANIFEST_DIGEST] = "";
        if (entry != NULL) digest_of(entry, digest);
        if (strcmp(digest, file->tensors[i].digest) == 0) continue;
        if (damaged++ == 0) first = file->tensors[i].name;
    }
    sh_safetensors_close(&tensors);
    if (damaged == 1)
        snprintf(text_out, size, "tensor '%s' is not what was written", first);
    else if (damaged > 1)
        snprintf(text_out, size, "tensor '%s' and %zu more are not what was written", first,
                 damaged - 1);
    return damaged > 0;
}

/* Reports a wrong checksum, with the first damaged tensor where it can be told. */
static sh_status fail_damaged(const char *path, const sh_mapped *mapped,
                              const sh_manifest_file *file) {
    char text[SH_MANIFEST_TENSOR + 64];
    if (name_damaged(mapped, file, text, sizeof text))
        return SH_FAIL(SH_E_FORMAT, "'%s' is damaged: %s", path, text);
    bool header = file->tensor_count > 0;
    return SH_FAIL(SH_E_FORMAT, "'%s' is damaged: its checksum does not hold%s", path,
                   header ? ", and the damage is in its header" : "");
}

/* Compares the size first, which needs no reading, then the checksum. */
sh_status sh_manifest_check(const char *path, const sh_manifest_file *file) {
    sh_mapped mapped = {0};
    sh_status status;
    SH_TRY_OUT(sh_file_map(path, &mapped));
    // A cut file is told by its size alone.
    if (mapped.bytes != (uint64_t)file->bytes) {
        status = SH_FAIL(SH_E_FORMAT, "'%s' has %zu of %lld bytes", path, mapped.bytes,
                         (long long)file->bytes);
        goto out;
    }
    char checksum[SH_BLAKE2_HEX];
    sh_blake2_hex(mapped.data, mapped.bytes, checksum);
    if (strcmp(checksum, file->checksum) != 0) status = fail_damaged(path, &mapped, file);
out:
    sh_file_unmap(&mapped);
    return status;
}
