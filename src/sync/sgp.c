/* SGP: stochastic gradient push (Assran et al., ICML 2019). Each worker pushes half of its model to
 * one other in every step, 1, 2, 4, ... ranks on, and waits for no answer.
 *
 *   x_i <- x_i - lr g_i                        g_i at z_i
 *   x_i, m_i <- x_i / 2 + x_j / 2, m_i / 2 + m_j / 2     with what j pushed here
 *   z_i <- x_i / m_i
 *
 * x alone would be biased towards those who receive much; the push-sum weight m travels along and
 * corrects it: z is what is trained, evaluated and saved. Whatever is on its way, the sum of x and
 * that of m, which is the number of workers, stay as they are (mass is conserved).
 *
 * With `sgp:T` a message may be T steps late (overlap, T-OSGP in the paper): it travels while the
 * next T gradients are computed. With T = 0, where all exchange in the same step, every m is 1.
 *
 * An optimizer's step is taken by z and its change is added to x, so that weight decay and trust
 * ratios see the model and not its biased form. */
#include "sync/sgp.h"

#include <string.h>

#include "base/memory.h"
#include "sync/graph.h"
#include "sync/list.h"
#include "tensor/kernels/vector.h"

enum { TAG_PUSH = 1, LATE_MOST = 8, TAIL = sizeof(double) / sizeof(float) };

/* What was pushed in one step: x, and m in the tail. */
typedef struct push {
    sh_message message;
    float *block;   // (params->total + TAIL); NULL: timing only
    double weight;  // m
} push;

typedef struct sgp {
    int late;                                    // T
    float *x;                                    // (params->total); NULL: timing only
    double weight;                               // m
    int64_t pushes;                              // since the last meeting
    int64_t taken;                               // of those that came, received and added
    push out[LATE_MOST + 1], in[LATE_MOST + 1];  // of step k at k mod (T + 1)
} sgp;

static sh_status make_push(push *made, size_t total) {
    made->block = sh_alloc(total + TAIL, sizeof *made->block);
    return made->block != NULL
               ? SH_OK
               : SH_FAIL(SH_E_MEMORY, "out of memory for a push of %zu floats", total);
}

static sh_status sgp_create(sh_sync *sync) {
    const sh_replica *replica = sync->replica;
    size_t total = replica->params->total;
    sgp *s = sync->own = sh_alloc(1, sizeof *s);
    if (s == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for SGP");
    s->late = (int)sync->scheme.amount;
    s->weight = 1;
    if (replica->weights == NULL) return SH_OK;
    s->x = sh_alloc(total, sizeof *s->x);
    if (s->x == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for SGP");
    sh_vector()->copy(replica->weights, s->x, total);
    for (int i = 0; i <= s->late; i++) {
        SH_TRY(make_push(&s->out[i], total));
        SH_TRY(make_push(&s->in[i], total));
    }
    return SH_OK;
}

static void sgp_destroy(sh_sync *sync) {
    sgp *s = sync->own;
    for (int i = 0; s != NULL && i <= LATE_MOST; i++) {
        if (sync->failed) {
            sh_cancel(sync->replica->mail.transport, &s->in[i].message);
            sh_cancel(sync->replica->mail.transport, &s->out[i].message);
        }
        sh_free(s->in[i].block);
        sh_free(s->out[i].block);
    }
    if (s != NULL) sh_free(s->x);
    sh_free(s);
}

double sh_sgp_weight(const sh_sync *sync) { return ((const sgp *)sync->own)->weight; }

double sh_sgp_mass(const sh_sync *sync) {
    const sgp *s = sync->own;
    double mass = s->weight;
    for (int64_t k = s->taken; k < s->pushes; k++) mass += s->out[k % (s->late + 1)].weight;
    return mass;
}

static sh_message message_of(const sh_replica *replica, const push *of, int peer) {
    size_t bytes = (replica->params->total + TAIL) * sizeof(float);
    return (sh_message){.peer = peer, .tag = TAG_PUSH, .data = of->block, .bytes = bytes};
}

static int peer_of(const sh_replica *replica, int sign) {
    int hop = sh_hop(replica->step, replica->ranks);
    return (replica->rank + sign * hop + replica->ranks) % replica->ranks;
}

/* Half of x and m goes, half stays. */
static sh_status push_half(sh_sync *sync) {
    sh_replica *replica = sync->replica;
    sgp *s = sync->own;
    size_t total = replica->params->total;
    push *out = &s->out[s->pushes % (s->late + 1)], *in = &s->in[s->pushes % (s->late + 1)];
    if (s->pushes > s->late) SH_TRY(sh_mail_wait(&replica->mail, &out->message, "push"));
    s->weight = out->weight = s->weight / 2;
    if (s->x != NULL) {
        sh_vector()->scale(s->x, 0.5F, total);
        sh_vector()->copy(s->x, out->block, total);
        memcpy(out->block + total, &out->weight, sizeof out->weight);
    }
    in->message = message_of(replica, in, peer_of(replica, -1));
    out->message = message_of(replica, out, peer_of(replica, 1));
    SH_TRY(sh_mail_receive(&replica->mail, &in->message));
    SH_TRY(sh_mail_send(&replica->mail, &out->message));
    replica->counts.sent_bytes += out->message.bytes;
    replica->counts.dense_bytes += out->message.bytes;
    s->pushes++;
    return SH_OK;
}

/* The oldest push that is on its way to this worker. */
static sh_status take_push(sh_sync *sync) {
    sh_replica *replica = sync->replica;
    sgp *s = sync->own;
    size_t total = replica->params->total;
    push *in = &s->in[s->taken % (s->late + 1)];
    int64_t begin = sh_clock_now_ns(replica->clock);
    SH_TRY(sh_mail_wait(&replica->mail, &in->message, "push"));
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    // Without contents the sender's weight is this worker's own: all are alike.
    in->weight = s->out[s->taken % (s->late + 1)].weight;
    if (s->x != NULL) {
        memcpy(&in->weight, in->block + total, sizeof in->weight);
        sh_vector()->add_to(s->x, in->block, total);
    }
    s->weight += in->weight;
    s->taken++;
    return SH_OK;
}

static void unbias(const sh_sync *sync) {
    const sgp *s = sync->own;
    float *z = sync->replica->weights;
    size_t total = sync->replica->params->total;
    if (z == NULL) return;
    sh_vector()->copy(s->x, z, total);
    if (s->weight != 1) sh_vector()->scale(z, (float)(1 / s->weight), total);
}

/* The optimizer moves z; x moves by as much. */
static void update(const sh_sync *sync) {
    const sgp *s = sync->own;
    sh_replica *replica = sync->replica;
    size_t total = replica->params->total;
    if (s->x != NULL) sh_vector()->axpy(-1, replica->weights, s->x, total);
    sh_replica_update(replica);
    if (s->x != NULL) sh_vector()->add_to(s->x, replica->weights, total);
}

static sh_status sgp_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    (void)meets_out;
    sh_replica *replica = sync->replica;
    const sgp *s = sync->own;
    replica->mail.step = replica->step;
    SH_TRY(replica->ops.compute(replica->ops.self, SH_MEAN_OWN, result_out));
    update(sync);
    SH_TRY(push_half(sync));
    if (s->pushes - s->taken > s->late) SH_TRY(take_push(sync));
    unbias(sync);
    return SH_OK;
}

static sh_status sgp_settle(sh_sync *sync) {
    sh_replica *replica = sync->replica;
    sgp *s = sync->own;
    while (s->taken < s->pushes) SH_TRY(take_push(sync));
    for (int i = 0; i <= s->late && i < s->pushes; i++)
        SH_TRY(sh_mail_wait(&replica->mail, &s->out[i].message, "push"));
    unbias(sync);
    return SH_OK;
}

/* Everything on its way arrives first; then the mean of all x is the model, since all m together
 * are the number of workers. */
static sh_status sgp_meet(sh_sync *sync) {
    sh_replica *replica = sync->replica;
    sgp *s = sync->own;
    size_t total = replica->params->total;
    SH_TRY(sgp_settle(sync));
    s->pushes = s->taken = 0;
    s->weight = 1;
    unbias(sync);
    SH_TRY(sh_sync_meet_mean(sync));
    if (s->x != NULL) sh_vector()->copy(replica->weights, s->x, total);
    return SH_OK;
}

static sh_status sgp_check(sh_scheme scheme, const sh_sync_options *options,
                           const sh_sync_terms *terms) {
    if (strcmp(options->graph, "auto") != 0 && strcmp(options->graph, "exponential") != 0) {
        SH_FAIL(SH_E_USAGE, "scheme 'sgp' pushes along an exponential graph, not '%s'",
                options->graph);
        return sh_error_hint("leave out --graph, or use --sync gossip");
    }
    return sh_refuse_codec(scheme, terms,
                           "loses part of what is pushed, and push-sum counts on all of it");
}

static const sh_sync_family sgp_family = {
    .mails = true,
    .create = sgp_create,
    .destroy = sgp_destroy,
    .step = sgp_step,
    .settle = sgp_settle,
    .meet = sgp_meet,
};

const sh_sync_kind sh_sync_sgp = {
    .name = "sgp",
    .help = "stochastic gradient push: half of the model to one other a step, at most T steps late",
    .amount = "T",
    .amount_least = 0,
    .amount_most = LATE_MOST,
    .amount_initial = 0,
    .survives = true,
    .reads = "momentum graph",
    .family = &sgp_family,
    .check = sgp_check,
};
