/* Shards, what they do for limited links, and messages from anybody. */
#include <string.h>

#include "base/memory.h"
#include "harness.h"
#include "sync/ps.h"
#include "sync/servers.h"

/* ---- Messages from anybody ---- */

typedef struct hostile {
    const char *what;
    sh_ps_request request;
    size_t request_bytes, push_bytes;
} hostile;

/* Rank 0 sends the wrong thing; rank 1 is an honest worker and hears why its server gave up. */
static sh_status attack(sh_transport *transport, const hostile *h) {
    sh_mail mail = {.transport = transport, .workers = 2};
    char *junk = sh_alloc(1, 4096);
    SH_ASSERT(junk != NULL);
    sh_ps_reply reply;
    sh_status status = sh_mail_put(&mail, 2, SH_PS_ASK, &h->request, h->request_bytes, "attack");
    if (status == SH_OK && h->push_bytes > 0)
        status = sh_mail_put(&mail, 2, SH_PS_PUSHED, junk, h->push_bytes, "attack");
    if (status == SH_OK)
        status = sh_mail_take(&mail, 2, SH_PS_ANSWER, &reply, sizeof reply, "attack");
    sh_free(junk);
    return status;
}

static hostile current;
static ps_world besieged;

static sh_status siege(sh_transport *mail, void *argument) {
    (void)argument;
    if (mail->rank == 0) return attack(mail, &current);
    return play_endpoint(mail, &besieged);
}

TEST(server, refuses_what_cannot_be_a_request_and_says_so) {
    const sh_ps_request good = {
        .magic = SH_PS_MAGIC, .what = SH_PS_PUSH | SH_PS_PULL, .goal = 10, .sum = 1};
    hostile cases[] = {
        {"wrong length or magic", {.magic = 1, .what = SH_PS_PULL}, sizeof good, 0},
        {"wrong length or magic", good, sizeof good - 8, 0},
        {"unknown kind", {.magic = SH_PS_MAGIC, .what = 4096}, sizeof good, 0},
        {"unknown kind", {.magic = SH_PS_MAGIC}, sizeof good, 0},
        {"unknown kind", {.magic = SH_PS_MAGIC, .what = SH_PS_MOST, .sum = 1}, sizeof good, 0},
        {"unknown kind", {.magic = SH_PS_MAGIC, .what = SH_PS_VOID}, sizeof good, 0},
        {"unknown kind", {.magic = SH_PS_MAGIC, .what = SH_PS_STEP, .sum = 1}, sizeof good, 0},
        {"out of range", {.magic = SH_PS_MAGIC, .what = SH_PS_PULL, .sum = -1}, sizeof good, 0},
        {"out of range", good, sizeof good, 0},
        {"something else than its gradient", good, sizeof good, 4},
        {"something else than its gradient", good, sizeof good, 4096},
    };
    cases[8].request.version = 1 << 20;
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        current = cases[i];
        besieged =
            (ps_world){.scheme = "async", .workers = 2, .servers = 1, .lr = 1, .goals = {1000000}};
        make_counters(&besieged);
        besieged.optim = "sgd";
        CHECK_FAILS(SH_E_FORMAT, cases[i].what, run_ranks(3, siege, NULL));
        end_world(&besieged);
    }
}

/* Requests of rank 0 one after the other; replies are not read. */
typedef struct intrusion {
    const char *what;
    uint32_t asks[2];
} intrusion;

static const intrusion *intruding;

static sh_status intrude(sh_transport *transport, void *argument) {
    (void)argument;
    if (transport->rank != 0) return play_endpoint(transport, &besieged);
    sh_mail mail = {.transport = transport, .workers = 2};
    for (size_t i = 0; i < SH_COUNT(intruding->asks); i++) {
        const sh_ps_request request = {
            .magic = SH_PS_MAGIC, .what = intruding->asks[i], .goal = 10, .sum = 1};
        SH_TRY(sh_mail_put(&mail, 2, SH_PS_ASK, &request, sizeof request, "intrude"));
    }
    sh_ps_reply reply;
    do SH_TRY(sh_mail_take(&mail, 2, SH_PS_ANSWER, &reply, sizeof reply, "intrude"));
    while (reply.failed == SH_OK);
    return SH_FAIL((sh_status)reply.failed, "%s", reply.text);
}

TEST(server, refuses_requests_out_of_turn) {
    const char *const early = "sent before the one before was answered";
    const intrusion cases[] = {
        {early, {SH_PS_PUSH | SH_PS_PULL, SH_PS_PULL}},  // its push has not come
        {early, {SH_PS_PUSH, SH_PS_END}},
        {early, {SH_PS_MEET, SH_PS_PULL}},
        {early, {SH_PS_MEET, SH_PS_END}},
        {"sent after its end", {SH_PS_END, SH_PS_PULL}},
        {"sent after its end", {SH_PS_END, SH_PS_END}},
    };
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        intruding = &cases[i];
        besieged =
            (ps_world){.scheme = "async", .workers = 2, .servers = 1, .lr = 1, .goals = {1000000}};
        make_counters(&besieged);
        besieged.optim = "sgd";
        CHECK_FAILS(SH_E_FORMAT, cases[i].what, run_ranks(3, intrude, NULL));
        end_world(&besieged);
    }
}

/* A server that answers the first request with something else. */
typedef struct liar {
    const char *what;
    sh_ps_reply reply;
    size_t reply_bytes, value_bytes;
} liar;

static liar lying;

static sh_status lie(sh_transport *transport, void *argument) {
    (void)argument;
    if (transport->rank == 0) return play_endpoint(transport, &besieged);
    sh_mail mail = {.transport = transport, .workers = 1};
    sh_ps_request request;
    float values[8] = {0};
    SH_TRY(sh_mail_take(&mail, 0, SH_PS_ASK, &request, sizeof request, "lie"));
    SH_TRY(sh_mail_put(&mail, 0, SH_PS_ANSWER, &lying.reply, lying.reply_bytes, "lie"));
    return sh_mail_put(&mail, 0, SH_PS_VALUES, values, lying.value_bytes, "lie");
}

TEST(worker, refuses_what_cannot_be_a_reply) {
    const sh_ps_reply good = {.magic = SH_PS_MAGIC, .granted = 1};
    liar cases[] = {
        {"malformed reply", {.magic = 5, .granted = 1}, sizeof good, 4},
        {"malformed reply", good, sizeof good - 1, 4},
        {"numbers out of range", {.magic = SH_PS_MAGIC, .granted = -1}, sizeof good, 4},
        {"0 bytes of values instead of 4", good, sizeof good, 0},
    };
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        lying = cases[i];
        besieged = (ps_world){.scheme = "async", .workers = 1, .servers = 1, .lr = 1, .goals = {9}};
        make_counters(&besieged);
        besieged.optim = "sgd";
        CHECK_FAILS(SH_E_FORMAT, cases[i].what, run_ranks(2, lie, NULL));
        end_world(&besieged);
    }
}

/* ---- Limited links ---- */

static sh_status nothing(ps_world *world, int rank, int64_t step, const float *weights,
                         float *gradients) {
    (void)world;
    (void)rank;
    (void)step;
    (void)weights;
    (void)gradients;
    return SH_OK;
}

/* Virtual seconds of a step of 8 workers with 10 Mbit/s and 50 us, 40 kB of parameters and 20 ms of
 * computing: the same as with 1 Gbit/s and 4 MB. */
static double seconds_of_step(const char *scheme, int servers, bool apart) {
    enum { STEPS = 20, WORKERS = 8 };
    ps_world world = {.scheme = scheme,
                      .workers = WORKERS,
                      .servers = servers,
                      .apart = apart,
                      .lr = 1,
                      .goals = {STEPS * WORKERS},
                      .gradient = nothing};
    CHECK_OK(sh_param_list_add(&world.params, "weight", SH_SHAPE(10000), true, NULL));
    world.start = sh_alloc(world.params.total, sizeof *world.start);
    const sh_sim_options sim = {.seed = 1,
                                .links = {.rank = {.alpha_s = 50e-6, .beta_s = 8e-7}},
                                .compute = {.law = SH_LAW_CONSTANT, .mean_s = 20e-3}};
    CHECK_OK(play_world(&world, &sim));
    end_world(&world);
    double seconds = simulated_seconds() / STEPS;
    print_message("%s, %d server%s %s: %.1f ms a step\n", scheme, servers, servers == 1 ? "" : "s",
                  apart ? "apart" : "on workers", seconds * 1e3);
    return seconds;
}

/* Asynchronous workers beside a server do most of the work, being spared the wires: their servers
 * stand apart here. */
TEST(servers, share_the_traffic_of_limited_links) {
    const char *const schemes[] = {"ps", "ps", "async"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        bool apart = i > 0;
        double one = seconds_of_step(schemes[i], 1, apart),
               two = seconds_of_step(schemes[i], 2, apart),
               four = seconds_of_step(schemes[i], 4, apart);
        assert_true(two < 0.7 * one);
        assert_true(four < 0.75 * two);
    }
}

/* ---- Shards ---- */

static void check_shards(const sh_param_list *params, const char *placement, int count) {
    size_t total = 0, least = SIZE_MAX, most = 0, largest = 0;
    float *whole = sh_alloc(params->total, sizeof *whole), *again = sh_alloc(params->total, 4);
    float *part = sh_alloc(params->total, sizeof *part);
    sh_test_fill(whole, params->total, 1);
    for (int s = 0; s < count; s++) {
        sh_ps_shard shard;
        CHECK_OK(sh_ps_shard_init(&shard, params, placement, s, count));
        total += shard.params.total;
        if (shard.params.total < least) least = shard.params.total;
        if (shard.params.total > most) most = shard.params.total;
        sh_ps_shard_take(&shard, whole, part);
        sh_ps_shard_give(&shard, part, again);
        sh_ps_shard_fini(&shard);
    }
    assert_int_equal(total, params->total);
    assert_memory_equal(whole, again, params->total * sizeof *whole);
    for (size_t i = 0; i < params->count; i++)
        if (params->items[i].count > largest) largest = params->items[i].count;
    // Whole tensors: the last one of a server came when that had no more than the mean.
    bool even = strcmp(placement, "range") == 0;
    assert_true(even ? most - least <= 1 : most <= total / (size_t)count + largest);
    sh_free(whole);
    sh_free(again);
    sh_free(part);
}

TEST(shards, cover_every_element_once_and_none_has_much_more_than_its_part) {
    ps_world world = {0};
    make_layers(&world);
    for (int count = 1; count <= 200; count = count * 2 + 1) {
        check_shards(&world.params, "range", count);
        check_shards(&world.params, "variable", count);
    }
    end_world(&world);
}

TEST(shards, with_variables_tensors_stay_whole_and_the_largest_is_alone) {
    ps_world world = {0};
    make_layers(&world);
    sh_ps_shard shard;
    CHECK_OK(sh_ps_shard_init(&shard, &world.params, "variable", 0, 2));
    assert_int_equal(shard.params.count, 1);
    assert_string_equal(shard.params.items[0].name, "a.weight");
    assert_int_equal(shard.params.items[0].shape.rank, 2);
    sh_ps_shard_fini(&shard);
    end_world(&world);
}
