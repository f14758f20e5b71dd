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

/* Fails with SH_E_FORMAT on a damaged gzip stream or one that unpacks to more than 16 GiB. */
sh_status sh_blob_open(const char *path, sh_blob *blob_out);
void sh_blob_close(sh_blob *blob);
/* The path of a file in a folder, or of its .gz where only that is there. sh_free it; NULL when out
 * of memory. */
char *sh_blob_path(const char *folder, const char *file);
/* The SHA-256 of a file as it is unpacked. */
sh_status sh_blob_sha256(const char *path, char hex_out[SH_SHA256_HEX]);
/* The first bytes of a file (unpacked), to tell what it is. */
sh_status sh_blob_head(const char *path, uint8_t *head, size_t head_bytes, size_t *bytes_out);

/* Unpacks gzip (also of several members). `name` is for messages. sh_free the memory. */
sh_status sh_gunzip(const char *name, const uint8_t *data, size_t bytes, size_t bytes_most,
                    void **memory_out, size_t *bytes_out);
/* Unpacks raw deflate of known size, as in a zip file. */
sh_status sh_inflate_raw(const char *name, const uint8_t *data, size_t bytes, void *out,
                         size_t out_bytes);

#endif
