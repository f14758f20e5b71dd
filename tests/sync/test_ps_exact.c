/* What a server makes of integers. */
#include <string.h>

#include "base/memory.h"
#include "harness.h"
#include "sync/ps_exact.h"
#include "tensor/kernels/fixed.h"

enum { WORKERS = 3, FIRST = 5, SECOND = 4, TOTAL = FIRST + SECOND, PIECES = 2 };

typedef struct rig {
    ps_server server;
    sh_service service;
    ps_client clients[WORKERS];
    int64_t pushes[WORKERS][PIECES + 1 + TOTAL];
    float sum[TOTAL];
    bool unused[PIECES];
} rig;

/* Worker r's gradient of element i is (r + 1)(i - 3), of 12 rows; nobody used the second piece. */
static void rig_init(rig *r) {
    *r = (rig){.service = {.workers = WORKERS}};
    r->server = (ps_server){.service = &r->service,
                            .clients = r->clients,
                            .group.sum = r->sum,
                            .exact = {.on = true, .unused = r->unused}};
    CHECK_OK(sh_param_list_add(&r->server.shard.params, "a", SH_SHAPE(FIRST), true, NULL));
    CHECK_OK(sh_param_list_add(&r->server.shard.params, "b", SH_SHAPE(SECOND), true, NULL));
    const float largest = 6;
    int exponent = sh_fixed()->exponent(&largest, 1);
    for (int w = 0; w < WORKERS; w++) {
        int64_t *push = r->pushes[w];
        r->clients[w].pushed.packet = (char *)push;
        push[0] = exponent;
        push[1] = -1;
        push[2] = 12;
        for (int i = 0; i < FIRST; i++)
            push[PIECES + 1 + i] = (int64_t)((w + 1) * (i - 3) * sh_fixed_scale(exponent));
        for (int i = 0; i < SECOND; i++) push[PIECES + 1 + FIRST + i] = 77;
    }
}

TEST(ps_exact, integers_of_all_workers_become_the_mean_and_unused_tensors_stay) {
    rig r;
    rig_init(&r);
    r.sum[FIRST] = 42;
    CHECK_OK(ps_exact_sum(&r.server));
    for (int i = 0; i < FIRST; i++) assert_true(r.sum[i] == (float)(6 * (i - 3)) / 12);
    assert_false(r.unused[0]);
    assert_true(r.unused[1]);
    assert_true(r.sum[FIRST] == 42);
    sh_param_list_fini(&r.server.shard.params);
}

TEST(ps_exact, integers_of_different_scales_are_refused) {
    const struct {
        int worker, word;
        int64_t value;
        const char *what;
    } cases[] = {
        {1, 0, 1, "another scale"},
        {2, 2, 13, "another scale"},
        {0, 0, SH_FIXED_NOT_FINITE, "no scale"},
        {0, 1, -2, "no scale"},
        {0, 2, -1, "less than nothing"},
    };
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        rig r;
        rig_init(&r);
        r.pushes[cases[i].worker][cases[i].word] = cases[i].value;
        CHECK_FAILS(SH_E_FORMAT, cases[i].what, ps_exact_sum(&r.server));
        sh_param_list_fini(&r.server.shard.params);
    }
}

TEST(ps_exact, combines_numbers_of_all_and_refuses_what_does_not_match) {
    rig r;
    rig_init(&r);
    int64_t combined[2];
    r.server.exact.combined = combined;
    for (int w = 0; w < WORKERS; w++) {
        r.clients[w].request = (sh_ps_request){.what = SH_PS_MOST, .sum = 2};
        r.pushes[w][0] = w == 1 ? 9 : -w;
        r.pushes[w][1] = INT64_MAX;  // a sum of these is nonsense, and no more than that
    }
    CHECK_OK(ps_exact_answer(&r.server));
    assert_int_equal(combined[0], 9);
    for (int w = 0; w < WORKERS; w++) r.clients[w].request.what = SH_PS_SUM;
    CHECK_OK(ps_exact_answer(&r.server));
    assert_int_equal(combined[0], 7);
    r.clients[2].request.sum = 1;
    CHECK_FAILS(SH_E_FORMAT, "something else", ps_exact_answer(&r.server));
    sh_param_list_fini(&r.server.shard.params);
}
