#include "train/scheme.h"

#include <omp.h>
#include <sched.h>

#include "base/task.h"
#include "tensor/kernels/vector.h"
#include "train/exact.h"
#include "train/regroup.h"
#include "train/server.h"
#include "train/sparse.h"
#include "train/vault.h"

enum { CONTROL_STEPS = 16 };  // between two agreements of a lockstep scheme on whether to stop

typedef struct service_task {
    sh_service service;
    sh_task *task;
    const cpu_set_t *cores;  // that it may use; NULL: as it is
    bool real;               // not simulated: a thread of its own
} service_task;

struct sh_scheme_run {
    sh_sync sync;
    sh_codec codec;
    sh_replica replica;
    service_task *services;
    int service_count;
    float *lent;      // the gradients, where services read them themselves; NULL: elsewhere
    int64_t to;       // the step of the next meeting
    double stop[2];   // a lockstep scheme's agreement under way: wishes to stop, of all workers
    sh_call control;  // that sums it
    bool asks;        // it is under way
    bool created;
    atomic_bool quits;              // the services are not needed any more
    int64_t samples;                // that this worker has learnt from since the last meeting,
    int64_t samples_met, here_met;  // and those of all as they were counted there
};

static sh_sync_terms terms_of(const shoal_run *run, const sh_codec *codec) {
    const sh_config *config = &run->config;
    return (sh_sync_terms){
        .workers = run->team.ranks,
        .optim = run->optim.kind,
        .codec = codec,
        .exact = config->exact,
        .shard_optimizer = config->shard_optimizer,
        .balance = config->balance,
        .clips = config->clip_norm > 0 || config->clip_value > 0,
        .parts = run->data.train->parts.ranks > 0,
        .drops_paths = run->drops_paths,
        .sync_batchnorm = config->sync_batchnorm,
        .simulated = run->team.seat.spend != NULL,
    };
}

sh_status sh_scheme_check_run(const shoal_run *run) {
    sh_scheme scheme;
    sh_codec codec;
    SH_TRY(sh_scheme_parse(run->config.scheme.name, &scheme));
    SH_TRY(sh_codec_parse(run->config.compress, &codec));
    sh_sync_terms terms = terms_of(run, &codec);
    return sh_scheme_check(scheme, &run->config.scheme, &terms);
}

/* ---- the replica ---- */

/* Where a worker takes steps of its own, its own gradient is clipped. */
static void clip(shoal_run *run) {
    float *gradients = run->model.blocks.gradients;
    size_t total = run->model.net->params.total;
    if (run->config.clip_value > 0) sh_clip_value(gradients, total, (float)run->config.clip_value);
    if (!(run->config.clip_norm > 0)) return;
    double factor = sh_clip_norm(gradients, total, run->config.clip_norm, &run->grad_norm);
    if (factor < 1) sh_vector()->scale(gradients, (float)factor, total);
}

static sh_status gradient(shoal_run *run, const sh_batch *batch, sh_mean mean,
                          sh_loss_result *result_out) {
    const sh_sample_sizes s = sh_sample_sizes_of(&run->data.train->info);
    double rows = (double)((int64_t)batch->whole * s.rows);
    if (mean == SH_MEAN_OWN) rows /= run->team.ranks;
    SH_TRY(sh_run_gradient(run, batch, rows, result_out));
    if (mean == SH_MEAN_OWN) clip(run);
    return SH_OK;
}

/* A simulated worker breaks off while its time passes. */
bool sh_scheme_may_break_off(const shoal_run *run) {
    return run->scheme != NULL && run->scheme->replica.unwanted != NULL &&
           run->team.seat.spend == NULL;
}

bool sh_scheme_unwanted(void *self) {
    const sh_replica *replica = &((const shoal_run *)self)->scheme->replica;
    return replica->unwanted(replica->who);
}

/* In the simulator the time of a step passes when its numbers are there. */
static void pass_time(shoal_run *run) {
    const sh_seat *seat = &run->team.seat;
    const sh_replica *replica = &run->scheme->replica;
    if (replica->unwanted != NULL)
        seat->spend_unless(seat->self, replica->step, replica->mail.transport, replica->unwanted,
                           replica->who);
    else
        seat->spend(seat->self, replica->step, 1);
}

sh_status sh_scheme_combine(shoal_run *run, sh_reduce_op op, int64_t *values, size_t count,
                            bool *over_out) {
    const sh_replica *replica = &run->scheme->replica;
    return replica->combine(replica->who, op, values, count, over_out);
}

/* What a worker waits for in it is no computing. */
static sh_status exact_gradient(shoal_run *run, const sh_batch *batch, sh_loss_result *result_out) {
    sh_replica *replica = &run->scheme->replica;
    int64_t waited = replica->waited_ns;
    sh_status status = sh_exact_gradient(run, batch, result_out, &replica->broke_off);
    run->spent.compute_ns -= replica->waited_ns - waited;
    return status;
}

static sh_status compute_next(shoal_run *run, sh_mean mean, sh_loss_result *result_out,
                              int64_t *samples_out) {
    const sh_batch *batch;
    int64_t begin = sh_run_now(run);
    SH_TRY(sh_loader_next(run->loader, &batch));
    SH_ASSERT(batch != NULL);
    int64_t loaded = sh_run_now(run);
    bool exact = run->config.exact;
    if (exact && run->team.seat.spend != NULL) pass_time(run);  // before the workers wait
    sh_status status =
        exact ? exact_gradient(run, batch, result_out) : gradient(run, batch, mean, result_out);
    *samples_out = (int64_t)batch->count;
    sh_loader_release(run->loader, batch);
    if (!exact && run->team.seat.spend != NULL) pass_time(run);
    run->spent.data_ns += loaded - begin;
    run->spent.compute_ns += sh_run_now(run) - loaded;
    return status;
}

/* Steps and samples of all workers, as far as this one knows: until they meet, a step counts as a
 * whole batch. */
static void move_on(shoal_run *run) {
    int64_t step = run->scheme->replica.done / run->team.ranks;
    if (step >= run->scheme->to) step = run->scheme->to;
    int64_t samples = (step - run->step) * run->config.batch;
    run->step = step;
    run->samples += samples;
    run->samples_here += samples;
}

static sh_status compute(void *self, sh_mean mean, sh_loss_result *result_out) {
    shoal_run *run = self;
    sh_replica *replica = &run->scheme->replica;
    int64_t begin = sh_run_now(run), samples = 0;
    replica->broke_off = false;
    move_on(run);  // draws depend on the step
    if (run->team.seat.timing_only) {
        *result_out = (sh_loss_result){0};
        pass_time(run);
        run->spent.compute_ns += sh_run_now(run) - begin;
    } else {
        SH_TRY(compute_next(run, mean, result_out, &samples));
    }
    if (replica->unwanted != NULL) replica->broke_off = sh_scheme_unwanted(run);
    if (replica->broke_off)
        *result_out = (sh_loss_result){0};
    else
        run->scheme->samples += samples;
    return SH_OK;
}

static sh_status next_sparse(void *self, sh_sparse_batch *batch_out) {
    shoal_run *run = self;
    SH_TRY(sh_run_next_sparse(run, batch_out));
    run->scheme->samples += (int64_t)batch_out->count;
    return SH_OK;
}

static void place(void *self, float *memory) {
    shoal_run *run = self;
    sh_model_place_weights(&run->model, memory);
    run->scheme->replica.weights = run->model.blocks.weights;
}

static bool user_stops(const shoal_run *run) {
    return run->hooks.stop != NULL && run->hooks.stop(run->hooks.user);
}

/* The workers are to meet at once: the user wants to stop, or somebody waits to join. */
static bool stops(void *self) {
    const shoal_run *run = self;
    return user_stops(run) || sh_regroup_wished(run);
}

static sh_replica replica_of(shoal_run *run) {
    sh_team *team = &run->team;
    return (sh_replica){
        .rank = team->rank,
        .ranks = team->ranks,
        .engine = team->engine,
        .mail = {.workers = team->ranks, .apart = sh_sync_apart(&run->config.scheme)},
        .clock = run->clock,
        .params = &run->model.net->params,
        .weights = run->model.blocks.weights,
        .gradients = run->model.blocks.gradients,
        .fixed = run->config.exact ? sh_exact_fixed(run) : NULL,
        .states = run->model.blocks.states,
        .state_count = run->model.net->states.total,
        .spare = team->spare,
        .optim = &run->optim,
        .schedule = &run->schedule,
        .codec = &run->scheme->codec,
        .seed = (uint64_t)run->config.seed,
        .overlap = run->config.overlap,
        .step = run->step,
        .done = run->step * team->ranks,
        .total = run->steps * team->ranks,
        .compute = compute,
        .sparse = sh_run_sparse_layer(run),
        .next_sparse = next_sparse,
        .place = place,
        .stops = stops,
        .self = run,
    };
}

void sh_scheme_poll(void *self, size_t param) {
    (void)param;
    const shoal_run *run = self;
    sh_transport *mail = run->scheme->replica.mail.transport;
    if (mail != NULL) sh_transport_progress(mail);
}

/* ---- services ---- */

static sh_status serve(void *argument) {
    service_task *task = argument;
    // The worker's threads compute; a service has the one it runs on. A worker that waits for it
    // leaves a core idle, and the system finds which.
    if (task->real) omp_set_num_threads(1);
    if (task->cores != NULL) sched_setaffinity(0, sizeof *task->cores, task->cores);
    return task->service.scheme.kind->serve(&task->service);
}

static sh_service service_of(shoal_run *run, int index, int count) {
    struct sh_scheme_run *s = run->scheme;
    return (sh_service){
        .index = index,
        .count = count,
        .workers = run->team.ranks,
        .mail = {.workers = run->team.ranks},
        .scheme = s->sync.scheme,
        .options = s->sync.options,
        .params = s->replica.params,
        .weights = s->replica.weights,
        .optim = &run->optim,
        .schedule = &run->schedule,
        .codec = &s->codec,
        .seed = s->replica.seed,
        .step = run->step,
        .combined_most = sh_exact_combined_most(&run->config, run->model.net),
        .worker = &s->sync,
        .stops = stops,
        .user = run,
        .quits = &s->quits,
        .snapshot = sh_vault_snapshot(&run->team.vault, index),
    };
}

static sh_status start_service(shoal_run *run, service_task *task, int index, int count) {
    const sh_seat *seat = &run->team.seat;
    task->service = service_of(run, index, count);
    task->real = seat->spend == NULL;
    task->cores = seat->cores;
    SH_TRY(seat->open_mail(seat->self, run->team.ranks + index, &task->service.mail.transport));
    return sh_task_spawn("service", serve, task, &task->task);
}

/* Those with ranks of their own wait for worker 0's word; it keeps their places in the list. */
static sh_status brief_servers(shoal_run *run, int count) {
    struct sh_scheme_run *s = run->scheme;
    if (run->team.rank != 0) return SH_OK;
    for (int index = 0; index < count; index++) s->services[index].service.index = index;
    s->service_count = count;
    return sh_servers_brief(run, &s->replica.mail, count);
}

/* Service s sits on worker s mod P. */
static sh_status start_services(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    int ranks = run->team.ranks;
    int count = sh_scheme_services(s->sync.scheme, s->sync.options, ranks);
    s->services = sh_alloc((size_t)count + 1, sizeof *s->services);
    if (s->services == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %d services", count);
    if (s->replica.mail.apart) return brief_servers(run, count);
    for (int index = run->team.rank; index < count; index += ranks)
        SH_TRY(start_service(run, &s->services[s->service_count++], index, count));
    return SH_OK;
}

/* ---- the run's calls ---- */

static sh_status open_mail(shoal_run *run) {
    const sh_seat *seat = &run->team.seat;
    if (!run->scheme->sync.scheme.kind->mails) return SH_OK;
    SH_ASSERT(seat->open_mail != NULL);
    return seat->open_mail(seat->self, run->team.rank, &run->scheme->replica.mail.transport);
}

/* Gradients are what is sent most; an exact run sends integers. */
static void lend_gradients(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    bool mails = s->replica.mail.transport != NULL && !run->config.exact;
    if (!mails || s->replica.gradients == NULL) return;
    s->lent = sh_lend(s->replica.mail.transport, run->model.net->params.total * sizeof(float));
    if (s->lent == NULL) return;
    sh_model_place_gradients(&run->model, s->lent);
    s->replica.gradients = s->lent;
}

static void unlend_gradients(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    if (s->lent == NULL) return;
    sh_model_place_gradients(&run->model, NULL);
    sh_unlend(s->replica.mail.transport, s->lent);
}

sh_status sh_scheme_begin(shoal_run *run) {
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(run->config.scheme.name, &scheme));
    if (scheme.kind->step == NULL || run->team.engine == NULL) return SH_OK;
    run->scheme = sh_alloc(1, sizeof *run->scheme);
    if (run->scheme == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a scheme");
    struct sh_scheme_run *s = run->scheme;
    SH_TRY(sh_team_codec(run, &s->codec));
    s->replica = replica_of(run);
    s->samples_met = run->samples;
    s->here_met = run->samples_here;
    for (size_t i = 0; i < run->kept.count; i++) s->replica.kept[i] = run->kept.slots[i].values;
    s->sync = (sh_sync){.scheme = scheme, .options = &run->config.scheme, .replica = &s->replica};
    SH_TRY(open_mail(run));
    int services = sh_scheme_services(scheme, &run->config.scheme, run->team.ranks);
    sh_service like = service_of(run, 0, services);
    SH_TRY(sh_vault_open(run, &like));
    lend_gradients(run);
    SH_TRY(start_services(run));
    s->created = true;
    sh_status status = scheme.kind->create(&s->sync);
    s->sync.failed = status != SH_OK;
    return status;
}

void sh_scheme_aim(shoal_run *run, int64_t to) {
    run->scheme->to = to;
    run->scheme->replica.goal = to * run->team.ranks;
}

static sh_status wait_for_control(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    // A peer that still waits for mail would not come.
    if (s->sync.scheme.kind->settle != NULL) SH_TRY(s->sync.scheme.kind->settle(&s->sync));
    return sh_engine_wait(run->team.engine, &s->control);
}

/* Free workers learn from a service that they are to stop; in lockstep they agree now and then,
 * without waiting: the answer of one time is read the next time. */
static sh_status agree_to_stop(shoal_run *run, bool *stops_out) {
    struct sh_scheme_run *s = run->scheme;
    if (s->replica.step % CONTROL_STEPS != 0 && *stops_out == false) return SH_OK;
    if (s->asks) SH_TRY(wait_for_control(run));
    *stops_out = s->asks && s->stop[0] > 0;
    s->stop[0] = stops(run) ? 1 : 0;
    s->control = (sh_call){.what = SH_ALLREDUCE,
                           .data = s->stop,
                           .count = 1,
                           .dtype = SH_DTYPE_F64,
                           .op = SH_SUM,
                           .step = run->step,
                           .bucket = -1};
    s->asks = !*stops_out;
    return s->asks ? sh_engine_start(run->team.engine, &s->control) : SH_OK;
}

static sh_status lockstep(shoal_run *run, bool *meets_out) {
    struct sh_scheme_run *s = run->scheme;
    bool stops = false;
    s->replica.done += run->team.ranks;
    SH_TRY(agree_to_stop(run, &stops));
    *meets_out = stops || s->replica.done >= s->replica.goal;
    return SH_OK;
}

/* Where no parent watches over the workers, each watches its own waits. */
static void set_patience(shoal_run *run) {
    const sh_patience *patience = run->team.patience;
    if (patience != NULL) run->scheme->replica.mail.timeout_ns = (int64_t)(patience->limit_s * 1e9);
}

sh_status sh_scheme_step(shoal_run *run, sh_loss_result *result_out, bool *meets_out) {
    struct sh_scheme_run *s = run->scheme;
    SH_TRY(sh_regroup_check(run));
    set_patience(run);
    uint64_t sent = s->replica.sent_bytes, dense = s->replica.dense_bytes;
    int64_t waited = s->replica.waited_ns;
    int64_t begin = sh_run_now(run);
    sh_status status = s->sync.scheme.kind->step(&s->sync, result_out, meets_out);
    if (run->sparse != NULL)  // otherwise `compute` counts
        run->spent.compute_ns += sh_run_now(run) - begin - (s->replica.waited_ns - waited);
    if (status == SH_OK && (!s->sync.scheme.kind->free || !*meets_out)) s->replica.step++;
    if (status == SH_OK && !s->sync.scheme.kind->free) status = lockstep(run, meets_out);
    if (status == SH_OK) status = sh_regroup_check(run);
    run->sent_bytes += s->replica.sent_bytes - sent;
    run->dense_bytes += s->replica.dense_bytes - dense;
    run->spent.exposed_ns += s->replica.waited_ns - waited;
    s->sync.failed = s->sync.failed || status != SH_OK;
    move_on(run);
    return status;
}

void sh_run_move_to(shoal_run *run, int64_t step) {
    run->step = step;
    run->epoch = step / run->steps_per_epoch;
    run->batch = step % run->steps_per_epoch;
}

/* Samples as they were: batches may be short, broken off, or left to others. */
static sh_status count_samples(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    double samples = (double)s->samples;
    SH_TRY(sh_team_sum(&run->team, &samples, 1));
    s->samples = 0;
    run->samples = s->samples_met += (int64_t)samples;
    run->samples_here = s->here_met += (int64_t)samples;
    return SH_OK;
}

sh_status sh_scheme_meet(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    s->sync.failed = true;  // unless all of this goes well
    set_patience(run);
    if (s->asks) SH_TRY(wait_for_control(run));
    double most[] = {(double)s->replica.done, user_stops(run), sh_regroup_wished(run)};
    s->asks = false;
    uint64_t sent = s->replica.sent_bytes, dense = s->replica.dense_bytes;
    SH_TRY(s->sync.scheme.kind->meet(&s->sync));
    run->sent_bytes += s->replica.sent_bytes - sent;
    run->dense_bytes += s->replica.dense_bytes - dense;
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = most,
                    .count = SH_COUNT(most),
                    .dtype = SH_DTYPE_F64,
                    .op = SH_MAX,
                    .bucket = -1};
    SH_TRY(sh_engine_run(run->team.engine, &call));
    s->replica.done = (int64_t)most[0];
    run->team.stops = most[1] > 0;
    run->team.regroups = most[2] > 0;
    sh_run_move_to(run, s->replica.done / run->team.ranks);
    if (!run->team.seat.timing_only) SH_TRY(count_samples(run));
    s->sync.failed = false;
    return SH_OK;
}

static sh_status wait_for_services(struct sh_scheme_run *s) {
    sh_status status = SH_OK;
    for (int i = 0; s->replica.mail.apart && i < s->service_count; i++)
        SH_TRY(sh_server_hear(&s->replica.mail, &s->services[i].service));
    for (int i = 0; i < s->service_count; i++) {
        sh_status ended = s->services[i].task != NULL ? sh_task_wait(s->services[i].task) : SH_OK;
        s->services[i].task = NULL;
        if (status == SH_OK) status = ended;
    }
    return status;
}

sh_status sh_scheme_finish(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    if (s == NULL) return SH_OK;
    s->sync.scheme.kind->destroy(&s->sync);
    s->created = false;
    return wait_for_services(s);
}

/* ---- counts ---- */

static void add_staleness(sh_scheme_counts *counts, const sh_staleness *staleness) {
    counts->stale_updates += staleness->updates;
    counts->stale_sum += staleness->sum;
    if (staleness->most > counts->stale_most) counts->stale_most = staleness->most;
}

static void add_histogram(sh_scheme_counts *counts, const sh_service *service) {
    const sh_staleness *more = &service->staleness;
    for (size_t i = 0; i < SH_COUNT(more->count); i++) counts->histogram.count[i] += more->count[i];
    counts->histogram.updates += more->updates;
    counts->histogram.sum += more->sum;
    if (more->most > counts->histogram.most) counts->histogram.most = more->most;
    counts->dropped += service->dropped;
}

sh_scheme_counts sh_scheme_count(const shoal_run *run) {
    const struct sh_scheme_run *s = run->scheme;
    sh_scheme_counts counts = run->counts;
    if (s == NULL) {
        if (sh_team_leads(&run->team)) counts.alone += run->step - run->team.step;
        return counts;
    }
    counts.updates += s->replica.updates;
    int shards = sh_scheme_services(s->sync.scheme, s->sync.options, run->team.ranks);
    add_staleness(&counts, &s->replica.staleness);
    for (int i = 0; i < s->service_count; i++) {
        const sh_service *service = &s->services[i].service;
        // Every shard counts its own updates; the model is updated when all its shards are.
        counts.shard_updates += (double)service->updates / shards;
        add_staleness(&counts, &service->staleness);
        if (service->index == 0) add_histogram(&counts, service);
    }
    return counts;
}

/* After a failure nobody waits for services: the process ends, and they with it. */
void sh_scheme_end(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    if (s == NULL) return;
    s->sync.failed = true;  // otherwise it has finished
    if (s->created) s->sync.scheme.kind->destroy(&s->sync);
    bool waits = false;
    for (int i = 0; i < s->service_count; i++) waits = waits || s->services[i].task != NULL;
    if (waits) return;  // they still use what is here
    for (int i = 0; i < s->service_count; i++)
        sh_transport_close(s->services[i].service.mail.transport);
    unlend_gradients(run);
    sh_transport_close(s->replica.mail.transport);
    sh_free(s->services);
    sh_free(s);
    run->scheme = NULL;
}

/* The services end by themselves, since a peer has left or they are told to. */
void sh_scheme_leave(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    run->counts = sh_scheme_count(run);
    if (s == NULL) return;
    s->sync.failed = s->sync.failed || s->created;
    atomic_store_explicit(&s->quits, true, memory_order_relaxed);
    (void)wait_for_services(s);
    s->sync.silent = true;
    sh_scheme_end(run);
}
