/* A net under a layout, on ranks that are threads, against the whole net on one worker. */
#ifndef SH_TESTS_PARALLEL_LAYOUT_TEAM_H
#define SH_TESTS_PARALLEL_LAYOUT_TEAM_H

#include "comm/engines.h"
#include "nn/rig.h"
#include "parallel/layouts.h"
#include "parallel/space.h"
#include "parallel/split_loss.h"

enum { TEAM_MOST = 4 };

typedef struct layout_case {
    const char *text;  // of the model
    sh_net_input input;
    int64_t batch;
    double smoothing;
    bool dense_loss;  // a linear loss over whole outputs instead of cross-entropy
} layout_case;

/* One worker, with the whole net or its part. */
typedef struct worker {
    const layout_case *c;
    sh_net *net;
    sh_layout_note *notes;
    sh_loss loss;
    sh_split_cross_entropy split;
    sh_tuner *tuner;
    sh_executor *executor;
    sh_arena memory;
    sh_blocks blocks;
    const void *x;
    const void *y;
    sh_loss_result result;
} worker;

typedef struct team {
    worker whole, part[TEAM_MOST];
    int parts;
    void *x, *y;
    sh_axis axis;
} team;

static inline sh_net_spec described(const layout_case *c) {
    sh_node *node = NULL;
    sh_net_spec spec;
    CHECK_OK(sh_node_parse("net", c->text, strlen(c->text), &node));
    CHECK_OK(sh_net_spec_read(node, &c->input, &spec));
    sh_node_destroy(node);
    return spec;
}

static inline void worker_build(worker *w, const layout_case *c, sh_net_spec *spec) {
    w->c = c;
    CHECK_OK(sh_net_build(spec, &w->net));
    w->tuner = rig_tuner();
    sh_loss_options options = {.smoothing = c->smoothing, .ignore_index = 2};
    w->loss = c->dense_loss ? rig_linear_loss
                            : (sh_loss){.kind = sh_loss_find("cross-entropy"), .options = options};
    if (w->split.base.evaluate != NULL) w->loss.split = &w->split.base;
    sh_executor_options o = {
        .batch = c->batch, .training = true, .loss = &w->loss, .tuner = w->tuner};
    CHECK_OK(sh_executor_create(w->net, &o, &w->executor));
    size_t total = w->net->params.total;
    w->blocks.weights = sh_alloc(total, sizeof(float));
    w->blocks.gradients = sh_alloc(total, sizeof(float));
    w->blocks.states = sh_alloc(w->net->states.total, sizeof(float));
    sh_net_init(w->net, 5, w->blocks.weights, w->blocks.states);
    CHECK_OK(sh_arena_init(&w->memory, "worker", w->executor->memory_bytes + 64));
    rig_poison(w->memory.base, w->executor->memory_bytes);
    rig_poison(w->blocks.gradients, total * sizeof(float));
    sh_executor_bind(w->executor, &w->blocks, w->memory.base);
}

static inline void worker_fini(worker *w) {
    sh_executor_destroy(w->executor);
    sh_split_cross_entropy_fini(&w->split);
    sh_net_destroy(w->net);
    sh_tuner_destroy(w->tuner);
    sh_arena_fini(&w->memory);
    sh_free(w->blocks.weights), sh_free(w->blocks.gradients), sh_free(w->blocks.states);
    sh_free(w->notes);
}

static inline sh_status worker_step(worker *w, const sh_peers *peers) {
    sh_step_context step = {.training = true, .seed = 5, .step = 3, .position = 11, .peers = peers};
    SH_TRY(sh_executor_forward(w->executor, &step, w->x));
    w->result = sh_executor_loss(w->executor, w->y, 1.0 / 7);
    SH_TRY(w->result.status);
    return sh_executor_backward(w->executor, NULL, NULL);
}

static inline sh_status step_of_team(sh_engine *engine, void *argument) {
    team *t = argument;
    sh_peers peers = {.engine = engine};
    peers.along[t->axis] = sh_engine_world(engine);
    peers.group = sh_engine_world(engine);
    sh_mesh_shape shape = {{1, 1, 1, 1}};
    shape.size[t->axis] = t->parts;
    SH_TRY(sh_space_open(&shape, &peers));
    sh_status status = worker_step(&t->part[sh_engine_rank(engine)], &peers);
    sh_space_close(&peers);
    return status;
}

static inline void team_data(team *t, const layout_case *c) {
    const sh_value *x = t->whole.executor->input, *y = t->whole.executor->output;
    t->x = sh_alloc(x->count, sizeof(float));
    t->y = sh_alloc(y->count, sizeof(float));
    sh_test_fill(t->x, x->count, 7);
    sh_test_fill(t->y, y->count, 8);
    int32_t *tokens = t->x, *labels = t->y;
    const float *unit = t->x, *other = t->y;
    for (size_t i = 0; x->tokens && i < x->count; i++)
        tokens[i] = (int32_t)((unit[i] + 1) / 2 * (float)c->input.outputs);
    for (size_t i = 0; !c->dense_loss && i < y->count; i++)
        labels[i] = (int32_t)((other[i] + 1) / 2 * (float)c->input.outputs);
}

/* The whole net, and its parts under a layout. */
static inline void team_init(team *t, const layout_case *c, const sh_layout_kind *layout,
                             int parts) {
    *t = (team){.parts = parts, .axis = layout->axis};
    sh_net_spec whole = described(c);
    for (int r = 0; r < parts; r++) {
        sh_layout_result result;
        sh_layout_target target = {.parts = parts, .rank = r, .splits_loss = !c->dense_loss};
        CHECK_OK(layout->rewrite(&whole, &target, &result));
        if (result.loss_is_split) sh_split_cross_entropy_init(&t->part[r].split, &result.outputs);
        t->part[r].notes = result.notes;
        result.notes = NULL;
        worker_build(&t->part[r], c, &result.net);
        sh_layout_result_fini(&result);
    }
    worker_build(&t->whole, c, &whole);
    team_data(t, c);
    t->whole.x = t->x, t->whole.y = t->y;
    for (int r = 0; r < parts; r++) t->part[r].x = t->x, t->part[r].y = t->y;
}

static inline void team_fini(team *t) {
    worker_fini(&t->whole);
    for (int r = 0; r < t->parts; r++) worker_fini(&t->part[r]);
    sh_free(t->x), sh_free(t->y);
}

/* `part` of a parameter, or all of it, beside its place in the whole block. */
static inline void check_range(const char *name, const sh_slice *part, const float *own,
                               size_t count, const float *whole, double tolerance) {
    if (!sh_slice_is_split(part)) {
        if (rig_norm(whole, count) > 0) CHECK_CLOSE(whole, own, count, tolerance);
        return;
    }
    (void)name;
    double squares = 0, differences = 0;
    size_t run = sh_slice_run_count(part);
    for (size_t i = 0; i < sh_slice_runs(part); i++)
        for (size_t k = 0; k < run; k++) {
            double a = (double)whole[sh_slice_run_begin(part, i) + k], b = (double)own[i * run + k];
            squares += a * a;
            differences += (a - b) * (a - b);
        }
    if (!(differences <= squares * tolerance * tolerance + 1e-20))
        fail_msg("%s: differs by %g of %g", name, sqrt(differences), sqrt(squares));
}

/* Every worker's block, parameter by parameter, against that of the whole net. */
static inline void check_params(const sh_param_list *whole, const float *values,
                                const sh_param_list *own, const float *parts, double tolerance) {
    for (size_t i = 0; i < own->count; i++) {
        const sh_param *part = &own->items[i];
        const sh_param *all = sh_param_list_find(whole, part->name);
        assert_non_null(all);
        check_range(part->name, &part->slice, parts + part->offset, part->count,
                    values + all->offset, tolerance);
    }
}

/* Elements of the whole that some worker holds a part of, or all hold: nothing is missing. */
static inline void check_covered(const team *t) {
    const sh_param_list *whole = &t->whole.net->params;
    for (size_t i = 0; i < whole->count; i++) {
        size_t held = 0;
        bool replicated = false;
        for (int r = 0; r < t->parts; r++) {
            const sh_param *p = sh_param_list_find(&t->part[r].net->params, whole->items[i].name);
            if (p != NULL && sh_slice_is_split(&p->slice)) held += p->count;
            replicated = replicated || (p != NULL && !sh_slice_is_split(&p->slice));
        }
        assert_true(replicated ? held == 0 : held == whole->items[i].count);
    }
}

/* Losses, counts, gradients and running statistics of every worker. */
static inline void team_check(const layout_case *c, const sh_layout_kind *layout, int parts) {
    team t;
    team_init(&t, c, layout, parts);
    check_covered(&t);
    for (int r = 0; r < parts; r++)
        check_params(&t.whole.net->params, t.whole.blocks.weights, &t.part[r].net->params,
                     t.part[r].blocks.weights, 0);
    CHECK_OK(worker_step(&t.whole, NULL));
    CHECK_OK(run_engines(parts, NULL, step_of_team, &t));
    for (int r = 0; r < parts; r++) {
        const worker *w = &t.part[r];
        assert_true(fabs(w->result.sum - t.whole.result.sum) <=
                    1e-5 * fabs(t.whole.result.sum) + 1e-6);
        assert_int_equal(w->result.counted, t.whole.result.counted);
        assert_int_equal(w->result.correct, t.whole.result.correct);
        check_params(&t.whole.net->params, t.whole.blocks.gradients, &w->net->params,
                     w->blocks.gradients, 2e-5);
        check_params(&t.whole.net->states, t.whole.blocks.states, &w->net->states, w->blocks.states,
                     1e-5);
    }
    assert_true(rig_norm(t.whole.blocks.gradients, t.whole.net->params.total) > 1e-3);
    team_fini(&t);
}

#endif
