/* NPZ: a zip file of NPY arrays, stored or deflated. The arrays x and y, or x_train, y_train,
 * x_test and y_test. Only what the central directory says is believed, and each claim is checked
 * against the bytes that are there. */
#include <string.h>
#include <zlib.h>

#include "base/memory.h"
#include "data/array.h"
#include "data/reader.h"
#include "data/room.h"

enum { LOCAL_BYTES = 30, ENTRY_BYTES = 46, END_BYTES = 22 };

static uint32_t u16_at(const uint8_t *at) { return at[0] | (uint32_t)at[1] << 8; }
static uint32_t u32_at(const uint8_t *at) { return u16_at(at) | u16_at(at + 2) << 16; }
static uint64_t u64_at(const uint8_t *at) { return u32_at(at) | (uint64_t)u32_at(at + 4) << 32; }

/* The archive and its directory. */
typedef struct zip {
    const char *name;
    const uint8_t *data;
    size_t bytes;
    size_t directory, directory_end;
} zip;

typedef struct member {
    const char *name;
    size_t name_bytes;
    uint64_t packed, unpacked, offset;
    uint32_t method, checksum, flags;
} member;

/* With the byte at which the archive is wrong. */
static sh_status fail_zip(const zip *z, size_t at, const char *why) {
    SH_FAIL(SH_E_FORMAT, "'%s' is a damaged NPZ file: %s at byte %zu", z->name, why, at);
    return sh_error_hint("'unzip -t' checks it");
}

/* The end record is searched backwards, behind a comment of any length. */
static sh_status find_directory(zip *z) {
    if (z->bytes < END_BYTES) return fail_zip(z, z->bytes, "it ends too early");
    size_t last = z->bytes - END_BYTES, first = last > 65535 ? last - 65535 : 0;
    for (size_t at = last + 1; at-- > first;) {
        if (u32_at(z->data + at) != 0x06054b50) continue;
        uint64_t size = u32_at(z->data + at + 12), start = u32_at(z->data + at + 16);
        if (start == UINT32_MAX)
            return SH_FAIL(SH_E_UNSUPPORTED, "'%s': NPZ files above 4 GiB are not read; use NPY",
                           z->name);
        if (start + size > at) return fail_zip(z, at, "a directory out of bounds");
        z->directory = (size_t)start;
        z->directory_end = (size_t)(start + size);
        return SH_OK;
    }
    return fail_zip(z, z->bytes, "no directory");
}

/* Sizes of 2^32-1 are looked up in the zip64 extra field, as numpy writes them. */
static bool take_zip64(const uint8_t *extra, size_t bytes, member *m) {
    uint64_t *fields[] = {&m->unpacked, &m->packed, &m->offset};
    bool wanted = false;
    for (size_t i = 0; i < 3; i++) wanted |= *fields[i] == UINT32_MAX;
    if (!wanted) return true;
    for (size_t at = 0; at + 4 <= bytes;) {
        size_t id = u16_at(extra + at), size = u16_at(extra + at + 2);
        if (size > bytes - at - 4) return false;
        const uint8_t *value = extra + at + 4, *end = value + size;
        at += 4 + size;
        if (id != 1) continue;
        for (size_t i = 0; i < 3; i++)
            if (*fields[i] == UINT32_MAX) {
                if (end - value < 8) return false;
                *fields[i] = u64_at(value);
                value += 8;
            }
        return true;
    }
    return false;
}

/* The entry at `*at_inout` of the directory; moves behind it. */
static sh_status next_member(const zip *z, size_t *at_inout, member *m) {
    size_t at = *at_inout, left = z->directory_end - at;
    const uint8_t *entry = z->data + at;
    if (left < ENTRY_BYTES || u32_at(entry) != 0x02014b50)
        return fail_zip(z, at, "a bad directory entry");
    size_t name = u16_at(entry + 28), extra = u16_at(entry + 30), note = u16_at(entry + 32);
    if (left - ENTRY_BYTES < name + extra + note) return fail_zip(z, at, "a cut directory entry");
    *m = (member){.name = (const char *)entry + ENTRY_BYTES,
                  .name_bytes = name,
                  .flags = u16_at(entry + 8),
                  .method = u16_at(entry + 10),
                  .checksum = u32_at(entry + 16),
                  .packed = u32_at(entry + 20),
                  .unpacked = u32_at(entry + 24),
                  .offset = u32_at(entry + 42)};
    if (!take_zip64(entry + ENTRY_BYTES + name, extra, m))
        return fail_zip(z, at, "sizes that are missing");
    *at_inout = at + ENTRY_BYTES + name + extra + note;
    return SH_OK;
}

/* An array "x" is the member "x.npy". */
static sh_status find_member(const zip *z, const char *array, member *m_out, bool *found_out) {
    char file[32];
    size_t length = (size_t)snprintf(file, sizeof file, "%s.npy", array);
    *found_out = false;
    for (size_t at = z->directory; at < z->directory_end;) {
        member m;
        SH_TRY(next_member(z, &at, &m));
        if (m.name_bytes != length || memcmp(m.name, file, length) != 0) continue;
        *m_out = m;
        *found_out = true;
        return SH_OK;
    }
    return SH_OK;
}

/* The local header repeats name and extra field with lengths of its own. */
static sh_status locate(const zip *z, const member *m, const uint8_t **packed_out) {
    if (m->offset > z->directory || z->directory - m->offset < LOCAL_BYTES ||
        u32_at(z->data + m->offset) != 0x04034b50)
        return fail_zip(z, (size_t)m->offset, "a bad member");
    const uint8_t *local = z->data + m->offset;
    uint64_t start = m->offset + LOCAL_BYTES + u16_at(local + 26) + u16_at(local + 28);
    if (start > z->directory || m->packed > z->directory - start)
        return fail_zip(z, (size_t)m->offset, "a member that ends too late");
    *packed_out = z->data + start;
    return SH_OK;
}

/* CRC-32, as the directory has it. */
static uint32_t checksum_of(const uint8_t *data, size_t bytes) {
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), data, bytes);
}

/* The size in the directory is that of the array's own header, and there is room for it. */
static sh_status check_size(const member *m, const char *label, const uint8_t *packed) {
    uint64_t wanted = 0;
    size_t head_bytes = 0;
    uint8_t *head = sh_alloc(SH_BLOB_HEAD, 1);
    if (head == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", label);
    sh_status status = sh_inflate_head(label, packed, m->packed, head, SH_BLOB_HEAD, &head_bytes);
    if (status == SH_OK) status = sh_npy_size(label, head, head_bytes, &wanted);
    sh_free(head);
    SH_TRY(status);
    if (wanted == m->unpacked) return sh_room_check(label, 0, wanted);
    SH_FAIL(SH_E_FORMAT, "'%s' has %llu bytes by its NPY header, and %llu by the zip directory",
            label, (unsigned long long)wanted, (unsigned long long)m->unpacked);
    return sh_hint_damaged();
}

/* The bytes of a member: in place when stored, in `*memory_out` (sh_free it) when packed. `label`
 * is for messages. */
static sh_status unpack(const zip *z, const member *m, const char *label, const uint8_t **data_out,
                        void **memory_out) {
    const uint8_t *packed = NULL;
    SH_TRY(locate(z, m, &packed));
    size_t at = (size_t)m->offset;
    if (m->flags & 1) return SH_FAIL(SH_E_UNSUPPORTED, "'%s' is encrypted", z->name);
    if (m->method == 0) {
        if (m->packed != m->unpacked) return fail_zip(z, at, "two sizes for one member");
        *data_out = packed;
    } else if (m->method == 8) {
        if (!sh_deflate_can(m->unpacked, m->packed)) return fail_zip(z, at, "an absurd size");
        SH_TRY(check_size(m, label, packed));
        uint8_t *memory = sh_alloc(m->unpacked, 1);
        if (memory == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", z->name);
        *memory_out = memory;  // freed by the source, whatever happens next
        SH_TRY(sh_inflate_raw(z->name, packed, m->packed, memory, m->unpacked));
        *data_out = memory;
    } else {
        return SH_FAIL(SH_E_UNSUPPORTED, "'%s' is packed by method %u; use savez_compressed",
                       z->name, m->method);
    }
    if (checksum_of(*data_out, m->unpacked) != m->checksum)
        return fail_zip(z, at, "a wrong checksum");
    return SH_OK;
}

/* Unpacks, checks the sum, parses. */
static sh_status read_array(const zip *z, const char *name, sh_blob *blob, sh_array *array_out,
                            bool *found_out) {
    member m = {0};
    const uint8_t *data = NULL;
    SH_TRY(find_member(z, name, &m, found_out));
    if (!*found_out) return SH_OK;
    char label[512];
    snprintf(label, sizeof label, "%.*s:%s", 480, z->name, name);
    SH_TRY(unpack(z, &m, label, &data, &blob->memory));
    blob->bytes = m.unpacked;
    return sh_npy_parse(label, data, m.unpacked, array_out);
}

/* x_train and y_train when training, x_test and y_test when testing, or x and y. */
static sh_status fill(const sh_read *read, const zip *z, sh_source *source, bool *found_out) {
    static const char *const names[3][2] = {[SH_PART_TRAIN] = {"x_train", "y_train"},
                                            [SH_PART_TEST] = {"x_test", "y_test"},
                                            {"x", "y"}};
    sh_array x, y;
    bool has_x = false, has_y = false;
    size_t set = read->part;
    SH_TRY(read_array(z, names[set][0], &source->blobs[0], &x, &has_x));
    if (!has_x && read->part == SH_PART_TRAIN) {
        set = 2;
        SH_TRY(read_array(z, names[set][0], &source->blobs[0], &x, &has_x));
    }
    *found_out = has_x;
    if (!has_x) return SH_OK;
    char *name = sh_format("%s:%s", z->name, names[set][0]);  // messages tell the part
    if (name == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", z->name);
    sh_free(source->name);
    source->name = name;
    SH_TRY(read_array(z, names[set][1], &source->blobs[1], &y, &has_y));
    return sh_source_take_arrays(source, &x, has_y ? &y : NULL, read);
}

/* From bytes, for tests and the fuzzer, too. */
sh_status sh_npz_parse(const sh_read *read, const uint8_t *data, size_t bytes,
                       sh_source **source_out) {
    zip z = {.name = read->path, .data = data, .bytes = bytes};
    sh_source *source = NULL;
    bool found = false;
    SH_TRY(find_directory(&z));
    SH_TRY(sh_source_create(read->path, &source));
    sh_status status = fill(read, &z, source, &found);
    if (status != SH_OK || !found) {
        sh_source_release(source);
        return status;  // no such part: SH_OK and nothing
    }
    *source_out = source;
    return SH_OK;
}

static sh_status npz_open(const sh_read *read, sh_source **source_out) {
    sh_blob blob = {0};
    SH_TRY(sh_blob_open(read->path, NULL, &blob));
    sh_source *source = NULL;
    sh_status status = sh_npz_parse(read, blob.data, blob.bytes, &source);
    if (source == NULL) {
        sh_blob_close(&blob);
        return status;
    }
    source->blobs[2] = blob;  // members that are stored lie in it
    *source_out = source;
    return SH_OK;
}

static bool npz_detects(__attribute__((unused)) const char *path, const uint8_t *head,
                        size_t head_bytes) {
    return head_bytes >= 4 && (u32_at(head) == 0x04034b50 || u32_at(head) == 0x06054b50);
}

extern const sh_reader sh_reader_npz;
const sh_reader sh_reader_npz = {
    .name = "npz",
    .help = "NumPy arrays x and y, or x_train, y_train, x_test and y_test",
    .detects = npz_detects,
    .open = npz_open,
    .has_parts = true,
};
