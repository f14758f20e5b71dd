/* IDX, the format of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, a type, a rank, the
 * dimensions as big-endian 32-bit numbers, then the elements, big-endian. */
#include <string.h>

#include "base/memory.h"
#include "data/array.h"
#include "data/reader.h"

/* The third byte of the magic number. */
static bool type_of(uint8_t code, sh_array_type *type_out) {
    switch (code) {
        case 0x08:
            *type_out = SH_ARRAY_U8;
            return true;
        case 0x09:
            *type_out = SH_ARRAY_I8;
            return true;
        case 0x0b:
            *type_out = SH_ARRAY_I16;
            return true;
        case 0x0c:
            *type_out = SH_ARRAY_I32;
            return true;
        case 0x0d:
            *type_out = SH_ARRAY_F32;
            return true;
        case 0x0e:
            *type_out = SH_ARRAY_F64;
            return true;
        default:
            return false;
    }
}

/* The type and shape; where the elements begin. */
static sh_status parse_header(const char *name, const uint8_t *data, size_t bytes,
                              sh_array *array_out, size_t *offset_out) {
    sh_array array = {.big_endian = true};
    if (bytes < 4 || data[0] != 0 || data[1] != 0 || !type_of(data[2], &array.type))
        return SH_FAIL(SH_E_FORMAT, "'%s' is not an IDX file: its first 4 bytes are wrong", name);
    array.shape.rank = data[3];
    if (array.shape.rank < 1 || array.shape.rank > 4)
        return SH_FAIL(SH_E_FORMAT, "'%s': an IDX file of %d dimensions; 1 to 4 are known", name,
                       array.shape.rank);
    size_t offset = 4 + 4 * (size_t)array.shape.rank;
    if (bytes < offset) {
        SH_FAIL(SH_E_FORMAT, "'%s' ends at byte %zu, within its header", name, bytes);
        return sh_hint_damaged();
    }
    for (int i = 0; i < array.shape.rank; i++) {
        const uint8_t *at = data + 4 + 4 * i;
        array.shape.dim[i] =
            (int64_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
    }
    array.data = data + offset;
    *array_out = array;
    *offset_out = offset;
    return SH_OK;
}

/* From the header alone, so that a small .gz cannot unpack into more than it declares. */
sh_status sh_idx_size(const char *name, const uint8_t *head, size_t head_bytes,
                      uint64_t *bytes_out) {
    sh_array array;
    size_t offset = 0;
    SH_TRY(parse_header(name, head, head_bytes, &array, &offset));
    SH_TRY(sh_array_bytes(&array, name, bytes_out));
    *bytes_out += offset;
    return SH_OK;
}

/* Borrows the bytes: elements stay where they are. */
sh_status sh_idx_parse(const char *name, const uint8_t *data, size_t bytes, sh_array *array_out) {
    sh_array array;
    size_t offset = 0;
    SH_TRY(parse_header(name, data, bytes, &array, &offset));
    SH_TRY(sh_array_check(&array, name, offset, bytes - offset));
    *array_out = array;
    return SH_OK;
}

/* train-images-idx3-ubyte[.gz] -> train-labels-idx1-ubyte[.gz]; NULL when the name is not such. */
static char *labels_beside(const char *path) {
    const char *part = strstr(path, "images");
    for (const char *next = part; next != NULL; next = strstr(next + 1, "images")) part = next;
    if (part == NULL || strchr(part, '/') != NULL) return NULL;
    const char *tail = part + strlen("images"), *gz = strstr(tail, ".gz");
    char *found = NULL;
    const char *rank = strstr(tail, "idx3");
    if (rank == NULL) rank = strstr(tail, "idx4");
    int before = rank != NULL ? (int)(rank - tail) : (int)strlen(tail);
    const char *after = rank != NULL ? rank + 4 : "";
    int after_length = gz != NULL && rank != NULL ? (int)(gz - after) : (int)strlen(after);
    for (int packed = 0; packed < 2 && found == NULL; packed++) {
        found = sh_format("%.*slabels%.*s%s%.*s%s", (int)(part - path), path, before, tail,
                          rank != NULL ? "idx1" : "", after_length, after, packed ? ".gz" : "");
        if (found != NULL && !sh_file_exists(found)) {
            sh_free(found);
            found = NULL;
        }
    }
    return found;
}

/* Named by the user, or found beside the images; found only if there is such a file. */
static sh_status open_labels(const sh_read *read, sh_source *source, sh_array *y_out,
                             bool *found_out) {
    char *path = read->labels != NULL ? sh_strdup(read->labels) : labels_beside(read->path);
    *found_out = path != NULL;
    if (path == NULL) return SH_OK;
    sh_status status = sh_blob_open(path, sh_idx_size, &source->blobs[1]);
    if (status == SH_OK)
        status = sh_idx_parse(path, source->blobs[1].data, source->blobs[1].bytes, y_out);
    sh_free(path);
    return status;
}

static sh_status idx_open(const sh_read *read, sh_source **source_out) {
    sh_source *source = NULL;
    SH_TRY(sh_source_create(read->path, &source));
    sh_array x, y;
    bool has_labels = false;
    sh_status status;
    SH_TRY_OUT(sh_blob_open(read->path, sh_idx_size, &source->blobs[0]));
    SH_TRY_OUT(sh_idx_parse(read->path, source->blobs[0].data, source->blobs[0].bytes, &x));
    SH_TRY_OUT(open_labels(read, source, &y, &has_labels));
    SH_TRY_OUT(sh_source_take_arrays(source, &x, has_labels ? &y : NULL, read));
    *source_out = source;
    source = NULL;
out:
    sh_source_release(source);
    return status;
}

/* More ranks than are read are detected too, so that the error names the rank. */
static bool idx_detects(__attribute__((unused)) const char *path, const uint8_t *head,
                        size_t head_bytes) {
    sh_array_type type;
    return head_bytes >= 4 && head[0] == 0 && head[1] == 0 && type_of(head[2], &type) &&
           head[3] >= 1 && head[3] <= 8;
}

extern const sh_reader sh_reader_idx;
const sh_reader sh_reader_idx = {
    .name = "idx",
    .help = "IDX as of MNIST, plain or .gz; X-images-idx3-ubyte finds X-labels-idx1-ubyte",
    .detects = idx_detects,
    .open = idx_open,
};
