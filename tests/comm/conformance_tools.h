/* What the bodies of the conformance suite have in common. */
#ifndef SH_TESTS_COMM_CONFORMANCE_TOOLS_H
#define SH_TESTS_COMM_CONFORMANCE_TOOLS_H

#include <string.h>

#include "base/memory.h"
#include "comm/conformance.h"
#include "comm/ranks.h"

#define EXPECT(condition, ...) \
    if (!(condition)) return SH_FAIL(SH_E_FORMAT, __VA_ARGS__)

/* Each body keeps to tags of its own, so that none meets another's messages. */
enum { TAGS = 1 << 20 };
#define TAG(body, tag) ((uint64_t)(body)*TAGS + (uint64_t)(tag))

static inline int right_of(const sh_transport *t) { return (t->rank + 1) % t->ranks; }
static inline int left_of(const sh_transport *t) { return (t->rank + t->ranks - 1) % t->ranks; }

/* Contents that tell who sent what, and where eight bytes should be. */
static inline uint64_t pattern(uint64_t seed, size_t word) {
    return (seed * 0x9e3779b97f4a7c15u) ^ (word * 0xff51afd7ed558ccdu);
}

static inline void fill(unsigned char *data, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = pattern(seed, i / 8);
        memcpy(data + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static inline sh_status check(const sh_transport *t, const unsigned char *data, size_t bytes,
                              uint64_t seed, const char *what) {
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = pattern(seed, i / 8);
        EXPECT(memcmp(data + i, &word, bytes - i < 8 ? bytes - i : 8) == 0,
               "rank %d: %s: wrong near byte %zu of %zu", t->rank, what, i, bytes);
    }
    return SH_OK;
}

static inline sh_message message_of(int peer, uint64_t tag, void *data, size_t bytes) {
    return (sh_message){.peer = peer, .tag = tag, .data = data, .bytes = bytes};
}

static inline sh_status send_now(sh_transport *t, int peer, uint64_t tag, void *data,
                                 size_t bytes) {
    sh_message message = message_of(peer, tag, data, bytes);
    SH_TRY(sh_send(t, &message));
    return wait_message(t, &message);
}

static inline sh_status receive_now(sh_transport *t, int peer, uint64_t tag, void *data,
                                    size_t bytes) {
    sh_message message = message_of(peer, tag, data, bytes);
    SH_TRY(sh_receive(t, &message));
    SH_TRY(wait_message(t, &message));
    EXPECT(message.bytes == bytes, "rank %d: %zu bytes from rank %d, not %zu", t->rank,
           message.bytes, peer, bytes);
    return SH_OK;
}

/* In conformance_memory.c */
sh_status conformance_exports(sh_transport *t, void *argument);
sh_status conformance_storm(sh_transport *t, void *argument);
sh_status conformance_shares(sh_transport *t, void *argument);
sh_status conformance_share_refused(sh_transport *t, void *argument);

#endif
