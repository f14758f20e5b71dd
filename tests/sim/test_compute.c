/* How long simulated steps take, and what faults do to time. */
#include "sim/compute.h"

#include <math.h>

#include "harness.h"
#include "sim/faults.h"

enum { DRAWS = 40000 };

static double mean_of(const sh_sim_compute *compute, int rank) {
    double sum = 0;
    for (int64_t step = 0; step < DRAWS; step++) {
        double seconds = sh_compute_seconds(compute, 5, rank, step, 0);
        assert_true(seconds > 0);
        sum += seconds;
    }
    return sum / DRAWS;
}

TEST(compute, every_law_has_the_mean_that_was_asked_for) {
    sh_sim_compute constant = {.mean_s = 0.02},
                   exponential = {.law = SH_LAW_EXPONENTIAL, .mean_s = 0.02},
                   lognormal = {.law = SH_LAW_LOGNORMAL, .mean_s = 0.02, .sigma = 0.5};
    assert_true(mean_of(&constant, 0) == 0.02 || fabs(mean_of(&constant, 0) - 0.02) < 1e-12);
    assert_true(fabs(mean_of(&exponential, 0) - 0.02) < 0.02 * 0.025);  // five deviations
    assert_true(fabs(mean_of(&lognormal, 0) - 0.02) < 0.02 * 0.014);
}

TEST(compute, a_draw_belongs_to_its_rank_and_step) {
    sh_sim_compute exponential = {.law = SH_LAW_EXPONENTIAL, .mean_s = 0.02};
    int alike = 0;
    for (int64_t step = 0; step < 100; step++) {
        double a = sh_compute_seconds(&exponential, 5, 0, step, 0);
        assert_true(a == sh_compute_seconds(&exponential, 5, 0, step, 0));
        alike += a == sh_compute_seconds(&exponential, 5, 1, step, 0);
        alike += a == sh_compute_seconds(&exponential, 5, 0, step + 1, 0);
        alike += a == sh_compute_seconds(&exponential, 6, 0, step, 0);
    }
    assert_int_equal(alike, 0);
}

TEST(compute, stragglers_are_slow_as_long_as_they_are) {
    const sh_sim_slow slow[] = {{.rank = 1, .factor = 4},
                                {.rank = -1, .factor = 2, .from_s = 10, .until_s = 20}};
    sh_sim_compute compute = {.mean_s = 1, .slow = slow, .slow_count = 2};
    assert_true(sh_compute_seconds(&compute, 5, 0, 0, 0) == 1);
    assert_true(sh_compute_seconds(&compute, 5, 1, 0, 0) == 4);
    assert_true(sh_compute_seconds(&compute, 5, 0, 0, 10) == 2);
    assert_true(sh_compute_seconds(&compute, 5, 1, 0, 19.9) == 8);
    assert_true(sh_compute_seconds(&compute, 5, 0, 0, 20) == 1);
}

/* ---- Faults ---- */

TEST(faults, a_cut_loses_what_is_sent_both_ways_while_it_lasts) {
    const sh_sim_cut cuts[] = {{.a = 0, .b = 2, .from_s = 1, .until_s = 3},
                               {.a = 4, .b = -1, .from_s = 5, .until_s = 6}};
    sh_sim_faults faults = {.cuts = cuts, .cut_count = 2};
    assert_false(sh_faults_lose(&faults, 0, 2, 0.9));
    assert_true(sh_faults_lose(&faults, 0, 2, 1));
    assert_true(sh_faults_lose(&faults, 2, 0, 2.9));
    assert_false(sh_faults_lose(&faults, 2, 0, 3));
    assert_false(sh_faults_lose(&faults, 0, 1, 2));
    for (int other = 0; other < 4; other++) {  // all that concerns rank 4
        assert_true(sh_faults_lose(&faults, 4, other, 5.5));
        assert_true(sh_faults_lose(&faults, other, 4, 5.5));
    }
}

TEST(faults, who_stands_still_goes_on_later) {
    const sh_sim_stop stops[] = {{.rank = 1, .at_s = 10, .for_s = 5},
                                 {.rank = 1, .at_s = 15, .for_s = 1}};
    sh_sim_faults faults = {.stops = stops, .stop_count = 2};
    assert_true(sh_faults_resume_s(&faults, 1, 9.9) == 9.9);
    assert_true(sh_faults_resume_s(&faults, 1, 10) == 16);  // one stop after the other
    assert_true(sh_faults_resume_s(&faults, 0, 12) == 12);
    // What is computed across a stop takes so much longer.
    assert_true(sh_faults_computed_s(&faults, 1, 8, 11) == 17);
    assert_true(sh_faults_computed_s(&faults, 1, 8, 9.5) == 9.5);
    assert_true(sh_faults_computed_s(&faults, 0, 8, 11) == 11);
}
