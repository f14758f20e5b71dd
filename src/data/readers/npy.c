/* NPY, versions 1 to 3 (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): a
 * magic, a Python dictionary as text, then the elements. */
#include <string.h>

#include "base/memory.h"
#include "data/array.h"
#include "data/reader.h"

static const uint8_t magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* Bound on the header: what sh_blob_head gives must hold all of it. NumPy itself reads at most
 * 10,000 bytes. */
enum { HEADER_MOST = SH_BLOB_HEAD - 12 };

/* The header's dictionary as text. It is not zero-terminated, so every search is bounded by
 * `end`. */
typedef struct header {
    const char *at, *end;  // the dictionary, within the file's bytes
    const char *name;      // file name for messages
} header;

/* Reports a bad header. All header faults get the same hint: the file is damaged or not NPY. */
static sh_status fail_header(const header *h, const char *why) {
    SH_FAIL(SH_E_FORMAT, "'%s' has a bad NPY header: %s", h->name, why);
    return sh_hint_damaged();
}

/* Finds 'key': in the dictionary and points `at_out` at its value. No full Python parser: keys are
 * searched textually, which suffices since NumPy writes exactly three of them. */
static bool find_key(const header *h, const char *key, const char **at_out) {
    size_t length = strlen(key);
    for (const char *at = h->at; at + length + 3 < h->end; at++) {
        bool quoted = (*at == '\'' || *at == '"') && at[length + 1] == *at;
        if (!quoted || memcmp(at + 1, key, length) != 0) continue;
        at += length + 2;
        while (at < h->end && *at == ' ') at++;
        if (at == h->end || *at != ':') return false;
        at++;
        while (at < h->end && *at == ' ') at++;
        *at_out = at;
        return at < h->end;
    }
    return false;
}

/* Reads the dtype string: byte order, kind, size in bytes. Objects, strings and records are
 * refused by name. */
static sh_status take_type(const header *h, sh_array *array) {
    static const struct {
        const char *code;
        sh_array_type type;
    } types[] = {{"u1", SH_ARRAY_U8},  {"b1", SH_ARRAY_U8},  {"i1", SH_ARRAY_I8},
                 {"u2", SH_ARRAY_U16}, {"i2", SH_ARRAY_I16}, {"u4", SH_ARRAY_U32},
                 {"i4", SH_ARRAY_I32}, {"u8", SH_ARRAY_U64}, {"i8", SH_ARRAY_I64},
                 {"f4", SH_ARRAY_F32}, {"f8", SH_ARRAY_F64}};
    const char *at;
    if (!find_key(h, "descr", &at)) return fail_header(h, "it does not say 'descr'");
    if (h->end - at < 5 || (*at != '\'' && *at != '"')) {
        SH_FAIL(SH_E_UNSUPPORTED, "'%s' holds records, not numbers", h->name);
        return sh_error_hint("save plain arrays of numbers");
    }
    const char *close = memchr(at + 1, *at, (size_t)(h->end - at - 1));
    int length = close != NULL && close - at < 16 ? (int)(close - at - 1) : 15;
    if (length > h->end - at - 1) length = (int)(h->end - at - 1);
    for (size_t i = 0; length == 3 && i < SH_COUNT(types); i++)
        if (memcmp(at + 2, types[i].code, 2) == 0 && at[1] != '\0' &&
            strchr("<>|=", at[1]) != NULL) {
            array->type = types[i].type;
            array->big_endian = at[1] == '>';  // '<', '|' and '=' count as little-endian
            return SH_OK;
        }
    SH_FAIL(SH_E_UNSUPPORTED, "'%s' has elements of type '%.*s'", h->name, length, at + 1);
    return sh_error_hint("save it as uint8, int8 to int64, float32 or float64");
}

/* Refuses column-major arrays, which would be read transposed; the hint names the NumPy call that
 * converts them. */
static sh_status take_order(const header *h) {
    const char *at;
    if (!find_key(h, "fortran_order", &at)) return fail_header(h, "it does not say the order");
    if (h->end - at >= 5 && memcmp(at, "False", 5) == 0) return SH_OK;
    if (h->end - at < 4 || memcmp(at, "True", 4) != 0)
        return fail_header(h, "'fortran_order' is neither True nor False");
    SH_FAIL(SH_E_UNSUPPORTED, "'%s' is in Fortran order", h->name);
    return sh_error_hint("save numpy.ascontiguousarray(x)");
}

/* Reads the shape, a Python tuple of digits, commas and spaces. Each dimension is at most 2^48, so
 * that the product can be checked without overflow. */
static sh_status take_shape(const header *h, sh_shape *shape_out) {
    const char *at;
    if (!find_key(h, "shape", &at) || *at != '(') return fail_header(h, "it has no shape");
    sh_shape shape = {0};
    for (at++; at < h->end && *at != ')';) {
        if (*at == ' ' || *at == ',') {
            at++;
            continue;
        }
        if (shape.rank == SH_RANK_MOST) return fail_header(h, "too many dimensions");
        int64_t number = 0;
        const char *start = at;
        for (; at < h->end && *at >= '0' && *at <= '9'; at++) {
            number = number * 10 + (*at - '0');
            if (number > (int64_t)1 << 48) return fail_header(h, "an absurd dimension");
        }
        if (at < h->end && *at == 'L') at++;  // Python 2
        if (at == start) return fail_header(h, "a dimension is not a number");
        shape.dim[shape.rank++] = number;
    }
    if (at == h->end) return fail_header(h, "the shape does not end");
    *shape_out = shape;
    return SH_OK;
}

/* Parses magic, version and dictionary; gives the type, the shape and the offset of the first
 * element. Layout: magic (6), version (2), header length (2 bytes in version 1, else 4; little-
 * endian). */
static sh_status parse_header(const char *name, const uint8_t *data, size_t bytes,
                              sh_array *array_out, size_t *offset_out) {
    header h = {.name = name};
    if (bytes < 10 || memcmp(data, magic, sizeof magic) != 0)
        return SH_FAIL(SH_E_FORMAT, "'%s' is not an NPY file: its first bytes are wrong", name);
    if (data[6] < 1 || data[6] > 3)
        return SH_FAIL(SH_E_UNSUPPORTED, "'%s' is NPY of version %d; 1 to 3 are known", name,
                       data[6]);
    size_t offset = data[6] == 1 ? 10 : 12;  // where the dictionary begins
    size_t length = data[8] | (size_t)data[9] << 8;
    if (data[6] > 1 && bytes >= 12) length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    if (length > HEADER_MOST) return fail_header(&h, "an absurd length");
    if (bytes < offset || length > bytes - offset) {
        SH_FAIL(SH_E_FORMAT, "'%s' ends at byte %zu, within its header", name, bytes);
        return sh_hint_damaged();
    }
    h.at = (const char *)data + offset;
    h.end = h.at + length;
    sh_array array = {0};
    SH_TRY(take_type(&h, &array));
    SH_TRY(take_order(&h));
    SH_TRY(take_shape(&h, &array.shape));
    *offset_out = offset + length;
    array.data = data + *offset_out;
    *array_out = array;
    return SH_OK;
}

/* Full size of the file as its header declares it; bounds how much a .gz may unpack to. */
sh_status sh_npy_size(const char *name, const uint8_t *head, size_t head_bytes,
                      uint64_t *bytes_out) {
    sh_array array = {0};
    size_t offset = 0;
    SH_TRY(parse_header(name, head, head_bytes, &array, &offset));
    SH_TRY(sh_array_bytes(&array, name, bytes_out));
    *bytes_out += offset;
    return SH_OK;
}

/* Parses NPY from memory. The array borrows `data`. A scalar counts as one sample. */
sh_status sh_npy_parse(const char *name, const uint8_t *data, size_t bytes, sh_array *array_out) {
    sh_array array = {0};
    size_t offset = 0;
    SH_TRY(parse_header(name, data, bytes, &array, &offset));
    SH_TRY(sh_array_check(&array, name, offset, bytes - offset));
    if (array.shape.rank == 0) array.shape = SH_SHAPE(1);
    *array_out = array;
    return SH_OK;
}

/* Path of the label file beside a sample file: the last stand-alone x in the file name ("x.npy",
 * "x_train.npy", "train-x.npy") becomes y, in the same case first. NULL when there is no such
 * file; the caller frees the path. */
static char *labels_beside(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *file = slash != NULL ? slash + 1 : path;
    for (const char *at = file + strlen(file); at-- > file;) {
        bool starts = at == file || strchr("_-.", at[-1]) != NULL;
        bool ends = strchr("_-.", at[1]) != NULL;
        if ((*at != 'x' && *at != 'X') || !starts || !ends) continue;
        char *found = sh_strdup(path);
        if (found == NULL) return NULL;
        found[at - path] = (char)(*at + 1);  // 'x' + 1 is 'y', 'X' + 1 is 'Y'
        if (!sh_file_exists(found) && *at == 'X') found[at - path] = 'y';
        if (sh_file_exists(found)) return found;
        sh_free(found);
    }
    return NULL;
}

/* Opens samples and, where they are named or found beside, their labels. Blob 0 of the source
 * holds the samples, blob 1 the labels. */
static sh_status npy_open(const sh_read *read, sh_source **source_out) {
    char *labels = read->labels != NULL ? sh_strdup(read->labels) : labels_beside(read->path);
    sh_source *source = NULL;
    sh_array x, y;
    sh_status status;
    SH_TRY_OUT(sh_source_create(read->path, &source));
    SH_TRY_OUT(sh_blob_open(read->path, sh_npy_size, &source->blobs[0]));
    SH_TRY_OUT(sh_npy_parse(read->path, source->blobs[0].data, source->blobs[0].bytes, &x));
    if (labels != NULL) {
        SH_TRY_OUT(sh_blob_open(labels, sh_npy_size, &source->blobs[1]));
        SH_TRY_OUT(sh_npy_parse(labels, source->blobs[1].data, source->blobs[1].bytes, &y));
    }
    SH_TRY_OUT(sh_source_take_arrays(source, &x, labels != NULL ? &y : NULL, read));
    *source_out = source;
    source = NULL;
out:
    sh_source_release(source);
    sh_free(labels);
    return status;
}

/* Recognises the magic bytes; the file name does not matter. */
static bool npy_detects(__attribute__((unused)) const char *path, const uint8_t *head,
                        size_t head_bytes) {
    return head_bytes >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

extern const sh_reader sh_reader_npy;
const sh_reader sh_reader_npy = {
    .name = "npy",
    .help = "a NumPy array; labels from 'labels:', or from y.npy beside x.npy",
    .detects = npy_detects,
    .open = npy_open,
};
