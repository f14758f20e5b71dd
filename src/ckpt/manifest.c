/* The manifest: the files of a snapshot with their checksums, the position of the run, and what
 * fixes its bits (seed, kernels, layout). JSON with a checksum over itself, so that a flipped bit
 * anywhere is found. It is written last: a snapshot without a manifest is none. */
#include "ckpt/manifest.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/json.h"

enum { FORMAT_VERSION = 1 };  // to be raised by changes that older readers would misread
static const char format_name[] = "shoal checkpoint";

void sh_checkpoint_info_fini(sh_checkpoint_info *info) {
    sh_free(info->data);
    sh_free(info->model);
    sh_free(info->kernels);
    *info = (sh_checkpoint_info){0};
}

void sh_manifest_fini(sh_manifest *manifest) {
    sh_checkpoint_info_fini(&manifest->info);
    sh_manifest_file_fini(&manifest->model);
    sh_manifest_file_fini(&manifest->optimizer);
}

static sh_status no_memory(void) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for a checkpoint's manifest");
}

/* One file: name, size, checksum, and a short digest per tensor, so that damage can be named. */
static json_t *file_json(const sh_manifest_file *file) {
    json_t *map = json_pack("{s:s, s:I, s:s}", "name", file->name, "bytes", (json_int_t)file->bytes,
                            "blake2b", file->checksum);
    if (file->tensor_count == 0) return map;
    json_t *tensors = json_object();
    for (size_t i = 0; i < file->tensor_count; i++)
        json_object_set_new(tensors, file->tensors[i].name, json_string(file->tensors[i].digest));
    json_object_set_new(map, "tensors", tensors);
    return map;
}

/* The manifest as JSON. Members stand in a fixed order, so equal manifests are equal bytes. */
static json_t *manifest_json(const sh_manifest *manifest) {
    const sh_checkpoint_info *info = &manifest->info;
    json_t *files = json_pack("{s:o}", "model", file_json(&manifest->model));
    if (manifest->optimizer.name[0] != '\0')
        json_object_set_new(files, "optimizer", file_json(&manifest->optimizer));
    json_t *root =
        json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:s?, s:s?, s:s?, s:o}",    //
                  "format", format_name, "version", FORMAT_VERSION, "shoal", SHOAL_VERSION,  //
                  "step", (json_int_t)info->step, "epoch", (json_int_t)info->epoch,          //
                  "batch", (json_int_t)info->batch, "samples", (json_int_t)info->samples,    //
                  "seed", (json_int_t)info->seed,                                            //
                  "best", isfinite(info->best) ? json_real(info->best) : json_null(),        //
                  "data", info->data, "model", info->model, "kernels", info->kernels,        //
                  "files", files);
    // Members that most manifests lack are left out.
    if (root != NULL && info->workers > 0)
        json_object_set_new(root, "workers", json_integer((json_int_t)info->workers));
    if (root != NULL && info->of_batch > 0)
        json_object_set_new(root, "global_batch", json_integer((json_int_t)info->of_batch));
    return root;
}

/* BLAKE2b of the compact form without the checksum itself. Readers recompute it from the parsed
 * text, so white space does not count. */
static sh_status checksum_of(const json_t *root, char hex_out[SH_BLAKE2_HEX]) {
    char *text = json_dumps(root, JSON_COMPACT);
    if (text == NULL) return no_memory();
    sh_blake2_hex(text, strlen(text), hex_out);
    free(text);
    return SH_OK;
}

/* Indented, for people who look into it. */
sh_status sh_manifest_write(const char *path, const sh_manifest *manifest) {
    json_t *root = manifest_json(manifest);
    if (root == NULL)
        return SH_FAIL(SH_E_FORMAT, "a text for '%s' is not valid UTF-8, or memory ran out", path);
    char checksum[SH_BLAKE2_HEX];
    char *text = NULL, *line = NULL;
    sh_status status;
    SH_TRY_OUT(checksum_of(root, checksum));
    // Added last: the checksum covers all other members.
    json_object_set_new(root, "checksum", json_string(checksum));
    text = json_dumps(root, JSON_INDENT(2));
    line = text != NULL ? sh_format("%s\n", text) : NULL;
    status = line != NULL ? sh_file_write(path, line, strlen(line)) : no_memory();
out:
    sh_free(line);
    free(text);
    json_decref(root);
    return status;
}

/* Reports a fault with the file's name. */
static sh_status bad(const char *source, const char *what) {
    return SH_FAIL(SH_E_FORMAT, "'%.300s' is not a sound checkpoint manifest: %s", source, what);
}

/* Reads a count: an integer from 0 on. */
static sh_status read_number(const char *source, const json_t *map, const char *key,
                             int64_t *number_out) {
    const json_t *value = json_object_get(map, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        char what[64];
        snprintf(what, sizeof what, "'%s' is not a count", key);
        return bad(source, what);
    }
    *number_out = json_integer_value(value);
    return SH_OK;
}

/* Reads a text or null. The caller owns it. */
static sh_status read_text(const char *source, const json_t *map, const char *key,
                           char **text_out) {
    const json_t *value = json_object_get(map, key);
    if (json_is_null(value)) return SH_OK;
    if (!json_is_string(value)) return bad(source, "a text is missing");
    char *text = sh_strdup(json_string_value(value));
    if (text == NULL) return no_memory();
    *text_out = text;
    return SH_OK;
}

/* Reads the digests per tensor; older manifests have none. */
static sh_status read_tensors(const char *source, json_t *map, sh_manifest_file *file_out) {
    if (map == NULL) return SH_OK;
    if (!json_is_object(map)) return bad(source, "'tensors' is no map");
    size_t count = json_object_size(map);
    sh_manifest_tensor *tensors = sh_alloc(count, sizeof *tensors);
    if (tensors == NULL) return no_memory();
    file_out->tensors = tensors;
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value) {
        const char *digest = json_string_value(value);
        if (strlen(name) >= SH_MANIFEST_TENSOR || digest == NULL ||
            strlen(digest) != SH_MANIFEST_DIGEST - 1)
            return bad(source, "a tensor's checksum is missing");
        sh_manifest_tensor *tensor = &tensors[file_out->tensor_count++];
        memcpy(tensor->name, name, strlen(name) + 1);
        memcpy(tensor->digest, digest, SH_MANIFEST_DIGEST);
    }
    return SH_OK;
}

/* Reads one file's entry. Names come from outside: only plain names beside the manifest are
 * followed, so no manifest can lead to other folders. */
static sh_status read_file(const char *source, const json_t *map, sh_manifest_file *file_out) {
    const char *name = json_string_value(json_object_get(map, "name"));
    const char *checksum = json_string_value(json_object_get(map, "blake2b"));
    // No empty name, no hidden file, no path.
    if (name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL ||
        strlen(name) >= SH_MANIFEST_NAME)
        return bad(source, "a file's name is not a plain name");
    if (checksum == NULL || strlen(checksum) != SH_BLAKE2_HEX - 1)
        return bad(source, "a file's checksum is missing");
    SH_TRY(read_number(source, map, "bytes", &file_out->bytes));
    memcpy(file_out->name, name, strlen(name) + 1);
    memcpy(file_out->checksum, checksum, SH_BLAKE2_HEX);
    return read_tensors(source, json_object_get(map, "tensors"), file_out);
}

/* Accepts exactly one version; another is refused with its number. */
static sh_status check_format(const char *source, const json_t *root) {
    const char *format = json_string_value(json_object_get(root, "format"));
    if (format == NULL || strcmp(format, format_name) != 0)
        return bad(source, "it does not say that it is one");
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    if (version == FORMAT_VERSION) return SH_OK;
    SH_FAIL(SH_E_UNSUPPORTED, "'%.300s' has format version %" JSON_INTEGER_FORMAT, source, version);
    return sh_error_hint("this Shoal (%s) reads version %d", SHOAL_VERSION, FORMAT_VERSION);
}

/* Compares the stored checksum; takes it out of `root`, since it does not cover itself. */
static sh_status check_checksum(const char *source, json_t *root) {
    const char *text = json_string_value(json_object_get(root, "checksum"));
    if (text == NULL || strlen(text) != SH_BLAKE2_HEX - 1)
        return bad(source, "its checksum is missing");
    char stored[SH_BLAKE2_HEX], actual[SH_BLAKE2_HEX];
    memcpy(stored, text, sizeof stored);
    json_object_del(root, "checksum");  // it does not cover itself
    SH_TRY(checksum_of(root, actual));
    return strcmp(stored, actual) == 0 ? SH_OK : bad(source, "its checksum does not hold");
}

/* Reads all members; what older manifests lack gets a default. */
static sh_status read_root(const char *source, const json_t *root, sh_manifest *manifest) {
    sh_checkpoint_info *info = &manifest->info;
    SH_TRY(read_number(source, root, "step", &info->step));
    SH_TRY(read_number(source, root, "epoch", &info->epoch));
    SH_TRY(read_number(source, root, "batch", &info->batch));
    SH_TRY(read_number(source, root, "samples", &info->samples));
    const json_t *seed = json_object_get(root, "seed"), *best = json_object_get(root, "best");
    if (!json_is_integer(seed)) return bad(source, "'seed' is not a number");
    // JSON integers are signed; the bits of a large seed come back by the cast.
    info->seed = (uint64_t)json_integer_value(seed);
    info->best = json_is_number(best) ? json_number_value(best) : NAN;
    if (json_object_get(root, "workers") != NULL)
        SH_TRY(read_number(source, root, "workers", &info->workers));
    // Bounds what a load allocates per worker.
    if (info->workers > 65536) return bad(source, "'workers' is too large");
    if (json_object_get(root, "global_batch") != NULL)
        SH_TRY(read_number(source, root, "global_batch", &info->of_batch));
    SH_TRY(read_text(source, root, "data", &info->data));
    SH_TRY(read_text(source, root, "model", &info->model));
    SH_TRY(read_text(source, root, "kernels", &info->kernels));
    const json_t *files = json_object_get(root, "files");
    SH_TRY(read_file(source, json_object_get(files, "model"), &manifest->model));
    const json_t *optimizer = json_object_get(files, "optimizer");
    return optimizer != NULL ? read_file(source, optimizer, &manifest->optimizer) : SH_OK;
}

/* Parses a manifest from memory, for sh_manifest_read, the tests and the fuzzer. */
sh_status sh_manifest_parse(const char *source, const char *text, size_t bytes,
                            sh_manifest *manifest_out) {
    char fault[SH_JSON_FAULT];
    json_t *root = sh_json_read_map(text, bytes, fault);
    if (root == NULL) return bad(source, fault);
    sh_manifest manifest = {0};
    sh_status status = check_format(source, root);
    if (status == SH_OK) status = read_root(source, root, &manifest);
    if (status == SH_OK) status = check_checksum(source, root);
    json_decref(root);
    if (status == SH_OK)
        *manifest_out = manifest;
    else
        sh_manifest_fini(&manifest);
    return status;
}

sh_status sh_manifest_read(const char *path, sh_manifest *manifest_out) {
    sh_mapped file;
    SH_TRY(sh_file_map(path, &file));
    sh_status status = sh_manifest_parse(path, (const char *)file.data, file.bytes, manifest_out);
    sh_file_unmap(&file);
    return status;
}
