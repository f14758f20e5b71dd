/* Hashes and checksums, by libsodium: SHA-256 for files from outside, BLAKE2b (as `b2sum` prints
 * it) for our own manifests, because it is three times as fast. */
#ifndef SH_BASE_HASH_H
#define SH_BASE_HASH_H

#include <stddef.h>

#include "base/status.h"

enum { SH_SHA256_HEX = 65, SH_BLAKE2_HEX = 129 };  // characters with the final zero

/* Lower-case hexadecimal digits and a final zero, as `sha256sum` and `b2sum` print. */
void sh_sha256_hex(const void *data, size_t bytes, char hex_out[SH_SHA256_HEX]);
void sh_blake2_hex(const void *data, size_t bytes, char hex_out[SH_BLAKE2_HEX]);
sh_status sh_file_blake2(const char *path, char hex_out[SH_BLAKE2_HEX]);

#endif
