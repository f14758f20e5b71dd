/* Updates in chunks: they resume, come in any order, and nothing else gets in. */
#include "harness.h"

#include <sodium.h>
#include <string.h>

#include "base/memory.h"
#include "fed/upload.h"

enum { TOTAL = 2 * SH_FED_CHUNK + 5 };

typedef struct world {
    unsigned char *message;
    sh_fed_uploads uploads;
} world;

static world start(void) {
    world w = {.message = sh_alloc(TOTAL, 1),
               .uploads = {.bytes_most = 3 * (size_t)TOTAL, .each_most = TOTAL}};
    for (size_t i = 0; i < TOTAL; i++) w.message[i] = (unsigned char)(i * 7 >> 4);
    return w;
}

static void stop(world *w) {
    sh_fed_uploads_fini(&w->uploads);
    sh_free(w->message);
}

static sh_fed_chunk chunk_of(const world *w, size_t index) {
    size_t at = index * SH_FED_CHUNK, left = TOTAL - at;
    sh_fed_chunk chunk = {.total = TOTAL,
                          .index = index,
                          .data = w->message + at,
                          .bytes = left < SH_FED_CHUNK ? left : SH_FED_CHUNK};
    crypto_hash_sha256(chunk.whole, w->message, TOTAL);
    crypto_hash_sha256(chunk.hash, chunk.data, chunk.bytes);
    return chunk;
}

TEST(upload, is_whole_when_all_chunks_came_in_any_order) {
    world w = start();
    const void *data;
    size_t bytes;
    sh_fed_chunk a = chunk_of(&w, 0), b = chunk_of(&w, 1), c = chunk_of(&w, 2);
    CHECK_OK(sh_fed_uploads_put(&w.uploads, 4, 0, &c));
    CHECK_OK(sh_fed_uploads_put(&w.uploads, 4, 0, &a));
    assert_int_equal(sh_fed_uploads_have(&w.uploads, 4, a.whole), 1);
    CHECK_FAILS(SH_E_USAGE, "not complete",
                sh_fed_uploads_whole(&w.uploads, 4, a.whole, &data, &bytes));
    CHECK_OK(sh_fed_uploads_put(&w.uploads, 4, 0, &b));
    CHECK_OK(sh_fed_uploads_put(&w.uploads, 4, 0, &b));  // again
    assert_int_equal(sh_fed_uploads_have(&w.uploads, 4, a.whole), 3);
    CHECK_OK(sh_fed_uploads_whole(&w.uploads, 4, a.whole, &data, &bytes));
    assert_int_equal(bytes, TOTAL);
    assert_memory_equal(data, w.message, TOTAL);
    assert_int_equal(sh_fed_uploads_have(&w.uploads, 3, a.whole), 0);  // another client's
    sh_fed_uploads_drop(&w.uploads, 4);
    assert_int_equal(w.uploads.bytes, 0);
    stop(&w);
}

TEST(upload, with_a_faulty_chunk_or_hash_is_refused) {
    world w = start();
    const void *data;
    size_t bytes;
    sh_fed_chunk chunk = chunk_of(&w, 2);
    chunk.hash[0] ^= 1;
    CHECK_FAILS(SH_E_FORMAT, "changed on its way", sh_fed_uploads_put(&w.uploads, 0, 0, &chunk));
    chunk = chunk_of(&w, 2);
    chunk.index = 3;
    CHECK_FAILS(SH_E_FORMAT, "chunk 3", sh_fed_uploads_put(&w.uploads, 0, 0, &chunk));
    chunk.index = SIZE_MAX;
    CHECK_FAILS(SH_E_FORMAT, "chunk", sh_fed_uploads_put(&w.uploads, 0, 0, &chunk));
    chunk = chunk_of(&w, 0);
    chunk.bytes--;
    CHECK_FAILS(SH_E_FORMAT, "has 1048575 bytes", sh_fed_uploads_put(&w.uploads, 0, 0, &chunk));
    chunk = chunk_of(&w, 0);
    chunk.total = TOTAL + 1;
    CHECK_FAILS(SH_E_FORMAT, "are the most", sh_fed_uploads_put(&w.uploads, 0, 0, &chunk));
    for (size_t i = 0; i < 3; i++) {
        chunk = chunk_of(&w, i);
        chunk.whole[0] ^= 1;
        CHECK_OK(sh_fed_uploads_put(&w.uploads, 0, 0, &chunk));
    }
    CHECK_FAILS(SH_E_FORMAT, "another hash",
                sh_fed_uploads_whole(&w.uploads, 0, chunk.whole, &data, &bytes));
    stop(&w);
}

TEST(upload, beyond_the_budget_waits_and_idle_ones_make_room) {
    world w = start();
    sh_fed_chunk chunk = chunk_of(&w, 0);
    for (size_t client = 0; client < 3; client++)
        CHECK_OK(sh_fed_uploads_put(&w.uploads, client, (int64_t)client, &chunk));
    CHECK_FAILS(SH_E_MEMORY, "same time", sh_fed_uploads_put(&w.uploads, 3, 9, &chunk));
    sh_fed_uploads_expire(&w.uploads, 1);
    CHECK_OK(sh_fed_uploads_put(&w.uploads, 3, 9, &chunk));
    chunk.whole[0] ^= 1;  // another update of the same client takes the older one's place
    CHECK_OK(sh_fed_uploads_put(&w.uploads, 3, 9, &chunk));
    assert_int_equal(w.uploads.bytes, 3 * (size_t)TOTAL);
    stop(&w);
}
