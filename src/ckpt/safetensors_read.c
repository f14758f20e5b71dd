/* Reading safetensors files without believing them: sizes, types, names and places come from
 * outside. Every tensor must lie inside the file, fit its shape, and together they must cover the
 * data exactly once, so no byte is read twice and none is hidden. */
#include "ckpt/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/json.h"
#include "base/text.h"

/* Reports damage with the line of the check that found it, as SH_FAIL does. */
#define FAIL_FORMAT(source, ...) fail_format((source), __LINE__, __VA_ARGS__)

__attribute__((format(printf, 3, 4))) static sh_status fail_format(const char *source, int line,
                                                                   const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    sh_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sh_error_set(SH_E_FORMAT, __FILE__, line, "'%.300s' is not a sound safetensors file: %s",
                 source, text);
    return sh_error_hint("fetch or write it again; it may be cut short or damaged");
}

/* Reads a dtype by its name in the format. */
static sh_status parse_type(const char *source, const char *name, const json_t *text,
                            sh_tensor_type *type_out) {
    const char *wanted = json_string_value(text);
    if (wanted == NULL) return FAIL_FORMAT(source, "tensor '%.80s' has no dtype", name);
    for (int type = 0; sh_tensor_type_name((sh_tensor_type)type) != NULL; type++)
        if (strcmp(sh_tensor_type_name((sh_tensor_type)type), wanted) == 0) {
            *type_out = (sh_tensor_type)type;
            return SH_OK;
        }
    return FAIL_FORMAT(source, "tensor '%.80s' has the unknown dtype '%.20s'", name, wanted);
}

/* Reads a shape. Rank and signs are checked here, the product with overflow check in
 * parse_place. */
static sh_status parse_shape(const char *source, const char *name, const json_t *list,
                             sh_shape *shape_out) {
    if (!json_is_array(list)) return FAIL_FORMAT(source, "tensor '%.80s' has no shape", name);
    size_t rank = json_array_size(list);
    // A valid file, but with more dimensions than any layer here has.
    if (rank > SH_RANK_MOST) {
        SH_FAIL(SH_E_UNSUPPORTED, "'%.300s': tensor '%.80s' has %zu dimensions", source, name,
                rank);
        return sh_error_hint("store it with at most %d dimensions", SH_RANK_MOST);
    }
    sh_shape shape = {.rank = (int)rank};
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(list, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return FAIL_FORMAT(source, "tensor '%.80s' has a dimension that is no size", name);
        shape.dim[i] = json_integer_value(dim);
    }
    *shape_out = shape;
    return SH_OK;
}

/* The entry's place in the data; `begin` stays behind in `data` until all are known. */
static sh_status parse_place(const char *source, const json_t *list, const unsigned char *data,
                             size_t bytes, sh_tensor_entry *entry) {
    const json_t *from = json_array_get(list, 0), *to = json_array_get(list, 1);
    if (json_array_size(list) != 2 || !json_is_integer(from) || !json_is_integer(to))
        return FAIL_FORMAT(source, "tensor '%.80s' has no data_offsets", entry->name);
    json_int_t begin = json_integer_value(from), end = json_integer_value(to);
    if (begin < 0 || end < begin || (uint64_t)end > bytes)
        return FAIL_FORMAT(source,
                           "tensor '%.80s' lies at %" JSON_INTEGER_FORMAT
                           " to %" JSON_INTEGER_FORMAT " of %zu bytes",
                           entry->name, begin, end, bytes);
    size_t count;
    if (!sh_shape_count_checked(&entry->shape, &count) ||
        count * sh_tensor_type_bytes(entry->type) != (uint64_t)(end - begin)) {
        char text[SH_SHAPE_TEXT];
        return FAIL_FORMAT(source,
                           "tensor '%.80s' of shape %s in %s has %" JSON_INTEGER_FORMAT " bytes",
                           entry->name, sh_shape_text(&entry->shape, text),
                           sh_tensor_type_name(entry->type), end - begin);
    }
    entry->data = data + begin;
    entry->bytes = (size_t)(end - begin);
    return SH_OK;
}

/* Other values than texts are refused, as the format says. */
static sh_status parse_notes(const char *source, json_t *map, sh_safetensors *tensors) {
    if (!json_is_object(map)) return FAIL_FORMAT(source, "its __metadata__ is no map");
    tensors->notes = sh_alloc(json_object_size(map), sizeof *tensors->notes);
    if (tensors->notes == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", source);
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value) {
        if (!json_is_string(value))
            return FAIL_FORMAT(source, "its metadata '%.80s' is no text", key);
        tensors->notes[tensors->note_count++] = (sh_tensor_note){key, json_string_value(value)};
    }
    return SH_OK;
}

/* Order for qsort: by place in the data; empty tensors come before the one that begins at the same
 * byte. */
static int by_place(const void *left, const void *right) {
    const sh_tensor_entry *a = left, *b = right;
    if (a->data != b->data) return (uintptr_t)a->data < (uintptr_t)b->data ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* Checks that the sorted tensors cover the data exactly: each begins where the one before ends,
 * and the last ends at the file's end. */
static sh_status check_cover(const char *source, const sh_safetensors *tensors,
                             const unsigned char *data, size_t bytes) {
    const unsigned char *end = data;
    for (size_t i = 0; i < tensors->count; i++) {
        const sh_tensor_entry *entry = &tensors->entries[i];
        if (entry->data != end)
            return FAIL_FORMAT(source, "tensor '%.80s' overlaps another or leaves a gap",
                               entry->name);
        end += entry->bytes;
    }
    if (end != data + bytes)
        return FAIL_FORMAT(source, "%zu bytes at its end belong to no tensor",
                           (size_t)(data + bytes - end));
    return SH_OK;
}

/* Reads all entries of the header; names are borrowed from the JSON. */
static sh_status parse_entries(const char *source, json_t *header, const unsigned char *data,
                               size_t bytes, sh_safetensors *tensors) {
    tensors->entries = sh_alloc(json_object_size(header), sizeof *tensors->entries);
    if (tensors->entries == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", source);
    const char *name;
    json_t *value;
    json_object_foreach(header, name, value) {
        if (strcmp(name, "__metadata__") == 0) {
            SH_TRY(parse_notes(source, value, tensors));
            continue;
        }
        if (!json_is_object(value))
            return FAIL_FORMAT(source, "the entry of tensor '%.80s' is no map", name);
        sh_tensor_entry *entry = &tensors->entries[tensors->count];
        entry->name = name;
        SH_TRY(parse_type(source, name, json_object_get(value, "dtype"), &entry->type));
        SH_TRY(parse_shape(source, name, json_object_get(value, "shape"), &entry->shape));
        SH_TRY(parse_place(source, json_object_get(value, "data_offsets"), data, bytes, entry));
        tensors->count++;
    }
    if (tensors->count > 1)
        qsort(tensors->entries, tensors->count, sizeof *tensors->entries, by_place);
    return check_cover(source, tensors, data, bytes);
}

/* The JSON is bounded in size and nesting by sh_json_read_map before it is parsed. */
sh_status sh_safetensors_parse(const char *source, const void *data, size_t bytes,
                               sh_safetensors *tensors_out) {
    uint64_t header_bytes;
    if (bytes < sizeof header_bytes) return FAIL_FORMAT(source, "it has only %zu bytes", bytes);
    memcpy(&header_bytes, data, sizeof header_bytes);
    size_t rest = bytes - sizeof header_bytes;
    if (header_bytes > rest)
        return FAIL_FORMAT(source, "it promises a header of %" PRIu64 " bytes and has %zu",
                           header_bytes, rest);
    const char *text = (const char *)data + sizeof header_bytes;
    char fault[SH_JSON_FAULT];
    json_t *header = sh_json_read_map(text, (size_t)header_bytes, fault);
    if (header == NULL) return FAIL_FORMAT(source, "its header: %s", fault);
    // The header owns the names that entries and notes borrow.
    sh_safetensors tensors = {.header = header};
    sh_status status = parse_entries(source, header, (const unsigned char *)text + header_bytes,
                                     rest - (size_t)header_bytes, &tensors);
    if (status != SH_OK) {
        sh_safetensors_close(&tensors);
        return status;
    }
    *tensors_out = tensors;
    return SH_OK;
}

/* Maps the file; the entries point into the mapping. */
sh_status sh_safetensors_open(const char *path, sh_safetensors *tensors_out) {
    sh_mapped file;
    SH_TRY(sh_file_map(path, &file));
    sh_status status = sh_safetensors_parse(path, file.data, file.bytes, tensors_out);
    if (status == SH_OK)
        tensors_out->file = file;
    else
        sh_file_unmap(&file);
    return status;
}

/* Names, notes and data are gone afterwards. */
void sh_safetensors_close(sh_safetensors *tensors) {
    sh_free(tensors->entries);
    sh_free(tensors->notes);
    json_decref(tensors->header);  // NULL is welcome
    sh_file_unmap(&tensors->file);
    *tensors = (sh_safetensors){0};
}

/* Linear search: files have hundreds of tensors. */
const sh_tensor_entry *sh_safetensors_find(const sh_safetensors *tensors, const char *name) {
    for (size_t i = 0; i < tensors->count; i++)
        if (strcmp(tensors->entries[i].name, name) == 0) return &tensors->entries[i];
    return NULL;
}

/* Borrowed from the file's header. */
const char *sh_safetensors_note(const sh_safetensors *tensors, const char *key) {
    for (size_t i = 0; i < tensors->note_count; i++)
        if (strcmp(tensors->notes[i].key, key) == 0) return tensors->notes[i].value;
    return NULL;
}
