/* Workers that die and come back in virtual time: what the others go on with, and what is told of
 * it. */
#include <math.h>
#include <unistd.h>

#include "api/rig.h"
#include "obs/metrics_read.h"

/* Whoever fails leaves behind what others may still read: a run beside its services
 * (sim/simulate.c), messages of sums under way (sync/delta.c). That is no leak to report. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
static void leaves_memory(bool on) { on ? __lsan_disable() : __lsan_enable(); }
#else
static void leaves_memory(bool on) { (void)on; }
#endif

enum { GROUPS_MOST = 8 };

typedef struct record {
    int regroups, ends;
    double workers[GROUPS_MOST], generation[GROUPS_MOST], step[GROUPS_MOST], lost[GROUPS_MOST];
    double end_step, end_regroups, end_lost, accuracy, last_step;
    bool steps_go_back;
} record;

static void take_line(void *user, const char *event, const json_t *object) {
    record *r = user;
    double step = sh_metrics_number(object, "step");
    if (strcmp(event, "regroup") == 0) {
        assert_true(r->regroups < GROUPS_MOST);
        r->step[r->regroups] = step;
        r->workers[r->regroups] = sh_metrics_number(object, "workers");
        r->generation[r->regroups] = sh_metrics_number(object, "generation");
        r->lost[r->regroups++] = sh_metrics_number(object, "lost_updates");
    } else if (strcmp(event, "step") == 0) {
        r->steps_go_back = r->steps_go_back || step <= r->last_step;
        r->last_step = step;
    } else if (strcmp(event, "eval") == 0) {
        r->accuracy = sh_metrics_number(object, "test_accuracy");
    } else if (strcmp(event, "end") == 0) {
        r->ends++;
        r->end_step = step;
        r->end_regroups = sh_metrics_number(object, "regroups");
        r->end_lost = sh_metrics_number(object, "lost_updates");
    }
}

static const char *folder(void) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/tests/tmp/regroup", SHOAL_BINARY);
    return path;
}

/* 60 steps of three workers, of 10 ms each; who dies when, and comes back after how long. */
static shoal_status simulate(const char *sync, const char *die, const char *const *more,
                             record *seen) {
    sh_test_folder("regroup");
    shoal_config *config =
        RIG_CONFIG("data.batch", "100", "steps", "60", "workers", "3", "sync", sync, "optimizer.lr",
                   "0.1", "log_every", "5", "out", folder());
    for (; more != NULL && *more != NULL; more += 2)
        SUCCEEDS(shoal_config_set(config, more[0], more[1]));
    shoal_simulation world = {.size = sizeof world, .compute = "10ms", .die = die};
    leaves_memory(true);
    shoal_status status = shoal_simulate(config, NULL, &world, NULL, NULL);
    leaves_memory(false);
    shoal_config_destroy(config);
    char path[4300];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder());
    *seen = (record){0};
    if (access(path, R_OK) == 0) CHECK_OK(sh_metrics_read(path, take_line, seen));
    return status;
}

static record survive(const char *sync, const char *die, const char *const *more) {
    record r;
    if (simulate(sync, die, more, &r) != SHOAL_OK) fail_msg("%s: %s", sync, shoal_error_text());
    if (r.ends != 1 || r.end_step != 60)
        fail_msg("%s ends %d times, at %g", sync, r.ends, r.end_step);
    if (r.steps_go_back) fail_msg("%s does steps again", sync);
    if (r.accuracy < 0.4) fail_msg("%s has learnt %g", sync, r.accuracy);
    assert_true(r.end_regroups == r.regroups);
    return r;
}

static const char *const schemes[] = {"gossip",  "local:4", "async", "ssp:2",
                                      "easgd:4", "adpsgd",  "sgp:1", "diloco:4"};

TEST(regroup, two_go_on_and_the_third_joins_them) {
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        record r = survive(schemes[i], "1@155ms+100ms", NULL);
        if (r.regroups != 2 || r.workers[0] != 2 || r.workers[1] != 3)
            fail_msg("%s: %d regroups, to %g and %g workers", schemes[i], r.regroups, r.workers[0],
                     r.workers[1]);
        assert_true(r.generation[0] == 1 && r.generation[1] == 2);
        assert_true(r.step[0] <= r.step[1]);
    }
}

TEST(regroup, who_never_comes_back_is_not_waited_for) {
    record r = survive("gossip", "2@155ms", NULL);
    assert_int_equal(r.regroups, 1);
    assert_true(r.workers[0] == 2);
}

TEST(regroup, the_writer_of_the_files_may_die) {
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        record r = survive(schemes[i], "0@155ms+100ms", NULL);
        if (r.regroups != 2) fail_msg("%s: %d regroups", schemes[i], r.regroups);
    }
}

TEST(regroup, one_that_is_left_goes_on_alone) {
    record r = survive("gossip", "0@155ms,1@205ms", NULL);
    assert_int_equal(r.regroups, 2);
    assert_true(r.workers[1] == 1);
}

TEST(regroup, a_death_while_the_others_regroup_is_just_the_next_generation) {
    record r = survive("local:4", "0@155ms,1@155ms+100ms", NULL);
    assert_true(r.regroups >= 2);
    assert_true(r.workers[r.regroups - 1] == 2);
}

TEST(regroup, servers_lose_what_was_not_in_their_snapshots_and_count_it) {
    const char *const seldom[] = {"sync.snapshot_every", "1000000", "checkpoint.every", "20", NULL};
    const char *const always[] = {"sync.snapshot_every", "1", "checkpoint.every", "20", NULL};
    record lossy = survive("async", "1@355ms+50ms", seldom);
    record careful = survive("async", "1@355ms+50ms", always);
    assert_true(lossy.end_lost > 0);
    assert_true(careful.end_lost <= 3);  // those under way
    assert_true(careful.end_lost < lossy.end_lost);
}

TEST(regroup, replicas_lose_nothing) {
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        if (strcmp(schemes[i], "async") == 0 || strcmp(schemes[i], "ssp:2") == 0 ||
            strcmp(schemes[i], "easgd:4") == 0)
            continue;  // they have servers
        record r = survive(schemes[i], "1@155ms+100ms", NULL);
        if (r.end_lost != 0) fail_msg("%s lost %g updates", schemes[i], r.end_lost);
    }
}

TEST(regroup, momentum_and_codec_state_go_on_with_the_others) {
    const char *const more[] = {"optimizer.name", "momentum", "optimizer.lr", "0.02", "compress",
                                "topk:10%",       NULL};
    record r = survive("local:4", "1@155ms+100ms", more);
    assert_int_equal(r.regroups, 2);
}

TEST(regroup, schemes_that_need_every_worker_fail_with_who_left) {
    static const char *const lockstep[] = {"bsp", "ps"};
    for (size_t i = 0; i < SH_COUNT(lockstep); i++) {
        record r;
        shoal_status status = simulate(lockstep[i], "1@155ms", NULL, &r);
        if (status != SHOAL_E_PEER) fail_msg("%s: status %d", lockstep[i], (int)status);
        rig_has(shoal_error_text(), " has left");
    }
}

TEST(regroup, a_run_whose_workers_all_die_says_so) {
    record r;
    REFUSED(SHOAL_E_PEER, "all workers who had the model have died",
            simulate("gossip", "0@155ms,1@155ms,2@155ms", NULL, &r));
    assert_int_equal(r.ends, 0);
}

TEST(regroup, the_same_deaths_give_the_same_bits) {
    record a = survive("adpsgd", "1@155ms+100ms", NULL);
    char command[3 * 4200 + 64];
    snprintf(command, sizeof command, "rm -rf '%s-first' && cp -r '%s' '%s-first'", folder(),
             folder(), folder());
    assert_int_equal(system(command), 0);
    record b = survive("adpsgd", "1@155ms+100ms", NULL);
    assert_true(a.accuracy == b.accuracy && a.step[0] == b.step[0] && a.step[1] == b.step[1]);
    snprintf(command, sizeof command, "cmp '%s-first/metrics.jsonl' '%s/metrics.jsonl'", folder(),
             folder());
    assert_int_equal(system(command), 0);
}
