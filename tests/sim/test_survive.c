/* Simulated workers and servers die at random times and come back: every scheme that survives it
 * ends its run, keeps its promise, and does all of it again from the same seed. SEEDS=N tries N of
 * them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "harness.h"
#include "obs/metrics_read.h"
#include "shoal/shoal.h"
#include "sync/sync.h"
#include "sync/crowd.h"

enum { WORKERS = 4, SERVERS = 2, STEPS = 96, SNAPSHOT_EVERY = 20, SLACK = 2 };

/* One run, and what its metrics say. */
typedef struct story {
    const char *scheme, *lr, *straggler;
    bool own;          // servers have ranks of their own
    bool timing_only;  // and there are no metrics
    double seconds;    // of virtual time
    uint64_t seed;
    char die[160];
    int deaths, backs;
    char folder[512];
    double steps, accuracy, test_loss, staleness_most, lost, lost_in_regroups;
    int regroups, regroups_told;
    bool goes_back;  // a line's step is smaller than one before
    double last_step;
} story;

static const struct kind {
    const char *scheme;
    bool own;
} kinds[] = {
    {"async", false},       {"ssp:2", false},         {"softsync:2", false},
    {"easgd:3", false},     {"local:4", false},       {"adacomm:8", false},
    {"diloco:6", false},    {"post-local:4", false},  {"gossip", false},
    {"adpsgd", false},      {"sgp", false},           {"sgp:2", false},
    {"gossip-pull", false}, {"gossip-push:2", false}, {"async", true},
    {"ssp:2", true},        {"softsync:2", true},     {"easgd:3", true},
};

/* Worker 3 lives, so that the model is never lost; of the others some die, some twice, and most
 * come back, servers always. The first steps are taken after some 0.05 s. */
static void draw_deaths(story *s) {
    sh_rng rng = sh_rng_stream(s->seed, SH_RNG_TEST, 0, 0);
    s->deaths = 1 + (int)sh_rng_below(&rng, 3);
    for (int i = 0; i < s->deaths; i++) {
        char back[32] = "", *end = s->die + strlen(s->die);
        bool serves = s->own && sh_rng_below(&rng, 2) == 0;
        int rank = serves ? WORKERS + (int)sh_rng_below(&rng, SERVERS)
                          : (int)sh_rng_below(&rng, WORKERS - 1);
        if (sh_rng_below(&rng, 4) > 0 || serves) {
            snprintf(back, sizeof back, "+%dms", 1 + (int)sh_rng_below(&rng, 400));
            s->backs++;
        }
        snprintf(end, sizeof s->die - strlen(s->die), "%s%d@%dms%s", i > 0 ? "," : "", rank,
                 150 + (int)sh_rng_below(&rng, 1200), back);
    }
}

static void take_line(void *self, const char *event, const json_t *object) {
    story *s = self;
    double step = sh_metrics_number(object, "step");
    s->goes_back = s->goes_back || step < s->last_step;
    s->last_step = step;
    if (strcmp(event, "regroup") == 0) {
        s->regroups++;
        s->lost_in_regroups += sh_metrics_number(object, "lost_updates");
    } else if (strcmp(event, "eval") == 0) {
        s->accuracy = sh_metrics_number(object, "test_accuracy");
        s->test_loss = sh_metrics_number(object, "test_loss");
    } else if (strcmp(event, "end") == 0) {
        s->steps = step;
        s->staleness_most = sh_metrics_number(object, "staleness_most");
        s->lost = sh_metrics_number(object, "lost_updates");
        s->regroups_told = (int)sh_metrics_number(object, "regroups");
    }
}

static void read_metrics(story *s) {
    char *path = sh_path_join(s->folder, "metrics.jsonl");
    CHECK_OK(sh_metrics_read(path, take_line, s));
    sh_free(path);
}

static bool snapshots(const story *s) {
    sh_scheme scheme;
    CHECK_OK(sh_scheme_parse(s->scheme, &scheme));
    return scheme.kind->family->restore != NULL;
}

/* Runs it in a folder of that name. */
static void simulate(story *s, const char *name) {
    char seed[24];
    snprintf(s->folder, sizeof s->folder, "%s", sh_test_folder(name));
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)s->seed);
    const char *settings[][2] = {
        {"model", "{name: mlp, hidden: [16]}"},
        {"data", "digits"},
        {"data.batch", "64"},
        {"steps", "96"},
        {"workers", "4"},
        {"optimizer.lr", s->lr},
        {"optimizer", "momentum"},
        {"optimizer.momentum", "0.5"},
        {"sync", s->scheme},
        {"sync.snapshot_every", snapshots(s) ? "20" : NULL},
        {"sync.server_ranks", s->own ? "own" : "shared"},
        {"sync.servers", s->own ? "2" : "0"},
        {"log_every", "5"},
        {"checkpoint.every", "100000"},
        {"seed", seed},
        {"threads", "1"},
        {"out", s->folder},
    };
    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    for (size_t i = 0; i < SH_COUNT(settings); i++) {
        shoal_status set = shoal_config_set(config, settings[i][0], settings[i][1]);
        if (set != SHOAL_OK) fail_msg("%s: %s", settings[i][0], shoal_error_text());
    }
    const shoal_simulation world = {.size = sizeof world,
                                    .link = "1Gbit,100us",
                                    .compute = "exp:20ms",
                                    .straggler = s->straggler,
                                    .die = s->die[0] != '\0' ? s->die : NULL,
                                    .timing_only = s->timing_only};
    shoal_simulation_result simulated = {.size = sizeof simulated};
    shoal_status status = shoal_simulate(config, NULL, &world, NULL, &simulated);
    shoal_config_destroy(config);
    if (status != SHOAL_OK)
        fail_msg("%s%s, SEED=%s, --die %s: %s", s->scheme, s->own ? " with own servers" : "", seed,
                 s->die, shoal_error_text());
    s->seconds = simulated.seconds;
    if (!s->timing_only) read_metrics(s);
}

/* Says which story it is; replay it with `shoal simulate`. */
#define HOLDS(s, condition)                                                                        \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("%s%s, seed %llu, --die %s: not %s", (s)->scheme,                             \
                     (s)->own ? " with own servers" : "", (unsigned long long)(s)->seed, (s)->die, \
                     #condition);                                                                  \
    } while (0)

static void tell(const story *like, int usual, void (*check)(story *s)) {
    for (size_t i = 0; i < SH_COUNT(kinds); i++) {
        for (int seed = -1; crowd_seed(usual, &seed);) {
            story s = *like;
            s.scheme = kinds[i].scheme;
            s.own = kinds[i].own;
            s.seed = (uint64_t)seed * SH_COUNT(kinds) + i + 1;
            draw_deaths(&s);
            simulate(&s, "survive");
            check(&s);
        }
    }
}

static void each(const char *lr, const char *straggler, int usual, void (*check)(story *s)) {
    const story like = {.lr = lr, .straggler = straggler};
    tell(&like, usual, check);
}

static bool has_final_model(const story *s) {
    char *path = sh_path_join(s->folder, "checkpoints/manifest-00000096.json");
    bool has = sh_file_exists(path);
    sh_free(path);
    return has;
}

static void check_end(story *s) {
    HOLDS(s, s->steps == STEPS);
    HOLDS(s, has_final_model(s));
    HOLDS(s, !s->goes_back);
    HOLDS(s, s->accuracy > 0.6);
    HOLDS(s, s->regroups >= 1 && s->regroups <= s->deaths + s->backs);
    HOLDS(s, s->regroups_told == s->regroups);
    HOLDS(s, s->lost == s->lost_in_regroups);
    HOLDS(s, s->lost <= s->deaths * SNAPSHOT_EVERY);
}

TEST(survive, every_scheme_ends_its_run_whoever_dies) { each("0.1", NULL, 3, check_end); }

/* A death while others have done their last step and wait for the dead one. */
static void check_last_meeting(story *s) {
    story calm = {.scheme = s->scheme, .lr = s->lr, .own = s->own, .seed = s->seed};
    simulate(&calm, "survive_calm");
    for (int i = 0; i < 8; i++) {
        story late = calm;
        snprintf(late.die, sizeof late.die, "%d@%dms", i % WORKERS,
                 (int)(calm.seconds * 1e3) - 1 - 4 * i);
        simulate(&late, "survive_late");
        HOLDS(&late, late.steps == STEPS);
        HOLDS(&late, has_final_model(&late));
    }
}

TEST(survive, the_final_model_is_there_whoever_dies_late) {
    each("0.1", NULL, 1, check_last_meeting);
}

/* While a worker computes, each other one goes from at most S behind it to at most S + 1 ahead. */
static void check_bound(story *s) {
    if (strcmp(s->scheme, "ssp:2") == 0)
        HOLDS(s, s->staleness_most <= (WORKERS - 1) * (2 * SLACK + 1));
    if (strcmp(s->scheme, "async") == 0) HOLDS(s, s->staleness_most > 0);
}

TEST(survive, bounded_staleness_stays_bounded) { each("0.05", "3:10x", 1, check_bound); }

/* At rate 0 all models stay what they were, so whatever is averaged, pushed, summed, saved in part
 * or restored must be the same model; half of a sum would not. */
static void check_still(story *s) {
    story calm = {.scheme = "local:1", .lr = "0", .seed = s->seed};
    simulate(&calm, "survive_calm");
    HOLDS(s, fabs(s->test_loss - calm.test_loss) < 1e-4);
}

TEST(survive, nothing_is_torn_or_doubled) { each("0", NULL, 2, check_still); }

static void same_file(const story *a, const story *b, const char *name) {
    char *first = sh_path_join(a->folder, name), *second = sh_path_join(b->folder, name);
    sh_mapped x, y;
    CHECK_OK(sh_file_map(first, &x));
    CHECK_OK(sh_file_map(second, &y));
    HOLDS(a, x.bytes == y.bytes && memcmp(x.data, y.data, x.bytes) == 0);
    sh_file_unmap(&x);
    sh_file_unmap(&y);
    sh_free(first);
    sh_free(second);
}

static void check_again(story *s) {
    story again = {.scheme = s->scheme, .lr = s->lr, .own = s->own, .seed = s->seed};
    memcpy(again.die, s->die, sizeof again.die);
    simulate(&again, "survive_again");
    same_file(s, &again, "metrics.jsonl");
    same_file(s, &again, "checkpoints/model-00000096.safetensors");
    same_file(s, &again, "checkpoints/optimizer-00000096.safetensors");
}

TEST(survive, the_same_seed_gives_the_same_bits) { each("0.1", NULL, 1, check_again); }

/* Where only time passes the others go on, too, and it takes them longer than if nobody had died.
 */
static void check_timing(story *s) {
    story again = *s, calm = *s;
    calm.die[0] = '\0';
    simulate(&again, "survive");
    simulate(&calm, "survive");
    HOLDS(s, s->seconds == again.seconds);
    HOLDS(s, s->seconds > 0.8 * calm.seconds);
}

TEST(survive, timing_alone_goes_on_without_the_dead) {
    const story like = {.lr = "0.1", .timing_only = true};
    tell(&like, 2, check_timing);
}

TEST(survive, a_server_must_come_back) {
    const shoal_simulation world = {.size = sizeof world, .compute = "20ms", .die = "2@300ms"};
    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    const char *settings[][2] = {{"model", "mlp"},      {"data", "digits"},
                                 {"workers", "2"},      {"sync", "async"},
                                 {"sync.servers", "1"}, {"sync.server_ranks", "own"},
                                 {"threads", "1"},      {"out", sh_test_folder("survive_none")}};
    for (size_t i = 0; i < SH_COUNT(settings); i++)
        assert_int_equal(shoal_config_set(config, settings[i][0], settings[i][1]), SHOAL_OK);
    assert_int_equal(shoal_simulate(config, NULL, &world, NULL, NULL), SHOAL_E_USAGE);
    assert_non_null(strstr(shoal_error_text(), "rank 2 is server 0"));
    shoal_config_destroy(config);
}

/* Without the model nobody can go on. */
TEST(survive, a_run_whose_workers_all_die_fails) {
    const shoal_simulation world = {
        .size = sizeof world, .compute = "20ms", .die = "0@300ms,1@310ms,2@320ms,3@330ms+10ms"};
    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    const char *settings[][2] = {{"model", "mlp"},
                                 {"data", "digits"},
                                 {"steps", "96"},
                                 {"workers", "4"},
                                 {"sync", "gossip"},
                                 {"threads", "1"},
                                 {"out", sh_test_folder("survive_none")}};
    for (size_t i = 0; i < SH_COUNT(settings); i++)
        assert_int_equal(shoal_config_set(config, settings[i][0], settings[i][1]), SHOAL_OK);
    assert_int_equal(shoal_simulate(config, NULL, &world, NULL, NULL), SHOAL_E_PEER);
    assert_non_null(strstr(shoal_error_text(), "have died"));
    shoal_config_destroy(config);
}
