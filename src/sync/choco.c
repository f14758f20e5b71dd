#include "sync/choco.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "sync/ps.h"
#include "tensor/kernels/vector.h"

enum { PROBE = 1 << 14 };

struct sh_choco {
    const sh_replica *replica;
    const sh_graph *graph;
    sh_ps_shard all;     // of the parameters: the coder takes messages of shards
    sh_ps_coder coder;   // of differences, without residuals: the copies are the memory
    float *own;          // p_i
    float *others;       // sum of p_j over the neighbours
    float *lag, *coded;  // v, C(v)
    float *scales;       // per tensor, of the message at hand
    char *messages;      // (1 + degree, room): the own one, then those that come
    size_t bytes, room;
    float gamma;  // times the weight of an edge
};

static sh_status out_of_memory(void) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for copies of models");
}

/* ---- How much a codec tells ---- */

/* The multiple of `coded` that is nearest to `lag`. */
static float nearest(const float *coded, const float *lag, size_t count) {
    double product = 0, square = 0;
    for (size_t i = 0; i < count; i++) {
        product += (double)coded[i] * (double)lag[i];
        square += (double)coded[i] * (double)coded[i];
    }
    return square > 0 ? (float)(product / square) : 0;
}

/* The part of |x|^2 that is in the nearest multiple of C(x). */
static sh_status measure(sh_ps_coder *coder, const float *x, float *coded, double *part_out) {
    size_t count = coder->shard->params.total;
    sh_vector()->fill(coder->state, 0, count);
    sh_ps_encode(coder, 0, 0, x);
    SH_TRY(sh_ps_decode(coder, 0, 0, coder->message, coded));
    const float scale = nearest(coded, x, count);
    double left = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        double off = (double)(x[i] - scale * coded[i]);
        left += off * off;
        all += (double)x[i] * (double)x[i];
    }
    *part_out = 1 - left / all;
    return SH_OK;
}

/* A few elements that are far larger than most (cubes of normal ones) are what quantisers find
 * hard, and equal ones what sparse codecs do. */
static sh_status probe(sh_ps_coder *coder, float *x, float *coded, double *delta_out) {
    double uneven, flat;
    sh_rng rng = sh_rng_stream(0, SH_RNG_CODEC, 0, 0);
    for (size_t i = 0; i < PROBE; i++) {
        float draw = sh_rng_normal(&rng);
        x[i] = draw * draw * draw;
    }
    SH_TRY(measure(coder, x, coded, &uneven));
    for (size_t i = 0; i < PROBE; i++) x[i] = x[i] < 0 ? -1 : 1;
    SH_TRY(measure(coder, x, coded, &flat));
    *delta_out = uneven < flat ? uneven : flat;
    return SH_OK;
}

/* A codec that tells the part delta of a difference follows models that move by less than that.
 * delta / (2 - delta) is 1 without loss and half of delta where little is told; the largest steps
 * that were found to converge are above it (docs/schemes.md). The same on all workers. */
static sh_status usual_gamma(const sh_codec *codec, double *gamma_out) {
    sh_param_list params = {0};
    sh_ps_shard shard = {0};
    sh_ps_coder coder = {0};
    double delta = 0;
    float *room = sh_alloc(2 * (size_t)PROBE, sizeof *room);
    sh_status status = room != NULL ? SH_OK : out_of_memory();
    SH_TRY_OUT(status);
    SH_TRY_OUT(sh_param_list_add(&params, "probe", SH_SHAPE(PROBE), true, NULL));
    SH_TRY_OUT(sh_ps_shard_init(&shard, &params, "range", 0, 1));
    SH_TRY_OUT(sh_ps_coder_init(&coder, codec, &shard, 0, true));
    SH_TRY_OUT(probe(&coder, room, room + PROBE, &delta));
    *gamma_out = delta / (2 - delta);
out:
    sh_ps_coder_fini(&coder);
    sh_ps_shard_fini(&shard);
    sh_param_list_fini(&params);
    sh_free(room);
    return status;
}

/* ---- Memory ---- */

static sh_status take_memory(sh_choco *choco) {
    size_t total = choco->all.params.total + 1, degree = (size_t)choco->graph->degree;
    choco->own = sh_alloc(total, sizeof(float));
    choco->others = sh_alloc(total, sizeof(float));
    choco->lag = sh_alloc(total, sizeof(float));
    choco->coded = sh_alloc(total, sizeof(float));
    choco->scales = sh_alloc(choco->all.params.count + 1, sizeof(float));
    choco->room = sh_round_up(choco->bytes, SH_ALIGN);
    choco->messages = sh_alloc(1 + degree, choco->room);
    bool have = choco->own != NULL && choco->others != NULL && choco->lag != NULL &&
                choco->coded != NULL && choco->scales != NULL && choco->messages != NULL;
    return have ? SH_OK : out_of_memory();
}

static sh_status make(sh_choco *choco, double gamma) {
    const sh_replica *replica = choco->replica;
    SH_TRY(sh_ps_shard_init(&choco->all, replica->params, "range", 0, 1));
    const sh_codec nearing = sh_ps_nearing(replica->codec);
    bool computes = replica->weights != NULL;
    SH_TRY(sh_ps_coder_init(&choco->coder, &nearing, &choco->all, replica->seed, computes));
    choco->bytes = choco->coder.bytes + choco->all.params.count * sizeof(float);
    if (!computes) return SH_OK;
    SH_TRY(take_memory(choco));
    if (gamma == 0) SH_TRY(usual_gamma(&nearing, &gamma));
    choco->gamma = (float)(gamma * sh_graph_weight(choco->graph));
    sh_choco_reset(choco);
    return SH_OK;
}

sh_status sh_choco_create(const sh_replica *replica, const sh_graph *graph, double gamma,
                          sh_choco **choco_out) {
    sh_choco *choco = sh_alloc(1, sizeof *choco);
    if (choco == NULL) return out_of_memory();
    *choco = (sh_choco){.replica = replica, .graph = graph};
    sh_status status = make(choco, gamma);
    if (status == SH_OK)
        *choco_out = choco;
    else
        sh_choco_destroy(choco);
    return status;
}

void sh_choco_destroy(sh_choco *choco) {
    if (choco == NULL) return;
    sh_ps_coder_fini(&choco->coder);
    sh_ps_shard_fini(&choco->all);
    sh_free(choco->own);
    sh_free(choco->others);
    sh_free(choco->lag);
    sh_free(choco->coded);
    sh_free(choco->scales);
    sh_free(choco->messages);
    sh_free(choco);
}

void sh_choco_reset(sh_choco *choco) {
    if (choco->own == NULL) return;
    size_t total = choco->all.params.total;
    sh_vector()->copy(choco->replica->weights, choco->own, total);
    sh_vector()->copy(choco->own, choco->others, total);
    sh_vector()->scale(choco->others, (float)choco->graph->degree, total);
}

size_t sh_choco_bytes(const sh_choco *choco) { return choco->bytes; }

void *sh_choco_room(sh_choco *choco, int edge) {
    return choco->messages != NULL ? choco->messages + (size_t)(1 + edge) * choco->room : NULL;
}

/* ---- Writing ---- */

static void follow(const sh_choco *choco, const float *scales, float *copy) {
    for (size_t i = 0; i < choco->all.params.count; i++) {
        const sh_param *item = &choco->all.params.items[i];
        sh_vector()->axpy(scales[i], choco->coded + item->offset, copy + item->offset, item->count);
    }
}

sh_status sh_choco_write(sh_choco *choco, const void **message_out) {
    const sh_replica *replica = choco->replica;
    const sh_param_list *params = &choco->all.params;
    *message_out = choco->messages;
    if (choco->messages == NULL) return SH_OK;
    sh_ps_encode_lag(&choco->coder, replica->rank, replica->step, replica->weights, choco->own,
                     choco->lag);
    memcpy(choco->messages, choco->coder.message, choco->coder.bytes);
    SH_TRY(
        sh_ps_decode(&choco->coder, replica->rank, replica->step, choco->messages, choco->coded));
    float *scales = choco->scales;
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *item = &params->items[i];
        scales[i] = nearest(choco->coded + item->offset, choco->lag + item->offset, item->count);
    }
    memcpy(choco->messages + choco->coder.bytes, scales, params->count * sizeof *scales);
    follow(choco, scales, choco->own);
    return SH_OK;
}

/* ---- Mixing ---- */

static sh_status read_message(sh_choco *choco, int edge) {
    const sh_replica *replica = choco->replica;
    int from = sh_graph_from(choco->graph, replica->rank, edge);
    const char *message = sh_choco_room(choco, edge);
    SH_TRY(sh_ps_decode(&choco->coder, from, replica->step, message, choco->coded));
    float *scales = choco->scales;
    memcpy(scales, message + choco->coder.bytes, choco->all.params.count * sizeof *scales);
    for (size_t i = 0; i < choco->all.params.count; i++)
        if (!isfinite(scales[i]))
            return SH_FAIL(SH_E_FORMAT, "rank %d sent a change of '%s' that is not finite", from,
                           choco->all.params.items[i].name);
    follow(choco, scales, choco->others);
    return SH_OK;
}

sh_status sh_choco_mix(sh_choco *choco) {
    for (int e = 0; e < choco->graph->degree; e++) SH_TRY(read_message(choco, e));
    float *weights = choco->replica->weights;
    const float degree = (float)choco->graph->degree;
    for (size_t i = 0; i < choco->all.params.total; i++)
        weights[i] += choco->gamma * (choco->others[i] - degree * choco->own[i]);
    return SH_OK;
}

sh_status sh_choco_check(sh_scheme scheme, const sh_sync_terms *terms) {
    const sh_codec_kind *kind = terms->codec->kind;
    if (kind == NULL) return SH_OK;
    if (kind->rounds > 1)
        return sh_refuse_codec(scheme, terms, "needs the sum over all workers in two rounds");
    if (kind->owns_momentum)
        return sh_refuse_codec(scheme, terms, "keeps the momentum of gradients, and models travel");
    return SH_OK;
}
