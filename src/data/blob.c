#include "data/blob.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/memory.h"

enum { STEP_BYTES = 1 << 30 };  // zlib counts in unsigned int

static bool is_gzip(const uint8_t *data, size_t bytes) {
    return bytes >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}

static sh_status fail_packed(const char *name, size_t at, const char *why) {
    SH_FAIL(SH_E_FORMAT, "'%s' is damaged: packed data at byte %zu: %s", name, at,
            why != NULL ? why : "it ends too early");
    return sh_error_hint("fetch the file again; 'gzip -t' checks it");
}

typedef struct unpacked {
    uint8_t *data;
    size_t used, capacity;
} unpacked;

static sh_status make_room(const char *name, size_t bytes_most, unpacked *out) {
    if (out->used < out->capacity) return SH_OK;
    if (out->capacity >= bytes_most)
        return SH_FAIL(SH_E_FORMAT, "'%s' unpacks to more than %zu bytes", name, bytes_most);
    size_t wanted = out->capacity == 0 ? 65536 : out->capacity * 2;
    if (wanted > bytes_most) wanted = bytes_most;
    uint8_t *grown = sh_realloc(out->data, wanted, 1);
    if (grown == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory: '%s' unpacks to more than %zu bytes", name,
                       out->capacity);
    out->data = grown;
    out->capacity = wanted;
    return SH_OK;
}

/* One call of inflate. `*more_out` is false once the last member has ended. */
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
    if (code != Z_OK || (at == bytes && stream->avail_out != 0))
        return fail_packed(name, at, stream->msg);
    return SH_OK;
}

sh_status sh_gunzip(const char *name, const uint8_t *data, size_t bytes, size_t bytes_most,
                    void **memory_out, size_t *bytes_out) {
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data};
    if (inflateInit2(&stream, 15 + 16) != Z_OK)
        return SH_FAIL(SH_E_MEMORY, "out of memory for unpacking '%s'", name);
    unpacked out = {0};
    sh_status status = SH_OK;
    for (bool more = true; more && status == SH_OK;) {
        status = make_room(name, bytes_most, &out);
        if (status == SH_OK) status = unpack_step(&stream, name, data, bytes, &out, &more);
    }
    inflateEnd(&stream);
    if (status != SH_OK) {
        sh_free(out.data);
        return status;
    }
    *memory_out = out.data;
    *bytes_out = out.used;
    return SH_OK;
}

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

sh_status sh_blob_open(const char *path, sh_blob *blob_out) {
    sh_blob blob = {0};
    SH_TRY(sh_file_map(path, &blob.map));
    blob.data = blob.map.data;
    blob.bytes = blob.map.bytes;
    if (is_gzip(blob.data, blob.bytes)) {
        size_t unpacked_bytes = 0;
        sh_status status =
            sh_gunzip(path, blob.data, blob.bytes, (size_t)16 << 30, &blob.memory, &unpacked_bytes);
        sh_file_unmap(&blob.map);
        if (status != SH_OK) return status;
        blob.data = blob.memory;
        blob.bytes = unpacked_bytes;
    }
    *blob_out = blob;
    return SH_OK;
}

void sh_blob_close(sh_blob *blob) {
    sh_file_unmap(&blob->map);
    sh_free(blob->memory);
    *blob = (sh_blob){0};
}

char *sh_blob_path(const char *folder, const char *file) {
    char *path = sh_path_join(folder, file);
    char *packed = path != NULL ? sh_format("%s.gz", path) : NULL;
    bool is_packed = packed != NULL && !sh_file_exists(path) && sh_file_exists(packed);
    sh_free(is_packed ? path : packed);
    return is_packed ? packed : path;
}

sh_status sh_blob_sha256(const char *path, char hex_out[SH_SHA256_HEX]) {
    sh_blob blob = {0};
    SH_TRY(sh_blob_open(path, &blob));
    sh_sha256_hex(blob.data, blob.bytes, hex_out);
    sh_blob_close(&blob);
    return SH_OK;
}

sh_status sh_blob_head(const char *path, uint8_t *head, size_t head_bytes, size_t *bytes_out) {
    struct stat info;
    if (stat(path, &info) != 0)
        return SH_FAIL(SH_E_IO, "cannot open '%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return SH_FAIL(SH_E_IO, "'%s' is not a regular file", path);
    gzFile file = gzopen(path, "rbe");  // also reads files that are not packed
    if (file == NULL) return SH_FAIL(SH_E_IO, "cannot open '%s': %s", path, strerror(errno));
    int bytes = gzread(file, head, (unsigned)head_bytes);
    gzclose(file);
    if (bytes < 0) return fail_packed(path, 0, NULL);
    *bytes_out = (size_t)bytes;
    return SH_OK;
}
