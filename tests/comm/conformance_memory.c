#include <stdatomic.h>
#include <string.h>

#include "base/rng.h"
#include "comm/conformance_tools.h"

/* A seeded storm: every rank sends messages of mixed sizes and tags to every rank, itself included,
 * all started at once; receives are started in another order, a few at a time. Every other message
 * is sent from exported memory, where the transport has that. */
enum { STORM = 60, STORM_TAGS = 5, STORM_MOST = 70000, STORM_AT_ONCE = 8 };

static size_t storm_bytes(int from, int to, int index) {
    sh_rng rng = sh_rng_stream(17, SH_RNG_TEST, (uint32_t)(from * 4096 + to), (uint64_t)index);
    const uint64_t limits[] = {2, 64, 1000, STORM_MOST};
    return sh_rng_below(&rng, limits[sh_rng_below(&rng, SH_COUNT(limits))]);
}

static uint64_t storm_seed(int from, int to, int index) {
    return (uint64_t)((from * 31 + to) * 131 + index);
}

typedef struct storm_work {
    sh_message *sends;        // [ranks][STORM]
    sh_message *receives;     // [ranks][STORM]
    uint32_t *order;          // of the receives: [ranks * STORM], in order within a peer and tag
    unsigned char **buffers;  // [2][ranks][STORM]
    unsigned char *exported;  // [ranks][STORM][STORM_MOST]; may be NULL
} storm_work;

static sh_status storm_open(sh_transport *t, storm_work *storm) {
    size_t count = (size_t)t->ranks * STORM;
    storm->sends = sh_alloc(count, sizeof *storm->sends);
    storm->receives = sh_alloc(count, sizeof *storm->receives);
    storm->order = sh_alloc(count, sizeof *storm->order);
    storm->buffers = sh_alloc(2 * count, sizeof *storm->buffers);
    EXPECT(storm->sends && storm->receives && storm->order && storm->buffers, "no memory");
    storm->exported = sh_export_acquire(t, count * STORM_MOST);
    for (size_t i = 0; i < count; i++) {
        int peer = (int)(i / STORM), index = (int)(i % STORM);
        size_t out = storm_bytes(t->rank, peer, index), in = storm_bytes(peer, t->rank, index);
        storm->buffers[i] = sh_alloc(1, out + 1);
        storm->buffers[count + i] = sh_alloc(1, in + 1);
        EXPECT(storm->buffers[i] && storm->buffers[count + i], "no memory");
        bool exports = storm->exported != NULL && index % 2 == 0;
        unsigned char *data = exports ? storm->exported + i * STORM_MOST : storm->buffers[i];
        fill(data, out, storm_seed(t->rank, peer, index));
        uint64_t tag = TAG(12, index % STORM_TAGS);
        storm->sends[i] = message_of(peer, tag, data, out);
        storm->receives[i] = message_of(peer, tag, storm->buffers[count + i], in);
    }
    return SH_OK;
}

static void storm_close(sh_transport *t, storm_work *storm) {
    for (size_t i = 0; i < 2 * (size_t)t->ranks * STORM; i++) sh_free(storm->buffers[i]);
    sh_export_release(t, storm->exported);
    sh_free(storm->buffers);
    sh_free(storm->order);
    sh_free(storm->receives);
    sh_free(storm->sends);
}

/* Shuffled, then each (peer, tag) takes its places in order. */
static sh_status storm_shuffle(sh_transport *t, storm_work *storm) {
    size_t count = (size_t)t->ranks * STORM, lists = (size_t)t->ranks * STORM_TAGS;
    uint32_t *next = sh_alloc(lists, sizeof *next);
    EXPECT(next != NULL, "no memory");
    sh_rng rng = sh_rng_stream(18, SH_RNG_TEST, (uint32_t)t->rank, 0);
    sh_rng_shuffle(&rng, storm->order, count);
    for (size_t i = 0; i < count; i++) {
        uint32_t peer = storm->order[i] / STORM, tag = storm->order[i] % STORM % STORM_TAGS;
        uint32_t *at = &next[peer * STORM_TAGS + tag];
        storm->order[i] = peer * STORM + tag + STORM_TAGS * (*at)++;
    }
    sh_free(next);
    return SH_OK;
}

static sh_status storm_run(sh_transport *t, storm_work *storm) {
    size_t count = (size_t)t->ranks * STORM;
    for (int index = 0; index < STORM; index++)
        for (int peer = 0; peer < t->ranks; peer++)
            SH_TRY(sh_send(t, &storm->sends[peer * STORM + index]));
    for (size_t i = 0; i < count + STORM_AT_ONCE; i++) {
        if (i < count) SH_TRY(sh_receive(t, &storm->receives[storm->order[i]]));
        if (i < STORM_AT_ONCE) continue;
        uint32_t done = storm->order[i - STORM_AT_ONCE];
        int peer = (int)done / STORM, index = (int)done % STORM;
        sh_message *message = &storm->receives[done];
        SH_TRY(wait_message(t, message));
        EXPECT(message->bytes == storm_bytes(peer, t->rank, index),
               "rank %d: message %d of rank %d has %zu bytes", t->rank, index, peer,
               message->bytes);
        SH_TRY(check(t, message->data, message->bytes, storm_seed(peer, t->rank, index),
                     "a message of the storm"));
    }
    for (size_t i = 0; i < count; i++) SH_TRY(wait_message(t, &storm->sends[i]));
    return SH_OK;
}

sh_status conformance_storm(sh_transport *t, void *argument) {
    (void)argument;
    storm_work storm = {0};
    SH_TRY(storm_open(t, &storm));
    SH_TRY(storm_shuffle(t, &storm));
    SH_TRY(storm_run(t, &storm));
    storm_close(t, &storm);
    return meet_ranks(t, TAG(12, STORM_TAGS));
}

/* A long message and a short one behind it come from memory that is written anew as soon as both
 * are sent. Every other long one is received zero-copy; what follows it comes when it has been
 * released. */
enum { EXPORTS = 12, EXPORTED = 300000 };

static sh_status export_one(sh_transport *t, unsigned char *own, unsigned char *room, int turn) {
    uint64_t seed = (uint64_t)turn;
    fill(own, EXPORTED, seed);
    sh_message sends[] = {message_of(right_of(t), TAG(16, 0), own, EXPORTED),
                          message_of(right_of(t), TAG(16, 1), own, 8)};
    sh_message in = message_of(left_of(t), TAG(16, 0), room, EXPORTED);
    in.zero_copy = turn % 2 == 0;
    for (size_t i = 0; i < SH_COUNT(sends); i++) SH_TRY(sh_send(t, &sends[i]));
    SH_TRY(sh_receive(t, &in));
    SH_TRY(wait_message(t, &in));
    EXPECT(in.bytes == EXPORTED && in.peer == left_of(t), "%zu bytes of %d", in.bytes, in.peer);
    SH_TRY(check(t, in.data, EXPORTED, seed,
                 in.zero_copy ? "a zero-copy message" : "an exported message"));
    sh_message_release(t, &in);
    SH_TRY(receive_now(t, left_of(t), TAG(16, 1), room, 8));
    SH_TRY(check(t, room, 8, seed, "the message behind"));
    for (size_t i = 0; i < SH_COUNT(sends); i++) SH_TRY(wait_message(t, &sends[i]));
    return SH_OK;
}

sh_status conformance_exports(sh_transport *t, void *argument) {
    (void)argument;
    unsigned char *exported = sh_export_acquire(t, EXPORTED), *own = sh_alloc(1, EXPORTED),
                  *room = sh_alloc(1, EXPORTED);
    EXPECT(own != NULL && room != NULL, "no memory");
    for (int turn = 0; turn < EXPORTS; turn++)
        SH_TRY(export_one(t, exported != NULL ? exported : own, room, turn));
    SH_TRY(meet_ranks(t, TAG(16, 2)));
    sh_export_release(t, exported);
    sh_free(own);
    sh_free(room);
    return SH_OK;
}

/* Waits for a flag that peers set in shared memory before they wake it. */
static sh_status wait_flag(sh_transport *t, _Atomic int *flag, int value) {
    while (atomic_load_explicit(flag, memory_order_acquire) != value) {
        SH_TRY(sh_transport_health(t));
        if (!sh_transport_progress(t)) sh_transport_idle(t);
    }
    return SH_OK;
}

/* A ball goes round through flags in memory; whoever waits for it sleeps until it is rung for. */
static sh_status pass_ball(sh_transport *t, const sh_shared *shared) {
    _Atomic int *own = (_Atomic int *)shared->base[t->rank];
    _Atomic int *next = (_Atomic int *)shared->base[right_of(t)];
    for (int lap = 1; lap <= 10; lap++) {
        if (t->rank != 0) SH_TRY(wait_flag(t, own, lap));
        atomic_store_explicit(next, lap, memory_order_release);
        sh_wake(t, right_of(t));
        if (t->rank == 0) SH_TRY(wait_flag(t, own, lap));
    }
    return SH_OK;
}

static sh_status use_shared(sh_transport *t, const sh_shared *shared, int round) {
    unsigned char *own = (unsigned char *)shared->base[t->rank];
    EXPECT(own != NULL, "rank %d has no memory of its own", t->rank);
    EXPECT((uintptr_t)own % 4096 == 0, "shared memory at %p", (void *)own);
    bool zero = own[0] == 0 && memcmp(own, own + 1, shared->bytes - 1) == 0;
    EXPECT(zero, "rank %d: new memory is not zero", t->rank);
    fill(own, shared->bytes, (uint64_t)(t->rank + round));
    SH_TRY(meet_ranks(t, TAG(13, 2 * round)));
    for (int peer = 0; peer < t->ranks; peer++)
        if (shared->base[peer] != NULL)
            SH_TRY(check(t, (unsigned char *)shared->base[peer], shared->bytes,
                         (uint64_t)(peer + round), "a peer's memory"));
    SH_TRY(meet_ranks(t, TAG(13, 2 * round + 1)));
    bool all = true;
    for (int peer = 0; peer < t->ranks; peer++) all = all && shared->base[peer] != NULL;
    if (!all) return SH_OK;
    atomic_store((_Atomic int *)own, 0);
    SH_TRY(meet_ranks(t, TAG(13, 100 + round)));
    return pass_ball(t, shared);
}

/* Several at a time, small and of many pages, given back and taken again. */
sh_status conformance_shares(sh_transport *t, void *argument) {
    (void)argument;
    const size_t sizes[] = {64, 4097, (2 << 20) + 5, 100};
    for (int again = 0; again < 2; again++) {
        sh_shared shared[SH_COUNT(sizes)];
        for (size_t i = 0; i < SH_COUNT(sizes); i++) {
            SH_TRY(sh_share(t, sizes[i], &shared[i]));
            EXPECT(shared[i].bytes == sizes[i], "%zu bytes", shared[i].bytes);
        }
        for (size_t i = 0; i < SH_COUNT(sizes); i++)
            SH_TRY(use_shared(t, &shared[i], again * 4 + (int)i));
        for (size_t i = 0; i < SH_COUNT(sizes); i++) sh_unshare(t, &shared[i]);
    }
    return meet_ranks(t, TAG(13, 200));
}

/* All ranks hear of it, and what can be had still can. */
sh_status conformance_share_refused(sh_transport *t, void *argument) {
    (void)argument;
    const size_t sizes[] = {SIZE_MAX, (size_t)1 << 60, (size_t)1 << 43};
    for (size_t i = 0; i < SH_COUNT(sizes); i++) {
        sh_shared shared = {0};
        sh_status status = sh_share(t, sizes[i], &shared);
        EXPECT(status == SH_E_MEMORY, "rank %d: sharing %zu bytes gives status %d", t->rank,
               sizes[i], (int)status);
    }
    sh_shared shared = {0};
    SH_TRY(sh_share(t, 1000, &shared));
    SH_TRY(use_shared(t, &shared, 50));
    sh_unshare(t, &shared);
    return meet_ranks(t, TAG(14, 0));
}

/* What the ranks that stay must see. */
static sh_status outlive(sh_transport *t, int dying) {
    int word = 0;
    unsigned char *data = sh_alloc(1, 8 << 20);
    EXPECT(data != NULL, "no memory");
    sh_message last_word = message_of(dying, TAG(15, 0), &word, sizeof word);
    sh_message never = message_of(dying, TAG(15, 1), &word, sizeof word);
    sh_message in_vain = message_of(dying, TAG(15, 2), data, 8 << 20);
    SH_TRY(sh_receive(t, &last_word));
    SH_TRY(sh_receive(t, &never));
    SH_TRY(sh_send(t, &in_vain));
    while (never.state == SH_MESSAGE_PENDING || in_vain.state == SH_MESSAGE_PENDING)
        if (!sh_transport_progress(t)) sh_transport_idle(t);
    EXPECT(last_word.state == SH_MESSAGE_DONE && word == 42, "its last word: state %d, %d",
           (int)last_word.state, word);
    EXPECT(never.state == SH_MESSAGE_FAILED, "a receive: state %d", (int)never.state);
    EXPECT(in_vain.state == SH_MESSAGE_FAILED, "a send: state %d", (int)in_vain.state);
    char name[32];
    snprintf(name, sizeof name, "rank %d", dying);
    EXPECT(sh_transport_health(t) == SH_E_PEER, "rank %d is well", t->rank);
    EXPECT(strstr(sh_error_last()->text, name) != NULL, "not named: %s", sh_error_last()->text);
    sh_message late = message_of(dying, TAG(15, 4), &word, sizeof word);
    EXPECT(sh_receive(t, &late) == SH_E_PEER, "a receive from the dead starts");
    EXPECT(sh_send(t, &late) == SH_E_PEER, "a send to the dead starts");
    sh_free(data);
    return SH_OK;
}

sh_status conformance_dies(sh_transport *t, void *argument) {
    conformance_death *death = argument;
    int dying = t->ranks - 1, word = 42;
    if (t->rank != dying) return outlive(t, dying);
    for (int peer = 0; peer < dying; peer++)
        SH_TRY(send_now(t, peer, TAG(15, 0), &word, sizeof word));
    death->die(death->argument);
    return SH_FAIL(SH_E_INTERRUPTED, "rank %d leaves", dying);
}
