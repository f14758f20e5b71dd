/* The bytes of a file: mapped as they are, or unpacked into memory when the file is gzip. */
#ifndef SH_DATA_BLOB_H
#define SH_DATA_BLOB_H

#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"

typedef struct sh_blob {
    const uint8_t *data;
    size_t bytes;
    sh_mapped map;  // one of these two owns `data`
    void *memory;
} sh_blob;

/* What the first bytes of a file, unpacked, say of its size: `*bytes_out` is the most that it can
 * have. `head` are all its bytes if those are fewer than SH_BLOB_HEAD. */
enum { SH_BLOB_HEAD = 65536 };
typedef sh_status sh_blob_sizer(const char *name, const uint8_t *head, size_t head_bytes,
                                uint64_t *bytes_out);

/* Fails on a file that is not regular. Of a gzip stream no more is unpacked than `sizer` allows
 * after the first bytes (NULL: the format does not tell), and than there is room for (room.h). */
sh_status sh_blob_open(const char *path, sh_blob_sizer *sizer, sh_blob *blob_out);
/* The bytes of memory that it takes; those of a mapped file are none. */
size_t sh_blob_memory(const sh_blob *blob);
void sh_blob_close(sh_blob *blob);
/* The path of a file in a folder, or of its .gz where only that is there. sh_free it; NULL when out
 * of memory. */
char *sh_blob_path(const char *folder, const char *file);
/* The SHA-256 of a file as it is unpacked. */
sh_status sh_blob_sha256(const char *path, sh_blob_sizer *sizer, char hex_out[SH_SHA256_HEX]);
/* The first bytes of a file (unpacked), to tell what it is. */
sh_status sh_blob_head(const char *path, uint8_t *head, size_t head_bytes, size_t *bytes_out);

/* Unpacks raw deflate of known size, as in a zip file. */
sh_status sh_inflate_raw(const char *name, const uint8_t *data, size_t bytes, void *out,
                         size_t out_bytes);
/* Unpacks the first bytes of raw deflate alone, at most `out_bytes`. */
sh_status sh_inflate_head(const char *name, const uint8_t *data, size_t bytes, void *out,
                          size_t out_bytes, size_t *bytes_out);
/* Whether deflate can pack `unpacked` bytes into so few: it does not get below one in 1032. */
bool sh_deflate_can(uint64_t unpacked, uint64_t packed);

#endif
