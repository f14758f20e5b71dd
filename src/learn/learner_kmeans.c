/* The learner `kmeans`: a step is an iteration over all rows, or a mini-batch of them. */
#include <math.h>
#include <string.h>

#include "learn/kmeans.h"
#include "learn/learner.h"
#include "nn/models/learned.h"

typedef struct own {
    sh_kmeans_model *options;
    sh_learn_team team;
    sh_rows rows;
    sh_kmeans *kmeans;  // NULL: training has not begun
    float *given;       // (k, width)
    float *met;         // (k): rows that a centre has met in mini-batches
    sh_param_list met_params;
    sh_kmeans_step last;
} own;

/* Also after a failure half way: NULL is welcome in every fini. */
static void kmeans_close(sh_learner *learner) {
    own *o = learner->own;
    if (o == NULL) return;
    sh_kmeans_destroy(o->kmeans);
    sh_rows_fini(&o->rows);
    sh_param_list_fini(&o->met_params);
    sh_learner_options_free(learner->run, o->options);
    sh_free(o->given);
    sh_free(o->met);
    sh_free(o);
    learner->own = NULL;
}

/* Options and the rows met by centres, which a checkpoint of mini-batches saves. */
static sh_status kmeans_open(sh_learner *learner) {
    own *o = learner->own = sh_alloc(1, sizeof *o);
    if (o == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for k-means");
    void *options;
    SH_TRY(sh_learner_options(learner->run, &options));
    o->options = options;
    o->met = sh_alloc((size_t)o->options->k, sizeof *o->met);
    if (o->met == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for k-means");
    return sh_param_list_add(&o->met_params, "kmeans.rows", SH_SHAPE(o->options->k), false, NULL);
}

/* An upper limit: the tolerance may end training before. */
static int64_t kmeans_steps(const sh_learner *learner) {
    const own *o = learner->own;
    return o->options->iterations;
}

/* ---- Begin ---- */

/* Centres are read with the training data's normalisation, as rows of the same space. */
static sh_status read_given(const shoal_run *run, own *o) {
    const sh_kmeans_model *options = o->options;
    if (options->centres == NULL) {
        SH_FAIL(SH_E_USAGE, "seeds are 'given', but no file of centres is");
        return sh_error_hint("model: {name: kmeans, seeds: given, centres: FILE}");
    }
    sh_dataset *dataset;
    sh_data_options data = run->config.data;
    data.folder = run->folders.data;
    data.team = NULL;  // every worker reads all centres, not a part of them
    SH_TRY(sh_dataset_open(options->centres, &data, &run->data.normal, NULL, &dataset));
    size_t count = dataset->info.count, width = sh_shape_count(&dataset->info.sample);
    sh_status status = SH_OK;
    if (count != (size_t)options->k || width != o->rows.width)
        status = SH_FAIL(SH_E_SHAPE, "'%s' holds %zu rows of %zu numbers; k is %ld, rows have %zu",
                         options->centres, count, width, (long)options->k, o->rows.width);
    if (status == SH_OK) o->given = sh_alloc(count * width, sizeof *o->given);
    if (status == SH_OK && o->given == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for centres");
    for (size_t i = 0; status == SH_OK && i < count; i++)
        dataset->get(dataset, i, o->given + i * width, NULL);
    sh_dataset_destroy(dataset);
    return status;
}

/* The names are those of the option table (nn/models/learned.c), in the order of the enum. */
static sh_kmeans_seeds seeds_of(const sh_kmeans_model *options) {
    static const char *const names[] = {"k-means||", "k-means++", "random", "given"};
    int seeds = 0;
    while (strcmp(names[seeds], options->seeds) != 0) seeds++;
    return (sh_kmeans_seeds)seeds;
}

static bool takes_batches(const own *o) { return strcmp(o->options->solver, "minibatch") == 0; }

/* A loaded model gives the first centres: no seeds are drawn then. */
static sh_status kmeans_begin(sh_learner *learner) {
    shoal_run *run = learner->run;
    own *o = learner->own;
    const sh_kmeans_model *options = o->options;
    o->team = sh_learner_team(run);
    SH_TRY(sh_learner_begin(run, &o->team, &o->rows));
    sh_kmeans_options asked = {.k = options->k,
                               .seeds = seeds_of(options),
                               .oversample = options->oversample,
                               .rounds = options->rounds,
                               .batch = takes_batches(o) ? options->batch : 0,
                               .plain = strcmp(options->solver, "plain") == 0,
                               .seed = (uint64_t)run->config.seed};
    bool goes_on = run->at.step > 0 || run->config.load != NULL;  // resumed, or from a loaded model
    if (goes_on) {
        asked.seeds = SH_SEEDS_GIVEN;
        asked.given = run->model.blocks.weights;
    } else if (asked.seeds == SH_SEEDS_GIVEN) {
        SH_TRY(sh_learn_agree(&o->team, read_given(run, o)));
        asked.given = o->given;
    }
    SH_TRY(sh_kmeans_create(&asked, &o->rows, &o->team, &o->kmeans));
    if (goes_on) sh_kmeans_restore(o->kmeans, run->model.blocks.weights, o->met, run->at.step);
    o->last.inertia = INFINITY;  // the first step has nothing to compare its inertia with
    return SH_OK;
}

/* ---- Steps ---- */

/* Mini-batches end by their number of iterations alone: their centres always move. */
static bool is_done(const own *o, double before) {
    if (takes_batches(o)) return false;
    double fell = before - o->last.inertia;
    // No centre moved: a fixed point.
    return o->last.shift == 0 || (o->options->tolerance > 0 && isfinite(before) &&
                                  fell <= o->options->tolerance * before);
}

/* Centres go into the net's parameters after each step, so that evaluation and checkpoints see
 * them. */
static sh_status kmeans_step(sh_learner *learner, int64_t to, sh_learner_step *step_out) {
    (void)to;  // a step is one iteration, whatever `to` is
    shoal_run *run = learner->run;
    own *o = learner->own;
    double before = o->last.inertia;
    int64_t begin = sh_run_now(run);
    SH_TRY(sh_kmeans_iterate(o->kmeans, &o->last));
    run->stats.spent.compute_ns += sh_run_now(run) - begin;
    size_t k = (size_t)o->options->k;
    memcpy(run->model.blocks.weights, sh_kmeans_centres(o->kmeans),
           k * o->rows.width * sizeof(float));
    memcpy(o->met, sh_kmeans_rows_met(o->kmeans), k * sizeof *o->met);
    bool done = is_done(o, before);
    return sh_learner_stepped(run, &o->team, done, o->last.inertia, step_out);
}

static size_t kmeans_metrics(const sh_learner *learner, const sh_loss_result *since,
                             sh_metric *fields) {
    const own *o = learner->own;
    size_t count = 0;
    (void)since;
    double rows = (double)o->rows.total;
    // Mean inertia of a row.
    fields[count++] = (sh_metric){"train_loss", SH_METRIC_REAL, .r = o->last.inertia / rows};
    fields[count++] = (sh_metric){"inertia", SH_METRIC_REAL, .r = o->last.inertia};
    fields[count++] = (sh_metric){"changed", SH_METRIC_INT, .i = o->last.changed};
    fields[count++] = (sh_metric){"compared", SH_METRIC_INT, .i = o->last.compared};
    fields[count++] = (sh_metric){"refilled", SH_METRIC_INT, .i = o->last.refilled};
    fields[count++] = (sh_metric){"shift", SH_METRIC_REAL, .r = o->last.shift};
    return count;
}

/* Rows met by centres are the learning rates of mini-batches: a resumed run needs them. Lloyd's
 * iteration goes on from centres alone. */
static sh_checkpoint kmeans_blocks(const sh_learner *learner, sh_checkpoint_slot *slots) {
    const own *o = learner->own;
    sh_checkpoint checkpoint = sh_learner_net_blocks(learner);
    slots[0] = (sh_checkpoint_slot){.name = "met", .values = o->met, .params = &o->met_params};
    checkpoint.slots = slots;
    checkpoint.slot_count = takes_batches(o) ? 1 : 0;
    return checkpoint;
}

/* For the planner: one forward pass of the net per row, and one sum of 8-byte integers. */
static sh_learner_cost kmeans_cost(const sh_learner *learner) {
    sh_learner_cost cost = sh_learner_net_cost(learner);
    const own *o = learner->own;
    cost.flops = cost.forward_flops;
    // The sum of an iteration: k (width + 1) integers of 8 bytes, and two counters.
    cost.exchanged_bytes = 2 * cost.parameter_bytes + 8 * (double)o->options->k + 16;
    return cost;
}

const sh_learner_kind sh_learner_kmeans = {
    .name = "kmeans",
    .help = "k-means by Lloyd's iteration, with the same bits at any worker count",
    .open = kmeans_open,
    .close = kmeans_close,
    .steps = kmeans_steps,
    .begin = kmeans_begin,
    .step = kmeans_step,
    .evaluate = sh_learner_evaluate,
    .save = sh_learner_save,
    .blocks = kmeans_blocks,
    .metrics = kmeans_metrics,
    .cost = kmeans_cost,
    .finish = sh_learner_finish,
};
