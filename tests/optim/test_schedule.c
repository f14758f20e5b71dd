#include "harness.h"

#include <math.h>
#include <string.h>

#include "optim/schedule.h"

static sh_schedule make(sh_schedule_options options, double lr, int64_t batch, int64_t steps) {
    sh_schedule schedule;
    CHECK_OK(sh_schedule_init(&schedule, &options, lr, batch, steps, 10));
    return schedule;
}

static sh_schedule_options named(const char *name) {
    return (sh_schedule_options){
        .name = (char *)(uintptr_t)name, .warmup = NAN, .last = NAN, .gamma = NAN};
}

static void check_lr(const sh_schedule *schedule, int64_t step, double expected) {
    double lr = sh_schedule_lr(schedule, step);
    if (fabs(lr - expected) > 1e-12)
        fail_msg("%s at step %d: %.15g, expected %.15g", schedule->kind->name, (int)step, lr,
                 expected);
}

TEST(schedule, constant_stays) {
    sh_schedule schedule = make(named("constant"), 0.1, 32, 100);
    check_lr(&schedule, 0, 0.1);
    check_lr(&schedule, 99, 0.1);
}

TEST(schedule, every_kind_warms_up_linearly_to_the_peak) {
    for (size_t i = 0; sh_schedule_at(i) != NULL; i++) {
        sh_schedule_options options = named(sh_schedule_at(i)->name);
        options.warmup = 4;
        sh_schedule schedule = make(options, 0.8, 32, 100);
        check_lr(&schedule, 0, 0.2);
        check_lr(&schedule, 1, 0.4);
        check_lr(&schedule, 3, 0.8);
        check_lr(&schedule, 4, 0.8);
    }
}

TEST(schedule, warmup_below_one_is_a_part_of_the_run) {
    sh_schedule_options options = named("constant");
    options.warmup = 0.05;
    sh_schedule schedule = make(options, 1, 32, 200);
    assert_int_equal(schedule.warmup_steps, 10);
    check_lr(&schedule, 0, 0.1);
    check_lr(&schedule, 9, 1);
}

TEST(schedule, warmup_longer_than_the_run_never_reaches_the_peak) {
    sh_schedule_options options = named("cosine");
    options.warmup = 1000;
    sh_schedule schedule = make(options, 1, 32, 100);
    check_lr(&schedule, 99, 0.1);
}

TEST(schedule, peak_follows_the_batch) {
    sh_schedule_options options = named("constant");
    options.reference_batch = 256;
    sh_schedule schedule = make(options, 0.1, 1024, 100);
    check_lr(&schedule, 50, 0.4);
}

TEST(schedule, step_falls_after_milestone_epochs_of_the_run) {
    int64_t milestones[] = {3, 5};
    sh_schedule_options options = named("step");
    options.milestones = (sh_ints){milestones, 2};
    sh_schedule schedule = make(options, 1, 32, 100);
    check_lr(&schedule, 29, 1);
    check_lr(&schedule, 30, 0.1);
    check_lr(&schedule, 49, 0.1);
    check_lr(&schedule, 50, 0.01);
    check_lr(&schedule, 99, 0.01);
    options.warmup = 7;
    options.gamma = 0.5;
    schedule = make(options, 1, 32, 100);
    check_lr(&schedule, 29, 1);
    check_lr(&schedule, 30, 0.5);
}

TEST(schedule, cosine_falls_from_the_peak_to_last) {
    sh_schedule_options options = named("cosine");
    options.last = 0.2;
    sh_schedule schedule = make(options, 1, 32, 100);
    check_lr(&schedule, 0, 1);
    check_lr(&schedule, 50, 0.6);
    check_lr(&schedule, 25, 0.2 + 0.8 * (1 + sqrt(0.5)) / 2);
    check_lr(&schedule, 100, 0.2);
    check_lr(&schedule, 500, 0.2);  // beyond the end
    options.warmup = 20;
    schedule = make(options, 1, 32, 100);
    check_lr(&schedule, 20, 1);
    check_lr(&schedule, 60, 0.6);
}

TEST(schedule, linear_falls_in_a_line) {
    sh_schedule schedule = make(named("linear"), 2, 32, 100);
    check_lr(&schedule, 0, 2);
    check_lr(&schedule, 25, 1.5);
    check_lr(&schedule, 99, 0.02);
    check_lr(&schedule, 100, 0);
}

TEST(schedule, onecycle_rises_and_falls) {
    sh_schedule_options options = named("onecycle");
    options.last = 0.1;
    sh_schedule schedule = make(options, 1, 32, 100);
    check_lr(&schedule, 0, 0.04);
    check_lr(&schedule, 15, 0.52);
    check_lr(&schedule, 30, 1);
    check_lr(&schedule, 65, 0.55);
    check_lr(&schedule, 100, 0.1);
    options.warmup = 20;  // the warm-up is the rise
    schedule = make(options, 1, 32, 100);
    check_lr(&schedule, 20, 1);
    check_lr(&schedule, 60, 0.55);
}

static void check_rates(const sh_schedule *schedule, const double *rates, int64_t count) {
    for (int64_t step = 0; step < count; step++) check_lr(schedule, step, rates[step]);
}

/* The values of PyTorch's documented formulas, lr 0.5. With anneal(a, b, p) = b + (a - b) / 2
 * (1 + cos(pi p)) and a = lr / div_factor, b = a / final_div_factor, OneCycleLR has at step s
 *
 *   anneal(a, lr, s / e)                    up to e = pct_start total_steps - 1
 *   anneal(lr, b, (s - e) / (f - e))        up to f = total_steps - 1
 *
 * here with total_steps 11 for 10 steps, pct_start 4/11, div_factor 25 and final_div_factor 4. */
TEST(schedule, onecycle_is_pytorchs_with_a_step_more) {
    const double rates[] = {0.02,
                            0.14,
                            0.38,
                            0.5,
                            0.475489794805849,
                            0.406813725960037,
                            0.307573931154188,
                            0.197426068845812,
                            0.0981862740399635,
                            0.0295102051941513,
                            0.005};
    sh_schedule_options options = named("onecycle");
    options.last = 0.01;
    sh_schedule schedule = make(options, 0.5, 32, 10);
    check_rates(&schedule, rates, SH_COUNT(rates));
}

/* CosineAnnealingLR(T_max=8, eta_min=0.05): 0.05 + (0.5 - 0.05) (1 + cos(pi s / 8)) / 2;
 * LinearLR(start_factor=1, end_factor=0.2, total_iters=8): 0.5 (1 + (0.2 - 1) s / 8). */
TEST(schedule, cosine_and_linear_are_pytorchs) {
    const double cosine[] = {0.5,   0.48287289481504,  0.434099025766973, 0.361103772282145,
                             0.275, 0.188896227717855, 0.115900974233027, 0.0671271051849605,
                             0.05};
    const double linear[] = {0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1};
    sh_schedule_options options = named("cosine");
    options.last = 0.1;
    sh_schedule schedule = make(options, 0.5, 32, 8);
    check_rates(&schedule, cosine, SH_COUNT(cosine));
    options = named("linear");
    options.last = 0.2;
    schedule = make(options, 0.5, 32, 8);
    check_rates(&schedule, linear, SH_COUNT(linear));
}

TEST(schedule, options_are_checked) {
    sh_schedule schedule;
    sh_schedule_options options = named("cosin");
    CHECK_FAILS(SH_E_USAGE, "no learning-rate schedule 'cosin'",
                sh_schedule_init(&schedule, &options, 1, 1, 1, 1));
    options = named("cosine");
    options.last = 1.5;
    CHECK_FAILS(SH_E_USAGE, "last is 1.5", sh_schedule_init(&schedule, &options, 1, 1, 1, 1));
    options = named("cosine");
    options.warmup = -1;
    CHECK_FAILS(SH_E_USAGE, "warmup is -1", sh_schedule_init(&schedule, &options, 1, 1, 1, 1));
    int64_t milestones[] = {5, 3};
    options = named("step");
    options.milestones = (sh_ints){milestones, 2};
    CHECK_FAILS(SH_E_USAGE, "a milestone is 3", sh_schedule_init(&schedule, &options, 1, 1, 1, 1));
}
