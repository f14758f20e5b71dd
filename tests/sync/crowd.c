#include "sync/crowd.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/option.h"
#include "base/task.h"
#include "base/text.h"
#include "comm/transports/shm.h"
#include "harness.h"

enum { COUNT_USUAL = 5 };

/* One worker, and what its scheme is given. */
typedef struct member {
    crowd *crowd;
    int rank;
    sh_shm *fabric, *mail;  // threads
    sh_sim *sim;            // coroutines
    sh_scheme scheme;
    sh_sync_options options;
    sh_optim_options optim_options;
    sh_param_list params;
    sh_optim optim;
    sh_schedule schedule;
    sh_codec codec;
    sh_replica replica;
    sh_sync sync;
    sh_service service;
    sh_task *task;
    sh_status status;
} member;

float crowd_begin(const crowd *c, int worker, size_t index) {
    if (c->same) worker = 0;
    return (float)((worker * 7 + (int)index * 3) % 11) - 5;
}

float crowd_goal(int worker, size_t index) {
    return (float)((worker * 5 + (int)index * 2) % 13) / 4 - 1.5F;
}

float crowd_at(const crowd *c, int64_t step, int worker, size_t index) {
    size_t at = (size_t)step * (size_t)c->workers + (size_t)worker;
    return c->history[at * c->count + index];
}

double crowd_mean(const crowd *c, int64_t step, size_t index) {
    double sum = 0;
    for (int worker = 0; worker < c->workers; worker++)
        sum += (double)crowd_at(c, step, worker, index);
    return sum / c->workers;
}

double crowd_disagreement(const crowd *c, int64_t step) {
    double sum = 0;
    for (size_t i = 0; i < c->count; i++) {
        double mean = crowd_mean(c, step, i);
        for (int worker = 0; worker < c->workers; worker++) {
            double off = (double)crowd_at(c, step, worker, i) - mean;
            sum += off * off;
        }
    }
    return sqrt(sum);
}

bool crowd_seed(int usual, int *seed_inout) {
    const char *one = getenv("SEED"), *many = getenv("SEEDS");
    int end = many != NULL && atoi(many) > 0 ? atoi(many) : usual;
    int next = one != NULL && *seed_inout < 0 ? atoi(one) : *seed_inout + 1;
    if (one != NULL ? *seed_inout >= 0 : next >= end) return false;
    *seed_inout = next;
    print_message("seed %d\n", next);
    return true;
}

sh_sim_options crowd_world(int seed, sh_sim_slow *slow_out, int *workers_out) {
    sh_rng rng = sh_rng_stream((uint64_t)seed, SH_RNG_TEST, 4, 0);
    *workers_out = 2 + (int)sh_rng_below(&rng, 9);
    static const sh_sim_law laws[] = {SH_LAW_CONSTANT, SH_LAW_EXPONENTIAL, SH_LAW_LOGNORMAL};
    *slow_out = (sh_sim_slow){.rank = (int)sh_rng_below(&rng, (uint64_t)*workers_out),
                              .factor = 1 + 9 * (double)sh_rng_uniform(&rng)};
    return (sh_sim_options){
        .seed = (uint64_t)seed,
        .links = {.rank = {.alpha_s = 1e-5 + 1e-2 * (double)sh_rng_uniform(&rng),
                           .beta_s = 1e-5 * (double)sh_rng_uniform(&rng)}},
        .compute = {.law = laws[sh_rng_below(&rng, SH_COUNT(laws))],
                    .mean_s = 0.01,
                    .sigma = 1,
                    .slow = slow_out,
                    .slow_count = 1},
    };
}

static void remember(const member *m) {
    crowd *c = m->crowd;
    if (m->replica.weights == NULL || m->replica.step > c->steps) return;
    size_t at = (size_t)m->replica.step * (size_t)c->workers + (size_t)m->rank;
    memcpy(c->history + at * c->count, m->replica.weights, c->count * sizeof(float));
}

static sh_status compute(void *self, sh_mean mean, sh_loss_result *result_out) {
    member *m = self;
    SH_ASSERT(mean == SH_MEAN_OWN);
    if (m->sim != NULL)
        SH_TRY(sh_sim_spend(m->sim, sh_sim_compute_ns(m->sim, m->rank, m->replica.step)));
    *result_out = (sh_loss_result){.counted = 1};
    for (size_t i = 0; m->replica.weights != NULL && i < m->crowd->count; i++) {
        float off = m->replica.weights[i] - crowd_goal(m->rank, i);
        m->replica.gradients[i] = m->crowd->lr > 0 ? off : 0;
        result_out->sum += (double)(off * off) / 2;
    }
    return SH_OK;
}

static bool stops(void *user) {
    const member *m = user;  // worker 0's
    return atomic_load(&m->crowd->wants_stop);
}

static sh_status open_transport(member *m, bool mail, int endpoint, sh_transport **transport_out) {
    if (m->sim != NULL)
        return (mail ? sh_sim_attach_mail : sh_sim_attach)(m->sim, endpoint, transport_out);
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return sh_shm_attach(mail ? m->mail : m->fabric, endpoint, cores, transport_out);
}

static sh_status serve(void *argument) {
    sh_service *service = argument;
    return service->scheme.kind->family->serve(service);
}

static sh_status start_service(member *m, int services) {
    if (m->rank >= services) return SH_OK;
    int workers = m->crowd->workers;
    m->service = (sh_service){.index = m->rank,
                              .count = services,
                              .workers = workers,
                              .mail = {.workers = workers},
                              .scheme = m->scheme,
                              .options = &m->options,
                              .params = &m->params,
                              .weights = m->replica.weights,
                              .optim = &m->optim,
                              .schedule = &m->schedule,
                              .codec = &m->codec,
                              .seed = m->replica.seed,
                              .worker = &m->sync,
                              .stops = m->rank == 0 && m->crowd->stop_at > 0 ? stops : NULL,
                              .user = m};
    SH_TRY(open_transport(m, true, workers + m->rank, &m->service.mail.transport));
    return sh_task_spawn("service", serve, &m->service, &m->task);
}

static sh_status make(member *m) {
    const crowd *c = m->crowd;
    SH_TRY(sh_scheme_parse(c->scheme, &m->scheme));
    SH_TRY(sh_codec_parse(c->codec != NULL ? c->codec : "none", &m->codec));
    if (c->no_feedback) m->codec.options.error_feedback = false;
    SH_TRY(sh_param_list_add(&m->params, "w", SH_SHAPE((int64_t)c->count), true, NULL));
    m->options = (sh_sync_options){.name = (char *)(uintptr_t)c->scheme,
                                   .momentum = (char *)(uintptr_t)(c->policy ? c->policy : "auto"),
                                   .graph = (char *)(uintptr_t)(c->graph ? c->graph : "auto"),
                                   .mixing = c->mixing};
    const sh_option_table own = m->scheme.kind->own.table;
    void *values = (void *)(uintptr_t)sh_sync_own(&m->options, m->scheme.kind);
    SH_TRY(sh_options_init(own, values));
    if (m->scheme.kind == sh_sync_find("post-local")) {
        char text[32];
        sh_snprintf(text, sizeof text, "%g", c->switch_at);
        SH_TRY(sh_options_set(own, "sync.switch", text, values));
    }
    m->optim_options = (sh_optim_options){.name = (char *)(uintptr_t) "sgd",
                                          .lr = c->lr,
                                          .momentum = c->momentum,
                                          .dampening = NAN,
                                          .beta1 = NAN,
                                          .beta2 = NAN,
                                          .epsilon = NAN,
                                          .weight_decay = NAN,
                                          .trust = NAN,
                                          .rho = NAN};
    SH_TRY(sh_optim_init(&m->optim, &m->optim_options, c->count));
    const char *schedule = c->schedule != NULL ? c->schedule : "constant";
    sh_schedule_options options = {.name = (char *)(uintptr_t)schedule, .gamma = 0.1};
    return sh_schedule_init(&m->schedule, &options, c->lr, 1, c->steps, c->steps);
}

static sh_status make_replica(member *m, sh_engine *engine) {
    crowd *c = m->crowd;
    m->replica = (sh_replica){.rank = m->rank,
                              .ranks = c->workers,
                              .group = sh_engine_world(engine),
                              .mail = {.workers = c->workers},
                              .clock = m->sim != NULL ? sh_sim_clock(m->sim) : &sh_clock_real,
                              .params = &m->params,
                              .optim = &m->optim,
                              .schedule = &m->schedule,
                              .codec = &m->codec,
                              .seed = c->sim != NULL ? c->sim->seed : 1,
                              .overlap = !c->steps_first,
                              .all = {.total = c->steps * c->workers},
                              .ops = {.compute = compute, .self = m}};
    m->sync = (sh_sync){.scheme = m->scheme, .options = &m->options, .replica = &m->replica};
    if (c->timing) return SH_OK;
    m->replica.weights = sh_alloc(c->count, sizeof(float));
    m->replica.gradients = sh_alloc(c->count, sizeof(float));
    SH_ASSERT(m->replica.weights != NULL && m->replica.gradients != NULL);
    for (size_t i = 0; i < c->count; i++) m->replica.weights[i] = crowd_begin(c, m->rank, i);
    for (size_t i = 0; i < SH_SYNC_STATES; i++) {
        const sh_sync_state *state = &m->scheme.kind->states[i];
        if (state->name == NULL) break;
        m->replica.state[i] = sh_alloc(state->count > 0 ? state->count : c->count, sizeof(float));
        SH_ASSERT(m->replica.state[i] != NULL);
    }
    return SH_OK;
}

/* As a run does it (run/scheme.c). */
static sh_status one_step(member *m, bool *meets) {
    crowd *c = m->crowd;
    const sh_sync_kind *kind = m->scheme.kind;
    sh_loss_result result = {0};
    SH_TRY(kind->family->step(&m->sync, &result, meets));
    if (kind->family->free && *meets) return SH_OK;
    m->replica.step++;
    c->done[m->rank]++;
    if (m->rank == 0 && c->done[0] == c->stop_at) atomic_store(&c->wants_stop, true);
    remember(m);
    if (!kind->family->free) {
        m->replica.all.done += c->workers;
        *meets = m->replica.all.done >= m->replica.all.goal;
    }
    return c->look != NULL ? c->look(c, &m->sync, false) : SH_OK;
}

static sh_status train(member *m) {
    crowd *c = m->crowd;
    const sh_sync_kind *kind = m->scheme.kind;
    int64_t every = c->meet_every > 0 ? c->meet_every : c->steps;
    SH_TRY(kind->family->create(&m->sync));
    remember(m);
    for (int64_t to = every;; to += every) {
        if (to > c->steps) to = c->steps;
        m->replica.all.goal = to * c->workers;
        for (bool meets = false; !meets;) SH_TRY(one_step(m, &meets));
        SH_TRY(kind->family->meet(&m->sync));
        if (c->look != NULL) SH_TRY(c->look(c, &m->sync, true));
        if (to >= c->steps || m->replica.all.done < m->replica.all.goal) return SH_OK;
    }
}

static sh_status live(member *m, sh_engine *engine) {
    crowd *c = m->crowd;
    SH_TRY(make(m));
    SH_TRY(make_replica(m, engine));
    if (m->scheme.kind->family->mails)
        SH_TRY(open_transport(m, true, m->rank, &m->replica.mail.transport));
    SH_TRY(start_service(m, sh_scheme_services(m->scheme, &m->options, c->workers)));
    sh_status status = train(m);
    sh_error error = *sh_error_last();
    m->sync.failed = status != SH_OK;
    m->scheme.kind->family->destroy(&m->sync);
    if (m->rank == 0) c->all = m->replica.all.done;
    for (size_t i = 0; m->replica.weights != NULL && i < c->count; i++)
        c->end[(size_t)m->rank * c->count + i] = m->replica.weights[i];
    if (status != SH_OK) return sh_error_adopt(&error);
    return m->task != NULL ? sh_task_wait(m->task) : SH_OK;
}

static void end(member *m) {
    // In the simulator engine and mail are one transport, which goes with the engine.
    if (m->sim == NULL) {
        sh_transport_close(m->replica.mail.transport);
        sh_transport_close(m->service.mail.transport);
    }
    for (size_t i = 0; i < SH_SYNC_STATES; i++) sh_free(m->replica.state[i]);
    sh_free(m->replica.weights);
    sh_free(m->replica.gradients);
    sh_optim_fini(&m->optim);
    sh_param_list_fini(&m->params);
}

static sh_status body(void *argument) {
    member *m = argument;
    sh_transport *transport = NULL;
    sh_engine *engine = NULL;
    SH_TRY(open_transport(m, false, m->rank, &transport));
    SH_TRY(sh_engine_create(transport, &(sh_engine_options){0}, &engine));
    m->status = live(m, engine);
    sh_error error = *sh_error_last();
    if (m->status == SH_OK) end(m);
    sh_engine_destroy(engine);
    if (m->status == SH_OK) return SH_OK;
    if (m->sim == NULL) {
        sh_shm_mark_dead(m->fabric, m->rank);
        sh_shm_mark_dead(m->mail, m->rank);
    }
    return sh_error_adopt(&error);
}

static sh_status run_threads(crowd *c, member *members, int services) {
    sh_shm *fabric = NULL, *mail = NULL;
    SH_TRY(sh_shm_create(c->workers, &fabric));
    SH_TRY(sh_shm_create(c->workers + services, &mail));
    sh_task **tasks = sh_alloc((size_t)c->workers, sizeof(sh_task *));
    SH_ASSERT(tasks != NULL);
    sh_status status = SH_OK;
    for (int rank = 0; rank < c->workers; rank++) {
        members[rank].fabric = fabric;
        members[rank].mail = mail;
        SH_TRY(sh_task_spawn("worker", body, &members[rank], &tasks[rank]));
    }
    for (int rank = 0; rank < c->workers; rank++) {
        sh_status ended = sh_task_wait(tasks[rank]);
        if (ended != SH_OK && (status == SH_OK || status == SH_E_PEER)) status = ended;
    }
    sh_free(tasks);
    sh_shm_destroy(mail);
    sh_shm_destroy(fabric);
    return status;
}

static sh_status run_simulated(crowd *c, member *members, int services) {
    sh_sim_options options = *c->sim;
    options.ranks = c->workers;
    options.mail = c->workers + services;
    sh_sim *sim = NULL;
    SH_TRY(sh_sim_create(&options, &sim));
    for (int rank = 0; rank < c->workers; rank++) {
        members[rank].sim = sim;
        SH_TRY(sh_sim_spawn(sim, rank, "worker", body, &members[rank]));
    }
    sh_status status = sh_sim_run(sim);
    c->seconds = sh_sim_seconds(sim);
    sh_sim_destroy(sim);
    return status;
}

sh_status crowd_run(crowd *c) {
    if (c->count == 0) c->count = COUNT_USUAL;
    size_t workers = (size_t)c->workers;
    c->history = sh_alloc((size_t)(c->steps + 1) * workers * c->count, sizeof *c->history);
    c->end = sh_alloc(workers * c->count, sizeof *c->end);
    c->done = sh_alloc(workers, sizeof *c->done);
    member *members = sh_alloc(workers, sizeof *members);
    SH_ASSERT(c->history != NULL && c->end != NULL && c->done != NULL && members != NULL);
    for (int rank = 0; rank < c->workers; rank++)
        members[rank] = (member){.crowd = c, .rank = rank};
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(c->scheme, &scheme));
    int services = sh_scheme_services(scheme, &(sh_sync_options){0}, c->workers);
    sh_status status = (c->sim != NULL ? run_simulated : run_threads)(c, members, services);
    sh_free(members);
    return status;
}

void crowd_fini(crowd *c) {
    sh_free(c->history);
    sh_free(c->end);
    sh_free(c->done);
    c->history = c->end = NULL;
    c->done = NULL;
}
