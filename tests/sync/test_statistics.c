/* The mean of running statistics over workers, as all of them take it. */
#include <string.h>

#include "base/rng.h"
#include "harness.h"
#include "sync/statistics.h"

enum { WORKERS = 3, STATES = 2 };

typedef struct team {
    float states[WORKERS][STATES];
    int64_t samples[WORKERS];
} team;

/* Every worker's statistics become the mean. */
static void average(team *t) {
    double sums[1 + STATES] = {0}, part[1 + STATES];
    for (int r = 0; r < WORKERS; r++) {
        const sh_statistics own = {t->states[r], STATES};
        assert_int_equal(sh_statistics_sums(&own), SH_COUNT(sums));
        sh_statistics_weigh(&own, t->samples[r], part);
        for (size_t i = 0; i < SH_COUNT(sums); i++) sums[i] += part[i];
    }
    for (int r = 0; r < WORKERS; r++)
        sh_statistics_take(&(sh_statistics){t->states[r], STATES}, sums);
}

TEST(statistics, are_weighted_by_samples) {
    team t = {.states = {{1, 10}, {2, 20}, {100, 1000}}, .samples = {3, 1, 0}};
    average(&t);
    const float wanted[STATES] = {1.25F, 12.5F};
    for (int r = 0; r < WORKERS; r++) assert_memory_equal(t.states[r], wanted, sizeof wanted);
}

TEST(statistics, stay_where_nobody_has_learnt_anything) {
    team t = {.states = {{1, 10}, {2, 20}, {3, 30}}};
    const team before = t;
    average(&t);
    assert_memory_equal(t.states, before.states, sizeof t.states);
}

TEST(statistics, that_are_equal_keep_their_bits) {
    sh_rng rng = sh_rng_stream(1, SH_RNG_CODEC, 0, 0);
    for (int i = 0; i < 1000; i++) {
        team t;
        float wanted[STATES] = {sh_rng_normal(&rng), sh_rng_normal(&rng) * 1e-30F};
        for (int r = 0; r < WORKERS; r++) {
            memcpy(t.states[r], wanted, sizeof wanted);
            t.samples[r] = (int64_t)(sh_rng_uniform(&rng) * 1e6F);
        }
        average(&t);
        for (int r = 0; r < WORKERS; r++) assert_memory_equal(t.states[r], wanted, sizeof wanted);
    }
}
