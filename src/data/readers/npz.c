/* NPZ: a zip file of NPY arrays, stored or deflated. The arrays x and y, or x_train, y_train,
 * x_test and y_test. Only what the central directory says is believed, and each claim is checked
 * against the bytes that are there. */
#include <string.h>
#include <zlib.h>

#include "base/memory.h"
#include "data/array.h"
#include "data/reader.h"
#include "data/room.h"

/* Fixed sizes of zip records, without their variable tails: local header, directory entry, end
 * record. Offsets below are those of PKWARE's APPNOTE, section 4.3. */
enum { LOCAL_BYTES = 30, ENTRY_BYTES = 46, END_BYTES = 22 };

/* Little-endian numbers at any alignment, as zip stores them. */
static uint32_t u16_at(const uint8_t *at) { return at[0] | (uint32_t)at[1] << 8; }
static uint32_t u32_at(const uint8_t *at) { return u16_at(at) | u16_at(at + 2) << 16; }
static uint64_t u64_at(const uint8_t *at) { return u32_at(at) | (uint64_t)u32_at(at + 4) << 32; }

/* A zip archive in memory (borrowed) and the bounds of its central directory. */
typedef struct zip {
    const char *name;  // file name for messages
    const uint8_t *data;
    size_t bytes;
    size_t directory, directory_end;  // byte offsets; directory_end <= bytes
} zip;

/* One file of the archive, as the central directory describes it. `name` is not zero-terminated. */
typedef struct member {
    const char *name;  // in the directory; `name_bytes` long
    size_t name_bytes;
    // Bytes in the file, bytes of content, place of the local header.
    uint64_t packed, unpacked, offset;
    // 0 stored, 8 deflated; CRC-32 of the content; bit 0: encrypted.
    uint32_t method, checksum, flags;
} member;

/* Reports a damaged archive with the byte where it goes wrong. */
static sh_status fail_zip(const zip *z, size_t at, const char *why) {
    SH_FAIL(SH_E_FORMAT, "'%s' is a damaged NPZ file: %s at byte %zu", z->name, why, at);
    return sh_error_hint("'unzip -t' checks it");
}

/* Finds the central directory. The end record is searched from the end of the file backwards,
 * since a comment of up to 65,535 bytes may follow it. */
static sh_status find_directory(zip *z) {
    if (z->bytes < END_BYTES) return fail_zip(z, z->bytes, "it ends too early");
    size_t last = z->bytes - END_BYTES, first = last > 65535 ? last - 65535 : 0;
    for (size_t at = last + 1; at-- > first;) {
        if (u32_at(z->data + at) != 0x06054b50) continue;  // "PK\5\6": end record
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

/* Fills sizes that stand as 2^32-1 from the zip64 extra field (id 1). The field holds only the
 * values so marked, in a fixed order: unpacked size, packed size, offset. False when a marked
 * value is missing. */
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
        if (id != 1) continue;  // an extra field of another kind
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

/* Parses the directory entry at `*at_inout` and moves past it. All lengths are checked against the
 * directory's end before anything is read. */
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

/* Finds array `array`, which is the member "<array>.npy". A missing array is no error:
 * `*found_out` is false. */
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

/* Finds the packed bytes of a member. They follow the local header, whose name and extra field may
 * differ in length from the directory's. They must end before the directory. */
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

/* CRC-32 of the content, as the directory records it. */
static uint32_t checksum_of(const uint8_t *data, size_t bytes) {
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), data, bytes);
}

/* Checks a deflated member before memory is allocated: the size in the directory must equal the
 * one in the array's own NPY header, and there must be room for it. Otherwise a few bytes could
 * claim gigabytes. */
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

/* Gives the content of a member: in place when stored, in `*memory_out` (the caller frees it, also
 * on failure) when deflated. `label` names the array in messages. */
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
        *memory_out = memory;  // set before inflating: the source frees it on failure too
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

/* Finds, unpacks and parses one array. `blob` owns the memory if the member was deflated;
 * otherwise the array borrows the archive. */
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

/* Fills `source` from x_train and y_train, or x_test and y_test, as `read->part` says; for
 * training also from plain x and y. `*found_out` is false if the samples of that part are
 * absent. */
static sh_status fill(const sh_read *read, const zip *z, sh_source *source, bool *found_out) {
    static const char *const names[3][2] = {[SH_PART_TRAIN] = {"x_train", "y_train"},
                                            [SH_PART_TEST] = {"x_test", "y_test"},
                                            {"x", "y"}};
    sh_array x, y;
    bool has_x = false, has_y = false;
    size_t set = read->part;
    SH_TRY(read_array(z, names[set][0], &source->blobs[0], &x, &has_x));
    // Plain x and y are training data; such an archive has no test part.
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

/* Parses NPZ from memory, for npz_open, the tests and the fuzzer. The source keeps pointers into
 * `data`. SH_OK and an untouched `*source_out`: the archive lacks that part. */
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

/* Opens an NPZ file. The source keeps the archive's bytes, since stored members are used in
 * place. */
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

/* Recognises a zip file by its first record: a local header, or the end record of an empty
 * archive. */
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
