#include "comm/conformance.h"

#include "comm/conformance_tools.h"

static sh_status one_tag_keeps_its_order(sh_transport *t, void *argument) {
    (void)argument;
    enum { COUNT = 300 };
    int sent[COUNT], received[COUNT];
    sh_message sends[COUNT], receives[COUNT];
    for (int i = 0; i < COUNT; i++) {
        sent[i] = t->rank * 1000 + i;
        sends[i] = message_of(right_of(t), TAG(1, 0), &sent[i], sizeof *sent);
        SH_TRY(sh_send(t, &sends[i]));
    }
    for (int i = 0; i < COUNT; i++) {
        receives[i] = message_of(left_of(t), TAG(1, 0), &received[i], sizeof *received);
        SH_TRY(sh_receive(t, &receives[i]));
    }
    for (int i = 0; i < COUNT; i++) {
        SH_TRY(wait_message(t, &receives[i]));
        EXPECT(received[i] == left_of(t) * 1000 + i, "rank %d: message %d is %d", t->rank, i,
               received[i]);
        SH_TRY(wait_message(t, &sends[i]));
    }
    return meet_ranks(t, TAG(1, 1));
}

/* A long message that nobody wants yet stands before the one that is waited for. */
static sh_status tags_overtake(sh_transport *t, void *argument) {
    (void)argument;
    enum { LONG = 3 << 20, SHORT = 100 };
    unsigned char *data = sh_alloc(2, LONG), first[SHORT], second[SHORT];
    EXPECT(data != NULL, "no memory");
    fill(data, LONG, (uint64_t)t->rank);
    fill(first, SHORT, (uint64_t)t->rank + 50);
    sh_message sends[2] = {message_of(right_of(t), TAG(2, 0), data, LONG),
                           message_of(right_of(t), TAG(2, 1), first, SHORT)};
    SH_TRY(sh_send(t, &sends[0]));
    SH_TRY(sh_send(t, &sends[1]));
    SH_TRY(receive_now(t, left_of(t), TAG(2, 1), second, SHORT));
    SH_TRY(check(t, second, SHORT, (uint64_t)left_of(t) + 50, "the short message"));
    SH_TRY(receive_now(t, left_of(t), TAG(2, 0), data + LONG, LONG));
    SH_TRY(check(t, data + LONG, LONG, (uint64_t)left_of(t), "the long message"));
    SH_TRY(wait_message(t, &sends[0]));
    SH_TRY(wait_message(t, &sends[1]));
    sh_free(data);
    return meet_ranks(t, TAG(2, 2));
}

/* Rank 0 takes whatever comes; each sender's order holds and nothing is lost or doubled. */
static sh_status any_rank_may_send(sh_transport *t, void *argument) {
    (void)argument;
    enum { COUNT = 200 };
    if (t->rank != 0) {
        for (int i = 0; i < COUNT; i++) SH_TRY(send_now(t, 0, TAG(3, 0), &i, sizeof i));
        return meet_ranks(t, TAG(3, 1));
    }
    int *next = sh_alloc((size_t)t->ranks, sizeof *next);
    EXPECT(next != NULL, "no memory");
    for (int i = 0; i < COUNT * (t->ranks - 1); i++) {
        int value = -1;
        sh_message message = message_of(SH_ANY_RANK, TAG(3, 0), &value, sizeof value);
        SH_TRY(sh_receive(t, &message));
        SH_TRY(wait_message(t, &message));
        EXPECT(message.peer > 0 && message.peer < t->ranks, "from rank %d", message.peer);
        EXPECT(value == next[message.peer], "rank %d sent %d, not %d", message.peer, value,
               next[message.peer]);
        next[message.peer]++;
    }
    for (int peer = 1; peer < t->ranks; peer++)
        EXPECT(next[peer] == COUNT, "rank %d sent %d messages", peer, next[peer]);
    sh_free(next);
    return meet_ranks(t, TAG(3, 1));
}

/* Receives from one rank and from any are served in the order they were started. */
static sh_status receives_are_served_in_order(sh_transport *t, void *argument) {
    (void)argument;
    if (t->rank == 1)
        for (int i = 0; i < 4; i++) SH_TRY(send_now(t, 0, TAG(4, 0), &i, sizeof i));
    if (t->rank == 0) {
        int values[4];
        sh_message messages[4];
        for (int i = 0; i < 4; i++) {
            messages[i] =
                message_of(i % 2 ? SH_ANY_RANK : 1, TAG(4, 0), &values[i], sizeof *values);
            SH_TRY(sh_receive(t, &messages[i]));
        }
        for (int i = 0; i < 4; i++) {
            SH_TRY(wait_message(t, &messages[i]));
            EXPECT(values[i] == i, "receive %d got message %d", i, values[i]);
            EXPECT(messages[i].peer == 1, "receive %d is from rank %d", i, messages[i].peer);
        }
    }
    return meet_ranks(t, TAG(4, 1));
}

static sh_status empty_messages_arrive(sh_transport *t, void *argument) {
    (void)argument;
    for (int i = 0; i < 50; i++) {
        sh_message send = message_of(right_of(t), TAG(5, i), NULL, 0);
        sh_message receive = message_of(left_of(t), TAG(5, i), NULL, 0);
        SH_TRY(sh_send(t, &send));
        SH_TRY(sh_receive(t, &receive));
        SH_TRY(wait_message(t, &receive));
        SH_TRY(wait_message(t, &send));
        EXPECT(receive.bytes == 0, "an empty message has %zu bytes", receive.bytes);
    }
    return meet_ranks(t, TAG(5, 50));
}

/* Both ways at once between the first two ranks; sizes that nothing divides. */
static sh_status huge_messages_arrive(sh_transport *t, void *argument) {
    (void)argument;
    const size_t sizes[] = {((size_t)64 << 20) + 13, (5 << 20) + 1};
    if (t->rank < 2) {
        int peer = 1 - t->rank;
        size_t out = sizes[t->rank], in = sizes[peer];
        unsigned char *data = sh_alloc(1, out + in);
        EXPECT(data != NULL, "no memory");
        fill(data, out, (uint64_t)t->rank);
        sh_message send = message_of(peer, TAG(6, 0), data, out);
        sh_message receive = message_of(peer, TAG(6, 0), data + out, in);
        SH_TRY(sh_send(t, &send));
        SH_TRY(sh_receive(t, &receive));
        SH_TRY(wait_message(t, &receive));
        SH_TRY(wait_message(t, &send));
        EXPECT(receive.bytes == in, "%zu bytes of %zu", receive.bytes, in);
        SH_TRY(check(t, data + out, in, (uint64_t)peer, "the huge message"));
        sh_free(data);
    }
    return meet_ranks(t, TAG(6, 1));
}

/* Thousands under way, received in the opposite order of their tags. */
static sh_status many_are_in_flight(sh_transport *t, void *argument) {
    (void)argument;
    enum { COUNT = 3000, BYTES = 96 };
    unsigned char(*data)[BYTES] = sh_alloc(2 * COUNT, BYTES);
    sh_message *messages = sh_alloc(2 * COUNT, sizeof *messages);
    EXPECT(data != NULL && messages != NULL, "no memory");
    for (int i = 0; i < COUNT; i++) {
        fill(data[i], BYTES, (uint64_t)(t->rank + i));
        messages[i] = message_of(right_of(t), TAG(7, i), data[i], BYTES);
        SH_TRY(sh_send(t, &messages[i]));
    }
    for (int i = COUNT; i < 2 * COUNT; i++) {
        messages[i] = message_of(left_of(t), TAG(7, 2 * COUNT - 1 - i), data[i], BYTES);
        SH_TRY(sh_receive(t, &messages[i]));
    }
    for (int i = 0; i < 2 * COUNT; i++) SH_TRY(wait_message(t, &messages[i]));
    for (int i = COUNT; i < 2 * COUNT; i++)
        SH_TRY(check(t, data[i], BYTES, (uint64_t)(left_of(t) + 2 * COUNT - 1 - i), "one of many"));
    sh_free(messages);
    sh_free(data);
    return meet_ranks(t, TAG(7, COUNT));
}

/* A receive that is taken back gets nothing; the message goes to the next one. */
static sh_status receives_can_be_cancelled(sh_transport *t, void *argument) {
    (void)argument;
    int first = -1, second = -1, value = t->rank;
    sh_message taken_back = message_of(left_of(t), TAG(8, 0), &first, sizeof first);
    sh_message from_any = message_of(SH_ANY_RANK, TAG(8, 0), &first, sizeof first);
    SH_TRY(sh_receive(t, &taken_back));
    SH_TRY(sh_receive(t, &from_any));
    sh_cancel(t, &taken_back);
    sh_cancel(t, &from_any);
    EXPECT(taken_back.state == SH_MESSAGE_CANCELLED, "state %d", (int)taken_back.state);
    EXPECT(from_any.state == SH_MESSAGE_CANCELLED, "state %d", (int)from_any.state);
    SH_TRY(meet_ranks(t, TAG(8, 1)));
    sh_message send = message_of(right_of(t), TAG(8, 0), &value, sizeof value);
    SH_TRY(sh_send(t, &send));
    SH_TRY(receive_now(t, left_of(t), TAG(8, 0), &second, sizeof second));
    SH_TRY(wait_message(t, &send));
    EXPECT(first == -1, "a cancelled receive got %d", first);
    EXPECT(second == left_of(t), "received %d", second);
    sh_cancel(t, &send);  // done: nothing happens
    EXPECT(send.state == SH_MESSAGE_DONE, "cancelling changed a message that was done");
    return meet_ranks(t, TAG(8, 2));
}

/* A send is either taken back whole or delivered whole, and the sender knows which. */
static sh_status sends_are_whole_or_cancelled(sh_transport *t, void *argument) {
    (void)argument;
    enum { COUNT = 4, BYTES = 1 << 20 };
    unsigned char *data = sh_alloc(COUNT, BYTES);
    EXPECT(data != NULL, "no memory");
    char delivered[COUNT] = {0};
    if (t->rank == 0) {
        sh_message sends[COUNT];
        for (int i = 0; i < COUNT; i++) {
            fill(data + i * BYTES, BYTES, (uint64_t)i);
            sends[i] = message_of(1, TAG(9, i), data + i * BYTES, BYTES);
            SH_TRY(sh_send(t, &sends[i]));
        }
        sh_cancel(t, &sends[2]);
        sh_cancel(t, &sends[0]);
        for (int i = 0; i < COUNT; i++) delivered[i] = sends[i].state != SH_MESSAGE_CANCELLED;
        SH_TRY(send_now(t, 1, TAG(9, COUNT), delivered, sizeof delivered));
        for (int i = 0; i < COUNT; i++)
            if (delivered[i]) SH_TRY(wait_message(t, &sends[i]));
        EXPECT(delivered[1] && delivered[3], "a send was cancelled unasked");
    } else if (t->rank == 1) {
        SH_TRY(receive_now(t, 0, TAG(9, COUNT), delivered, sizeof delivered));
        for (int i = 0; i < COUNT; i++) {
            if (!delivered[i]) continue;
            SH_TRY(receive_now(t, 0, TAG(9, i), data, BYTES));
            SH_TRY(check(t, data, BYTES, (uint64_t)i, "a message that was not cancelled"));
        }
    }
    sh_free(data);
    return meet_ranks(t, TAG(9, COUNT + 1));
}

static sh_status ranks_send_to_themselves(sh_transport *t, void *argument) {
    (void)argument;
    enum { LONG = 1 << 20 };
    unsigned char *data = sh_alloc(2, LONG);
    EXPECT(data != NULL, "no memory");
    fill(data, LONG, (uint64_t)t->rank);
    const size_t sizes[] = {0, 1, 100, LONG};
    for (size_t i = 0; i < SH_COUNT(sizes); i++) {
        sh_message send = message_of(t->rank, TAG(10, 0), data, sizes[i]);
        sh_message receive = message_of(t->rank, TAG(10, 0), data + LONG, LONG);
        SH_TRY(sh_send(t, &send));
        SH_TRY(sh_receive(t, &receive));
        SH_TRY(wait_message(t, &receive));
        SH_TRY(wait_message(t, &send));
        EXPECT(receive.bytes == sizes[i], "%zu bytes of %zu", receive.bytes, sizes[i]);
        SH_TRY(check(t, data + LONG, sizes[i], (uint64_t)t->rank, "a message to itself"));
    }
    sh_free(data);
    return meet_ranks(t, TAG(10, 1));
}

/* A message longer than its receive fails there, touches nothing behind it, and the next arrives.*/
static sh_status too_long_fails_alone(sh_transport *t, void *argument) {
    (void)argument;
    enum { LONG = 300000, ROOM = 1000 };
    unsigned char *data = sh_alloc(1, LONG);
    EXPECT(data != NULL, "no memory");
    if (t->rank == 0) {
        fill(data, LONG, 1);
        SH_TRY(send_now(t, 1, TAG(11, 0), data, LONG));
        SH_TRY(send_now(t, 1, TAG(11, 0), data, ROOM));
    } else if (t->rank == 1) {
        sh_message receive = message_of(0, TAG(11, 0), data, ROOM);
        SH_TRY(sh_receive(t, &receive));
        while (receive.state == SH_MESSAGE_PENDING)
            if (!sh_transport_progress(t)) sh_transport_idle(t);
        EXPECT(receive.state == SH_MESSAGE_FAILED, "state %d", (int)receive.state);
        for (size_t i = ROOM; i < LONG; i++) EXPECT(data[i] == 0, "byte %zu was written", i);
        SH_TRY(receive_now(t, 0, TAG(11, 0), data, ROOM));
        SH_TRY(check(t, data, ROOM, 1, "the message after the one that was too long"));
    }
    sh_free(data);
    return meet_ranks(t, TAG(11, 1));
}

const conformance_case conformance_cases[] = {
    {.name = "one tag keeps its order", .body = one_tag_keeps_its_order},
    {.name = "tags overtake", .body = tags_overtake},
    {.name = "any rank may send", .body = any_rank_may_send},
    {.name = "receives are served in order", .body = receives_are_served_in_order},
    {.name = "empty messages arrive", .body = empty_messages_arrive},
    {.name = "huge messages arrive", .body = huge_messages_arrive, .heavy = true},
    {.name = "many are in flight", .body = many_are_in_flight},
    {.name = "receives can be cancelled", .body = receives_can_be_cancelled},
    {.name = "sends are whole or cancelled", .body = sends_are_whole_or_cancelled},
    {.name = "ranks send to themselves", .body = ranks_send_to_themselves},
    {.name = "too long fails alone", .body = too_long_fails_alone},
    {.name = "a storm of messages", .body = conformance_storm},
    {.name = "memory is exported", .body = conformance_exports},
    {.name = "memory is shared", .body = conformance_shares},
    {.name = "too much memory is refused", .body = conformance_share_refused},
    {0},
};
