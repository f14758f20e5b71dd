/* Gossip: D-PSGD, decentralised parallel SGD (Lian et al., NeurIPS 2017). No server and no
 * all-reduce: each worker talks to its neighbours in a graph (sync/graph.h).
 *
 *   w_i <- sum_j W_ij w_j - lr g_i            g_i at w_i as it was before
 *
 * The models travel while the gradient is computed, since it does not need them. W is doubly
 * stochastic, so mixing leaves the mean of the models alone, and their disagreement falls by the
 * second eigenvalue of W each round. Bytes per step: degree x model, whatever the number of
 * workers.
 *
 * Without overlap a worker takes its step first and mixes then, which costs the time of the
 * messages and keeps the models closer together:
 *
 *   w_i <- sum_j W_ij (w_j - lr g_j)
 *
 * On a complete graph with plain SGD that is bulk-synchronous training.
 *
 * All receives and sends of a round are under way at once, so it cannot deadlock. A neighbour may
 * be one round ahead; its next model waits behind this one, since messages keep their order.
 *
 * Through a codec the same takes place between public copies of the models (sync/choco.h).
 *
 * At a meeting the models become their mean, which is the model that the scheme stands for. */
#include <string.h>

#include "base/memory.h"
#include "sync/cost.h"
#include "sync/choco.h"
#include "sync/list.h"
#include "tensor/kernels/vector.h"

enum { TAG_MODEL = 1 };

typedef struct gossip {
    sh_graph graph;
    float *models;                 // (degree, params->total) of the neighbours; NULL: timing only
    sh_message *sends, *receives;  // (degree)
    sh_choco *choco;               // through a codec, instead of the models; NULL: without
} gossip;

static const char *graph_name(const sh_sync_options *options) {
    return strcmp(options->graph, "auto") == 0 ? "ring" : options->graph;
}

static sh_status gossip_create(sh_sync *sync) {
    const sh_replica *replica = sync->replica;
    gossip *g = sync->own = sh_alloc(1, sizeof *g);
    if (g == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for gossip");
    SH_TRY(sh_graph_find(graph_name(sync->options), replica->ranks, &g->graph));
    size_t degree = (size_t)g->graph.degree, total = replica->params->total;
    g->sends = sh_alloc(degree, sizeof *g->sends);
    g->receives = sh_alloc(degree, sizeof *g->receives);
    bool coded = replica->codec->kind != NULL;
    bool whole = !coded && replica->weights != NULL;
    if (whole) g->models = sh_alloc(degree * total, sizeof *g->models);
    if (g->sends == NULL || g->receives == NULL || (whole && g->models == NULL))
        return SH_FAIL(SH_E_MEMORY, "out of memory for the models of %zu neighbours", degree);
    return coded ? sh_choco_create(replica, &g->graph, sync->options->mixing, &g->choco) : SH_OK;
}

static void gossip_destroy(sh_sync *sync) {
    gossip *g = sync->own;
    if (g == NULL) return;
    for (int e = 0; sync->failed && g->sends != NULL && g->receives != NULL && e < g->graph.degree;
         e++) {
        sh_cancel(sync->replica->mail.transport, &g->receives[e]);
        sh_cancel(sync->replica->mail.transport, &g->sends[e]);
    }
    sh_free(g->sends);
    sh_free(g->receives);
    sh_free(g->models);
    sh_choco_destroy(g->choco);
    sh_free(g);
}

static float *model_of(const gossip *g, int edge, size_t total) {
    return g->models != NULL ? g->models + (size_t)edge * total : NULL;
}

static void *room_of(const gossip *g, int edge, size_t total) {
    return g->choco != NULL ? sh_choco_room(g->choco, edge) : model_of(g, edge, total);
}

static sh_status start(sh_sync *sync) {
    sh_replica *replica = sync->replica;
    gossip *g = sync->own;
    size_t total = replica->params->total, whole = total * sizeof(float);
    size_t bytes = g->choco != NULL ? sh_choco_bytes(g->choco) : whole;
    const void *message = replica->weights;
    replica->mail.step = replica->step;
    if (g->choco != NULL) SH_TRY(sh_choco_write(g->choco, &message));
    for (int e = 0; e < g->graph.degree; e++) {
        g->receives[e] = (sh_message){.peer = sh_graph_from(&g->graph, replica->rank, e),
                                      .tag = TAG_MODEL,
                                      .data = room_of(g, e, total),
                                      .bytes = bytes};
        SH_TRY(sh_mail_receive(&replica->mail, &g->receives[e]));
    }
    for (int e = 0; e < g->graph.degree; e++) {
        g->sends[e] = (sh_message){.peer = sh_graph_to(&g->graph, replica->rank, e),
                                   .tag = TAG_MODEL,
                                   .data = (void *)(uintptr_t)message,
                                   .bytes = bytes};
        SH_TRY(sh_mail_send(&replica->mail, &g->sends[e]));
    }
    replica->counts.sent_bytes += (uint64_t)g->graph.degree * bytes;
    replica->counts.dense_bytes += (uint64_t)g->graph.degree * whole;
    return SH_OK;
}

static sh_status finish(sh_sync *sync) {
    sh_replica *replica = sync->replica;
    gossip *g = sync->own;
    int64_t begin = sh_clock_now_ns(replica->clock);
    for (int e = 0; e < g->graph.degree; e++)
        SH_TRY(sh_mail_wait(&replica->mail, &g->receives[e], "gossip"));
    for (int e = 0; e < g->graph.degree; e++)
        SH_TRY(sh_mail_wait(&replica->mail, &g->sends[e], "gossip"));
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    return SH_OK;
}

static sh_status check_sizes(const gossip *g) {
    for (int e = 0; e < g->graph.degree; e++)
        if (g->receives[e].bytes != sh_choco_bytes(g->choco))
            return SH_FAIL(SH_E_FORMAT, "rank %d sent %zu bytes of its model's change, not %zu",
                           g->receives[e].peer, g->receives[e].bytes, sh_choco_bytes(g->choco));
    return SH_OK;
}

/* All weights of W are equal. */
static sh_status mix(const sh_sync *sync) {
    const gossip *g = sync->own;
    float *weights = sync->replica->weights;
    size_t total = sync->replica->params->total;
    if (weights == NULL) return SH_OK;
    if (g->choco != NULL) {
        SH_TRY(check_sizes(g));
        return sh_choco_mix(g->choco);
    }
    for (int e = 0; e < g->graph.degree; e++)
        sh_vector()->add_to(weights, model_of(g, e, total), total);
    sh_vector()->scale(weights, (float)sh_graph_weight(&g->graph), total);
    return SH_OK;
}

static sh_status gossip_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    (void)meets_out;
    sh_replica *replica = sync->replica;
    if (replica->overlap) SH_TRY(start(sync));
    SH_TRY(replica->ops.compute(replica->ops.self, SH_MEAN_OWN, result_out));
    if (!replica->overlap) {
        sh_replica_update(replica);
        SH_TRY(start(sync));
    }
    SH_TRY(finish(sync));
    SH_TRY(mix(sync));
    if (replica->overlap) sh_replica_update(replica);
    return SH_OK;
}

static sh_status gossip_meet(sh_sync *sync) {
    const gossip *g = sync->own;
    SH_TRY(sh_sync_meet_mean(sync));
    if (g->choco != NULL) sh_choco_reset(g->choco);
    return SH_OK;
}

static sh_status gossip_check(sh_scheme scheme, const sh_sync_options *options,
                              const sh_sync_terms *terms) {
    sh_graph graph;
    SH_TRY(sh_graph_find(graph_name(options), terms->workers, &graph));
    if (options->mixing > 0 && terms->codec->kind == NULL && terms->workers > 1) {
        SH_FAIL(SH_E_USAGE, "--mixing is the step of gossip through a codec, and there is none");
        return sh_error_hint("leave it out, or add --compress");
    }
    return sh_choco_check(scheme, terms);
}

/* A model to each neighbour, one after the other over the worker's link. */
static sh_sync_cost gossip_cost(const sh_sync_load *load) {
    sh_graph graph;
    if (sh_graph_find(graph_name(load->options), load->workers, &graph) != SH_OK)
        return (sh_sync_cost){0};
    double bytes = sh_cost_model_bytes(load);
    return (sh_sync_cost){.sent_bytes = (double)load->workers * graph.degree * bytes,
                          .seconds = load->link.alpha_s + graph.degree * bytes * load->link.beta_s};
}

static const sh_sync_family gossip_family = {
    .mails = true,
    .create = gossip_create,
    .destroy = gossip_destroy,
    .step = gossip_step,
    .meet = gossip_meet,
    .cost = gossip_cost,
};

const sh_sync_kind sh_sync_gossip = {
    .name = "gossip",
    .help = "D-PSGD: models are mixed with those of the neighbours in --graph, no server",
    .survives = true,
    .reads = "momentum graph mixing",
    .family = &gossip_family,
    .check = gossip_check,
};
