/* Writing safetensors files: the header's JSON, then the tensors one behind the other. The same
 * content gives the same bytes, so checksums of equal checkpoints are equal. */
#include "ckpt/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are written as they lie");

/* Name in the format and bytes of one element, by type. */
static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [SH_TENSOR_BOOL] = {"BOOL", 1},       [SH_TENSOR_U8] = {"U8", 1},
    [SH_TENSOR_I8] = {"I8", 1},           [SH_TENSOR_F8_E5M2] = {"F8_E5M2", 1},
    [SH_TENSOR_F8_E4M3] = {"F8_E4M3", 1}, [SH_TENSOR_I16] = {"I16", 2},
    [SH_TENSOR_U16] = {"U16", 2},         [SH_TENSOR_F16] = {"F16", 2},
    [SH_TENSOR_BF16] = {"BF16", 2},       [SH_TENSOR_I32] = {"I32", 4},
    [SH_TENSOR_U32] = {"U32", 4},         [SH_TENSOR_F32] = {"F32", 4},
    [SH_TENSOR_F64] = {"F64", 8},         [SH_TENSOR_I64] = {"I64", 8},
    [SH_TENSOR_U64] = {"U64", 8},
};

const char *sh_tensor_type_name(sh_tensor_type type) {
    return (size_t)type < SH_COUNT(types) ? types[type].name : NULL;
}

size_t sh_tensor_type_bytes(sh_tensor_type type) {
    SH_ASSERT((size_t)type < SH_COUNT(types));
    return types[type].bytes;
}

/* Bytes of a tensor's data: elements times their size. */
static size_t data_bytes(const sh_tensor_entry *entry) {
    return sh_shape_count(&entry->shape) * sh_tensor_type_bytes(entry->type);
}

/* {"dtype": "F32", "shape": [2, 3], "data_offsets": [at, at + bytes]}; NULL: out of memory. */
static json_t *describe(const sh_tensor_entry *entry, size_t at) {
    json_t *shape = json_array();
    for (int i = 0; i < entry->shape.rank; i++)
        if (json_array_append_new(shape, json_integer(entry->shape.dim[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", sh_tensor_type_name(entry->type), "shape",
                     shape, "data_offsets", (json_int_t)at, (json_int_t)(at + data_bytes(entry)));
}

/* Adds the "__metadata__" of the format, which may hold texts only. */
static sh_status describe_notes(const sh_tensor_note *notes, size_t count, json_t *header) {
    if (count == 0) return SH_OK;
    json_t *map = json_object();
    bool done = map != NULL;
    for (size_t i = 0; done && i < count; i++)
        done = json_object_set_new(map, notes[i].key, json_string(notes[i].value)) == 0;
    if (!done) {
        json_decref(map);
        return SH_FAIL(SH_E_FORMAT, "a note for a safetensors header is not valid UTF-8");
    }
    if (json_object_set_new(header, "__metadata__", map) != 0)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a safetensors header");
    return SH_OK;
}

/* The header's text, without padding. free() it. */
static sh_status header_text(const sh_tensor_entry *entries, size_t count,
                             const sh_tensor_note *notes, size_t note_count, char **text_out) {
    // Tensors stand in the order of their data.
    json_t *header = json_object();  // keeps the order of insertion
    if (header == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a safetensors header");
    sh_status status = SH_OK;
    SH_TRY_OUT(describe_notes(notes, note_count, header));
    size_t at = 0;
    for (size_t i = 0; i < count; at += data_bytes(&entries[i]), i++) {
        const char *name = entries[i].name;
        if (strcmp(name, "__metadata__") == 0 || json_object_get(header, name) != NULL) {
            status = SH_FAIL(SH_E_FORMAT, "two tensors of a file are called '%s'", name);
            goto out;
        }
        if (json_object_set_new(header, name, describe(&entries[i], at)) != 0) {
            status = SH_FAIL(SH_E_FORMAT, "tensor name '%s' is not valid UTF-8", name);
            goto out;
        }
    }
    char *text = json_dumps(header, JSON_COMPACT);
    if (text == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for a safetensors header");
    else
        *text_out = text;
out:
    json_decref(header);
    return status;
}

/* Writes length and JSON, padded with spaces so that the data begins at a multiple of 8 bytes. */
static sh_status write_header(sh_writer *writer, const char *text) {
    size_t length = strlen(text);
    uint64_t padded = sh_round_up(length, 8);
    SH_TRY(sh_writer_write(writer, &padded, sizeof padded));
    SH_TRY(sh_writer_write(writer, text, length));
    return sh_writer_write(writer, "       ", padded - length);
}

/* Writes through a temporary file (base/file.h), so that readers see the old file or the new
 * one. */
sh_status sh_safetensors_write(const char *path, const sh_tensor_entry *entries, size_t count,
                               const sh_tensor_note *notes, size_t note_count) {
    char *text = NULL;
    SH_TRY(header_text(entries, count, notes, note_count, &text));
    sh_writer writer;
    sh_status status = sh_writer_open(&writer, path);
    if (status == SH_OK) {
        status = write_header(&writer, text);
        for (size_t i = 0; status == SH_OK && i < count; i++)
            status = sh_writer_write(&writer, entries[i].data, data_bytes(&entries[i]));
        if (status == SH_OK)
            status = sh_writer_commit(&writer);
        else
            sh_writer_abandon(&writer);
    }
    free(text);
    return status;
}
