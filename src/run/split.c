#include "run/split.h"

#include <string.h>

#include "base/memory.h"
#include "parallel/layouts.h"
#include "parallel/space.h"
#include "run/layout.h"
#include "run/run.h"

/* The layout that splits the model; NULL: none does. */
static const sh_layout_kind *layout_of(const sh_mesh_shape *shape) {
    static const sh_layout_kind *const kinds[] = {
#define LAYOUT(name) &sh_layout_kind_##name,
        SH_LAYOUT_LIST(LAYOUT)
#undef LAYOUT
    };
    for (size_t i = 0; i < SH_COUNT(kinds); i++)
        if (shape->size[kinds[i]->axis] > 1) return kinds[i];
    return NULL;
}

/* ---- The part of a worker ---- */

/* Makes two nets of one spec: the whole, for names and checkpoints, and this worker's part,
 * which the spec becomes. */
static sh_status rewrite(shoal_run *run, sh_run_layout *layout, sh_net_spec *spec) {
    const sh_layout_kind *kind = layout_of(&layout->mesh.shape);
    const sh_dimension *along = &layout->mesh.along[kind->axis];
    const char *loss = run->config.loss.name;
    bool classes =
        run->data.info.target == SH_TARGET_CLASS || run->data.info.target == SH_TARGET_TOKENS;
    const sh_layout_target target = {
        .parts = along->size,
        .rank = along->at,
        .splits_loss = classes && (strcmp(loss, "auto") == 0 || strcmp(loss, "cross-entropy") == 0),
    };
    sh_layout_result result;
    SH_TRY(kind->rewrite(spec, &target, &result));
    layout->splits_loss = result.loss_is_split;
    if (result.loss_is_split) sh_split_cross_entropy_init(&layout->loss, &result.outputs);
    const sh_net_spec own = result.net;
    result.net = (sh_net_spec){0};
    sh_layout_result_fini(&result);
    sh_status status = sh_net_build(spec, &layout->whole);
    *spec = own;
    return status;
}

/* Collective where the layout splits the model, as groups of the mesh are made. */
sh_status sh_run_layout_apply(shoal_run *run, sh_net_spec *spec_inout) {
    sh_mesh_shape shape;
    if (run->team.engine == NULL) return SH_OK;  // also where a run is only explained
    SH_TRY(sh_config_mesh(&run->config, sh_engine_ranks(run->team.engine), &shape));
    if (layout_of(&shape) == NULL) return SH_OK;
    sh_run_layout *layout = run->model.layout = sh_alloc(1, sizeof *layout);
    if (layout == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a layout");
    SH_TRY(sh_mesh_init(&shape, run->team.engine, &layout->mesh));
    layout->peers.engine = run->team.engine;
    for (int axis = 0; axis < SH_AXES; axis++)
        layout->peers.along[axis] = layout->mesh.along[axis].group;
    layout->peers.group = layout->mesh.along[SH_AXIS_DATA].group;
    SH_TRY(sh_space_open(&shape, &layout->peers));
    return rewrite(run, layout, spec_inout);
}

/* Workers that hold parts of one copy of the model are one replica, numbered along the axis
 * data. */
int sh_run_replica(const shoal_run *run) {
    const sh_run_layout *layout = run->model.layout;
    return layout != NULL ? layout->mesh.along[SH_AXIS_DATA].at : run->team.rank;
}

int sh_run_replicas(const shoal_run *run) {
    const sh_run_layout *layout = run->model.layout;
    return layout != NULL ? layout->mesh.along[SH_AXIS_DATA].size : run->team.ranks;
}

/* All workers of a replica take the same samples of the batch. */
sh_batch_share sh_run_share(const shoal_run *run) {
    if (run->model.layout == NULL) return sh_team_share(&run->team);
    uint32_t at = (uint32_t)sh_run_replica(run), of = (uint32_t)sh_run_replicas(run);
    return of > 1 ? (sh_batch_share){.low = at, .high = at + 1, .of = of} : (sh_batch_share){0};
}

/* ---- Parts and the whole ---- */

/* After a failed reserve, too: slot_count counts the slots tried, of which the last may be NULL. */
static void drop_blocks(sh_run_layout *layout) {
    sh_whole_blocks *b = &layout->blocks;
    for (int i = 0; i < b->slot_count; i++) sh_free(b->slots[i]);
    sh_free(b->slots);
    sh_free(b->weights);
    sh_free(b->states);
    *b = (sh_whole_blocks){0};
}

void sh_run_layout_destroy(sh_run_layout *layout) {
    if (layout == NULL) return;
    drop_blocks(layout);
    sh_space_close(&layout->peers);
    sh_split_cross_entropy_fini(&layout->loss);
    sh_net_destroy(layout->whole);
    sh_mesh_fini(&layout->mesh);
    sh_free(layout);
}

void sh_run_layout_drop(shoal_run *run) {
    if (run->model.layout != NULL) drop_blocks(run->model.layout);
}

/* Rank 0's room for the whole model, into which checkpoints are read and from which they are
 * written. */
sh_status sh_run_layout_reserve(shoal_run *run) {
    sh_run_layout *layout = run->model.layout;
    if (layout == NULL || !sh_team_leads(&run->team)) return SH_OK;
    drop_blocks(layout);
    sh_whole_blocks *b = &layout->blocks;
    size_t params = layout->whole->params.total, slots = (size_t)run->optim.slot_count;
    b->weights = sh_alloc(params, sizeof *b->weights);
    b->states = sh_alloc(layout->whole->states.total + 1, sizeof *b->states);
    b->slots = sh_alloc(slots + 1, sizeof *b->slots);
    bool all = b->weights != NULL && b->states != NULL && b->slots != NULL;
    for (size_t i = 0; all && i < slots; i++) {
        b->slots[i] = sh_alloc(params, sizeof **b->slots);
        b->slot_count++;
        all = b->slots[i] != NULL;
    }
    return all ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for the whole model");
}

/* A block of parameters or states: this worker's part of it, and on rank 0 the whole. */
typedef struct exchanged {
    const sh_param_list *whole, *own;
    float *part, *all;  // `all` NULL: this is not rank 0
} exchanged;

/* Runs of the worker's own elements of a parameter, in the whole parameter. */
typedef struct runs {
    size_t count, length;
    const sh_slice *slice;  // NULL: one run, all of it
} runs;

static runs runs_of(const sh_param *own) {
    if (!sh_slice_is_split(&own->slice)) return (runs){1, own->count, NULL};
    return (runs){sh_slice_runs(&own->slice), sh_slice_run_count(&own->slice), &own->slice};
}

static size_t run_begin(const runs *r, size_t index) {
    return r->slice != NULL ? sh_slice_run_begin(r->slice, index) : 0;
}

/* Every worker puts its part into zeros, and the sum, of bits as integers, is the whole. Replicated
 * parameters come from rank 0. */
static void put(const exchanged *e, const sh_param *param, bool leads, float *buffer) {
    const sh_param *own = sh_param_list_find(e->own, param->name);
    memset(buffer, 0, param->count * sizeof *buffer);
    if (own == NULL || (!leads && !sh_slice_is_split(&own->slice))) return;
    const runs r = runs_of(own);
    for (size_t i = 0; i < r.count; i++)
        memcpy(buffer + run_begin(&r, i), e->part + own->offset + i * r.length,
               r.length * sizeof *buffer);
}

/* The inverse of put: this worker's elements out of a whole parameter. */
static void take(const exchanged *e, const sh_param *param, const float *buffer) {
    const sh_param *own = sh_param_list_find(e->own, param->name);
    if (own == NULL) return;
    const runs r = runs_of(own);
    for (size_t i = 0; i < r.count; i++)
        memcpy(e->part + own->offset + i * r.length, buffer + run_begin(&r, i),
               r.length * sizeof *buffer);
}

static sh_status gather_param(shoal_run *run, const exchanged *e, const sh_param *param,
                              float *buffer) {
    bool replica_0 = sh_run_replica(run) == 0, leads = sh_team_leads(&run->team);
    put(e, param, leads, buffer);
    // Replicas hold equal parts; only those of replica 0 may enter the sum.
    if (!replica_0) memset(buffer, 0, param->count * sizeof *buffer);
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = buffer,
                    .count = param->count,
                    .dtype = SH_DTYPE_I32,
                    .op = SH_SUM,
                    .bucket = -1};
    SH_TRY(sh_engine_run(run->team.engine, &call));
    if (e->all != NULL) memcpy(e->all + param->offset, buffer, param->count * sizeof *buffer);
    return SH_OK;
}

/* Collective: rank 0 tells the whole parameter, and each worker keeps its elements. */
static sh_status scatter_param(shoal_run *run, const exchanged *e, const sh_param *param,
                               float *buffer) {
    if (e->all != NULL) memcpy(buffer, e->all + param->offset, param->count * sizeof *buffer);
    SH_TRY(sh_team_broadcast(&run->team, buffer, param->count * sizeof *buffer));
    take(e, param, buffer);
    return SH_OK;
}

/* One parameter on its way to rank 0 or from it; collective. `buffer` has room for the whole
 * parameter. */
typedef sh_status (*exchange_param)(shoal_run *run, const exchanged *e, const sh_param *param,
                                    float *buffer);

/* Parameter by parameter, so that nobody but rank 0 needs room for the whole. */
static sh_status exchange_block(shoal_run *run, const exchanged *e, exchange_param with) {
    size_t most = 1;
    for (size_t i = 0; i < e->whole->count; i++)
        if (e->whole->items[i].count > most) most = e->whole->items[i].count;
    float *buffer = sh_alloc(most, sizeof *buffer);
    if (buffer == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a whole parameter");
    sh_status status = SH_OK;
    for (size_t i = 0; status == SH_OK && i < e->whole->count; i++)
        status = with(run, e, &e->whole->items[i], buffer);
    sh_free(buffer);
    return status;
}

/* Collective. All ranks pass parameters, optimizer slots and states in this order. */
static sh_status exchange_all(shoal_run *run, bool has_slots, exchange_param with) {
    sh_run_layout *layout = run->model.layout;
    const sh_net *net = run->model.net;
    exchanged e = {&layout->whole->params, &net->params, run->model.blocks.weights,
                   layout->blocks.weights};
    SH_TRY(exchange_block(run, &e, with));
    for (int i = 0; has_slots && i < run->optim.slot_count; i++) {
        e.part = run->optim.slots[i];
        e.all = layout->blocks.slots != NULL ? layout->blocks.slots[i] : NULL;
        SH_TRY(exchange_block(run, &e, with));
    }
    e = (exchanged){&layout->whole->states, &net->states, run->model.blocks.states,
                    layout->blocks.states};
    return exchange_block(run, &e, with);
}

sh_status sh_run_layout_gather(shoal_run *run) {
    if (run->model.layout == NULL) return SH_OK;
    SH_TRY(sh_run_layout_reserve(run));
    return exchange_all(run, true, gather_param);
}

sh_status sh_run_layout_scatter(shoal_run *run, bool has_slots) {
    return exchange_all(run, has_slots, scatter_param);
}

static void take_all(const exchanged *e) {
    for (size_t i = 0; i < e->whole->count; i++)
        take(e, &e->whole->items[i], e->all + e->whole->items[i].offset);
}

/* Every worker reads the whole file and keeps its part, so no message is needed. */
sh_status sh_run_load_model(shoal_run *run, const char *path) {
    const sh_run_layout *layout = run->model.layout;
    const sh_net *own = run->model.net, *whole = layout != NULL ? layout->whole : own;
    if (layout == NULL)
        return sh_checkpoint_load_model(path, &run->log, &own->params, run->model.blocks.weights,
                                        &own->states, run->model.blocks.states);
    float *weights = sh_alloc(whole->params.total, sizeof *weights);
    float *states = sh_alloc(whole->states.total + 1, sizeof *states);
    sh_status status = weights != NULL && states != NULL
                           ? sh_checkpoint_load_model(path, &run->log, &whole->params, weights,
                                                      &whole->states, states)
                           : SH_FAIL(SH_E_MEMORY, "out of memory for the whole model");
    if (status == SH_OK) {
        take_all(&(exchanged){&whole->params, &own->params, run->model.blocks.weights, weights});
        take_all(&(exchanged){&whole->states, &own->states, run->model.blocks.states, states});
    }
    sh_free(weights);
    sh_free(states);
    return status;
}

sh_status sh_run_layout_squares(shoal_run *run, double *squares_out) {
    const sh_run_layout *layout = run->model.layout;
    const sh_param_list *params = &run->model.net->params;
    if (!(run->config.clip_norm > 0)) return SH_OK;
    double split = 0, replicated = 0;
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *p = &params->items[i];
        double squares = sh_clip_squares(run->model.blocks.gradients + p->offset, p->count);
        *(sh_slice_is_split(&p->slice) ? &split : &replicated) += squares;
    }
    sh_call call = {.what = SH_ALLREDUCE,
                    .group = layout->peers.along[SH_AXIS_TENSOR],
                    .data = &split,
                    .count = 1,
                    .dtype = SH_DTYPE_F64,
                    .op = SH_SUM,
                    .bucket = -1};
    SH_TRY(sh_engine_run(run->team.engine, &call));
    *squares_out = split + replicated;
    return SH_OK;
}

sh_status sh_run_layout_agree(shoal_run *run, bool *stops_inout) {
    if (run->model.layout == NULL) return SH_OK;
    bool asked = run->hooks.stop != NULL && run->hooks.stop(run->hooks.user);
    double stops = asked || *stops_inout;
    SH_TRY(sh_team_sum(&run->team, &stops, 1));
    *stops_inout = stops > 0;
    return SH_OK;
}
