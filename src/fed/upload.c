/* Updates while they arrive in chunks. All sizes are checked before memory is taken; the budget
 * over all clients bounds what strangers with certificates can make the server allocate. */
#include "fed/upload.h"

#include <sodium.h>
#include <string.h>

#include "base/memory.h"

struct sh_fed_upload {
    unsigned char whole[SH_FED_HASH];
    size_t total, chunks;  // bytes as announced and checked, and their chunks
    int64_t touched_ms;    // stalled uploads are dropped by it
    bool *has;             // (chunks)
    unsigned char *data;   // (total)
};

/* NULL where the client's upload is of another message. */
static sh_fed_upload *find(const sh_fed_uploads *uploads, size_t client,
                           const unsigned char whole[SH_FED_HASH]) {
    sh_fed_upload *upload = client < uploads->clients ? uploads->items[client] : NULL;
    return upload != NULL && memcmp(upload->whole, whole, SH_FED_HASH) == 0 ? upload : NULL;
}

/* Grows by 64 clients at a time; places of clients that never send stay NULL. */
static sh_status make_room(sh_fed_uploads *uploads, size_t client) {
    if (client < uploads->clients) return SH_OK;
    size_t clients = client + 64;
    sh_fed_upload **items = sh_realloc(uploads->items, clients, sizeof *items);
    if (items == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for uploads");
    memset(items + uploads->clients, 0, (clients - uploads->clients) * sizeof *items);
    uploads->items = items;
    uploads->clients = clients;
    return SH_OK;
}

/* One upload per client: a new message drops the old one, whose bytes leave the budget first. */
static sh_status begin(sh_fed_uploads *uploads, size_t client, const sh_fed_chunk *chunk,
                       sh_fed_upload **upload_out) {
    SH_TRY(make_room(uploads, client));
    sh_fed_uploads_drop(uploads, client);
    // No overflow: bytes never exceed bytes_most.
    if (chunk->total > uploads->bytes_most - uploads->bytes)
        return SH_FAIL(SH_E_MEMORY, "too many updates arrive at the same time");
    sh_fed_upload *upload = sh_alloc(1, sizeof *upload);
    if (upload == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an upload");
    memcpy(upload->whole, chunk->whole, SH_FED_HASH);
    upload->total = chunk->total;
    upload->chunks = (chunk->total + SH_FED_CHUNK - 1) / SH_FED_CHUNK;
    upload->has = sh_alloc(upload->chunks, sizeof *upload->has);
    upload->data = sh_alloc(chunk->total, 1);
    uploads->items[client] = upload;
    uploads->bytes += chunk->total;
    if (upload->has == NULL || upload->data == NULL) {
        sh_fed_uploads_drop(uploads, client);
        return SH_FAIL(SH_E_MEMORY, "out of memory for an upload");
    }
    *upload_out = upload;
    return SH_OK;
}

/* Every chunk is whole, but the last. */
static size_t chunk_bytes(const sh_fed_chunk *chunk) {
    size_t begin = chunk->index * SH_FED_CHUNK, left = chunk->total - begin;
    return left < SH_FED_CHUNK ? left : SH_FED_CHUNK;
}

/* Of the chunk alone, by what it says of itself. */
static sh_status check(const sh_fed_uploads *uploads, const sh_fed_chunk *chunk) {
    unsigned char hash[SH_FED_HASH];
    if (chunk->total == 0 || chunk->total > uploads->each_most)
        return SH_FAIL(SH_E_FORMAT, "an update of %zu bytes, where %zu are the most", chunk->total,
                       uploads->each_most);
    if (chunk->index > (chunk->total - 1) / SH_FED_CHUNK || chunk->bytes != chunk_bytes(chunk))
        return SH_FAIL(SH_E_FORMAT, "chunk %zu of an update of %zu bytes has %zu bytes",
                       chunk->index, chunk->total, chunk->bytes);
    crypto_hash_sha256(hash, chunk->data, chunk->bytes);
    if (memcmp(hash, chunk->hash, SH_FED_HASH) == 0) return SH_OK;
    return SH_FAIL(SH_E_FORMAT, "chunk %zu of an update was changed on its way", chunk->index);
}

/* Checked before anything is kept. The same chunk again overwrites itself. */
sh_status sh_fed_uploads_put(sh_fed_uploads *uploads, size_t client, int64_t now_ms,
                             const sh_fed_chunk *chunk) {
    SH_TRY(check(uploads, chunk));
    sh_fed_upload *upload = find(uploads, client, chunk->whole);
    if (upload == NULL || upload->total != chunk->total)  // another message than the one under way
        SH_TRY(begin(uploads, client, chunk, &upload));
    memcpy(upload->data + chunk->index * SH_FED_CHUNK, chunk->data, chunk->bytes);
    upload->has[chunk->index] = true;
    upload->touched_ms = now_ms;
    return SH_OK;
}

/* A client that goes on sends from this chunk on. */
size_t sh_fed_uploads_have(const sh_fed_uploads *uploads, size_t client,
                           const unsigned char whole[SH_FED_HASH]) {
    const sh_fed_upload *upload = find(uploads, client, whole);
    size_t count = 0;
    while (upload != NULL && count < upload->chunks && upload->has[count]) count++;
    return count;
}

/* The whole is hashed again, since chunks were checked by what the client said. Borrowed until
 * the next put or drop. */
sh_status sh_fed_uploads_whole(const sh_fed_uploads *uploads, size_t client,
                               const unsigned char whole[SH_FED_HASH], const void **data_out,
                               size_t *bytes_out) {
    const sh_fed_upload *upload = find(uploads, client, whole);
    unsigned char hash[SH_FED_HASH];
    if (upload == NULL || sh_fed_uploads_have(uploads, client, whole) < upload->chunks)
        return SH_FAIL(SH_E_USAGE, "the update is not complete");
    crypto_hash_sha256(hash, upload->data, upload->total);
    if (memcmp(hash, whole, SH_FED_HASH) != 0)
        return SH_FAIL(SH_E_FORMAT, "the update has another hash than it says");
    *data_out = upload->data;
    *bytes_out = upload->total;
    return SH_OK;
}

/* Overwrites the update: what a client sent is private until it is summed. */
void sh_fed_uploads_drop(sh_fed_uploads *uploads, size_t client) {
    sh_fed_upload *upload = client < uploads->clients ? uploads->items[client] : NULL;
    if (upload == NULL) return;
    if (upload->data != NULL) sodium_memzero(upload->data, upload->total);
    uploads->bytes -= upload->total;
    sh_free(upload->data);
    sh_free(upload->has);
    sh_free(upload);
    uploads->items[client] = NULL;
}

/* A client that went away must not hold memory. */
void sh_fed_uploads_expire(sh_fed_uploads *uploads, int64_t before_ms) {
    for (size_t c = 0; c < uploads->clients; c++)
        if (uploads->items[c] != NULL && uploads->items[c]->touched_ms < before_ms)
            sh_fed_uploads_drop(uploads, c);
}

void sh_fed_uploads_fini(sh_fed_uploads *uploads) {
    for (size_t c = 0; c < uploads->clients; c++) sh_fed_uploads_drop(uploads, c);
    sh_free(uploads->items);
    *uploads = (sh_fed_uploads){0};
}
