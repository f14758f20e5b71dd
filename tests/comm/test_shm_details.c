/* What is particular to shared memory, step by step: one thread plays both ranks, so that every
 * message stands exactly where the test wants it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/ranks.h"
#include "comm/transports/shm.h"
#include "harness.h"

enum { LONG = 1 << 20 };  // more than a ring holds

typedef struct pair {
    sh_shm *fabric;
    sh_transport *a, *b;
    unsigned char *sent, *received;  // [LONG]
} pair;

static pair pair_open(void) {
    pair p = {.sent = malloc(LONG), .received = malloc(LONG)};
    CHECK_OK(sh_shm_create(2, &p.fabric));
    CHECK_OK(sh_shm_attach(p.fabric, 0, 2, &p.a));
    CHECK_OK(sh_shm_attach(p.fabric, 1, 2, &p.b));
    for (size_t i = 0; i < LONG; i++) p.sent[i] = (unsigned char)(i * 7 + (i >> 8));
    memset(p.received, 0, LONG);
    return p;
}

static void pair_close(pair *p) {
    sh_transport_close(p->a);
    sh_transport_close(p->b);
    sh_shm_destroy(p->fabric);
    free(p->sent);
    free(p->received);
}

/* Shared memory that this process has touched so far. */
static long shared_kib(void) {
    long kib = -1;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (kib < 0 && fgets(line, sizeof line, file) != NULL) sscanf(line, "RssShmem: %ld", &kib);
    fclose(file);
    assert_true(kib >= 0);
    return kib;
}

static void run_both(pair *p) {
    while (sh_transport_progress(p->a) || sh_transport_progress(p->b)) continue;
}

static sh_message long_send(pair *p, uint64_t tag) {
    return (sh_message){.peer = 1, .tag = tag, .data = p->sent, .bytes = LONG};
}

static sh_message long_receive(pair *p, uint64_t tag) {
    return (sh_message){.peer = 0, .tag = tag, .data = p->received, .bytes = LONG};
}

TEST(shm_details, a_send_waits_while_nobody_receives) {
    pair p = pair_open();
    sh_message send = long_send(&p, 1);
    CHECK_OK(sh_send(p.a, &send));
    uint64_t calls = sh_alloc_calls();
    run_both(&p);
    assert_int_equal(send.state, SH_MESSAGE_PENDING);
    assert_true(send.moved_bytes > 0 && send.moved_bytes < LONG);
    assert_int_equal(sh_alloc_calls(), calls);  // nothing was queued as unexpected
    sh_message receive = long_receive(&p, 1);
    CHECK_OK(sh_receive(p.b, &receive));
    run_both(&p);
    assert_int_equal(send.state, SH_MESSAGE_DONE);
    assert_int_equal(receive.state, SH_MESSAGE_DONE);
    assert_memory_equal(p.sent, p.received, LONG);
    assert_int_equal(sh_alloc_calls(), calls);
    pair_close(&p);
}

TEST(shm_details, a_message_half_queued_goes_on_in_its_receive) {
    pair p = pair_open();
    sh_message send = long_send(&p, 1), receive = long_receive(&p, 1);
    sh_message other = {.peer = 0, .tag = 2};
    CHECK_OK(sh_receive(p.b, &other));
    CHECK_OK(sh_send(p.a, &send));
    assert_true(sh_transport_progress(p.b));  // queues the first pieces as unexpected
    assert_int_equal(send.state, SH_MESSAGE_PENDING);
    CHECK_OK(sh_receive(p.b, &receive));
    assert_int_equal(receive.state, SH_MESSAGE_PENDING);
    assert_true(receive.moved_bytes > 0 && receive.moved_bytes < LONG);
    run_both(&p);
    assert_int_equal(receive.state, SH_MESSAGE_DONE);
    assert_memory_equal(p.sent, p.received, LONG);
    assert_int_equal(other.state, SH_MESSAGE_PENDING);
    pair_close(&p);
}

TEST(shm_details, a_receive_can_be_cancelled_half_way) {
    pair p = pair_open();
    sh_message send = long_send(&p, 1), first = long_receive(&p, 1), second = first;
    CHECK_OK(sh_receive(p.b, &first));
    CHECK_OK(sh_send(p.a, &send));
    assert_true(sh_transport_progress(p.b));
    assert_true(first.moved_bytes > 0 && first.moved_bytes < LONG);
    sh_cancel(p.b, &first);
    assert_int_equal(first.state, SH_MESSAGE_CANCELLED);
    memset(p.received, 0, LONG);
    CHECK_OK(sh_receive(p.b, &second));
    run_both(&p);
    assert_int_equal(second.state, SH_MESSAGE_DONE);
    assert_memory_equal(p.sent, p.received, LONG);
    pair_close(&p);
}

TEST(shm_details, a_send_can_be_cancelled_only_before_it_travels) {
    pair p = pair_open();
    sh_message first = long_send(&p, 1), second = long_send(&p, 2), third = long_send(&p, 3);
    CHECK_OK(sh_send(p.a, &first));
    CHECK_OK(sh_send(p.a, &second));
    CHECK_OK(sh_send(p.a, &third));
    sh_cancel(p.a, &first);
    sh_cancel(p.a, &second);
    assert_int_equal(first.state, SH_MESSAGE_PENDING);
    assert_int_equal(second.state, SH_MESSAGE_CANCELLED);
    sh_message receives[] = {long_receive(&p, 1), long_receive(&p, 2), long_receive(&p, 3)};
    for (int i = 0; i < 3; i++) CHECK_OK(sh_receive(p.b, &receives[i]));
    run_both(&p);
    assert_int_equal(receives[0].state, SH_MESSAGE_DONE);
    assert_int_equal(receives[1].state, SH_MESSAGE_PENDING);
    assert_int_equal(receives[2].state, SH_MESSAGE_DONE);
    pair_close(&p);
}

TEST(shm_details, a_death_fails_what_is_half_there_and_keeps_what_came) {
    pair p = pair_open();
    int word = 5, heard = 0;
    sh_message whole = {.peer = 1, .tag = 3, .data = &word, .bytes = sizeof word};
    sh_message half = long_send(&p, 1);
    CHECK_OK(sh_send(p.a, &whole));
    CHECK_OK(sh_send(p.a, &half));
    sh_message receive = long_receive(&p, 1);
    CHECK_OK(sh_receive(p.b, &receive));
    snprintf(sh_shm_board(p.fabric)->rank[0].error, SH_BOARD_TEXT, "killed by SIGKILL");
    sh_shm_mark_dead(p.fabric, 0);
    sh_shm_mark_dead(p.fabric, 0);  // twice is once
    assert_true(sh_transport_progress(p.b));
    assert_int_equal(receive.state, SH_MESSAGE_FAILED);
    sh_message late = {.peer = SH_ANY_RANK, .tag = 3, .data = &heard, .bytes = sizeof heard};
    CHECK_OK(sh_receive(p.b, &late));
    assert_int_equal(late.state, SH_MESSAGE_DONE);
    assert_int_equal(heard, 5);
    CHECK_FAILS(SH_E_PEER, "rank 0 has left: killed by SIGKILL", sh_transport_health(p.b));
    sh_message again = long_receive(&p, 1);
    CHECK_FAILS(SH_E_PEER, "rank 0 has left", sh_receive(p.b, &again));
    assert_int_equal(again.state, SH_MESSAGE_FAILED);
    pair_close(&p);
}

TEST(shm_details, half_a_queued_message_fails_with_its_sender) {
    pair p = pair_open();
    sh_message send = long_send(&p, 1), receive = long_receive(&p, 1);
    sh_message other = {.peer = 0, .tag = 2};
    CHECK_OK(sh_receive(p.b, &other));
    CHECK_OK(sh_send(p.a, &send));
    sh_transport_progress(p.b);
    sh_shm_mark_dead(p.fabric, 0);
    sh_transport_progress(p.b);
    assert_int_equal(other.state, SH_MESSAGE_FAILED);
    CHECK_FAILS(SH_E_PEER, "rank 0 has left", sh_receive(p.b, &receive));
    assert_int_equal(receive.state, SH_MESSAGE_FAILED);
    pair_close(&p);
}

/* ---- Exported memory ---- */

enum { HUGE = 24 << 20 };  // more than one call of progress takes

static pair pair_exports(size_t bytes) {
    pair p = pair_open();
    free(p.sent);
    p.sent = sh_export_acquire(p.a, bytes);
    assert_non_null(p.sent);
    p.received = realloc(p.received, bytes);
    assert_non_null(p.received);
    for (size_t i = 0; i < bytes; i++) p.sent[i] = (unsigned char)(i * 7 + (i >> 8));
    memset(p.received, 0, bytes);
    return p;
}

static void pair_close_lent(pair *p) {
    sh_export_release(p->a, p->sent);
    p->sent = NULL;
    pair_close(p);
}

TEST(shm_details, lent_memory_is_the_senders_until_it_was_read) {
    pair p = pair_exports(LONG);
    sh_message send = long_send(&p, 1), receive = long_receive(&p, 1);
    uint64_t calls = sh_alloc_calls();
    CHECK_OK(sh_send(p.a, &send));
    run_both(&p);
    assert_int_equal(send.state, SH_MESSAGE_PENDING);
    assert_int_equal(send.moved_bytes, 0);
    sh_cancel(p.a, &send);  // too late: it travels
    assert_int_equal(send.state, SH_MESSAGE_PENDING);
    CHECK_OK(sh_receive(p.b, &receive));
    assert_true(sh_transport_progress(p.b));  // all that it takes: the sender did nothing more
    assert_int_equal(receive.state, SH_MESSAGE_DONE);
    assert_memory_equal(p.sent, p.received, LONG);
    assert_int_equal(send.state, SH_MESSAGE_PENDING);
    assert_true(sh_transport_progress(p.a));
    assert_int_equal(send.state, SH_MESSAGE_DONE);
    assert_int_equal(send.moved_bytes, LONG);
    assert_int_equal(sh_alloc_calls(), calls);
    pair_close_lent(&p);
}

/* A message taken back half way becomes unexpected; its sender hears when all has been read. */
TEST(shm_details, a_lent_message_can_be_cancelled_half_way) {
    pair p = pair_exports(HUGE);
    sh_message send = long_send(&p, 1), first = long_receive(&p, 1);
    send.bytes = first.bytes = HUGE;
    sh_message second = first;
    CHECK_OK(sh_receive(p.b, &first));
    CHECK_OK(sh_send(p.a, &send));
    assert_true(sh_transport_progress(p.b));
    assert_true(first.moved_bytes > 0 && first.moved_bytes < HUGE);
    sh_cancel(p.b, &first);
    assert_int_equal(first.state, SH_MESSAGE_CANCELLED);
    sh_transport_progress(p.a);
    assert_int_equal(send.state, SH_MESSAGE_PENDING);
    memset(p.received, 0, HUGE);
    CHECK_OK(sh_receive(p.b, &second));
    run_both(&p);
    assert_int_equal(second.state, SH_MESSAGE_DONE);
    assert_int_equal(send.state, SH_MESSAGE_DONE);
    assert_memory_equal(p.sent, p.received, HUGE);
    pair_close_lent(&p);
}

/* What a rank exported before it died is still there; what it did not read of others fails. */
TEST(shm_details, a_death_leaves_what_was_lent_and_fails_what_was_not_read) {
    pair p = pair_exports(LONG);
    unsigned char *other = sh_export_acquire(p.b, LONG);
    assert_non_null(other);
    sh_message last = long_send(&p, 1), receive = long_receive(&p, 1);
    sh_message unread = {.peer = 0, .tag = 2, .data = other, .bytes = LONG};
    CHECK_OK(sh_send(p.a, &last));
    CHECK_OK(sh_send(p.b, &unread));
    sh_shm_mark_dead(p.fabric, 0);
    CHECK_OK(sh_receive(p.b, &receive));
    assert_true(sh_transport_progress(p.b));
    assert_int_equal(receive.state, SH_MESSAGE_DONE);
    assert_memory_equal(p.sent, p.received, LONG);
    assert_int_equal(unread.state, SH_MESSAGE_FAILED);
    sh_export_release(p.b, other);
    pair_close_lent(&p);
}

TEST(shm_details, a_zero_copy_message_stays_where_it_is) {
    pair p = pair_exports(LONG);
    int word = 7, heard = 0;
    sh_message send = long_send(&p, 1), receive = long_receive(&p, 1);
    sh_message next = {.peer = 1, .tag = 2, .data = &word, .bytes = sizeof word};
    sh_message after = {.peer = 0, .tag = 2, .data = &heard, .bytes = sizeof heard};
    receive.zero_copy = after.zero_copy = true;
    CHECK_OK(sh_send(p.a, &send));
    CHECK_OK(sh_send(p.a, &next));
    CHECK_OK(sh_receive(p.b, &receive));
    CHECK_OK(sh_receive(p.b, &after));
    run_both(&p);
    assert_int_equal(receive.state, SH_MESSAGE_DONE);
    assert_ptr_equal(receive.data, p.sent);
    assert_int_equal(send.state, SH_MESSAGE_PENDING);  // it must not be written yet
    assert_int_equal(after.state, SH_MESSAGE_PENDING);
    sh_message_release(p.b, &receive);
    sh_message_release(p.b, &receive);  // twice is once
    run_both(&p);
    assert_int_equal(send.state, SH_MESSAGE_DONE);
    assert_int_equal(after.state, SH_MESSAGE_DONE);
    assert_ptr_equal(after.data, &heard);  // short: it came through the ring
    assert_int_equal(heard, 7);
    sh_message_release(p.b, &after);
    pair_close_lent(&p);
}

TEST(shm_details, a_zero_copy_message_outlives_its_sender) {
    pair p = pair_exports(LONG);
    sh_message send = long_send(&p, 1), receive = long_receive(&p, 1);
    sh_message never = {.peer = 0, .tag = 2};
    receive.zero_copy = true;
    CHECK_OK(sh_send(p.a, &send));
    CHECK_OK(sh_receive(p.b, &receive));
    run_both(&p);
    CHECK_OK(sh_receive(p.b, &never));
    sh_shm_mark_dead(p.fabric, 0);
    assert_true(sh_transport_progress(p.b));
    assert_int_equal(never.state, SH_MESSAGE_FAILED);
    assert_int_equal(((unsigned char *)receive.data)[1000], p.sent[1000]);
    sh_message_release(p.b, &receive);
    pair_close_lent(&p);
}

TEST(shm_details, what_was_lent_is_given_back) {
    pair p = pair_open();
    long before_kib = shared_kib();
    for (int i = 0; i < 8; i++) {
        unsigned char *exported = sh_export_acquire(p.a, HUGE);
        assert_non_null(exported);
        assert_int_equal((uintptr_t)exported % 4096, 0);
        for (size_t at = 0; at < HUGE; at += 4096) assert_int_equal(exported[at], 0);
        memset(exported, 1, HUGE);
        sh_export_release(p.a, exported);
    }
    assert_true(shared_kib() - before_kib < HUGE / 1024);
    assert_null(sh_export_acquire(p.a, SIZE_MAX));
    assert_null(sh_export_acquire(p.a, SIZE_MAX / 2));
    assert_null(sh_export_acquire(p.a, (size_t)1 << 60));
    pair_close(&p);
}

/* Messages of all lengths up to a few lines, at every place of the ring, many laps. */
TEST(shm_details, lengths_and_places_do_not_matter) {
    pair p = pair_open();
    for (size_t i = 0; i < 20000; i++) {
        size_t bytes = i * 37 % 700;
        sh_message send = {.peer = 1, .tag = i, .data = p.sent + i, .bytes = bytes};
        sh_message receive = {.peer = 0, .tag = i, .data = p.received, .bytes = bytes};
        CHECK_OK(sh_receive(p.b, &receive));
        CHECK_OK(sh_send(p.a, &send));
        run_both(&p);
        assert_int_equal(receive.state, SH_MESSAGE_DONE);
        assert_memory_equal(p.sent + i, p.received, bytes);
    }
    pair_close(&p);
}

/* The ring is filled and emptied by turns, with messages that are unexpected in between. */
TEST(shm_details, a_run_that_goes_on_as_before_allocates_nothing) {
    pair p = pair_open();
    uint64_t calls = 0;
    for (int round = 0; round < 20; round++) {
        if (round == 10) calls = sh_alloc_calls();
        sh_message sends[8], receives[8];
        for (uint64_t i = 0; i < 8; i++) {
            sends[i] = (sh_message){.peer = 1, .tag = i, .data = p.sent, .bytes = 1000 * i};
            CHECK_OK(sh_send(p.a, &sends[i]));
        }
        for (uint64_t i = 8; i-- > 0;) {
            receives[i] = (sh_message){.peer = 0, .tag = i, .data = p.received, .bytes = LONG};
            CHECK_OK(sh_receive(p.b, &receives[i]));
            run_both(&p);
            assert_int_equal(receives[i].state, SH_MESSAGE_DONE);
            assert_int_equal(receives[i].bytes, 1000 * i);
            assert_memory_equal(p.sent, p.received, 1000 * i);
        }
    }
    assert_int_equal(sh_alloc_calls(), calls);
    pair_close(&p);
}

TEST(shm_details, a_thousand_ranks_cost_little_until_they_talk) {
    sh_shm *fabric = NULL;
    sh_transport *first = NULL, *last = NULL;
    long before_kib = shared_kib();
    CHECK_OK(sh_shm_create(1024, &fabric));
    CHECK_OK(sh_shm_attach(fabric, 0, 2, &first));
    CHECK_OK(sh_shm_attach(fabric, 1023, 2, &last));
    unsigned char *sent = calloc(1, LONG), *received = malloc(LONG);
    memset(sent, 9, LONG);
    sh_message send = {.peer = 1023, .tag = 1, .data = sent, .bytes = LONG};
    sh_message receive = {.peer = SH_ANY_RANK, .tag = 1, .data = received, .bytes = LONG};
    CHECK_OK(sh_send(first, &send));
    CHECK_OK(sh_receive(last, &receive));
    while (sh_transport_progress(first) || sh_transport_progress(last)) continue;
    assert_int_equal(receive.state, SH_MESSAGE_DONE);
    assert_int_equal(receive.peer, 0);
    assert_memory_equal(sent, received, LONG);
    assert_true(shared_kib() - before_kib < 4096);  // a ring and a few pages of a million pairs
    free(sent);
    free(received);
    sh_transport_close(first);
    sh_transport_close(last);
    sh_shm_destroy(fabric);
}

TEST(shm_details, impossible_rank_counts_are_refused) {
    sh_shm *fabric = NULL;
    CHECK_FAILS(SH_E_USAGE, "0 workers", sh_shm_create(0, &fabric));
    CHECK_FAILS(SH_E_USAGE, "5000 workers", sh_shm_create(5000, &fabric));
}

static sh_status share_differently(sh_transport *transport, void *argument) {
    (void)argument;
    sh_shared shared = {0};
    return sh_share(transport, transport->rank == 2 ? 200 : 100, &shared);
}

TEST(shm_details, shares_of_different_sizes_are_refused) {
    CHECK_FAILS(SH_E_PEER, "rank 0 shares 100 bytes where rank 2 shares 200",
                run_ranks(3, share_differently, NULL));
}

/* The last to let go gives the memory back; a peer may read until it lets go itself. */
static sh_status read_after_peer_left(sh_transport *t, void *argument) {
    (void)argument;
    sh_shared shared = {0};
    SH_TRY(sh_share(t, 100, &shared));
    memset(shared.base[t->rank], 7, 100);
    SH_TRY(meet_ranks(t, 1));
    if (t->rank == 0) sh_unshare(t, &shared);
    SH_TRY(meet_ranks(t, 2));
    if (t->rank == 0) return SH_OK;
    for (int i = 0; i < 100; i++)
        if (shared.base[0][i] != 7) return SH_FAIL(SH_E_FORMAT, "byte %d is lost", i);
    sh_unshare(t, &shared);
    return SH_OK;
}

TEST(shm_details, shared_memory_lasts_until_all_let_go) {
    CHECK_OK(run_ranks(3, read_after_peer_left, NULL));
    CHECK_OK(run_forked(3, read_after_peer_left, NULL));
}
