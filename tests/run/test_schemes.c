/* Schemes inside a run: what they refuse, what they count, and that a checkpoint holds all they
 * need. */
#include <math.h>
#include <unistd.h>

#include "api/rig.h"
#include "obs/metrics_read.h"

typedef struct record {
    double loss, updates, sent, dense, mean, most, gradients, dropped;
    int histograms;
} record;

static void take_line(void *user, const char *event, const json_t *object) {
    record *r = user;
    if (strcmp(event, "step") == 0) r->loss = sh_metrics_number(object, "train_loss");
    if (strcmp(event, "staleness") == 0) {
        r->histograms++;
        r->gradients = sh_metrics_number(object, "gradients");
        r->dropped = sh_metrics_number(object, "dropped");
        r->mean = sh_metrics_number(object, "mean");
        r->most = sh_metrics_number(object, "most");
    }
    if (strcmp(event, "end") == 0) {
        r->updates = sh_metrics_number(object, "updates");
        r->sent = sh_metrics_number(object, "all_sent_bytes");
        r->dense = sh_metrics_number(object, "all_dense_bytes");
    }
}

static const char *place(const char *name) {
    static char paths[2][4200];
    static int at;
    at = !at;
    snprintf(paths[at], sizeof paths[at], "%s/tests/tmp/schemes/%s", SHOAL_BINARY, name);
    return paths[at];
}

/* Three workers of 10 ms a step, 40 steps unless said otherwise, in the folder `name`. */
static shoal_status simulate(const char *name, const char *compute, const char *const *more) {
    shoal_config *config = RIG_CONFIG("data.batch", "60", "steps", "40", "workers", "3",
                                      "optimizer.lr", "0.05", "log_every", "10", "checkpoint.every",
                                      "20", "checkpoint.keep", "5", "out", place(name));
    for (; *more != NULL; more += 2) SUCCEEDS(shoal_config_set(config, more[0], more[1]));
    shoal_simulation world = {.size = sizeof world, .compute = compute};
    shoal_status status = shoal_simulate(config, NULL, &world, NULL, NULL);
    shoal_config_destroy(config);
    return status;
}
#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static record run(const char *name, const char *compute, const char *const *more) {
    if (simulate(name, compute, more) != SHOAL_OK) fail_msg("%s: %s", more[1], shoal_error_text());
    char path[4300];
    record r = {.mean = NAN};
    snprintf(path, sizeof path, "%s/metrics.jsonl", place(name));
    CHECK_OK(sh_metrics_read(path, take_line, &r));
    return r;
}

static void begin(void) { sh_test_folder("schemes"); }

static void expect_same(const char *part, const char *a, const char *b, const char *scheme) {
    char command[9000];
    snprintf(command, sizeof command,
             "cd '%s' && cmp %s/checkpoints/%s-00000040.safetensors "
             "%s/checkpoints/%s-00000040.safetensors",
             place(""), a, part, b, part);
    if (system(command) != 0) fail_msg("%s: the %s differs", scheme, part);
}

/* ---- Checkpoints ---- */

/* A run of 40 steps, and one that goes on from the checkpoint of its 20th. */
static void check_resume(const char *scheme, const char *codec) {
    char manifest[4300];
    begin();
    run("whole", "10ms", SETTINGS("sync", scheme, "compress", codec, "optimizer", "momentum"));
    snprintf(manifest, sizeof manifest, "%s/checkpoints/manifest-00000020.json", place("whole"));
    run("half", "10ms",
        SETTINGS("sync", scheme, "compress", codec, "optimizer", "momentum", "resume", manifest));
    expect_same("model", "whole", "half", scheme);
    expect_same("optimizer", "whole", "half", scheme);
}

TEST(schemes, in_lockstep_resume_bit_for_bit) {
    static const char *const lockstep[] = {"bsp",    "ps",    "ssp:0",   "local:4",  "diloco:4",
                                           "gossip", "sgp:1", "ksync:3", "adacomm:4"};
    for (size_t i = 0; i < SH_COUNT(lockstep); i++) check_resume(lockstep[i], "none");
}

TEST(schemes, resume_with_what_their_codec_left_out) {
    static const char *const coded[] = {"bsp", "ps", "local:4", "gossip"};
    for (size_t i = 0; i < SH_COUNT(coded); i++) check_resume(coded[i], "topk:10%");
}

/* ---- What is counted ---- */

TEST(schemes, staleness_is_that_of_the_scheme) {
    begin();
    record ps = run("ps", "10ms", SETTINGS("sync", "ps"));
    assert_int_equal(ps.histograms, 1);
    assert_true(ps.mean == 0 && ps.most == 0 && ps.gradients == 120);
    record async = run("async", "exp:10ms", SETTINGS("sync", "async"));
    assert_true(async.mean > 0.5 && async.most >= 2 && async.gradients == 120);
    record bounded = run("ssp", "exp:10ms", SETTINGS("sync", "ssp:1"));
    assert_true(bounded.most <= (2 * 1 + 1) * (3 - 1));  // (2s + 1)(P - 1): Ho et al. 2013
    record slow = run("slow", "10ms", SETTINGS("sync", "ssp:6", "steps", "60"));
    assert_true(slow.most <= (2 * 6 + 1) * (3 - 1));
    record bsp = run("bsp", "10ms", SETTINGS("sync", "bsp"));
    assert_int_equal(bsp.histograms, 0);
}

TEST(schemes, gradients_that_come_too_late_are_dropped_and_counted) {
    begin();
    record all = run("all", "exp:10ms", SETTINGS("sync", "ksync:3"));
    record two = run("two", "exp:10ms", SETTINGS("sync", "ksync:2"));
    record backup = run("backup", "exp:10ms", SETTINGS("sync", "backup:1"));
    assert_true(all.dropped == 0);
    assert_true(two.dropped > 0 && backup.dropped > 0);
    assert_true(two.updates == 40 && backup.updates == 40);
}

TEST(schemes, fewer_averages_send_fewer_bytes) {
    begin();
    record one = run("one", "10ms", SETTINGS("sync", "local:1"));
    record eight = run("eight", "10ms", SETTINGS("sync", "local:8"));
    assert_true(one.sent > 3.9 * eight.sent);  // 40 averages against five, and meetings
    assert_true(one.dense == one.sent);
    record coded = run("coded", "10ms", SETTINGS("sync", "local:8", "compress", "fp16"));
    assert_true(coded.sent < 0.7 * coded.dense);
}

TEST(schemes, one_worker_is_one_worker_whatever_the_scheme) {
    static const char *const all[] = {"bsp",   "ps",    "async",  "local:4", "gossip",
                                      "sgp:1", "easgd", "adpsgd", "ksync:1", "diloco:4"};
    begin();
    run("0", "10ms", SETTINGS("sync", all[0], "workers", "1"));
    for (size_t i = 1; i < SH_COUNT(all); i++) {
        char name[8];
        snprintf(name, sizeof name, "%zu", i);
        run(name, "10ms", SETTINGS("sync", all[i], "workers", "1"));
        expect_same("model", "0", name, all[i]);
    }
}

TEST(schemes, workers_in_step_have_the_loss_of_bsp) {
    static const char *const alike[] = {"ps", "ssp:0", "local:1"};
    begin();
    record bsp = run("bsp", "10ms", SETTINGS("sync", "bsp"));
    for (size_t i = 0; i < SH_COUNT(alike); i++) {
        record r = run("other", "10ms", SETTINGS("sync", alike[i], "overwrite", "true"));
        if (fabs(r.loss - bsp.loss) > 1e-4 * bsp.loss)
            fail_msg("%s ends with loss %g, bsp with %g", alike[i], r.loss, bsp.loss);
    }
}

/* ---- What is refused ---- */

static void expect_refused(const char *text, const char *hint, const char *const *more) {
    begin();
    if (simulate("no", "10ms", more) == SHOAL_OK) fail_msg("'%s' is not refused", text);
    rig_has(shoal_error_text(), text);
    rig_hint(hint);
    assert_int_equal(access(place("no"), F_OK), -1);
}

TEST(schemes, options_that_they_do_not_read_are_refused) {
    expect_refused("means nothing to scheme 'bsp'", "use a scheme that reads it",
                   SETTINGS("sync", "bsp", "sync.compensation", "1"));
    expect_refused("means nothing to scheme 'local'", "use a scheme that reads it",
                   SETTINGS("sync", "local:4", "sync.graph", "ring"));
    // One worker has no use for any of them, and no quarrel either.
    begin();
    run("one", "10ms", SETTINGS("sync", "bsp", "sync.compensation", "1", "workers", "1"));
}

TEST(schemes, amounts_are_checked_against_the_workers) {
    expect_refused("too much for 3 workers", "", SETTINGS("sync", "ksync:4"));
    expect_refused("too much for 3 workers", "", SETTINGS("sync", "backup:3"));
    expect_refused("H is '0'", "", SETTINGS("sync", "local:0"));
}

TEST(schemes, optimizers_and_codecs_that_do_not_go_along_are_refused) {
    expect_refused("whole tensors", "", SETTINGS("sync", "async", "optimizer", "lars"));
    expect_refused("does not go with scheme 'async'", "",
                   SETTINGS("sync", "async", "compress", "powersgd"));
    expect_refused("push-sum counts on all of it", "",
                   SETTINGS("sync", "sgp:1", "compress", "topk:1%"));
    expect_refused("does not go with --exact", "", SETTINGS("sync", "ssp:2", "exact", "true"));
    expect_refused("cannot be simulated", "async", SETTINGS("sync", "hogwild"));
}
