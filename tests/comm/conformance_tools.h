/* What the bodies of the conformance suite have in common. */
#ifndef SH_TESTS_COMM_CONFORMANCE_TOOLS_H
#define SH_TESTS_COMM_CONFORMANCE_TOOLS_H

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

/* Contents that tell who sent what, and where a byte should be. */
static inline unsigned char pattern(uint64_t seed, size_t i) {
    return (unsigned char)(seed * 151 + i * 7 + (i >> 8) * 3 + (i >> 16) * 5);
}

static inline void fill(unsigned char *data, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++) data[i] = pattern(seed, i);
}

static inline sh_status check(const sh_transport *t, const unsigned char *data, size_t bytes,
                              uint64_t seed, const char *what) {
    for (size_t i = 0; i < bytes; i++)
        EXPECT(data[i] == pattern(seed, i), "rank %d: %s: byte %zu of %zu is %d, not %d", t->rank,
               what, i, bytes, data[i], pattern(seed, i));
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
sh_status conformance_storm(sh_transport *t, void *argument);
sh_status conformance_shares(sh_transport *t, void *argument);
sh_status conformance_share_refused(sh_transport *t, void *argument);

#endif
