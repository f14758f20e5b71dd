/* The bytes of a data file: mapped when they are plain, unpacked into memory when they are gzip. A
 * few kilobytes can unpack to gigabytes, so no more is unpacked than the format's own header
 * declares, or than there is memory for; the check comes before the memory is taken. */
#include "data/blob.h"

#include <unistd.h>
#include <zlib.h>

#include "base/memory.h"
#include "data/room.h"

enum { STEP_BYTES = 1 << 30 };  // zlib counts in unsigned int

/* Recognises gzip by its two magic bytes. */
static bool is_gzip(const uint8_t *data, size_t bytes) {
    return bytes >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}

/* Reports damage with its place in the packed file, which can be compared with a fresh copy. */
static sh_status fail_packed(const char *name, size_t at, const char *why) {
    SH_FAIL(SH_E_FORMAT, "'%s' is damaged: packed data at byte %zu: %s", name, at,
            why != NULL ? why : "it ends too early");
    return sh_error_hint("fetch the file again; 'gzip -t' checks it");
}

/* Bound of deflate's ratio: at best 2 bits, a length and a distance, stand for 258 bytes, which is
 * 1032 to 1. A larger claim is false. */
bool sh_deflate_can(uint64_t unpacked, uint64_t packed) {
    enum { RATIO_MOST = 1032 };
    return unpacked / RATIO_MOST <= packed;
}

/* Unpacked bytes so far. */
typedef struct unpacked {
    uint8_t *data;
    size_t used, capacity;
} unpacked;

/* Doubles the memory when it is full, up to `bytes_most`. */
static sh_status make_room(const char *name, size_t bytes_most, unpacked *out) {
    if (out->used < out->capacity) return SH_OK;
    size_t wanted = out->capacity == 0 ? SH_BLOB_HEAD : out->capacity * 2;
    if (wanted > bytes_most) wanted = bytes_most;
    uint8_t *grown = sh_realloc(out->data, wanted, 1);
    if (grown == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory: '%s' unpacks to more than %zu bytes", name,
                       out->capacity);
    out->data = grown;
    out->capacity = wanted;
    return SH_OK;
}

/* One call of inflate with all that is there. `*more_out` becomes false once the last gzip member
 * has ended. */
static sh_status unpack_step(z_stream *stream, const char *name, const uint8_t *data, size_t bytes,
                             unpacked *out, bool *more_out) {
    size_t at = (size_t)(stream->next_in - data);
    size_t room = out->capacity - out->used;
    stream->avail_in = (uInt)(bytes - at < STEP_BYTES ? bytes - at : STEP_BYTES);
    stream->avail_out = (uInt)(room < STEP_BYTES ? room : STEP_BYTES);
    stream->next_out = out->data + out->used;
    int code = inflate(stream, Z_NO_FLUSH);
    out->used = (size_t)(stream->next_out - out->data);
    at = (size_t)(stream->next_in - data);
    if (code == Z_STREAM_END) {
        *more_out = is_gzip(data + at, bytes - at);
        if (*more_out) inflateReset(stream);
        return SH_OK;
    }
    if (code == Z_MEM_ERROR) return SH_FAIL(SH_E_MEMORY, "out of memory for unpacking '%s'", name);
    // Z_OK with all input used and room left means that the stream is cut short.
    if (code != Z_OK || (at == bytes && stream->avail_out != 0))
        return fail_packed(name, at, stream->msg);
    return SH_OK;
}

/* What a gzip file may unpack to. */
typedef struct allowance {
    sh_blob_sizer *sizer;  // NULL: the format does not tell; or it was asked
    uint64_t promised;     // bytes by the file's own header; UINT64_MAX: not known
    sh_capacity room;
    size_t most;  // bytes that are unpacked at all
} allowance;

/* Reports a file that unpacks to more than its header says, or than there is room for. */
static sh_status fail_beyond(const char *name, const allowance *a) {
    if (a->promised == UINT64_MAX) return sh_room_fail_above(name, &a->room);
    SH_FAIL(SH_E_FORMAT, "'%s' unpacks to more than the %llu bytes that its header tells of", name,
            (unsigned long long)a->promised);
    return sh_error_hint("the file is damaged: fetch or write it again");
}

/* Asks the format once, as soon as the first bytes are unpacked, for the size that it declares;
 * bounds the rest by it. */
static sh_status ask_sizer(const char *name, size_t packed, const unpacked *out, allowance *a) {
    sh_blob_sizer *sizer = a->sizer;
    if (sizer == NULL) return SH_OK;
    a->sizer = NULL;
    SH_TRY(sizer(name, out->data, out->used, &a->promised));
    if (!sh_deflate_can(a->promised, packed)) {
        SH_FAIL(SH_E_FORMAT,
                "'%s' is damaged: its header tells of %llu bytes, which %zu packed ones cannot be",
                name, (unsigned long long)a->promised, packed);
        return sh_error_hint("the file is cut short: fetch or write it again");
    }
    SH_TRY(sh_room_check(name, 0, a->promised));
    a->most = (size_t)a->promised + 1;  // one more shows that there are too many
    return SH_OK;
}

/* Unpacks member after member, as files joined by `cat` have them. */
static sh_status gunzip(const char *name, const sh_mapped *packed, allowance *a, unpacked *out) {
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)packed->data};
    if (inflateInit2(&stream, 15 + 16) != Z_OK)
        return SH_FAIL(SH_E_MEMORY, "out of memory for unpacking '%s'", name);
    sh_status status = SH_OK;
    for (bool more = true; more && status == SH_OK;) {
        status = make_room(name, a->most, out);
        if (status == SH_OK)
            status = unpack_step(&stream, name, packed->data, packed->bytes, out, &more);
        if (status == SH_OK && (!more || out->used == SH_BLOB_HEAD))
            status = ask_sizer(name, packed->bytes, out, a);
        if (status == SH_OK && out->used >= a->most) status = fail_beyond(name, a);
    }
    inflateEnd(&stream);
    return status;
}

/* Unpacks raw deflate of exactly `out_bytes`: neither more nor less may come out. */
sh_status sh_inflate_raw(const char *name, const uint8_t *data, size_t bytes, void *out,
                         size_t out_bytes) {
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data};
    if (inflateInit2(&stream, -15) != Z_OK)
        return SH_FAIL(SH_E_MEMORY, "out of memory for unpacking '%s'", name);
    unpacked to = {.data = out, .capacity = out_bytes};
    uint8_t spare;  // an empty member still needs somewhere for inflate to point
    if (out_bytes == 0) to = (unpacked){.data = &spare, .capacity = 1};
    sh_status status = SH_OK;
    bool more = true;
    while (more && status == SH_OK) {
        size_t before = to.used;
        const Bytef *input = stream.next_in;
        status = unpack_step(&stream, name, data, bytes, &to, &more);
        // A full output that makes no progress holds more data than the directory said.
        if (status == SH_OK && more && to.used == before && stream.next_in == input)
            status = fail_packed(name, (size_t)(input - data), "more data than its size says");
    }
    inflateEnd(&stream);
    if (status == SH_OK && to.used != out_bytes)
        status = fail_packed(name, bytes, "less data than its size says");
    return status;
}

/* Unpacks only the first bytes, for the header of an array in a zip file, before memory for all of
 * it is taken. */
sh_status sh_inflate_head(const char *name, const uint8_t *data, size_t bytes, void *out,
                          size_t out_bytes, size_t *bytes_out) {
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data};
    if (inflateInit2(&stream, -15) != Z_OK)
        return SH_FAIL(SH_E_MEMORY, "out of memory for unpacking '%s'", name);
    unpacked to = {.data = out, .capacity = out_bytes};
    sh_status status = SH_OK;
    for (bool more = true; more && status == SH_OK && to.used < to.capacity;)
        status = unpack_step(&stream, name, data, bytes, &to, &more);
    inflateEnd(&stream);
    *bytes_out = to.used;
    return status;
}

/* Maps the file. A gzip one is unpacked into memory and unmapped again. */
sh_status sh_blob_open(const char *path, sh_blob_sizer *sizer, sh_blob *blob_out) {
    sh_blob blob = {0};
    SH_TRY(sh_file_map(path, &blob.map));
    blob.data = blob.map.data;
    blob.bytes = blob.map.bytes;
    if (is_gzip(blob.data, blob.bytes)) {
        allowance a = {sizer, UINT64_MAX, sh_room_now(0), 0};
        // One byte more than there is room for shows that the file is too large.
        a.most = a.room.bytes + 1;
        unpacked out = {0};
        sh_status status = gunzip(path, &blob.map, &a, &out);
        sh_file_unmap(&blob.map);
        if (status != SH_OK) {
            sh_free(out.data);
            return status;
        }
        blob = (sh_blob){.data = out.data, .bytes = out.used, .memory = out.data};
    }
    *blob_out = blob;
    return SH_OK;
}

/* Mapped bytes cost no memory: the system drops and rereads them at will. */
size_t sh_blob_memory(const sh_blob *blob) { return blob->memory != NULL ? blob->bytes : 0; }

void sh_blob_close(sh_blob *blob) {
    sh_file_unmap(&blob->map);
    sh_free(blob->memory);
    *blob = (sh_blob){0};
}

/* Path of the plain file, or of its .gz if only that exists. Plain files come first, as they need
 * no unpacking at each start. */
char *sh_blob_path(const char *folder, const char *file) {
    char *path = sh_path_join(folder, file);
    char *packed = path != NULL ? sh_format("%s.gz", path) : NULL;
    bool is_packed = packed != NULL && !sh_file_exists(path) && sh_file_exists(packed);
    sh_free(is_packed ? path : packed);
    return is_packed ? packed : path;
}

/* Hash of the unpacked contents, so that a data set is the same packed or not. */
sh_status sh_blob_sha256(const char *path, sh_blob_sizer *sizer, char hex_out[SH_SHA256_HEX]) {
    sh_blob blob = {0};
    SH_TRY(sh_blob_open(path, sizer, &blob));
    sh_sha256_hex(blob.data, blob.bytes, hex_out);
    sh_blob_close(&blob);
    return SH_OK;
}

/* First bytes (unpacked), enough to tell a format by its magic without reading the file. */
sh_status sh_blob_head(const char *path, uint8_t *head, size_t head_bytes, size_t *bytes_out) {
    int fd = -1;
    SH_TRY(sh_file_open(path, &fd, NULL));
    gzFile file = gzdopen(fd, "rb");  // also reads files that are not packed
    if (file == NULL) {
        close(fd);
        return SH_FAIL(SH_E_MEMORY, "out of memory for opening '%s'", path);
    }
    int bytes = gzread(file, head, (unsigned)head_bytes);
    gzclose(file);
    if (bytes < 0) return fail_packed(path, 0, NULL);
    *bytes_out = (size_t)bytes;
    return SH_OK;
}
