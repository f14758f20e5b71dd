#include "run/scheme_internal.h"

#include <stdio.h>
#include <string.h>

#include "run/regroup.h"
#include "run/server_snapshots.h"

enum { CONTROL_STEPS = 16 };  // between two agreements of a lockstep scheme on whether to stop

/* What a scheme's own check needs to know of a run, as plain values: sync/ includes nothing of
 * run/. */
static sh_sync_terms terms_of(const shoal_run *run, const sh_codec *codec) {
    const sh_config *config = &run->config;
    return (sh_sync_terms){
        .workers = sh_run_replicas(run),
        .planned = run->team.env.planned,
        .optim = run->optim.kind,
        .codec = codec,
        .exact = config->exact,
        .shard_optimizer = config->shard_optimizer,
        .balance = config->balance,
        .clips = config->clip_norm > 0 || config->clip_value > 0,
        .parts = run->data.train->parts.ranks > 0,
        .drops_paths = run->drops_paths,
        .sync_batchnorm = config->sync_batchnorm,
        .simulated = run->team.env.spend != NULL || run->team.env.timing_only,
    };
}

/* ---- Options of other schemes ---- */

/* The key without "sync."; NULL: the row is no option of a scheme. */
static const char *option_of(const sh_option *row) {
    bool is = strncmp(row->key, "sync.", 5) == 0 && strcmp(row->key, "sync.name") != 0;
    return is ? row->key + 5 : NULL;
}

/* The hint names every scheme that does read the option. */
static sh_status refuse_option(sh_scheme scheme, const sh_option *row) {
    const sh_sync_kind *kind;
    char readers[256] = "";
    for (size_t i = 0, used = 0; (kind = sh_sync_at(i)) != NULL; i++)
        if (sh_sync_reads(kind, option_of(row)) && used < sizeof readers)
            used += (size_t)snprintf(readers + used, sizeof readers - used, "%s%s",
                                     used > 0 ? ", " : "", kind->name);
    SH_FAIL(SH_E_USAGE, "--%s means nothing to scheme '%s'", sh_option_flag(row),
            scheme.kind->name);
    return sh_error_hint("leave it out, or use a scheme that reads it: %s", readers);
}

/* An option that the scheme does not read would have no effect: refused once it differs from
 * its default. */
static sh_status check_options(const sh_config *config, sh_scheme scheme) {
    const sh_option_table table = sh_config_table();
    for (size_t i = 0; i < table.count; i++) {
        const sh_option *row = &table.rows[i];
        const char *option = option_of(row);
        if (option == NULL || sh_sync_reads(scheme.kind, option)) continue;
        if (!sh_option_is_initial(row, config)) return refuse_option(scheme, row);
    }
    return SH_OK;
}

sh_status sh_scheme_forget_others(sh_config *config) {
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(config->scheme.name, &scheme));
    const sh_option_table table = sh_config_table();
    for (size_t i = 0; i < table.count; i++) {
        const sh_option *row = &table.rows[i];
        const char *option = option_of(row);
        if (option != NULL && !sh_sync_reads(scheme.kind, option))
            SH_TRY(sh_options_unset(sh_config_table(), row->key, config));
    }
    return SH_OK;
}

sh_status sh_scheme_check_momentum(const shoal_run *run) {
    sh_codec codec;
    SH_TRY(sh_codec_make(&run->config.codec, &codec));
    if (sh_run_replicas(run) == 1 || codec.kind == NULL || !codec.kind->owns_momentum) return SH_OK;
    if (run->optim.kind->momentum_sgd) return SH_OK;
    SH_FAIL(SH_E_USAGE,
            "'%s' applies momentum itself and goes with sgd, momentum or nesterov, not with '%s'",
            run->config.codec.name, run->optim.kind->name);
    return sh_error_hint("use --optimizer momentum");
}

sh_status sh_scheme_check_run(const shoal_run *run) {
    sh_scheme scheme;
    sh_codec codec;
    SH_TRY(sh_scheme_parse(run->config.scheme.name, &scheme));
    SH_TRY(sh_codec_make(&run->config.codec, &codec));
    sh_sync_terms terms = terms_of(run, &codec);
    SH_TRY(sh_scheme_check(scheme, &run->config.scheme, &terms));
    // A replica alone, without servers apart, runs no scheme and may keep the options of any: one
    // run file serves one worker and many.
    bool acts = sh_sync_acts(&run->config.scheme, sh_run_replicas(run));
    return acts ? check_options(&run->config, scheme) : SH_OK;
}

static const sh_sync_family *family_of(const struct sh_scheme_run *s) {
    return s->sync.scheme.kind->family;
}

/* The replica's endpoint. Hosts give every env mail whose scheme sends any (sh_config_mails). */
static sh_status open_mail(shoal_run *run) {
    const sh_worker_env *env = &run->team.env;
    if (!family_of(run->scheme)->mails) return SH_OK;
    SH_ASSERT(env->open_mail != NULL);
    return env->open_mail(env->self, sh_run_replica(run), &run->scheme->replica.mail.transport);
}

/* Gradients are what is sent most; an exact run sends integers. */
static void export_gradients(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    bool mails = s->replica.mail.transport != NULL && !run->config.exact;
    if (!mails || s->replica.gradients == NULL) return;
    s->exported =
        sh_export_acquire(s->replica.mail.transport, run->model.net->params.total * sizeof(float));
    if (s->exported == NULL) return;
    sh_model_place_gradients(&run->model, s->exported);
    s->replica.gradients = s->exported;
}

/* The model lets go of the exported memory before it is released, and takes other memory when
 * it next needs gradients. */
static void unexport_gradients(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    if (s->exported == NULL) return;
    sh_model_place_gradients(&run->model, NULL);
    sh_export_release(s->replica.mail.transport, s->exported);
}

sh_status sh_scheme_open(shoal_run *run) {
    sh_scheme asked;
    const sh_sync_options *options = &run->config.scheme;
    SH_TRY(sh_scheme_parse(options->name, &asked));
    struct sh_scheme_run *s = run->scheme = sh_alloc(1, sizeof *s);
    if (s == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a scheme");
    const sh_team *team = &run->team;
    // One replica of several workers has nobody to agree with.
    bool together = team->group != NULL && (run->model.layout == NULL || sh_run_replicas(run) > 1);
    s->sync = (sh_sync){.scheme = sh_scheme_of(asked, options, sh_run_replicas(run), together),
                        .options = options,
                        .replica = &s->replica};
    SH_TRY(sh_team_codec(run, &s->codec));
    scheme_fill_replica(run);
    // An exact run's gradient is known when its shards are.
    bool opens = family_of(s)->open != NULL && !run->config.exact;
    return opens ? family_of(s)->open(&s->sync) : SH_OK;
}

/* Collective. A service made up for the purpose tells how much the snapshots take. */
static sh_status open_snapshots(shoal_run *run, int services) {
    sh_service like = scheme_service_of(run, 0, services);
    return sh_server_snapshots_open(run, &like);
}

/* Room for what meetings sum over the workers, made once so that meetings allocate nothing. */
static sh_status make_sums(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    if (family_of(s)->together) return SH_OK;
    s->sums = sh_alloc(1 + run->model.net->states.total, sizeof *s->sums);
    return s->sums != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for a scheme");
}

sh_status sh_scheme_begin(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    SH_TRY(make_sums(run));
    scheme_fill_replica(run);
    s->step_met = run->at.step;
    s->samples_met = run->at.samples;
    s->here_met = run->at.samples_here;
    SH_TRY(open_mail(run));
    int services = sh_scheme_services(s->sync.scheme, s->sync.options, sh_run_replicas(run));
    if (services > 0) SH_TRY(open_snapshots(run, services));
    export_gradients(run);
    SH_TRY(scheme_start_services(run));
    // From here on the scheme must be destroyed, even if its creation fails.
    s->created = true;
    sh_status status = family_of(s)->create(&s->sync);
    s->sync.failed = status != SH_OK;
    return status;
}

bool sh_scheme_is_free(const shoal_run *run) { return family_of(run->scheme)->free; }

bool sh_scheme_is_together(const shoal_run *run) {
    return run->scheme != NULL && family_of(run->scheme)->together;
}

bool sh_scheme_serves(const shoal_run *run) {
    return run->scheme != NULL && run->scheme->service_count > 0;
}

void sh_scheme_aim(shoal_run *run, int64_t to) {
    // Schemes count steps of all workers together, the run counts steps of the whole team.
    run->scheme->to = to;
    run->scheme->replica.all.goal = to * sh_run_replicas(run);
}

/* Ends the agreement that is under way. Collective, so every worker must have started it. */
static sh_status wait_for_control(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    // A peer that still waits for mail would not come.
    if (family_of(s)->settle != NULL) SH_TRY(family_of(s)->settle(&s->sync));
    return sh_group_wait(run->team.group, &s->control);
}

/* Free workers learn from a service that they are to stop; in lockstep they agree now and then,
 * without waiting: the answer of one time is read the next time. */
static sh_status agree_to_stop(shoal_run *run, bool *stops_out) {
    struct sh_scheme_run *s = run->scheme;
    if (s->replica.step % CONTROL_STEPS != 0 && *stops_out == false) return SH_OK;
    if (s->asks) SH_TRY(wait_for_control(run));
    *stops_out = s->asks && s->stop > 0;
    s->stop = scheme_stops(run) ? 1 : 0;
    s->control = (sh_call){.what = SH_ALLREDUCE,
                           .data = &s->stop,
                           .count = 1,
                           .dtype = SH_DTYPE_F64,
                           .op = SH_SUM,
                           .step = run->at.step,
                           .bucket = -1};
    s->asks = !*stops_out;
    return s->asks ? sh_group_start(run->team.group, &s->control) : SH_OK;
}

/* In lockstep a worker knows from its own steps how many all have done. */
static sh_status lockstep(shoal_run *run, bool *meets_out) {
    struct sh_scheme_run *s = run->scheme;
    bool stops = false;
    s->replica.all.done += sh_run_replicas(run);
    SH_TRY(agree_to_stop(run, &stops));
    *meets_out = stops || s->replica.all.done >= s->replica.all.goal;
    return SH_OK;
}

/* Where no parent watches over the workers, each watches its own waits. */
static void set_wait_limits(shoal_run *run) {
    const sh_wait_limits *wait_limits = run->team.wait_limits;
    if (wait_limits != NULL) {
        run->scheme->replica.mail.timeout_ns = (int64_t)(wait_limits->limit_s * 1e9);
        run->scheme->replica.mail.wait_report = &wait_limits->wait_report;
    }
}

/* What the scheme has counted in a call becomes the run's. */
typedef struct counted {
    uint64_t sent_bytes, dense_bytes;
    int64_t waited_ns, updated_ns, data_ns, begin_ns;
} counted;

/* The scheme's counters only grow, so a call's share is the difference of two of these. */
static counted count_now(const shoal_run *run) {
    const sh_replica *replica = &run->scheme->replica;
    return (counted){.sent_bytes = replica->counts.sent_bytes,
                     .dense_bytes = replica->counts.dense_bytes,
                     .waited_ns = replica->counts.waited_ns,
                     .updated_ns = replica->counts.updated_ns,
                     .data_ns = run->stats.spent.data_ns,
                     .begin_ns = sh_run_now(run)};
}

static void add_counts(shoal_run *run, const counted *before) {
    counted now = count_now(run);
    sh_time_spent *spent = &run->stats.spent;
    run->stats.sent_bytes += now.sent_bytes - before->sent_bytes;
    run->stats.dense_bytes += now.dense_bytes - before->dense_bytes;
    int64_t waited = now.waited_ns - before->waited_ns, data = now.data_ns - before->data_ns;
    int64_t updated = now.updated_ns - before->updated_ns;
    spent->exposed_ns += waited;
    spent->update_ns += updated;
    // Elsewhere `compute` counts, for it is not all that a step does.
    if (run->sparse != NULL || sh_scheme_is_together(run))
        spent->compute_ns += now.begin_ns - before->begin_ns - waited - updated - data;
}

/* A step of all workers is done: it ends at a meeting, where nothing is left to agree on. */
static sh_status move_together(shoal_run *run, int64_t computed_ns, bool *meets_out) {
    struct sh_scheme_run *s = run->scheme;
    SH_TRY(sh_regroup_check(run));
    s->replica.step++;
    s->replica.all.done += sh_run_replicas(run);
    // All workers have the same answer: they agreed on it within the step.
    run->team.stops = s->replica.batch.stops_now;
    SH_TRY(sh_run_layout_agree(run, &run->team.stops));
    if (run->config.clip_norm > 0) run->stats.grad_norm = s->replica.batch.grad_norm;
    sh_run_step_done(run, s->whole);
    *meets_out = true;
    return sh_team_balance(run, s->replica.batch.samples, computed_ns);
}

/* Workers that go their ways: this one's step is done. */
static sh_status move_apart(shoal_run *run, bool *meets_out) {
    struct sh_scheme_run *s = run->scheme;
    bool is_free = family_of(s)->free;
    if (!is_free || !*meets_out) s->replica.step++;
    if (!is_free) SH_TRY(lockstep(run, meets_out));
    return sh_regroup_check(run);
}

sh_status sh_scheme_step(shoal_run *run, sh_loss_result *result_out, bool *meets_out) {
    struct sh_scheme_run *s = run->scheme;
    SH_TRY(sh_regroup_check(run));
    set_wait_limits(run);
    const counted before = count_now(run);
    int64_t computed = run->stats.spent.compute_ns;
    sh_status status = family_of(s)->step(&s->sync, result_out, meets_out);
    if (family_of(s)->together) {
        add_counts(run, &before);
        computed = run->stats.spent.compute_ns - computed;
        return status == SH_OK ? move_together(run, computed, meets_out) : status;
    }
    if (status == SH_OK) status = move_apart(run, meets_out);
    add_counts(run, &before);
    s->sync.failed = s->sync.failed || status != SH_OK;
    scheme_move_on(run);
    return status;
}

/* Samples as they were: batches may be short, broken off, or left to others. The running statistics
 * become those of all of them. */
static sh_status count_samples(shoal_run *run, double *used_inout) {
    struct sh_scheme_run *s = run->scheme;
    const sh_statistics *statistics = &s->replica.statistics;
    size_t states = sh_statistics_sums(statistics);
    s->sums[0] = (double)s->samples;
    sh_statistics_weigh(statistics, s->samples, s->sums);
    SH_TRY(sh_team_sum(&run->team, s->sums, states > 0 ? states : 1));
    sh_statistics_take(statistics, s->sums);
    s->samples = 0;
    double dealt = sh_run_samples_between(run, s->step_met, run->at.step);
    if (dealt > 0) *used_inout = s->sums[0] / dealt;
    run->at.samples = s->samples_met += (int64_t)s->sums[0];
    run->at.samples_here = s->here_met += (int64_t)s->sums[0];
    return SH_OK;
}

sh_status sh_scheme_meet(shoal_run *run, double *used_inout) {
    struct sh_scheme_run *s = run->scheme;
    if (family_of(s)->together) return SH_OK;  // they are one after every step
    s->sync.failed = true;                     // unless all of this goes well
    set_wait_limits(run);
    if (s->asks) SH_TRY(wait_for_control(run));
    // As maxima over the workers: the furthest count of steps, and whether anyone wants to stop or
    // to let somebody join.
    double most[] = {(double)s->replica.all.done, scheme_user_stops(run), sh_regroup_wished(run)};
    s->asks = false;
    uint64_t sent = s->replica.counts.sent_bytes, dense = s->replica.counts.dense_bytes;
    SH_TRY(family_of(s)->meet(&s->sync));
    run->stats.sent_bytes += s->replica.counts.sent_bytes - sent;
    run->stats.dense_bytes += s->replica.counts.dense_bytes - dense;
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = most,
                    .count = SH_COUNT(most),
                    .dtype = SH_DTYPE_F64,
                    .op = SH_MAX,
                    .bucket = -1};
    SH_TRY(sh_group_run(run->team.group, &call));
    s->replica.all.done = (int64_t)most[0];
    run->team.stops = most[1] > 0;
    run->team.regroups = most[2] > 0;
    sh_run_move_to(run, s->replica.all.done / sh_run_replicas(run));
    if (!run->team.env.timing_only) SH_TRY(count_samples(run, used_inout));
    s->step_met = run->at.step;
    s->sync.failed = false;
    return SH_OK;
}

sh_status sh_scheme_finish(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    if (s == NULL || family_of(s)->together) return SH_OK;  // nothing is under way between steps
    family_of(s)->destroy(&s->sync);
    s->created = false;
    SH_TRY(scheme_hear_services(run));
    return scheme_wait_for_services(s);
}

/* After a failure nobody waits for services: the process ends, and they with it. */
void sh_scheme_end(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    if (s == NULL) return;
    s->sync.failed = true;  // otherwise it has finished
    if (s->created || family_of(s)->together) family_of(s)->destroy(&s->sync);
    bool waits = false;
    for (int i = 0; i < s->service_count; i++) waits = waits || s->services[i].task != NULL;
    if (waits) return;  // they still use what is here
    for (int i = 0; i < s->service_count; i++)
        sh_transport_close(s->services[i].service.mail.transport);
    unexport_gradients(run);
    sh_transport_close(s->replica.mail.transport);
    sh_free(s->services);
    sh_free(s->sums);
    sh_free(s);
    run->scheme = NULL;
}

size_t sh_scheme_blocks(const shoal_run *run, sh_exchange_state blocks_out[SH_EXCHANGE_STATES]) {
    const struct sh_scheme_run *s = run->scheme;
    if (s == NULL || family_of(s)->blocks == NULL) return 0;
    return family_of(s)->blocks(&s->sync, blocks_out);
}

void sh_scheme_adopt(shoal_run *run, int64_t workers) {
    struct sh_scheme_run *s = run->scheme;
    if (s != NULL && family_of(s)->adopt != NULL) family_of(s)->adopt(&s->sync, (int)workers);
}

sh_status sh_scheme_save(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    if (s == NULL || family_of(s)->save == NULL) return SH_OK;
    return family_of(s)->save(&s->sync);
}

void sh_scheme_saved(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    if (s != NULL && family_of(s)->saved != NULL) family_of(s)->saved(&s->sync);
}

/* The services end by themselves, since a peer has left or they are told to. */
void sh_scheme_leave(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    // Counts outlive the generation; the next one adds to them.
    run->counts = sh_scheme_count(run);
    if (run->team.group != NULL)
        sh_engine_abandon(sh_group_engine(run->team.group));  // calls may be in `s`
    if (s == NULL) return;
    s->sync.failed = s->sync.failed || s->created;
    atomic_store_explicit(&s->quits, true, memory_order_relaxed);
    (void)scheme_wait_for_services(s);
    s->sync.silent = true;
    sh_scheme_end(run);
}
