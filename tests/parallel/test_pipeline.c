/* Pipeline schedules against their closed forms and reference values, and random ones against the
 * rules that every schedule keeps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "base/memory.h"
#include "base/rng.h"
#include "parallel/pipeline_timeline.h"

enum { STAGES_MOST = 64 };

static double makespan_of(const char *schedule, int p, int m, double f, double b, double w,
                          int steps, sh_pipe_rank_result *ranks_out) {
    sh_pipeline pipeline;
    CHECK_OK(sh_pipeline_init(&pipeline, schedule, p, m));
    sh_pipe_stage stages[STAGES_MOST];
    int v = pipeline.chunks;
    for (int s = 0; s < p * v; s++)
        stages[s] = (sh_pipe_stage){.forward_s = f / v, .data_s = b / v, .weight_s = w / v};
    sh_pipe_setting setting = {.pipeline = &pipeline, .stages = stages, .steps = steps};
    sh_pipe_rank_result own[STAGES_MOST];
    double makespan;
    CHECK_OK(
        sh_pipe_timeline(&setting, NULL, NULL, ranks_out != NULL ? ranks_out : own, &makespan));
    return makespan;
}

static void check_idle(const char *schedule, int p, int m, double makespan, double idle) {
    double seen = makespan_of(schedule, p, m, 1, 1, 1, 1, NULL);
    if (fabs(seen - makespan) > 1e-9)
        fail_msg("%s p=%d m=%d: makespan %g, expected %g", schedule, p, m, seen, makespan);
    if (fabs(1 - 3. * m / seen - idle) > 5e-5)
        fail_msg("%s p=%d m=%d: idle %g, expected %g", schedule, p, m, 1 - 3. * m / seen, idle);
}

TEST(pipeline, makespans_and_idle_shares_are_those_of_the_literature) {
    static const struct {
        int p, m;
        double makespan[3], idle[3];
    } rows[] = {
        {2, 4, {15, 13.5, 13}, {.2, .1111, .0769}},
        {4, 4, {21, 16.5, 15}, {.4286, .2727, .2}},
        {4, 8, {33, 28.5, 27}, {.2727, .1579, .1111}},
        {4, 16, {57, 52.5, 51}, {.1579, .0857, .0588}},
        {8, 8, {45, 34.5, 31}, {.4667, .3043, .2258}},
        {8, 32, {117, 106.5, 103}, {.1795, .0986, .0680}},
    };
    for (size_t i = 0; i < SH_COUNT(rows); i++) {
        int p = rows[i].p, m = rows[i].m;
        check_idle("gpipe", p, m, rows[i].makespan[0], rows[i].idle[0]);
        check_idle("1f1b", p, m, rows[i].makespan[0], rows[i].idle[0]);
        check_idle("interleaved:2", p, m, rows[i].makespan[1], rows[i].idle[1]);
        check_idle("zb-h1", p, m, rows[i].makespan[2], rows[i].idle[2]);
        check_idle("zb-h2", p, m, rows[i].makespan[2], rows[i].idle[2]);
        check_idle("naive", p, m, 3. * m * p, (p - 1.) / p);
    }
}

TEST(pipeline, fewer_micro_batches_than_ranks_work) {
    check_idle("1f1b", 4, 1, 12, .75);
    check_idle("1f1b", 4, 2, 15, .6);
    check_idle("1f1b", 4, 3, 18, .5);
    check_idle("1f1b", 8, 5, 36, .5833);
    assert_true(fabs(1 - 6 / makespan_of("interleaved:2", 4, 2, 1, 1, 1, 1, NULL) - .5556) < 5e-5);
}

static void check_live(const char *schedule, int m, const int live[4]) {
    sh_pipe_rank_result ranks[4];
    makespan_of(schedule, 4, m, 1, 1, 1, 1, ranks);
    for (int r = 0; r < 4; r++) assert_int_equal(ranks[r].live_most, live[r]);
}

TEST(pipeline, live_activations_are_those_of_the_literature) {
    for (int m = 8; m <= 24; m += 8) {
        check_live("1f1b", m, (int[]){4, 3, 2, 1});
        check_live("zb-h1", m, (int[]){4, 3, 2, 1});
        check_live("interleaved:2", m, (int[]){11, 9, 7, 5});
        check_live("zb-h2", m, (int[]){7, 5, 3, 1});
        check_live("gpipe", m, (int[]){m, m, m, m});
        check_live("naive", m, (int[]){1, 1, 1, 1});
    }
}

/* Idle time falls to 0 only between steps, and only in ZB-H2. */
TEST(pipeline, many_steps_without_a_barrier_take_the_period) {
    assert_true(makespan_of("zb-h1", 4, 8, 1, 1, 1, 3, NULL) == 81);
    assert_true(makespan_of("zb-h2", 4, 8, 1, 1, 1, 3, NULL) == 75);
    assert_true(makespan_of("zb-h1", 8, 32, 1, 1, 1, 3, NULL) == 309);
    assert_true(makespan_of("zb-h2", 8, 32, 1, 1, 1, 3, NULL) == 295);
    static const struct {
        const char *name;
        double period;
    } rows[] = {{"1f1b", 33}, {"gpipe", 33}, {"zb-h1", 27}, {"zb-h2", 24}};
    for (size_t i = 0; i < SH_COUNT(rows); i++) {
        sh_pipeline pipeline;
        CHECK_OK(sh_pipeline_init(&pipeline, rows[i].name, 4, 8));
        sh_pipe_stage stages[4];
        for (int s = 0; s < 4; s++) stages[s] = (sh_pipe_stage){1, 1, 1, 0};
        double period;
        CHECK_OK(sh_pipe_period(
            &(sh_pipe_setting){.pipeline = &pipeline, .stages = stages, .steps = 1}, &period));
        assert_true(period == rows[i].period);
    }
}

TEST(pipeline, closed_forms_are_exact_where_they_claim_to_hold) {
    static const char *const names[] = {"naive",         "gpipe",         "1f1b",  "interleaved:1",
                                        "interleaved:2", "interleaved:3", "zb-h1", "zb-h2"};
    static const sh_pipe_rank_times times[] = {
        {1, 1, 1}, {1, 2, 1}, {2, 3, 1}, {3, 1, 1}, {1, 1, 2}};
    int held = 0;
    for (size_t i = 0; i < SH_COUNT(names); i++)
        for (size_t k = 0; k < SH_COUNT(times); k++)
            for (int p = 1; p <= 8; p++)
                for (int m = 1; m <= 17; m++) {
                    sh_pipeline pipeline;
                    CHECK_OK(sh_pipeline_init(&pipeline, names[i], p, m));
                    double wanted = pipeline.schedule->makespan(&pipeline, &times[k]);
                    if (isnan(wanted)) continue;
                    double seen = makespan_of(names[i], p, m, times[k].forward_s, times[k].data_s,
                                              times[k].weight_s, 1, NULL);
                    if (fabs(seen - wanted) > 1e-9 * wanted)
                        fail_msg("%s p=%d m=%d times %zu: %.12g, closed form %.12g", names[i], p, m,
                                 k, seen, wanted);
                    held++;
                }
    assert_true(held > 2000);
}

TEST(pipeline, schedules_are_read_back_as_they_are_printed) {
    static const char *const texts[] = {"naive",         "gpipe", "1f1b",
                                        "interleaved:3", "zb-h1", "zb-h2"};
    char text[SH_PIPE_TEXT];
    sh_pipeline pipeline;
    for (size_t i = 0; i < SH_COUNT(texts); i++) {
        CHECK_OK(sh_pipeline_init(&pipeline, texts[i], 4, 8));
        assert_string_equal(sh_pipeline_text(&pipeline, text), texts[i]);
    }
    CHECK_OK(sh_pipeline_init(&pipeline, "interleaved", 4, 8));
    assert_string_equal(sh_pipeline_text(&pipeline, text), "interleaved:2");
}

TEST(pipeline, wrong_texts_and_counts_are_refused) {
    sh_pipeline pipeline;
    CHECK_FAILS(SH_E_USAGE, "no pipeline schedule '1f1'", sh_pipeline_init(&pipeline, "1f1", 4, 8));
    assert_non_null(strstr(sh_error_last()->hint, "did you mean '1f1b'?"));
    CHECK_FAILS(SH_E_USAGE, "takes no chunks", sh_pipeline_init(&pipeline, "gpipe:2", 4, 8));
    static const char *const bad[] = {"interleaved:",  "interleaved:0",  "interleaved:65",
                                      "interleaved:x", "interleaved:2 ", "interleaved:99999999999"};
    for (size_t i = 0; i < SH_COUNT(bad); i++)
        CHECK_FAILS(SH_E_USAGE, "from 1 to 64", sh_pipeline_init(&pipeline, bad[i], 4, 8));
    CHECK_FAILS(SH_E_USAGE, "0 ranks", sh_pipeline_init(&pipeline, "1f1b", 0, 8));
    CHECK_FAILS(SH_E_USAGE, "0 micro-batches", sh_pipeline_init(&pipeline, "1f1b", 4, 0));
    CHECK_OK(sh_pipeline_init(&pipeline, "gpipe", 4096, 65536));
    sh_pipe_setting setting = {.pipeline = &pipeline, .steps = 1};
    double makespan;
    CHECK_FAILS(SH_E_USAGE, "too much for a timeline",
                sh_pipe_timeline(&setting, NULL, NULL, NULL, &makespan));
}

/* ---- Random schedules ------------------------------------------------------------------------ */

/* What was seen of each stage and micro-batch: when each part began and ended. */
typedef struct span {
    double start_s, end_s;
    int count;
} span;

typedef struct seen {
    const sh_pipe_setting *setting;
    span *parts[3];              // (stages, micro-batches): forward, data, weight
    double last_s[STAGES_MOST];  // per rank: the end of its last event
    int next[3][STAGES_MOST];    // the micro-batch that a stage must take next
    bool updated[STAGES_MOST];
    bool faulty;
} seen;

static void note_part(seen *s, int part, const sh_pipe_event *e) {
    const sh_pipeline *pipeline = s->setting->pipeline;
    int stage = sh_pipeline_stage(pipeline, e->rank, e->action.chunk);
    span *found = &s->parts[part][stage * pipeline->micros + e->action.micro];
    *found = (span){e->start_s, e->end_s, found->count + 1};
    if (e->action.micro != s->next[part][stage]++) s->faulty = true;
}

static void note(void *self, const sh_pipe_event *e) {
    seen *s = self;
    if (e->start_s < s->last_s[e->rank] || e->end_s < e->start_s || s->updated[e->rank])
        s->faulty = true;
    s->last_s[e->rank] = e->end_s;
    sh_pipe_kind kind = e->action.kind;
    if (kind == SH_PIPE_UPDATE) s->updated[e->rank] = true;
    if (kind == SH_PIPE_FORWARD) note_part(s, 0, e);
    if (kind == SH_PIPE_BACKWARD || kind == SH_PIPE_BACKWARD_DATA) note_part(s, 1, e);
    if (kind == SH_PIPE_BACKWARD || kind == SH_PIPE_BACKWARD_WEIGHT) note_part(s, 2, e);
}

/* `first` ends before `then` starts, with a message between them if their ranks differ. */
static bool follows(const sh_pipe_setting *s, const span *first, const span *then, int first_stage,
                    int then_stage, double bytes) {
    bool message = first_stage % s->pipeline->ranks != then_stage % s->pipeline->ranks;
    double least_s = message ? s->alpha_s + s->beta_s * bytes : 0;
    return then->start_s >= first->end_s + least_s * (1 - 1e-9) - 1e-12;
}

static bool keeps_order(const seen *s) {
    const sh_pipeline *pipeline = s->setting->pipeline;
    int m = pipeline->micros, stages = sh_pipeline_stages(pipeline);
    for (int i = 0; i < stages * m; i++) {
        int stage = i / m;
        const span *f = &s->parts[0][i], *b = &s->parts[1][i], *w = &s->parts[2][i];
        if (f->count != 1 || b->count != 1 || w->count != 1) return false;
        if (b->start_s < f->end_s || w->end_s < b->end_s) return false;
        if (stage == 0) continue;
        double bytes = s->setting->stages[stage - 1].value_bytes;
        if (!follows(s->setting, f - m, f, stage - 1, stage, bytes)) return false;
        if (!follows(s->setting, b, b - m, stage, stage - 1, bytes)) return false;
    }
    return true;
}

static void check_random(uint64_t seed, int number) {
    static const char *const names[] = {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"};
    sh_rng rng = sh_rng_stream(seed, SH_RNG_TEST, 15, (uint64_t)number);
    int p = 1 + (int)sh_rng_below(&rng, 8), m = 1 + (int)sh_rng_below(&rng, 24);
    const char *name = names[sh_rng_below(&rng, SH_COUNT(names))];
    char text[32];
    snprintf(text, sizeof text, strcmp(name, "interleaved") == 0 ? "%s:%d" : "%s", name,
             1 + (int)sh_rng_below(&rng, 4));
    sh_pipeline pipeline;
    CHECK_OK(sh_pipeline_init(&pipeline, text, p, m));
    sh_pipe_stage stages[STAGES_MOST];
    int count = sh_pipeline_stages(&pipeline);
    bool zeros = sh_rng_below(&rng, 4) == 0;  // times of 0 make ties
    for (int i = 0; i < count; i++) {
        double numbers[4];
        for (int k = 0; k < 4; k++)
            numbers[k] = zeros && sh_rng_below(&rng, 2) == 0 ? 0 : sh_rng_uniform(&rng);
        stages[i] = (sh_pipe_stage){numbers[0], numbers[1], numbers[2], numbers[3]};
    }
    sh_pipe_setting setting = {
        .pipeline = &pipeline,
        .stages = stages,
        .update_s = sh_rng_uniform(&rng),
        .alpha_s = sh_rng_below(&rng, 2) == 0 ? 0 : sh_rng_uniform(&rng),
        .beta_s = sh_rng_below(&rng, 2) == 0 ? 0 : sh_rng_uniform(&rng),
        .buffered = sh_rng_below(&rng, 2) == 0 ? 0 : sh_pipeline_room(&pipeline),
        .steps = 1,
    };
    seen s = {.setting = &setting};
    span *spans = sh_alloc(3 * (size_t)count * (size_t)m, sizeof *spans);
    assert_non_null(spans);
    for (int k = 0; k < 3; k++) s.parts[k] = spans + (size_t)k * (size_t)count * (size_t)m;
    sh_pipe_rank_result ranks[STAGES_MOST];
    double makespan = 0;
    sh_status status = sh_pipe_timeline(&setting, note, &s, ranks, &makespan);
    bool kept = status == SH_OK && !s.faulty && keeps_order(&s);
    for (int r = 0; r < p && kept; r++)
        kept = s.updated[r] && ranks[r].live_most <= sh_pipeline_live_most(&pipeline, r) &&
               ranks[r].late_most <= sh_pipeline_late_most(&pipeline, r) &&
               ranks[r].end_s <= makespan && ranks[r].busy_s <= makespan * (1 + 1e-9);
    sh_free(spans);
    if (!kept)
        fail_msg("SEED=%llu, schedule %d: %s p=%d m=%d buffered=%d: %s", (unsigned long long)seed,
                 number, text, p, m, setting.buffered,
                 status == SH_OK ? "order or bound broken" : sh_error_last()->text);
}

/* SEED draws others, SCHEDULES says how many (bench/pipelines: 100,000). */
TEST(pipeline, random_schedules_never_deadlock_and_keep_order_and_memory) {
    const char *seed = getenv("SEED"), *wanted = getenv("SCHEDULES");
    int schedules = wanted != NULL ? atoi(wanted) : 3000;
    for (int i = 0; i < schedules; i++)
        check_random(seed != NULL ? strtoull(seed, NULL, 10) : 1, i);
}

/* Rank 0 wants its first gradient before it has sent what the rank behind it waits for. */
static sh_pipe_limits never_backward_first(const sh_pipeline *pipeline, int rank) {
    (void)pipeline;
    return (sh_pipe_limits){.ahead = rank == 0 ? 0 : 2};
}

TEST(pipeline, the_timeline_names_who_waits_in_a_deadlock) {
    sh_pipe_schedule wrong = {.name = "wrong", .limits = never_backward_first};
    sh_pipeline pipeline = {.schedule = &wrong, .ranks = 2, .micros = 4, .chunks = 1};
    sh_pipe_stage stages[2] = {{1, 1, 1, 0}, {1, 1, 1, 0}};
    sh_pipe_rank_result ranks[2];
    double makespan;
    CHECK_FAILS(
        SH_E_PEER, "rank 0 waits in step 0 to receive gradient micro-batch 0 of chunk 0",
        sh_pipe_timeline(&(sh_pipe_setting){.pipeline = &pipeline, .stages = stages, .steps = 1},
                         NULL, NULL, ranks, &makespan));
}
