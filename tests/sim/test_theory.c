/* The simulator against theory: exponential compute times of mean 1 s and free links. The time per
 * update of P workers is H(P) where all are waited for, H(P) - H(P - K) where the first K of P
 * count and the others drop what they do, and 1/P where each is taken as it comes (Dutta et al.
 * 2018). */
#include <math.h>

#include "base/memory.h"
#include "harness.h"
#include "sim/simulated.h"

enum { TAG_PUSH = 1, TAG_VERSION = 2, SEEDS = 4, WORK = 640000 };

/* Rank P, the server, waits for `needed` gradients of the present version, then tells all workers
 * the next; a worker whose version is old starts anew. */
typedef struct study {
    int needed;
    bool waits;  // workers wait for the next version; else they go on at once
    int64_t updates;
} study;

static sh_status serve(sh_transport *t, const study *s) {
    int64_t version = 0, got = 0, come = 0;
    while (version < s->updates) {
        sh_message push = {.peer = SH_ANY_RANK, .tag = TAG_PUSH, .data = &come, .bytes = 8};
        SH_TRY(sh_receive(t, &push));
        SH_TRY(wait_message(t, &push));
        if (s->waits && come != version) continue;
        if (++got < s->needed) continue;
        got = 0;
        version++;
        for (int r = 0; r < t->ranks && (s->waits || version == s->updates); r++) {
            sh_message tell = {.peer = r, .tag = TAG_VERSION, .data = &version, .bytes = 8};
            SH_TRY(sh_send(t, &tell));
        }
    }
    return SH_OK;
}

static bool is_done(void *message) {
    return ((const sh_message *)message)->state != SH_MESSAGE_PENDING;
}

static sh_status work(sh_transport *t, const study *s) {
    int64_t version = 0, next = 0;
    sh_message told = {.peer = t->ranks, .tag = TAG_VERSION, .data = &next, .bytes = 8};
    SH_TRY(sh_receive(t, &told));
    for (int64_t step = 0; version < s->updates; step++) {
        int64_t ns = sh_sim_compute_ns(simulated(), t->rank, step);
        SH_TRY(sh_sim_spend_unless(simulated(), ns, t, is_done, &told));
        sh_message push = {.peer = t->ranks, .tag = TAG_PUSH, .data = &version, .bytes = 8};
        if (!is_done(&told)) SH_TRY(sh_send(t, &push));
        if (!s->waits && told.state == SH_MESSAGE_PENDING) continue;
        SH_TRY(wait_message(t, &told));
        version = next;
        told = (sh_message){.peer = t->ranks, .tag = TAG_VERSION, .data = &next, .bytes = 8};
        if (version < s->updates) SH_TRY(sh_receive(t, &told));
    }
    return SH_OK;
}

static sh_status run_study(sh_transport *t, void *argument) {
    return t->rank < t->ranks ? work(t, argument) : serve(t, argument);
}

static double seconds_per_update(int workers, study s) {
    double total = 0;
    s.updates = WORK / workers / SEEDS * (s.waits ? 1 : workers);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        sh_sim_options options = {.services = 1,
                                  .seed = seed,
                                  .compute = {.law = SH_LAW_EXPONENTIAL, .mean_s = 1},
                                  .stack_bytes = 64 << 10};
        CHECK_OK(run_simulated(workers, &options, run_study, &s));
        total += simulated_seconds();
    }
    return total / (double)(s.updates * SEEDS);
}

static double harmonic(int n) {
    double sum = 0;
    for (int k = 1; k <= n; k++) sum += 1.0 / k;
    return sum;
}

static void expect(const char *what, int workers, double got, double wanted) {
    print_message("%s, %d workers: %.4f s per update, %.4f by theory\n", what, workers, got,
                  wanted);
    if (!(fabs(got - wanted) <= 0.01 * wanted)) fail_msg("more than 1 %% apart");
}

TEST(theory, all_of_p_take_the_harmonic_number) {
    for (int p = 2; p <= 16; p *= 2)
        expect("all", p, seconds_per_update(p, (study){.needed = p, .waits = true}), harmonic(p));
}

TEST(theory, half_of_p_take_the_difference_of_two) {
    for (int p = 2; p <= 16; p *= 2)
        expect("half", p, seconds_per_update(p, (study){.needed = p / 2, .waits = true}),
               harmonic(p) - harmonic(p - p / 2));
}

TEST(theory, each_as_it_comes_takes_a_pth) {
    for (int p = 2; p <= 16; p *= 2)
        expect("each", p, seconds_per_update(p, (study){.needed = 1}), 1.0 / p);
}
