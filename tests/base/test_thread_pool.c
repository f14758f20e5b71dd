#include "base/thread_pool.h"

#include <stdatomic.h>

#include "base/memory.h"
#include "harness.h"

static atomic_int entered;

static void enter(void) { atomic_fetch_add(&entered, 1); }

typedef struct count {
    int members;
    atomic_int calls[1000];
    int seen_before[1000];  // written by one run, read by the next
} count;

static void work(void *user, int member, size_t piece) {
    count *c = user;
    assert_true(member >= 0 && member < c->members);
    atomic_fetch_add(&c->calls[piece], 1);
    c->seen_before[piece]++;
}

TEST(pool, calls_every_piece_once_in_every_run) {
    static count c;
    for (int members = 1; members <= 9; members += 4) {
        sh_thread_pool *pool = NULL;
        atomic_store(&entered, 0);
        c = (count){.members = members};
        CHECK_OK(sh_thread_pool_create("pool", members, enter, &pool));
        assert_int_equal(sh_thread_pool_size(pool), members);
        const size_t pieces[] = {0, 1, 2, 3, 7, 1000};
        for (int round = 0; round < 50; round++)
            for (size_t p = 0; p < SH_COUNT(pieces); p++)
                sh_thread_pool_run(pool, work, &c, pieces[p]);
        uint64_t calls = sh_alloc_calls();
        sh_thread_pool_run(pool, work, &c, 1000);
        assert_int_equal(sh_alloc_calls(), calls);
        for (size_t i = 0; i < 1000; i++) {
            int wanted = 1;
            for (size_t p = 0; p < SH_COUNT(pieces); p++) wanted += i < pieces[p] ? 50 : 0;
            assert_int_equal(atomic_load(&c.calls[i]), wanted);
            assert_int_equal(c.seen_before[i], wanted);
        }
        sh_thread_pool_destroy(pool);
        assert_int_equal(atomic_load(&entered), members - 1);
    }
    sh_thread_pool_destroy(NULL);
}
