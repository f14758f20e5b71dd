#include "run/exact.h"

#include <math.h>
#include <omp.h>

#include "tensor/kernels/fixed.h"
#include "run/exact_internal.h"
#include "run/parts.h"

_Static_assert(SH_FIXED_TERMS_MOST == 4096, "the option 'shards' knows the limit");

/* Kernels see one thread, in every lane: the caller's is one too. */
static void one_thread(void) { omp_set_num_threads(1); }

/* Consecutive shards, so that a worker's samples are consecutive in the batch. With more
 * workers than shards some have none. */
sh_batch_share sh_exact_share(int64_t shards, int rank, int ranks) {
    return (sh_batch_share){.low = (uint32_t)(shards * rank / ranks),
                            .high = (uint32_t)(shards * (rank + 1) / ranks),
                            .of = (uint32_t)shards};
}

static sh_status no_memory(void) { return SH_FAIL(SH_E_MEMORY, "out of memory for shards"); }

/* One lane per thread. The OpenMP team of the caller is one thread as long as the lanes live;
 * sh_exact_destroy restores it. */
static sh_status make_lanes(sh_exact *exact) {
    int threads = sh_run_threads(exact->run);
    one_thread();
    SH_TRY(sh_thread_pool_create("lane", threads, one_thread, &exact->pool));
    exact->lanes = sh_alloc((size_t)threads, sizeof *exact->lanes);
    if (exact->lanes == NULL) return no_memory();
    sh_tuner_options tuning = {.clock = &sh_clock_real, .threads = 1};
    return sh_tuner_create(&tuning, &exact->tuner);
}

/* The run's lanes, made on first use. */
static sh_status get(shoal_run *run, sh_exact **exact_out) {
    sh_exact *exact = run->exact;
    if (exact == NULL) {
        exact = sh_alloc(1, sizeof *exact);
        if (exact == NULL) return no_memory();
        sh_batch_share share = sh_exact_share(run->config.shards, run->team.rank, run->team.ranks);
        *exact = (sh_exact){.run = run,
                            .shards = (int)run->config.shards,
                            .first = (int)share.low,
                            .last = (int)share.high,
                            .sizes = sh_sample_sizes_of(&run->data.info)};
        sh_status status = make_lanes(exact);
        if (status != SH_OK) {
            sh_exact_destroy(exact);
            return status;
        }
        run->exact = exact;
    }
    *exact_out = exact;
    return SH_OK;
}

/* After a failed set-up, too. The team must still be there: shared memory is given back through
 * its group. */
void sh_exact_destroy(sh_exact *exact) {
    if (exact == NULL) return;
    for (int i = 0; exact->lanes != NULL && i < sh_thread_pool_size(exact->pool); i++)
        sh_lane_fini(&exact->lanes[i]);
    omp_set_num_threads(sh_run_threads(exact->run));
    sh_thread_pool_destroy(exact->pool);
    sh_tuner_destroy(exact->tuner);
    sh_cuts_fini(&exact->sums);
    sh_cuts_fini(&exact->updates);
    sh_arena_fini(&exact->blocks);
    if (exact->common != NULL) sh_group_unshare(exact->run->team.group, &exact->shared);
    sh_free(exact->lanes);
    sh_free(exact->own);
    sh_free(exact->gradients);
    sh_free(exact->states);
    sh_free(exact->weights);
    sh_free(exact->unused);
    sh_free(exact->notes);
    sh_free(exact);
}

/* A gradient block and a state block for each own shard, checked against the machine's memory
 * before they are mapped. */
static sh_status take_blocks(sh_exact *exact) {
    const sh_net *net = exact->run->model.net;
    size_t own = (size_t)(exact->last - exact->first);
    size_t gradient = sh_round_up(net->params.total * sizeof(float), SH_ALIGN);
    size_t state = sh_round_up(net->states.total * sizeof(float), SH_ALIGN);
    SH_TRY(sh_memory_check("the gradients of all shards", own * (gradient + state)));
    if (own > 0) SH_TRY(sh_arena_init(&exact->blocks, "shards", own * (gradient + state)));
    for (size_t i = 0; i < own; i++) {
        exact->own[i].gradients = sh_arena_take(&exact->blocks, gradient);
        exact->own[i].states = sh_arena_take(&exact->blocks, state);
    }
    return SH_OK;
}

static sh_status take_lists(sh_exact *exact) {
    size_t own = (size_t)(exact->last - exact->first) + 1;  // not 0: a worker may have no shard
    size_t params = exact->run->model.net->params.count, tensors = sh_exact_tensors(exact);
    exact->own = sh_alloc(own, sizeof *exact->own);
    exact->gradients = sh_alloc(own, sizeof *exact->gradients);
    exact->states = sh_alloc(own, sizeof *exact->states);
    exact->weights = sh_alloc(own, sizeof *exact->weights);
    exact->unused = sh_alloc(params, sizeof *exact->unused);
    exact->notes = sh_alloc(sh_exact_notes(exact), sizeof *exact->notes);
    bool have = exact->own != NULL && exact->gradients != NULL && exact->states != NULL &&
                exact->weights != NULL && exact->unused != NULL && exact->notes != NULL;
    for (int i = 0; i < sh_thread_pool_size(exact->pool); i++) {
        sh_lane *lane = &exact->lanes[i];
        lane->exponents = sh_alloc(params, sizeof *lane->exponents);
        lane->used = sh_alloc(params, sizeof *lane->used);
        lane->notes = sh_alloc(tensors, sizeof *lane->notes);
        have = have && lane->exponents != NULL && lane->used != NULL && lane->notes != NULL;
    }
    return have ? SH_OK : no_memory();
}

/* Collective. */
static sh_status take_common(sh_exact *exact) {
    sh_team *team = &exact->run->team;
    if (team->group == NULL) return SH_OK;
    const sh_net *net = exact->run->model.net;
    size_t bytes = (net->params.total + net->states.total) * sizeof(int64_t);
    SH_TRY(sh_memory_check("the sum of all shards", bytes));
    SH_TRY(sh_group_share(team->group, bytes, &exact->shared));
    exact->common = sh_group_memory(team->group, &exact->shared);
    return SH_OK;
}

/* What only training needs. */
static sh_status take_training(sh_exact *exact) {
    if (exact->own != NULL) return SH_OK;
    shoal_run *run = exact->run;
    SH_TRY(sh_model_take_gradients(&run->model));
    SH_TRY(sh_cuts_init(&exact->sums, &run->model.net->params, false));
    SH_TRY(sh_cuts_init(&exact->updates, &run->model.net->params, run->optim.kind->adaptive));
    SH_TRY(take_lists(exact));
    SH_TRY(take_blocks(exact));
    SH_TRY(take_common(exact));
    exact->fixed = sh_exact_describe(exact);
    return SH_OK;
}

/* The executors of every size that the shards of a batch of `count` have. */
static sh_status make_shard_executors(sh_exact *exact, int64_t count) {
    for (int64_t s = exact->first; s < exact->last; s++) {
        int64_t here = count * (s + 1) / exact->shards - count * s / exact->shards;
        int64_t parts = sh_part_count(here, exact->run->config.accumulate);
        if (parts == 0) continue;
        SH_TRY(sh_exact_executor(exact, sh_part_begin(here, parts, 1), true));
        SH_TRY(sh_exact_executor(exact, here - sh_part_begin(here, parts, parts - 1), true));
    }
    return SH_OK;
}

/* Of evaluation: what a shard is computed in, unless it is set. */
static int64_t eval_batch(const sh_exact *exact) {
    const sh_config *config = &exact->run->config;
    if (config->eval_batch > 0) return config->eval_batch;
    return sh_part_most((config->batch + exact->shards - 1) / exact->shards, config->accumulate);
}

/* Batches [first, ...) of a dataset, and the executors they need. */
static sh_status open_eval(sh_exact *exact, const sh_dataset *dataset, size_t depth, int64_t first,
                           sh_loader **loader_out) {
    sh_loader_options options = {
        .batch = (size_t)eval_batch(exact), .epochs = 1, .index = first, .depth = depth};
    SH_TRY(sh_loader_create(dataset, &options, loader_out));
    size_t sizes[2], count = sh_loader_sizes(*loader_out, sizes);
    sh_status status = SH_OK;
    for (size_t i = 0; i < count && status == SH_OK; i++)
        status = sh_exact_executor(exact, (int64_t)sizes[i], false);
    if (status != SH_OK) sh_loader_destroy(*loader_out);
    return status;
}

/* A loader that is opened and closed again says which batch sizes the dataset has. */
static sh_status prepare_eval(sh_exact *exact, const sh_dataset *dataset) {
    if (dataset == NULL) return SH_OK;
    sh_loader *loader = NULL;
    SH_TRY(open_eval(exact, dataset, 0, 0, &loader));
    sh_loader_destroy(loader);
    return SH_OK;
}

/* On rank 0 alone. Threads without a shard are worth a warning, as more workers would then gain
 * nothing. */
static void announce(const sh_exact *exact) {
    const shoal_run *run = exact->run;
    if (!sh_team_leads(&run->team)) return;
    int threads = sh_thread_pool_size(exact->pool) * run->team.ranks;
    SH_INFO(&run->log, "exact: %d shards of %ld samples at most, each computed by one thread",
            exact->shards, (long)((run->config.batch + exact->shards - 1) / exact->shards));
    if (threads > exact->shards)
        SH_WARN(&run->log, "%d threads have only %d shards to compute: %d of them wait", threads,
                exact->shards, threads - exact->shards);
}

sh_status sh_exact_prepare(shoal_run *run, bool evaluates) {
    sh_exact *exact;
    SH_TRY(get(run, &exact));
    SH_TRY(take_training(exact));
    int64_t samples = (int64_t)sh_loader_samples(run->loader), batch = run->config.batch;
    if (samples >= batch) SH_TRY(make_shard_executors(exact, batch));
    // The short batch at the end of an epoch has shards of other sizes.
    if (samples % batch != 0 && !run->config.drop_last)
        SH_TRY(make_shard_executors(exact, samples % batch));
    if (evaluates) SH_TRY(prepare_eval(exact, run->data.test));
    if (evaluates) SH_TRY(prepare_eval(exact, run->data.validation));
    announce(exact);
    return SH_OK;
}

/* The loader has made this worker's part of the batch. */
static sh_exact_batch global_of(const sh_exact *exact, const sh_batch *batch) {
    int64_t whole = (int64_t)batch->whole, at = whole * exact->first / exact->shards;
    SH_ASSERT((int64_t)batch->count == whole * exact->last / exact->shards - at);
    return (sh_exact_batch){.x = batch->x,
                            .y = batch->y,
                            .at = at,
                            .count = whole,
                            .position = batch->position - (uint64_t)at};
}

/* Forward and backward of this worker's shards. */
static sh_status compute(shoal_run *run, const sh_batch *batch, sh_exact **exact_out,
                         sh_exact_batch *global_out) {
    SH_TRY(get(run, exact_out));
    SH_TRY(take_training(*exact_out));
    SH_TRY(make_shard_executors(*exact_out, (int64_t)batch->whole));
    *global_out = global_of(*exact_out, batch);
    sh_exact_compute(*exact_out, global_out);
    return SH_OK;
}

/* Collective, by the notes. The shards' gradients are not summed yet: that is the scheme's,
 * through sh_exact_fixed. */
sh_status sh_exact_gradient(shoal_run *run, const sh_replica *replica, const sh_batch *batch,
                            sh_loss_result *result_out, sh_exact_gradient_state *state_out) {
    sh_exact *exact;
    sh_exact_batch global;
    SH_TRY(compute(run, batch, &exact, &global));
    exact->hooks = &replica->hooks;
    SH_TRY(sh_exact_sum(exact, &global, result_out, &state_out->over));
    state_out->stops = exact->stops;
    return SH_OK;
}

const sh_fixed_gradient *sh_exact_fixed(const shoal_run *run) { return &run->exact->fixed; }

/* Loss sum, rows counted, rows correct of a batch. Each has one owner among the workers, and zeros
 * of the others change no bit of it. */
typedef struct batch_result {
    double sum, counted, correct;
} batch_result;

typedef struct evaluating {
    sh_exact *exact;
    sh_loader *loader;
    batch_result *results;  // per batch
} evaluating;

/* A lane takes whatever batch comes next; the batch knows its place. */
static void evaluate_piece(void *user, int member, size_t piece) {
    (void)piece;
    const evaluating *e = user;
    const sh_batch *batch = NULL;
    sh_status taken = sh_loader_next(e->loader, &batch);
    SH_ASSERT(taken == SH_OK);
    SH_ASSERT(batch != NULL);
    sh_loss_result result = sh_lane_evaluate(e->exact, member, batch);
    e->results[batch->index] =
        (batch_result){result.sum, (double)result.counted, (double)result.correct};
    sh_loader_release(e->loader, batch);
}

/* In the order of the batches: a floating-point sum has the bits of its order, and the order
 * must not depend on who evaluated what. */
static shoal_result add_up(const shoal_run *run, const batch_result *results, size_t count,
                           int64_t samples) {
    batch_result total = {0};
    for (size_t i = 0; i < count; i++) {
        total.sum += results[i].sum;
        total.counted += results[i].counted;
        total.correct += results[i].correct;
    }
    return sh_result_of(&run->model.loss, total.sum, total.counted, total.correct, samples);
}

/* The batches of the whole dataset, before they are dealt out to ranks. */
static sh_status count_batches(const sh_exact *exact, const sh_dataset *dataset,
                               size_t *batches_out, int64_t *samples_out) {
    sh_loader_options options = {.batch = (size_t)eval_batch(exact), .epochs = 1};
    sh_loader *loader = NULL;
    SH_TRY(sh_loader_create(dataset, &options, &loader));
    *batches_out = sh_loader_batches(loader);
    *samples_out = (int64_t)sh_loader_samples(loader);
    sh_loader_destroy(loader);
    return SH_OK;
}

sh_status sh_exact_evaluate(shoal_run *run, const sh_dataset *dataset, shoal_result *result_out) {
    evaluating e = {0};
    size_t batches;
    int64_t samples;
    SH_TRY(get(run, &e.exact));
    SH_TRY(count_batches(e.exact, dataset, &batches, &samples));
    // Each rank takes consecutive batches. What the others evaluate is 0 here, so the sum over the
    // ranks only collects.
    size_t ranks = (size_t)run->team.ranks, rank = (size_t)run->team.rank;
    size_t first = batches * rank / ranks, last = batches * (rank + 1) / ranks;
    size_t depth = (size_t)sh_thread_pool_size(e.exact->pool) + 1;
    SH_TRY(open_eval(e.exact, dataset, depth, (int64_t)first, &e.loader));
    e.results = sh_alloc(batches, sizeof *e.results);
    sh_status status = e.results != NULL ? SH_OK : no_memory();
    if (status == SH_OK) {
        sh_thread_pool_run(e.exact->pool, evaluate_piece, &e, last - first);
        status = sh_team_sum(&run->team, &e.results->sum, 3 * batches);
    }
    if (status == SH_OK) *result_out = add_up(run, e.results, batches, samples);
    sh_free(e.results);
    sh_loader_destroy(e.loader);
    return status;
}
