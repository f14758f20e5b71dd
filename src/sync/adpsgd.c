/* AD-PSGD: asynchronous decentralised parallel SGD (Lian et al., ICML 2018). Nobody waits for the
 * slowest: in every step a worker averages its model with that of one neighbour, whatever step that
 * one is at.
 *
 *   w_i, w_j <- (w_i + w_j) / 2               atomic at j
 *   w_i      <- w_i - lr g_i                  g_i at w_i as it was when the gradient began
 *
 * Two workers that ask each other would wait for ever; so workers are of two kinds, and those that
 * ask (even ones) only ask those that answer (odd ones), whose service answers at any time, also
 * while they compute. Waiting thus has no circles. Averaging keeps the sum of both models.
 *
 * Who asks: sends its model to the service of a neighbour drawn at random, computes its gradient
 * meanwhile, gets the neighbour's model as it was before, averages and takes its step.
 * Who answers: its model is shared with its service; it computes its gradient at a copy.
 *
 * Memory shared between the task of a worker that answers and its service: `shared`, guarded by
 * `lock`, held for a pass over the model and never while waiting for anybody, so in the simulator,
 * where tasks are coroutines, it is always free. Everything else of the worker's side is written in
 * create, before the barrier there; no request reaches a service before that.
 *
 * Service r sits on worker r. Worker 0 asks, so its service answers no averages: it keeps the
 * ledger of steps (sync/ledger.h). */
#include <pthread.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "sync/graph.h"
#include "sync/ledger.h"
#include "sync/list.h"
#include "tensor/kernels/vector.h"

enum { TAG_ASK = 1, TAG_ANSWER, TAG_LEAVE, SEATS_MOST = 4 };

typedef struct adpsgd {
    sh_graph graph;
    bool asks;
    sh_ticket ticket;
    // Who asks:
    float *partner;  // (params->total); NULL: timing only
    sh_message ask, answer;
    // Who answers:
    pthread_mutex_t lock;
    float *shared;  // (params->total) guarded by lock; NULL: timing only
} adpsgd;

static const char *graph_name(const sh_sync_options *options) {
    return strcmp(options->graph, "auto") == 0 ? "complete" : options->graph;
}

static int adpsgd_services(sh_scheme scheme, const sh_sync_options *options, int workers) {
    (void)scheme;
    (void)options;
    return workers;
}

/* ---- create and destroy ---- */

static sh_status make(sh_sync *sync, adpsgd *a) {
    const sh_replica *replica = sync->replica;
    size_t total = replica->params->total;
    SH_TRY(sh_graph_find(graph_name(sync->options), replica->ranks, &a->graph));
    a->asks = sh_graph_asks(&a->graph, replica->rank);
    if (replica->weights == NULL) return SH_OK;
    float *block = sh_alloc(total, sizeof *block);
    if (block == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a model of %zu floats", total);
    if (a->asks) {
        a->partner = block;
    } else {
        a->shared = block;
        sh_vector()->copy(replica->weights, block, total);
    }
    return SH_OK;
}

static sh_status adpsgd_create(sh_sync *sync) {
    adpsgd *a = sync->own = sh_alloc(1, sizeof *a);
    if (a == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for AD-PSGD");
    pthread_mutex_init(&a->lock, NULL);
    SH_TRY(make(sync, a));
    return sh_engine_barrier(sync->replica->engine);
}

/* What was under way is taken back. The model of a worker that answers is the one that is shared.
 */
static void abandon(sh_sync *sync, adpsgd *a) {
    sh_replica *replica = sync->replica;
    sh_ticket_drop(&a->ticket, replica);
    sh_cancel(replica->mail.transport, &a->ask);
    sh_cancel(replica->mail.transport, &a->answer);
    if (a->shared != NULL) sh_vector()->copy(a->shared, replica->weights, replica->params->total);
}

/* After a meeting nothing is under way, so a service's own worker can send it home. */
static void adpsgd_destroy(sh_sync *sync) {
    adpsgd *a = sync->own;
    sh_replica *replica = sync->replica;
    if (a == NULL || (sync->failed && !sync->silent)) return;  // its service may still use it
    if (sync->failed)
        abandon(sync, a);
    else
        sh_mail_put(&replica->mail, replica->ranks + replica->rank, TAG_LEAVE, NULL, 0, "leave");
    pthread_mutex_destroy(&a->lock);
    sh_free(a->partner);
    sh_free(a->shared);
    sh_free(a);
}

/* ---- a worker's step ---- */

/* A neighbour that answers, at random. */
static int draw(const sh_sync *sync) {
    const adpsgd *a = sync->own;
    const sh_replica *replica = sync->replica;
    sh_rng rng = sh_rng_stream(replica->seed, SH_RNG_GOSSIP, (uint32_t)replica->rank,
                               (uint64_t)replica->step);
    for (;;) {
        int edge = (int)sh_rng_below(&rng, (uint64_t)a->graph.degree);
        int peer = sh_graph_to(&a->graph, replica->rank, edge);
        if (!sh_graph_asks(&a->graph, peer)) return peer;
    }
}

static sh_status ask(sh_sync *sync) {
    adpsgd *a = sync->own;
    sh_replica *replica = sync->replica;
    size_t bytes = replica->params->total * sizeof(float);
    int endpoint = replica->ranks + draw(sync);
    a->answer =
        (sh_message){.peer = endpoint, .tag = TAG_ANSWER, .data = a->partner, .bytes = bytes};
    a->ask =
        (sh_message){.peer = endpoint, .tag = TAG_ASK, .data = replica->weights, .bytes = bytes};
    SH_TRY(sh_mail_receive(&replica->mail, &a->answer));
    SH_TRY(sh_mail_send(&replica->mail, &a->ask));
    replica->sent_bytes += bytes;
    replica->dense_bytes += bytes;
    return SH_OK;
}

static sh_status step_asking(sh_sync *sync, sh_loss_result *result_out) {
    adpsgd *a = sync->own;
    sh_replica *replica = sync->replica;
    size_t total = replica->params->total;
    SH_TRY(ask(sync));
    SH_TRY(replica->compute(replica->self, SH_MEAN_OWN, result_out));
    int64_t begin = sh_clock_now_ns(replica->clock);
    SH_TRY(sh_mail_wait(&replica->mail, &a->ask, "ask"));
    SH_TRY(sh_mail_wait(&replica->mail, &a->answer, "answer"));
    replica->waited_ns += sh_clock_now_ns(replica->clock) - begin;
    if (replica->weights != NULL) {
        sh_vector()->add_to(replica->weights, a->partner, total);
        sh_vector()->scale(replica->weights, 0.5F, total);
    }
    sh_replica_update(replica);
    return SH_OK;
}

static sh_status step_answering(sh_sync *sync, sh_loss_result *result_out) {
    adpsgd *a = sync->own;
    sh_replica *replica = sync->replica;
    size_t total = replica->params->total;
    SH_TRY(replica->compute(replica->self, SH_MEAN_OWN, result_out));
    if (replica->weights == NULL) return SH_OK;
    pthread_mutex_lock(&a->lock);
    sh_vector()->copy(a->shared, replica->weights, total);
    sh_replica_update(replica);
    sh_vector()->copy(replica->weights, a->shared, total);
    pthread_mutex_unlock(&a->lock);
    return SH_OK;
}

static sh_status adpsgd_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    adpsgd *a = sync->own;
    sh_replica *replica = sync->replica;
    replica->mail.step = replica->step;
    SH_TRY(sh_ticket_take(&a->ticket, replica, replica->ranks, meets_out));
    if (*meets_out) return SH_OK;
    return a->asks ? step_asking(sync, result_out) : step_answering(sync, result_out);
}

/* Every worker has heard that it is to meet, but one that asks may still be at its last step: only
 * when all have arrived is no average under way. */
static sh_status adpsgd_meet(sh_sync *sync) {
    adpsgd *a = sync->own;
    sh_replica *replica = sync->replica;
    size_t total = replica->params->total;
    SH_TRY(sh_engine_barrier(replica->engine));
    if (a->shared != NULL) {
        pthread_mutex_lock(&a->lock);
        sh_vector()->copy(a->shared, replica->weights, total);
        pthread_mutex_unlock(&a->lock);
    }
    SH_TRY(sh_sync_meet_mean(sync));
    if (a->shared != NULL) {
        pthread_mutex_lock(&a->lock);
        sh_vector()->copy(replica->weights, a->shared, total);
        pthread_mutex_unlock(&a->lock);
    }
    return sh_engine_barrier(replica->engine);
}

/* ---- the service ---- */

/* A place for one who asks. */
typedef struct service_seat {
    float *model;        // as it came, then as it goes back; NULL: timing only
    sh_message message;  // the ask, then the answer
    bool answers;
} service_seat;

typedef struct service_desk {
    service_seat seats[SEATS_MOST];
    int seat_count;
    sh_ledger ledger;
    sh_message leave;
} service_desk;

static sh_status expect(sh_service *service, service_seat *seat) {
    seat->answers = false;
    seat->message = (sh_message){.peer = SH_ANY_RANK,
                                 .tag = TAG_ASK,
                                 .data = seat->model,
                                 .bytes = service->params->total * sizeof(float)};
    return sh_mail_receive(&service->mail, &seat->message);
}

static sh_status open_desk(sh_service *service, service_desk *desk) {
    if (service->index == 0) return sh_ledger_begin(&desk->ledger, service);
    int workers = service->workers;
    desk->seat_count = workers / 2 < SEATS_MOST ? (workers + 1) / 2 : SEATS_MOST;
    for (int i = 0; i < desk->seat_count; i++) {
        service_seat *seat = &desk->seats[i];
        if (service->weights != NULL) {
            seat->model = sh_alloc(service->params->total, sizeof *seat->model);
            if (seat->model == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a partner");
        }
        SH_TRY(expect(service, seat));
    }
    return SH_OK;
}

static void close_desk(sh_service *service, service_desk *desk) {
    if (service->index == 0) sh_ledger_end(&desk->ledger, service);
    sh_cancel(service->mail.transport, &desk->leave);
    for (int i = 0; i < desk->seat_count; i++) {
        sh_cancel(service->mail.transport, &desk->seats[i].message);
        sh_free(desk->seats[i].model);
    }
}

/* Both become the mean; the model that came goes back as this worker's was before. */
static void average(adpsgd *a, float *model, size_t total) {
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < total; i++) {
        float before = a->shared[i];
        a->shared[i] = 0.5F * (before + model[i]);
        model[i] = before;
    }
    pthread_mutex_unlock(&a->lock);
}

static sh_status serve_seat(sh_service *service, service_seat *seat, bool *moved) {
    if (!sh_mail_test(&service->mail, &seat->message)) return SH_OK;
    *moved = true;
    SH_TRY(sh_mail_wait(&service->mail, &seat->message, "ask"));
    if (seat->answers) return expect(service, seat);
    if (seat->model != NULL) average(service->worker->own, seat->model, service->params->total);
    seat->answers = true;
    seat->message = (sh_message){.peer = seat->message.peer,
                                 .tag = TAG_ANSWER,
                                 .data = seat->model,
                                 .bytes = seat->message.bytes};
    return sh_mail_send(&service->mail, &seat->message);
}

static sh_status serve_desk(sh_service *service, service_desk *desk) {
    sh_transport *transport = service->mail.transport;
    desk->leave = (sh_message){.peer = service->index, .tag = TAG_LEAVE};
    SH_TRY(sh_mail_receive(&service->mail, &desk->leave));
    while (!sh_mail_test(&service->mail, &desk->leave)) {
        bool moved = false;
        if (service->index == 0) SH_TRY(sh_ledger_serve(&desk->ledger, service, &moved));
        for (int i = 0; i < desk->seat_count; i++)
            SH_TRY(serve_seat(service, &desk->seats[i], &moved));
        if (moved) continue;
        SH_TRY(sh_service_health(service));
        sh_transport_idle(transport);
    }
    return SH_OK;
}

static sh_status adpsgd_serve(sh_service *service) {
    service_desk desk = {0};
    sh_status status = open_desk(service, &desk);
    if (status == SH_OK) status = serve_desk(service, &desk);
    close_desk(service, &desk);
    return status;
}

static sh_status adpsgd_check(sh_scheme scheme, const sh_sync_options *options,
                              const sh_sync_terms *terms) {
    sh_graph graph;
    SH_TRY(sh_graph_find(graph_name(options), terms->workers, &graph));
    if (!graph.kind->symmetric) {
        SH_FAIL(SH_E_USAGE, "scheme 'adpsgd' averages in pairs, and graph '%s' leads one way",
                graph.kind->name);
        return sh_error_hint("use --graph ring, torus or complete");
    }
    return sh_refuse_codec(scheme, terms,
                           "needs copies that both sides know, and pairs here meet by chance");
}

static const sh_sync_family adpsgd_family = {
    .free = true,
    .mails = true,
    .services = adpsgd_services,
    .create = adpsgd_create,
    .destroy = adpsgd_destroy,
    .step = adpsgd_step,
    .meet = adpsgd_meet,
    .serve = adpsgd_serve,
};

const sh_sync_kind sh_sync_adpsgd = {
    .name = "adpsgd",
    .help = "asynchronous gossip: pairs average their models, nobody waits for the slowest",
    .survives = true,
    .reads = "momentum graph",
    .family = &adpsgd_family,
    .check = adpsgd_check,
};
