/* Parameter servers: what ps, async, ssp, softsync, ksync, backup and easgd have in common (Smola
 * and Narayanamurthy 2010; Dean et al. 2012; Li et al. 2014).
 *
 * The parameters are cut into shards, one for each server. A server is a service (sync/sync.h): it
 * holds the weights of its shard and the optimizer's state, and counts versions: one more with each
 * update. A worker's step is
 *
 *   pull values (and the permit to compute) -> compute a gradient -> push it
 *
 * where a push and the pull that follows are one request. A policy says when a push becomes an
 * update and when a pull is answered; that is all in which the schemes differ.
 *
 *   worker                                     server
 *     | PULL ----------------------------------> |  until the policy allows it
 *     | <------------------- permit, and weights |
 *     | computes; OVER (ksync, backup) may come: |  then PULL and VOID instead of the push
 *     | PUSH and PULL, gradient ---------------> |  update
 *     | <---------------- no permit, and weights |  it is time to meet
 *     | MEET ----------------------------------> |  until all workers have come
 *     | <----- weights; to rank 0 also the slots |
 *     | END -----------------------------------> |  no reply
 *
 * All of them in time: docs/parameter-server.md; the states of a worker in a server: ps_server.h.
 *
 * Shard 0 gives permits for one step at a time, to whoever asks first, and numbers them: the number
 * says which rate of the schedule a step has. When none are left up to the next meeting, or the
 * user wants to stop, it answers that it is time to meet. With fetch_every a worker asks for the
 * permit of its next step (STEP) while it still computes one. */
#ifndef SH_SYNC_PS_H
#define SH_SYNC_PS_H

#include "sync/sync.h"

/* ---- Shards ---- */

/* The parameters of one server, as a small store of its own: pieces of parameters, or whole ones,
 * side by side in a block. */
typedef struct sh_ps_shard {
    sh_param_list params;
    size_t *origin;  // per item: its place in the whole block
    bool straight;   // the shard is one stretch of the whole block
} sh_ps_shard;

/* `placement` "range": equal stretches of the block; "variable": whole tensors, the largest first,
 * each to the server with the least so far. A shard may be empty. */
sh_status sh_ps_shard_init(sh_ps_shard *shard, const sh_param_list *params, const char *placement,
                           int index, int count);
void sh_ps_shard_fini(sh_ps_shard *shard);
/* Between the shard's block and the whole one. */
void sh_ps_shard_take(const sh_ps_shard *shard, const float *whole, float *part_out);
void sh_ps_shard_give(const sh_ps_shard *shard, const float *part, float *whole_out);

static inline size_t sh_ps_shard_bytes(const sh_ps_shard *shard) {
    return shard->params.total * sizeof(float);
}

/* ---- Compressed messages of a shard ----
 * A push is the gradient, with what the codec left out fed back by the worker. A pull is what the
 * server's weights are ahead of those that the worker has, which the server knows: whatever the
 * codec leaves out is still missing at the next pull. That needs a codec that comes nearer with
 * every message, so those that are right on average only (qsgd, terngrad) serve pushes alone.
 * Elastic averaging pushes a difference, too (sync/ps_elastic.h). */

typedef struct sh_ps_coder {
    sh_codec codec;  // kind NULL: values travel as they are
    const sh_ps_shard *shard;
    uint64_t seed;
    size_t bytes;  // of a message
    char *message;
    float *state;  // what was left out
    sh_codec_tensor *tensors;
    sh_arena arena;
} sh_ps_coder;

/* Keeps the shard. Without `computes` it knows sizes alone. */
sh_status sh_ps_coder_init(sh_ps_coder *coder, const sh_codec *codec, const sh_ps_shard *shard,
                           uint64_t seed, bool computes);
void sh_ps_coder_fini(sh_ps_coder *coder);
/* Into coder->message, and the other way. `rank` is the worker's, `step` a number both sides know.
 */
void sh_ps_encode(sh_ps_coder *coder, int rank, int64_t step, const float *x);
sh_status sh_ps_decode(sh_ps_coder *coder, int rank, int64_t step, const char *message,
                       float *x_out);
/* The same without feedback: what was left out of an earlier message is not in it. */
void sh_ps_encode_alone(sh_ps_coder *coder, int rank, int64_t step, const float *x);
/* The difference now - known, alone; `lag` is room for it. */
void sh_ps_encode_lag(sh_ps_coder *coder, int rank, int64_t step, const float *now,
                      const float *known, float *lag);
/* ---- What a scheme promises ---- */

typedef struct sh_ps_policy {
    int group;            // gradients that are averaged into one update
    bool rounds;          // an update takes gradients of its own version alone; others are dropped
    int64_t slack;        // steps that a worker may be ahead of the slowest; -1: any number
    double rate;          // of an update, as a part of the schedule's
    bool staleness;       // the rate is divided by the staleness,
    double per;           // which is counted in so many updates
    double compensation;  // of delay: lambda; 0: none
    double elastic;       // easgd: workers push weights, and this part of the difference moves
    int64_t period;       // steps between two pulls
    int64_t push_every;   // gradients that are added up before they are pushed; 0: one
} sh_ps_policy;

/* What differences travel with: the form of the codec that comes nearer with every message, which
 * is the one that feedback goes with, whether or not gradients have any. */
static inline sh_codec sh_ps_nearing(const sh_codec *codec) {
    sh_codec nearing = *codec;
    if (codec->kind != NULL && codec->kind->feedback == SH_FEEDBACK_USUAL)
        nearing.options.error_feedback = true;
    return nearing;
}

/* What pulls travel with: the codec, or none. */
static inline sh_codec sh_ps_pull_codec(const sh_codec *codec) {
    bool nears = codec->kind != NULL && codec->kind->feedback != SH_FEEDBACK_NEVER;
    return nears ? sh_ps_nearing(codec) : (sh_codec){0};
}

/* What pushes travel with. */
static inline sh_codec sh_ps_push_codec(const sh_ps_policy *policy, const sh_codec *codec) {
    return policy->elastic > 0 ? sh_ps_nearing(codec) : *codec;
}

/* The version of a shard when all workers together have done `steps` steps each. */
static inline int64_t sh_ps_version_at(const sh_ps_policy *policy, int64_t steps, int workers) {
    return policy->rounds ? steps : steps * workers / policy->group;
}

/* An update does without some of a round's gradients: who computes one of those breaks off. */
static inline bool sh_ps_breaks_off(const sh_ps_policy *policy, int workers) {
    return policy->rounds && policy->group < workers;
}

/* Options that all rows read. */
#define SH_PS_READS "servers server_ranks placement"
/* What rows whose workers push gradients keep: the residual of error feedback (ps_residual.c). */
#define SH_PS_STATES                             \
    {                                            \
        { .name = "residual", .feedback = true } \
    }

/* auto, on, off. */
bool sh_ps_staleness(const sh_sync_options *options, bool usual);
/* What no parameter server can do; `stale`: gradients may be of older weights. */
sh_status sh_ps_check(sh_scheme scheme, const sh_sync_options *options, const sh_sync_terms *terms,
                      bool stale);
/* The amount counts gradients of a step: there are no more than workers, and `spare` less may be
 * named. A run that has lost workers goes on with as many as are left (sh_ps_group). */
sh_status sh_ps_check_amount(sh_scheme scheme, const sh_sync_options *options,
                             const sh_sync_terms *terms, int spare);
static inline int sh_ps_group(int wanted, int workers) {
    if (wanted < 1) return 1;
    return wanted < workers ? wanted : workers;
}
/* Every worker talks to every server, so that more of them would only cost links. */
enum { SH_PS_SERVERS_USUAL = 16 };
int sh_ps_services(sh_scheme scheme, const sh_sync_options *options, int workers);

/* ---- On the wire ----
 * A request is a head, and behind it the values of a push; a reply is a head, and behind it values;
 * to rank 0 at a meeting also the optimizer's state. Where gradients may become unwanted, shard 0
 * tells a worker that still computes one as soon as its round is over, with the version that it led
 * to; its next reply says that it did, so such a word is never left behind. */

enum { SH_PS_ASK = 1, SH_PS_PUSHED, SH_PS_ANSWER, SH_PS_VALUES, SH_PS_SLOT, SH_PS_OVER };  // tags

enum {
    SH_PS_PUSH = 1,
    SH_PS_PULL = 2,
    SH_PS_MEET = 4,
    SH_PS_END = 8,
    SH_PS_VOID = 16,   // beside a pull: the gradient was broken off
    SH_PS_MOST = 32,   // exact runs: a push of int64 is answered by the maximum over the workers,
    SH_PS_SUM = 64,    // or by their sum
    SH_PS_STEP = 128,  // alone: a permit for a step between two pulls; shard 0's
};

typedef struct sh_ps_request {
    uint32_t magic, what;
    int64_t step;     // of the worker
    int64_t version;  // that the gradient was computed with
    int64_t round;    // shard 0's version then; -1: nothing was pushed since the meeting
    int64_t goal;     // steps of all workers up to the next meeting
    int64_t sum;      // gradients that the push is the sum of; numbers to combine
} sh_ps_request;

enum { SH_PS_TEXT = 192 };

typedef struct sh_ps_reply {
    uint32_t magic;
    int32_t failed;   // the server's status; SH_OK: values follow
    int64_t told;     // 1: OVER was sent since the last reply, so the worker receives it
    int64_t granted;  // 1: permit for a step, or combined; 0: it is time to meet
    int64_t version;  // of the values
    int64_t done;     // steps of all workers before the one that is granted
    char text[SH_PS_TEXT];
} sh_ps_reply;

enum { SH_PS_MAGIC = 0x73507331 };

/* ---- The two sides ---- */

/* Both by the policy of the row; snapshots are in ps_snapshot.c. */
extern const sh_sync_family sh_ps_family;

sh_status sh_ps_serve(sh_service *service);
sh_status sh_ps_create(sh_sync *sync);
void sh_ps_destroy(sh_sync *sync);
sh_status sh_ps_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out);
sh_status sh_ps_meet(sh_sync *sync);
sh_status sh_ps_snapshot_bytes(const sh_service *like, int index, size_t *bytes_out);
sh_status sh_ps_restore(const sh_service *like, int index, const void *snapshot, float *weights,
                        sh_optim *optim, sh_recovered *recovered_out);

#endif
