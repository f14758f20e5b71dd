/* Gossip in pairs, at everyone's own pace: in a step a worker asks one other, drawn at random among
 * its neighbours, whatever step that one is at, and nobody waits for the slowest.
 *
 * AD-PSGD, asynchronous decentralised parallel SGD (Lian et al., ICML 2018): both take the mean.
 *
 *   w_i, w_j <- (w_i + w_j) / 2               atomic at j
 *   w_i      <- w_i - lr g_i                  g_i at w_i as it was when the gradient began
 *
 * Gossiping SGD (Jin, Yuan, Iandola, Keutzer, "How to scale distributed deep learning?", NIPS 2016
 * workshop) is one-sided, in one step of T on average:
 *
 *   pull   w_i <- (w_i + w_j) / 2 - lr g_i    j goes on as if nothing had happened
 *   push   w_j <- (w_j + w_i) / 2             atomic at j;   w_i <- w_i - lr g_i
 *
 * AD-PSGD keeps the sum of both models. For that no model may change between its being sent and the
 * mean that comes back, so workers are of two kinds: those that ask (even ones) only ask those that
 * answer (odd ones). One-sided gossip keeps the sum on average over the draws only, and everybody
 * asks and answers.
 *
 * An ask is answered by the partner's service, also while the partner computes, so that waiting has
 * no circles. Asks and answers travel while the gradient is computed; who takes a mean gets the
 * other model, and who does not gets an empty message.
 *
 * Memory shared between the task of a worker and its service: the model, guarded by `lock`, which
 * is held for a pass over it and never while waiting for anybody, so in the simulator, where tasks
 * are coroutines, it is always free. Where partners take the mean, the model is `shared` and the
 * worker computes at a copy; where they do not, it is the replica's, which the worker writes under
 * the lock. Everything else of the worker's side is written in create, before the barrier there; no
 * request reaches a service before that.
 *
 * Service r sits on worker r. That of worker 0 holds the step counter (sync/step_counter.h), too.
 */
#include <pthread.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "sync/graph.h"
#include "sync/step_counter.h"
#include "sync/list.h"
#include "tensor/kernels/vector.h"

enum { TAG_ASK = 1, TAG_ANSWER, TAG_END, ASKERS_MOST = 4 };

/* Who of a pair takes the mean of both models. */
typedef struct pairing {
    bool asker, partner;
} pairing;

typedef struct pairs {
    pairing takes;
    sh_graph graph;
    bool asks, answers;
    int64_t period;  // it asks in one step of so many, on average
    sh_permit permit;
    // Who asks:
    float *partner;  // (params->total) the partner's model; NULL: it takes none, or timing only
    sh_message ask, answer;
    // Who answers:
    pthread_mutex_t lock;
    float *shared;  // (params->total) guarded by lock; NULL: the replica's weights, or timing only
} pairs;

static const char *graph_name(const sh_sync_options *options) {
    return strcmp(options->graph, "auto") == 0 ? "complete" : options->graph;
}

static pairing pairing_of(sh_scheme scheme) {
    return (pairing){.asker = scheme.kind != &sh_sync_gossip_push,
                     .partner = scheme.kind != &sh_sync_gossip_pull};
}

/* Where both take the mean, roles are fixed. */
static bool is_asked(pairing takes, const sh_graph *graph, int rank) {
    return !(takes.asker && takes.partner) || !sh_graph_asks(graph, rank);
}

static int pairs_services(sh_scheme scheme, const sh_sync_options *options, int workers) {
    (void)scheme;
    (void)options;
    return workers;
}

/* ---- create and destroy ---- */

/* A block of the model's size; stays NULL where only time is simulated. */
static sh_status take_block(const sh_replica *replica, float **block_out) {
    size_t total = replica->params->total;
    if (replica->weights == NULL) return SH_OK;
    *block_out = sh_alloc(total, sizeof **block_out);
    if (*block_out == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a model of %zu floats", total);
    return SH_OK;
}

static sh_status make(sh_sync *sync, pairs *p) {
    const sh_replica *replica = sync->replica;
    p->takes = pairing_of(sync->scheme);
    p->period = (int64_t)sync->scheme.amount;
    SH_TRY(sh_graph_find(graph_name(sync->options), replica->ranks, &p->graph));
    p->answers = is_asked(p->takes, &p->graph, replica->rank);
    p->asks = !(p->takes.asker && p->takes.partner) || !p->answers;
    if (p->asks && p->takes.asker) SH_TRY(take_block(replica, &p->partner));
    if (p->answers && p->takes.partner) SH_TRY(take_block(replica, &p->shared));
    if (p->shared != NULL) sh_vector()->copy(replica->weights, p->shared, replica->params->total);
    return SH_OK;
}

static sh_status pairs_create(sh_sync *sync) {
    pairs *p = sync->own = sh_alloc(1, sizeof *p);
    if (p == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for gossip in pairs");
    pthread_mutex_init(&p->lock, NULL);
    SH_TRY(make(sync, p));
    return sh_group_barrier(sync->replica->group);
}

/* What was under way is taken back. The model of a worker that answers is the one that is shared.
 */
static void abandon(sh_sync *sync, pairs *p) {
    sh_replica *replica = sync->replica;
    sh_permit_drop(&p->permit, replica);
    sh_cancel(replica->mail.transport, &p->ask);
    sh_cancel(replica->mail.transport, &p->answer);
    if (p->shared != NULL) sh_vector()->copy(p->shared, replica->weights, replica->params->total);
}

/* After a meeting nothing is under way, so a worker can end its own service. */
static void pairs_destroy(sh_sync *sync) {
    pairs *p = sync->own;
    sh_replica *replica = sync->replica;
    if (p == NULL || (sync->failed && !sync->silent)) return;  // its service may still use it
    if (sync->failed)
        abandon(sync, p);
    else
        sh_mail_put(&replica->mail, replica->ranks + replica->rank, TAG_END, NULL, 0, "end");
    pthread_mutex_destroy(&p->lock);
    sh_free(p->partner);
    sh_free(p->shared);
    sh_free(p);
}

/* ---- a worker's step ---- */

/* A neighbour that answers, at random; -1: nobody is asked in this step. */
static int draw(const sh_sync *sync) {
    const pairs *p = sync->own;
    const sh_replica *replica = sync->replica;
    sh_rng rng = sh_rng_stream(replica->seed, SH_RNG_GOSSIP, (uint32_t)replica->rank,
                               (uint64_t)replica->step);
    if (!p->asks || (p->period > 1 && sh_rng_below(&rng, (uint64_t)p->period) > 0)) return -1;
    for (;;) {
        int edge = (int)sh_rng_below(&rng, (uint64_t)p->graph.degree);
        int peer = sh_graph_to(&p->graph, replica->rank, edge);
        if (is_asked(p->takes, &p->graph, peer)) return peer;
    }
}

/* What a partner sends back counts as sent where it was asked for, unless it came for a model. */
static sh_status ask(sh_sync *sync, int peer) {
    pairs *p = sync->own;
    sh_replica *replica = sync->replica;
    size_t bytes = replica->params->total * sizeof(float);
    p->answer = (sh_message){.peer = replica->ranks + peer,
                             .tag = TAG_ANSWER,
                             .data = p->partner,
                             .bytes = p->takes.asker ? bytes : 0};
    p->ask = (sh_message){.peer = replica->ranks + peer,
                          .tag = TAG_ASK,
                          .data = p->takes.partner ? replica->weights : NULL,
                          .bytes = p->takes.partner ? bytes : 0};
    SH_TRY(sh_mail_receive(&replica->mail, &p->answer));
    SH_TRY(sh_mail_send(&replica->mail, &p->ask));
    replica->counts.sent_bytes += bytes;
    replica->counts.dense_bytes += bytes;
    return SH_OK;
}

static sh_status await_answer(sh_sync *sync) {
    pairs *p = sync->own;
    sh_replica *replica = sync->replica;
    int64_t begin = sh_clock_now_ns(replica->clock);
    SH_TRY(sh_mail_wait(&replica->mail, &p->ask, "ask"));
    SH_TRY(sh_mail_wait(&replica->mail, &p->answer, "answer"));
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    return SH_OK;
}

/* `met`: the partner's model has come, where the worker takes the mean. */
static void update(sh_sync *sync, bool met) {
    pairs *p = sync->own;
    sh_replica *replica = sync->replica;
    float *weights = replica->weights;
    size_t total = replica->params->total;
    pthread_mutex_lock(&p->lock);
    if (p->shared != NULL) sh_vector()->copy(p->shared, weights, total);
    if (met && p->partner != NULL) {
        sh_vector()->add_to(weights, p->partner, total);
        sh_vector()->scale(weights, 0.5F, total);
    }
    sh_replica_update(replica);
    if (p->shared != NULL) sh_vector()->copy(weights, p->shared, total);
    pthread_mutex_unlock(&p->lock);
}

static sh_status pairs_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    pairs *p = sync->own;
    sh_replica *replica = sync->replica;
    replica->mail.step = replica->step;
    SH_TRY(sh_permit_take(&p->permit, replica, replica->ranks, meets_out));
    if (*meets_out) return SH_OK;
    int peer = draw(sync);
    if (peer >= 0) SH_TRY(ask(sync, peer));
    SH_TRY(replica->ops.compute(replica->ops.self, SH_MEAN_OWN, result_out));
    if (peer >= 0) SH_TRY(await_answer(sync));
    update(sync, peer >= 0);
    return SH_OK;
}

/* Every worker was told that it is to meet, but one that asks may still be at its last step: only
 * when all have arrived is no average under way. */
static sh_status pairs_meet(sh_sync *sync) {
    pairs *p = sync->own;
    sh_replica *replica = sync->replica;
    size_t total = replica->params->total;
    SH_TRY(sh_group_barrier(replica->group));
    if (p->shared != NULL) {
        pthread_mutex_lock(&p->lock);
        sh_vector()->copy(p->shared, replica->weights, total);
        pthread_mutex_unlock(&p->lock);
    }
    SH_TRY(sh_sync_meet_mean(sync));
    if (p->shared != NULL) {
        pthread_mutex_lock(&p->lock);
        sh_vector()->copy(replica->weights, p->shared, total);
        pthread_mutex_unlock(&p->lock);
    }
    return sh_group_barrier(replica->group);
}

/* ---- the service ---- */

/* Buffer and message for one worker that asks; a service answers several at a time. */
typedef struct served_asker {
    float *model;        // as it came, then as it goes back; NULL: timing only
    sh_message message;  // the ask, then the answer
    bool answers;
} served_asker;

typedef struct pair_service {
    pairing takes;
    served_asker askers[ASKERS_MOST];
    int asker_count;
    sh_step_counter counter;
    sh_message end;
} pair_service;

static sh_status expect(sh_service *service, const pair_service *own, served_asker *asker) {
    size_t bytes = own->takes.partner ? service->params->total * sizeof(float) : 0;
    asker->answers = false;
    asker->message =
        (sh_message){.peer = SH_ANY_RANK, .tag = TAG_ASK, .data = asker->model, .bytes = bytes};
    return sh_mail_receive(&service->mail, &asker->message);
}

static sh_status begin_service(sh_service *service, pair_service *own) {
    sh_graph graph;
    int workers = service->workers;
    if (service->index == 0) SH_TRY(sh_step_counter_begin(&own->counter, service));
    SH_TRY(sh_graph_find(graph_name(service->options), workers, &graph));
    own->takes = pairing_of(service->scheme);
    if (!is_asked(own->takes, &graph, service->index)) return SH_OK;
    int askers_most = own->takes.asker && own->takes.partner ? (workers + 1) / 2 : workers - 1;
    own->asker_count = askers_most < ASKERS_MOST ? askers_most : ASKERS_MOST;
    for (int i = 0; i < own->asker_count; i++) {
        served_asker *asker = &own->askers[i];
        if (service->weights != NULL) {
            asker->model = sh_alloc(service->params->total, sizeof *asker->model);
            if (asker->model == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a partner");
        }
        SH_TRY(expect(service, own, asker));
    }
    return SH_OK;
}

static void end_service(sh_service *service, pair_service *own) {
    if (service->index == 0) sh_step_counter_end(&own->counter, service);
    sh_cancel(service->mail.transport, &own->end);
    for (int i = 0; i < own->asker_count; i++) {
        sh_cancel(service->mail.transport, &own->askers[i].message);
        sh_free(own->askers[i].model);
    }
}

/* The model that came, if any, becomes this worker's as it was before; this worker's becomes the
 * mean, if it is shared for that. */
static void exchange(const sh_sync *sync, float *model, size_t total) {
    pairs *p = sync->own;
    pthread_mutex_lock(&p->lock);
    if (p->shared == NULL) sh_vector()->copy(sync->replica->weights, model, total);
    for (size_t i = 0; p->shared != NULL && i < total; i++) {
        float before = p->shared[i];
        p->shared[i] = 0.5F * (before + model[i]);
        model[i] = before;
    }
    pthread_mutex_unlock(&p->lock);
}

static sh_status serve_asker(sh_service *service, const pair_service *own, served_asker *asker,
                             bool *moved) {
    if (!sh_mail_test(&service->mail, &asker->message)) return SH_OK;
    *moved = true;
    SH_TRY(sh_mail_wait(&service->mail, &asker->message, "ask"));
    if (asker->answers) return expect(service, own, asker);
    size_t total = service->params->total;
    if (asker->model != NULL) exchange(service->worker, asker->model, total);
    asker->answers = true;
    asker->message = (sh_message){.peer = asker->message.peer,
                                  .tag = TAG_ANSWER,
                                  .data = asker->model,
                                  .bytes = own->takes.asker ? total * sizeof(float) : 0};
    return sh_mail_send(&service->mail, &asker->message);
}

static sh_status answer_until_end(sh_service *service, pair_service *own) {
    sh_transport *transport = service->mail.transport;
    own->end = (sh_message){.peer = service->index, .tag = TAG_END};
    SH_TRY(sh_mail_receive(&service->mail, &own->end));
    while (!sh_mail_test(&service->mail, &own->end)) {
        bool moved = false;
        if (service->index == 0) SH_TRY(sh_step_counter_serve(&own->counter, service, &moved));
        for (int i = 0; i < own->asker_count; i++)
            SH_TRY(serve_asker(service, own, &own->askers[i], &moved));
        if (moved) continue;
        SH_TRY(sh_service_health(service));
        sh_transport_idle(transport);
    }
    return SH_OK;
}

static sh_status pairs_serve(sh_service *service) {
    pair_service own = {0};
    sh_status status = begin_service(service, &own);
    if (status == SH_OK) status = answer_until_end(service, &own);
    end_service(service, &own);
    return status;
}

static sh_status pairs_check(sh_scheme scheme, const sh_sync_options *options,
                             const sh_sync_terms *terms) {
    sh_graph graph;
    pairing takes = pairing_of(scheme);
    SH_TRY(sh_graph_find(graph_name(options), terms->workers, &graph));
    if (takes.asker && takes.partner && !graph.kind->symmetric) {
        SH_FAIL(SH_E_USAGE, "scheme '%s' averages in pairs, and graph '%s' leads one way",
                scheme.kind->name, graph.kind->name);
        return sh_error_hint("use --graph ring, torus or complete");
    }
    return sh_refuse_codec(scheme, terms,
                           "needs copies that both sides know, and pairs here meet by chance");
}

static const sh_sync_family pairs_family = {
    .free = true,
    .mails = true,
    .services = pairs_services,
    .create = pairs_create,
    .destroy = pairs_destroy,
    .step = pairs_step,
    .meet = pairs_meet,
    .serve = pairs_serve,
};

const sh_sync_kind sh_sync_adpsgd = {
    .name = "adpsgd",
    .help = "asynchronous gossip: pairs average their models, nobody waits for the slowest",
    .survives = true,
    .reads = "momentum graph",
    .family = &pairs_family,
    .check = pairs_check,
};

const sh_sync_kind sh_sync_gossip_pull = {
    .name = "gossip-pull",
    .help = "gossiping SGD, one-sided: a worker takes the mean with another's model every T steps",
    .amount = "T",
    .amount_least = 1,
    .amount_most = 1e6,
    .amount_initial = 1,
    .periodic = true,
    .survives = true,
    .reads = "momentum graph",
    .family = &pairs_family,
    .check = pairs_check,
};

const sh_sync_kind sh_sync_gossip_push = {
    .name = "gossip-push",
    .help = "gossiping SGD, one-sided: a worker's model goes to another, who takes the mean",
    .amount = "T",
    .amount_least = 1,
    .amount_most = 1e6,
    .amount_initial = 1,
    .periodic = true,
    .survives = true,
    .reads = "momentum graph",
    .family = &pairs_family,
    .check = pairs_check,
};
