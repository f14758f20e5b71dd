/* IDX, the format of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, a type, a rank, the
 * dimensions as big-endian 32-bit numbers, then the elements, big-endian. */
#include <string.h>

#include "base/memory.h"
#include "data/array.h"
#include "data/reader.h"

/* Element type by the third byte of the magic number; false for a code that the format does not
 * define. */
static bool type_of(uint8_t code, sh_array_type *type_out) {
    switch (code) {
        case 0x08:  // unsigned bytes, as MNIST has
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

/* Reads the element type, the shape and the offset of the first element. The offset is 4 + 4 rank
 * bytes; whether the elements fill the file is for the caller to check, since sh_idx_size sees
 * only the head. */
static sh_status parse_header(const char *name, const uint8_t *data, size_t bytes,
                              sh_array *array_out, size_t *offset_out) {
    sh_array array = {.big_endian = true};
    if (bytes < 4 || data[0] != 0 || data[1] != 0 || !type_of(data[2], &array.type))
        return SH_FAIL(SH_E_FORMAT, "'%s' is not an IDX file: its first 4 bytes are wrong", name);
    array.shape.rank = data[3];  // fourth byte of the magic number
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

/* Full size of the file as its header declares it. Bounds the unpacking of a .gz, so that a small
 * archive cannot expand without limit. */
sh_status sh_idx_size(const char *name, const uint8_t *head, size_t head_bytes,
                      uint64_t *bytes_out) {
    sh_array array;
    size_t offset = 0;
    SH_TRY(parse_header(name, head, head_bytes, &array, &offset));
    SH_TRY(sh_array_bytes(&array, name, bytes_out));
    *bytes_out += offset;
    return SH_OK;
}

/* Parses IDX from memory. The array borrows `data`; elements stay big-endian and in place. */
sh_status sh_idx_parse(const char *name, const uint8_t *data, size_t bytes, sh_array *array_out) {
    sh_array array;
    size_t offset = 0;
    SH_TRY(parse_header(name, data, bytes, &array, &offset));
    SH_TRY(sh_array_check(&array, name, offset, bytes - offset));
    *array_out = array;
    return SH_OK;
}

/* Path of the label file beside an image file, by MNIST's naming: train-images-idx3-ubyte[.gz]
 * becomes train-labels-idx1-ubyte[.gz]. The plain file is tried before the .gz. NULL when the name
 * does not follow the pattern or no such file exists; the caller frees the path. */
static char *labels_beside(const char *path) {
    const char *part = strstr(path, "images");
    // The last "images", in case a folder has that name too.
    for (const char *next = part; next != NULL; next = strstr(next + 1, "images")) part = next;
    if (part == NULL || strchr(part, '/') != NULL) return NULL;  // "images" only names a folder
    const char *tail = part + strlen("images"), *gz = strstr(tail, ".gz");
    char *found = NULL;
    const char *rank = strstr(tail, "idx3");
    if (rank == NULL) rank = strstr(tail, "idx4");
    // Characters of the tail before "idx3", which becomes "idx1".
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

/* Opens the label file: the one the user names, which must exist, or the one found beside the
 * images, which may be absent. `source` owns the bytes that `y_out` borrows. */
static sh_status open_labels(const sh_read *read, sh_source *source, sh_array *y_out,
                             bool *found_out) {
    // A label file that the user names is opened in any case, so that a wrong name fails.
    char *path = read->labels != NULL ? sh_strdup(read->labels) : labels_beside(read->path);
    *found_out = path != NULL;
    if (path == NULL) return SH_OK;
    sh_status status = sh_blob_open(path, sh_idx_size, &source->blobs[1]);
    if (status == SH_OK)
        status = sh_idx_parse(path, source->blobs[1].data, source->blobs[1].bytes, y_out);
    sh_free(path);
    return status;
}

/* Opens images and, if there are any, their labels. Blob 0 of the source holds the images, blob 1
 * the labels; both live as long as the source. */
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

/* Recognises the magic number. Ranks 5 to 8 are accepted here though parse_header refuses them, so
 * that the error names the rank instead of calling the file unknown. */
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
