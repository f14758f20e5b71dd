#include "run/sparse.h"

#include <math.h>
#include <string.h>

#include "data/view.h"
#include "nn/layers/options.h"

/* Where steps are sparse: the layer, the samples in place, and the batch that the step reads
 * from the loader's memory. */
struct sh_sparse_run {
    sh_sparse_layer layer;
    const sh_sparse *samples;
    const sh_batch *batch;  // that next_sparse gave last
};

/* sh_sparse_step knows this layer alone. */
static bool is_one_dense_layer(const sh_net *net) {
    return net->layer_count == 1 && net->layers[0]->kind == &sh_layer_kind_dense &&
           net->params.count == (size_t)net->layers[0]->param_count;
}

/* Momentum and decay move every weight in every step. */
static bool is_plain_sgd(const shoal_run *run) {
    return run->optim.kind == sh_optim_plain() && run->optim.slot_count == 0 &&
           run->optim.options.weight_decay == 0;
}

/* A sparse step touches only weights of features that a sample has, and bypasses executor and
 * optimizer. So whatever acts on every weight, or on whole gradients, rules it out. */
static bool fits(const shoal_run *run) {
    const sh_config *config = &run->config;
    sh_scheme scheme;
    bool hogwild = run->team.ranks > 1 && sh_scheme_parse(config->scheme.name, &scheme) == SH_OK &&
                   scheme.kind->sparse;
    bool plain = !config->exact && config->accumulate == 1 && config->clip_norm <= 0 &&
                 config->clip_value <= 0 && !run->data.train->info.ignores;
    return sh_view_source(run->data.train)->sparse.rows > 0 && run->data.normal.count == 0 &&
           is_one_dense_layer(run->model.net) && is_plain_sgd(run) && plain &&
           (run->team.group == NULL || hogwild);
}

sh_status sh_run_begin_sparse(shoal_run *run) {
    if (!fits(run)) return SH_OK;
    struct sh_sparse_run *s = run->sparse = sh_alloc(1, sizeof *s);
    if (s == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for sparse steps");
    const sh_shape *weight = &run->model.net->params.items[0].shape;
    s->samples = &sh_view_source(run->data.train)->sparse;
    s->layer = (sh_sparse_layer){.units = (size_t)weight->dim[0],
                                 .features = (size_t)weight->dim[1],
                                 .has_bias = run->model.net->params.count > 1,
                                 .loss = &run->model.loss};
    // A share of the data in parts may be larger than the batch by a sample.
    s->layer.outputs = sh_alloc((size_t)run->config.batch + 1, s->layer.units * sizeof(float));
    if (s->layer.outputs == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for sparse steps");
    if (sh_team_leads(&run->team))
        SH_INFO(&run->log, "sparse steps: %.1f of %zu features a sample",
                (double)s->samples->start[s->samples->rows] / (double)s->samples->rows,
                s->layer.features);
    return SH_OK;
}

void sh_run_end_sparse(shoal_run *run) {
    if (run->sparse == NULL) return;
    sh_free(run->sparse->layer.outputs);
    sh_free(run->sparse);
    run->sparse = NULL;
}

/* Before the loader is destroyed, which must have all its batches back. */
void sh_run_drop_sparse(shoal_run *run) {
    if (run->sparse == NULL || run->sparse->batch == NULL) return;
    sh_loader_release(run->loader, run->sparse->batch);
    run->sparse->batch = NULL;
}

const sh_sparse_layer *sh_run_sparse_layer(const shoal_run *run) {
    return run->sparse != NULL ? &run->sparse->layer : NULL;
}

/* A view into the loader's batch: valid until that is released. */
static sh_sparse_batch batch_of(const shoal_run *run, const sh_batch *batch, double whole) {
    return (sh_sparse_batch){.samples = run->sparse->samples,
                             .rows = batch->x,
                             .targets = batch->y,
                             .count = batch->count,
                             .whole = whole};
}

sh_status sh_run_next_sparse(shoal_run *run, sh_sparse_batch *batch_out) {
    struct sh_sparse_run *s = run->sparse;
    // The batch before goes back only now, as its step has read it in place.
    if (s->batch != NULL) sh_loader_release(run->loader, s->batch);
    SH_TRY(sh_loader_next(run->loader, &s->batch));
    SH_ASSERT(s->batch != NULL);
    *batch_out = batch_of(run, s->batch, (double)s->batch->whole / run->team.ranks);
    return SH_OK;
}
