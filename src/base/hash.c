/* libsodium behind three functions; no other file includes it here. */
#include "base/hash.h"

#include <sodium.h>

#include "base/file.h"

/* SHA-256 needs no set-up of the library. */
void sh_sha256_hex(const void *data, size_t bytes, char hex_out[SH_SHA256_HEX]) {
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(digest, data, bytes);
    sodium_bin2hex(hex_out, SH_SHA256_HEX, digest, sizeof digest);
}

/* BLAKE2b with 64 bytes of digest, as `b2sum` prints it. */
void sh_blake2_hex(const void *data, size_t bytes, char hex_out[SH_BLAKE2_HEX]) {
    unsigned char digest[64];
    SH_ASSERT(sodium_init() >= 0);  // picks the fast implementation; repeated calls are cheap
    crypto_generichash(digest, sizeof digest, data, bytes, NULL, 0);
    sodium_bin2hex(hex_out, SH_BLAKE2_HEX, digest, sizeof digest);
}

/* The file is mapped instead of read, so that its size takes no memory. */
sh_status sh_file_blake2(const char *path, char hex_out[SH_BLAKE2_HEX]) {
    sh_mapped mapped;
    SH_TRY(sh_file_map(path, &mapped));
    sh_blake2_hex(mapped.data, mapped.bytes, hex_out);
    sh_file_unmap(&mapped);
    return SH_OK;
}
