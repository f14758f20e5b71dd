#include "run/team.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "run/layout.h"
#include "run/run.h"

enum { TEXT_MOST = 1 << 26 };   // bytes of a text that rank 0 sends around
enum { FOLDER_MOST = 4096 };    // PATH_MAX
enum { FUSE_LEAST = 8 << 20 };  // bytes of parameters, measured (docs/data-parallel.md)

sh_status sh_team_form(sh_team *team) {
    sh_engine *engine = team->engine;
    const int ranks = engine != NULL ? sh_engine_ranks(engine) : 1;
    const bool given = team->env.mesh.size[SH_AXIS_DATA] > 0;
    const sh_mesh_shape shape = given ? team->env.mesh : sh_mesh_of_data(ranks);
    SH_TRY(sh_mesh_init(&shape, engine, &team->mesh));
    const sh_dimension *data = &team->mesh.along[SH_AXIS_DATA];
    team->group = data->group;
    team->rank = data->at;
    team->ranks = data->size;
    return SH_OK;
}

/* One part for each worker of the group; zeros stand for the whole batch. */
sh_batch_share sh_team_share(const sh_team *team) {
    if (team->group == NULL) return (sh_batch_share){0};
    uint32_t rank = (uint32_t)team->rank;
    return (sh_batch_share){.low = rank, .high = rank + 1, .of = (uint32_t)team->ranks};
}

/* A step that this rank has finished does not tell: outside of bulk-synchronous training it may be
 * ahead of rank 0. */
static bool is_written(sh_team *team) {
    if (team->writes && sh_group_test(team->group, &team->written)) team->writes = false;
    return !team->writes;
}

/* Ends the barrier that is under way. Its call lies in the team and must not be reused before. */
static sh_status await_written(sh_team *team) {
    if (is_written(team)) return SH_OK;
    team->writes = false;
    return sh_group_wait(team->group, &team->written);
}

/* Rank 0 knows when it writes; the barrier, which waits for all, tells the others. */
static void set_wait_limits(sh_team *team, sh_phase phase, int64_t now_ns) {
    team->wait_limits->writes = !is_written(team) && !sh_team_leads(team);
    double limit_s = sh_wait_limits_turn(team->wait_limits, phase, now_ns);
    if (limit_s > 0) sh_engine_set_timeout(sh_group_engine(team->group), (int64_t)(limit_s * 1e9));
}

void sh_team_phase(sh_team *team, sh_phase phase, int64_t step) {
    if (team->board == NULL) return;
    atomic_store_explicit(&team->board->step, step, memory_order_relaxed);
    int64_t now_ns = sh_clock_now_ns(team->env.clock);
    sh_board_phase(team->board, phase, now_ns);
    if (team->wait_limits != NULL) set_wait_limits(team, phase, now_ns);
}

/* A parent that watches takes the most patient phase on the board: only rank 0's is this one. */
void sh_team_writing(sh_team *team, int64_t step) {
    if (sh_team_leads(team) || team->wait_limits != NULL)
        sh_team_phase(team, SH_PHASE_CHECKPOINT, step);
}

void sh_team_saved(const sh_team *team, int64_t step) {
    if (team->board != NULL) atomic_store_explicit(&team->board->saved, step, memory_order_relaxed);
}

sh_status sh_team_wrote(sh_team *team, int64_t step) {
    if (sh_team_leads(team)) sh_team_phase(team, SH_PHASE_STEP, step);
    if (team->group == NULL) return SH_OK;
    if (team->wait_limits == NULL) return sh_group_barrier(team->group);
    SH_TRY(await_written(team));
    team->written = (sh_call){.what = SH_BARRIER, .step = step, .bucket = -1};
    team->writes = true;
    return sh_group_start(team->group, &team->written);
}

void sh_team_beat(const sh_team *team) {
    if (team->board != NULL)  // relaxed: only its age matters
        atomic_store_explicit(&team->board->beat_ns, sh_clock_now_ns(team->env.clock),
                              memory_order_relaxed);
}

/* sh_block_source.take, collective: gradients lie where the workers of a node map them. */
static sh_status take_shared(void *self, size_t bytes, void **memory_out) {
    sh_team *team = self;
    SH_TRY(sh_group_share(team->group, bytes, &team->blocks.gradients));
    *memory_out = sh_group_memory(team->group, &team->blocks.gradients);
    return SH_OK;
}

/* The memory that holds the parameters; NULL: they are private. */
static const sh_shared *mapped_weights(const sh_team *team) {
    return sh_group_mapped(&team->blocks.weights);
}

/* Whether the workers themselves sum the gradients of every step: no other scheme acts and all
 * have the same parameters. */
static bool sums_steps(const shoal_run *run, int workers) {
    sh_scheme scheme;
    if (sh_config_pipes(&run->config)) return false;  // stages have parameters of their own
    return sh_scheme_parse(run->config.scheme.name, &scheme) == SH_OK &&
           !sh_scheme_acts(scheme, &run->config.scheme, workers);
}

/* Where peers sum gradients they map them; a scheme sends what it wants them to have. */
void sh_team_attach(shoal_run *run) {
    if (run->model.layout != NULL) return;  // parts differ in size
    if (run->team.group == NULL || !sums_steps(run, run->team.ranks)) return;
    run->model.gradient_source = (sh_block_source){.take = take_shared, .self = &run->team};
}

/* Collective over the group. `shared`: `data` lies in memory that peers may map, so that they
 * can read it there. */
static sh_status broadcast(sh_team *team, void *data, size_t bytes, const sh_shared *shared) {
    if (team->group == NULL) return SH_OK;
    sh_call call = {.what = SH_BROADCAST,
                    .data = data,
                    .count = bytes,
                    .dtype = SH_DTYPE_BYTE,
                    .shared = shared,
                    .bucket = -1};
    return bytes > 0 ? sh_group_run(team->group, &call) : SH_OK;
}

sh_status sh_team_broadcast(sh_team *team, void *data, size_t bytes) {
    return broadcast(team, data, bytes, NULL);
}

/* The length goes first. It comes from outside and sizes an allocation, so it has a bound, and
 * the text must end where it says. */
sh_status sh_team_tell(sh_team *team, const char *text, char **text_out) {
    uint64_t bytes = sh_team_leads(team) ? strlen(text) + 1 : 0;
    SH_TRY(sh_team_broadcast(team, &bytes, sizeof bytes));
    if (bytes == 0 || bytes > TEXT_MOST)
        return SH_FAIL(SH_E_PEER, "rank 0 sends a text of %llu bytes", (unsigned long long)bytes);
    char *copy = sh_alloc(bytes, 1);
    if (copy == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a text of rank 0");
    if (sh_team_leads(team)) memcpy(copy, text, bytes);
    sh_status status = sh_team_broadcast(team, copy, bytes);
    if (status == SH_OK && copy[bytes - 1] != '\0')
        status = SH_FAIL(SH_E_PEER, "a text of rank 0 has no end");
    if (status != SH_OK) {
        sh_free(copy);
        return status;
    }
    *text_out = copy;
    return SH_OK;
}

/* Collective over the group, on every rank with the same count; a worker alone has nothing to
 * do. */
static sh_status reduce(sh_team *team, double *values, size_t count, sh_reduce_op op) {
    if (team->group == NULL) return SH_OK;
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = values,
                    .count = count,
                    .dtype = SH_DTYPE_F64,
                    .op = op,
                    .bucket = -1};
    return sh_group_run(team->group, &call);
}

sh_status sh_team_sum(sh_team *team, double *values, size_t count) {
    return reduce(team, values, count, SH_SUM);
}

sh_status sh_team_max(sh_team *team, double *values, size_t count) {
    return reduce(team, values, count, SH_MAX);
}

/* As long as nobody holds the model, this is the start of the run. */
static sh_status agree(sh_team *team, double *values, size_t count, sh_reduce_op op) {
    const sh_worker_env *env = &team->env;
    SH_TRY(reduce(team, values, count, op));
    bool starts = sh_team_leads(team) && !team->holds;
    if (starts && env->regroup != NULL && env->regroup->note != NULL)
        env->regroup->note(env->self, values, count);
    return SH_OK;
}

static sh_status data_sum(void *self, double *values, size_t count) {
    return agree(self, values, count, SH_SUM);
}

static sh_status data_max(void *self, double *values, size_t count) {
    return agree(self, values, count, SH_MAX);
}

/* A worker that joins was not there when these sums were made: it gets what rank 0 noted, in
 * the same order. */
static sh_status data_recall(void *self, double *values, size_t count) {
    const sh_worker_env *env = &((const sh_team *)self)->env;
    return env->regroup->recall(env->self, values, count);
}

sh_data_team sh_team_for_data(sh_team *team) {
    if (team->rank < 0)
        return (sh_data_team){team->env.slot, team->env.slots, data_recall, data_recall, team};
    return (sh_data_team){team->rank, team->ranks, data_sum, data_max, team};
}

/* The position that a checkpoint gives rank 0. It travels as bytes, as all ranks run the same
 * program (sh_team_compare). */
typedef struct position {
    int64_t step, epoch, batch, samples;
    double best;
} position;

/* In the optimizer's state that all workers share, one block over the parts of all ranks. */
static bool is_common(const sh_team *team, const float *values) {
    const sh_shared *slots = &team->blocks.slots;
    if (slots->base == NULL) return false;
    const char *at = (const char *)values, *begin = slots->base[0];
    return at >= begin && at < begin + slots->stride * (size_t)team->ranks;
}

sh_status sh_team_broadcast_state(shoal_run *run) {
    sh_team *team = &run->team;
    if (team->group == NULL) return SH_OK;
    position at = {run->at.step, run->at.epoch, run->at.batch, run->at.samples, run->results.best};
    SH_TRY(sh_team_broadcast(team, &at, sizeof at));
    run->at.step = at.step;
    run->at.epoch = at.epoch;
    run->at.batch = at.batch;
    run->at.samples = at.samples;
    run->results.best = at.best;
    if (run->model.layout != NULL) {  // each has drawn its part; what rank 0 has read it deals out
        if (at.step > 0) SH_TRY(sh_run_layout_scatter(run, true));
        sh_run_layout_drop(run);
        return SH_OK;
    }
    sh_checkpoint_slot slots[SH_LEARNER_SLOTS];
    sh_checkpoint blocks = run->learner.kind->blocks(&run->learner, slots);
    SH_TRY(broadcast(team, blocks.weights, blocks.params->total * sizeof(float),
                     mapped_weights(team)));
    SH_TRY(sh_team_broadcast(team, blocks.state_values, blocks.state->total * sizeof(float)));
    // Before the first step this state is zero on all ranks.
    for (size_t i = 0; at.step > 0 && i < blocks.slot_count; i++) {
        size_t bytes = sh_checkpoint_slot_params(&blocks, i)->total * sizeof(float);
        if (is_common(team, slots[i].values)) continue;  // rank 0 has loaded it for all
        SH_TRY(sh_team_broadcast(team, slots[i].values, bytes));
    }
    return SH_OK;
}

/* In virtual time the length of a name must not show, so it travels with the room behind it. */
sh_status sh_team_broadcast_folder(shoal_run *run) {
    sh_team *team = &run->team;
    char text[FOLDER_MOST] = "";
    if (team->group == NULL) return SH_OK;
    if (sh_team_leads(team)) snprintf(text, sizeof text, "%s", run->files.folder);
    SH_TRY(sh_team_broadcast(team, text, sizeof text));
    text[sizeof text - 1] = '\0';
    char *folder = sh_strdup(text);
    if (folder == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for names");
    sh_free(run->files.folder);
    run->files.folder = folder;
    return SH_OK;
}

/* Whatever was chosen by measurement is the same everywhere, so that a run can be repeated. */
sh_status sh_team_broadcast_kernels(shoal_run *run) {
    sh_team *team = &run->team;
    char *mine = sh_team_leads(team) ? sh_tuner_print(run->model.tuner, false) : NULL, *first;
    if (sh_team_leads(team) && mine == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for kernel choices");
    sh_status status = sh_team_tell(team, mine, &first);
    sh_free(mine);
    SH_TRY(status);
    if (!sh_team_leads(team))
        status = sh_tuner_load(run->model.tuner, "rank 0", first, strlen(first), false);
    sh_free(first);
    return status;
}

sh_status sh_team_codec(const shoal_run *run, sh_codec *codec_out) {
    SH_TRY(sh_codec_make(&run->config.codec, codec_out));
    if (codec_out->kind == NULL) return SH_OK;
    if (codec_out->kind->owns_momentum) {
        codec_out->options.momentum = run->codec_momentum.momentum;
        codec_out->options.nesterov = run->codec_momentum.nesterov;
        codec_out->options.warmup_steps =
            run->config.codec.warmup >= 1
                ? (int64_t)run->config.codec.warmup
                : (int64_t)(run->config.codec.warmup * (double)run->length.steps);
    }
    return sh_codec_check(codec_out);
}

/* Peers read and write the parameters where they lie. */
static sh_status map_weights(shoal_run *run) {
    sh_team *team = &run->team;
    if (!sh_group_maps(team->group)) return SH_OK;
    SH_TRY(sh_group_share(team->group, run->model.net->params.total * sizeof(float),
                          &team->blocks.weights));
    sh_model_move_weights(&run->model, sh_group_memory(team->group, &team->blocks.weights));
    return SH_OK;
}

static bool clips(const sh_config *config) {
    return config->clip_norm > 0 || config->clip_value > 0;
}

bool sh_team_may_fuse_update(const shoal_run *run, int workers) {
    sh_codec codec;
    return sh_codec_make(&run->config.codec, &codec) == SH_OK && codec.kind == NULL &&
           !run->config.exact && sums_steps(run, workers) && !run->optim.kind->adaptive &&
           !clips(&run->config) && !run->drops_paths &&
           run->optim.total * sizeof(float) >= FUSE_LEAST;
}

/* One block over the parts of all ranks: one optimizer state that all of them work on. */
static sh_status share_slots(shoal_run *run) {
    sh_team *team = &run->team;
    size_t bytes = sh_optim_floats(&run->optim) * sizeof(float), ranks = (size_t)team->ranks;
    if (bytes == 0) return SH_OK;
    SH_TRY(sh_group_share(team->group, (bytes + ranks - 1) / ranks, &team->blocks.slots));
    SH_ASSERT(team->blocks.slots.stride * ranks >= bytes);  // where sh_engine_maps
    sh_optim_place(&run->optim, (float *)(void *)team->blocks.slots.base[0]);
    return SH_OK;
}

/* How workers that step together do it, for one generation of the team: mapped memory is that of
 * its group. */
static sh_step_options step_options(const shoal_run *run) {
    const sh_config *config = &run->config;
    const sh_team *team = &run->team;
    double mib = config->bucket_mb > 0 ? config->bucket_mb : SH_BUCKET_MIB;
    return (sh_step_options){.bucket_bytes = (size_t)(mib * 0x1p20),
                             .clip_norm = config->clip_norm,
                             .clip_value = config->clip_value,
                             .drops_paths = run->drops_paths,
                             .common_statistics = config->sync_batchnorm && team->group != NULL,
                             .gradients = sh_group_mapped(&team->blocks.gradients),
                             .weights = mapped_weights(team)};
}

sh_status sh_team_place_blocks(shoal_run *run) {
    sh_team *team = &run->team;
    bool sums = team->group != NULL && run->model.layout == NULL && sums_steps(run, team->ranks);
    if (sums && !team->env.timing_only) SH_TRY(map_weights(run));
    bool takes = team->group != NULL && !run->config.exact && !team->env.timing_only;
    if (takes) SH_TRY(sh_model_take_gradients(&run->model));
    team->steps = step_options(run);
    if (!sums || !takes) return SH_OK;
    // One thread does it; several update faster when all sums are there.
    team->steps.fuses_update = mapped_weights(team) != NULL && sh_run_threads(run) == 1 &&
                               sh_team_may_fuse_update(run, team->ranks);
    team->steps.shards = run->config.shard_optimizer && !team->steps.fuses_update;
    return team->steps.fuses_update ? share_slots(run) : SH_OK;
}

/* Whether all ranks but rank 0 have the same parameters: then rank 0 is the one that drifted. */
static sh_status others_agree(sh_team *team, const char *hash, bool *agree_out) {
    double number = 0, ends[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < 8; i++) number = number * 64 + (hash[i] & 63);  // 48 bits: exact
    if (!sh_team_leads(team)) {
        ends[0] = number;
        ends[1] = -number;
    }
    SH_TRY(reduce(team, ends, 2, SH_MAX));
    *agree_out = team->ranks > 2 && ends[0] == -ends[1];
    return SH_OK;
}

sh_status sh_team_check_replicas(shoal_run *run) {
    sh_team *team = &run->team;
    int64_t every = run->config.check_every;
    if (team->group == NULL || run->model.layout != NULL || every == 0 || run->at.step % every != 0)
        return SH_OK;
    // Hashes travel and not parameters. Every branch below hangs on sums that are common, so all
    // ranks fail together.
    char hash[SH_BLAKE2_HEX], first[SH_BLAKE2_HEX];
    sh_blake2_hex(run->model.blocks.weights, run->model.net->params.total * sizeof(float), hash);
    memcpy(first, hash, sizeof first);
    SH_TRY(sh_team_broadcast(team, first, sizeof first));
    double drifted = memcmp(first, hash, sizeof first) != 0 ? team->rank : 0;
    double others = drifted > 0 ? 1 : 0, sums[2] = {others, drifted};
    SH_TRY(sh_team_sum(team, sums, 2));
    if (sums[0] == 0) return SH_OK;
    bool agree = false;
    if (sums[0] == team->ranks - 1) SH_TRY(others_agree(team, hash, &agree));
    if (sums[0] == 1 || agree)
        SH_FAIL(SH_E_NUMERIC, "step %ld: the parameters of rank %.0f differ from the others'",
                (long)run->at.step, agree ? 0.0 : sums[1]);
    else
        SH_FAIL(SH_E_NUMERIC, "step %ld: the parameters of %.0f of %d ranks differ from rank 0's",
                (long)run->at.step, sums[0], team->ranks);
    return sh_error_hint(
        "go on from the last checkpoint with --resume; if it happens again, "
        "suspect that machine's memory");
}

/* Before the engine is destroyed: its groups take the shared blocks back, and the barrier that may
 * still be under way is one of its calls. */
void sh_team_fini(sh_team *team) {
    (void)await_written(team);  // the comm task looks at it until then
    sh_free(team->balance.cuts);
    sh_free(team->balance.speeds);
    sh_free(team->spare);
    sh_free(team->costs);
    if (team->blocks.gradients.base != NULL) sh_group_unshare(team->group, &team->blocks.gradients);
    if (team->blocks.weights.base != NULL) sh_group_unshare(team->group, &team->blocks.weights);
    if (team->blocks.slots.base != NULL) sh_group_unshare(team->group, &team->blocks.slots);
    team->balance.cuts = NULL;
    team->balance.speeds = NULL;
    team->spare = NULL;
    team->costs = NULL;
    sh_mesh_fini(&team->mesh);
}
