/* Updates while they arrive in chunks: at most one for each client, in memory alone, all together
 * within a budget. A chunk is named by its place and checked by its hash, so that it may come again
 * and in any order; the whole is checked by the hash that names it. */
#ifndef SH_FED_UPLOAD_H
#define SH_FED_UPLOAD_H

#include <stdbool.h>

#include "fed/message.h"

enum { SH_FED_CHUNK = 1 << 20 };  // bytes of every chunk but the last

typedef struct sh_fed_upload sh_fed_upload;

typedef struct sh_fed_uploads {
    sh_fed_upload **items;  // per client, NULL: none
    size_t clients;
    size_t bytes, bytes_most;  // of all
    size_t each_most;          // of one
} sh_fed_uploads;

typedef struct sh_fed_chunk {
    unsigned char whole[SH_FED_HASH];  // hash of the whole update message
    size_t total;                      // its bytes
    size_t index;
    unsigned char hash[SH_FED_HASH];  // of this chunk
    const void *data;
    size_t bytes;
} sh_fed_chunk;

/* A new upload of a client replaces its older one. SH_E_MEMORY: the budget is used up, try later.
 * SH_E_FORMAT: the chunk does not fit what it says. */
sh_status sh_fed_uploads_put(sh_fed_uploads *uploads, size_t client, int64_t now_ms,
                             const sh_fed_chunk *chunk);
/* How many chunks are there without a gap. */
size_t sh_fed_uploads_have(const sh_fed_uploads *uploads, size_t client,
                           const unsigned char whole[SH_FED_HASH]);
/* The complete update; it stays until it is dropped. SH_E_USAGE: it is not complete. */
sh_status sh_fed_uploads_whole(const sh_fed_uploads *uploads, size_t client,
                               const unsigned char whole[SH_FED_HASH], const void **data_out,
                               size_t *bytes_out);
/* Overwrites and frees what a client has sent. */
void sh_fed_uploads_drop(sh_fed_uploads *uploads, size_t client);
/* Drops those on which nothing has come since. */
void sh_fed_uploads_expire(sh_fed_uploads *uploads, int64_t before_ms);
void sh_fed_uploads_fini(sh_fed_uploads *uploads);

#endif
