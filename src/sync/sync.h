/* Schemes: how the workers of a run agree on the parameters. One file and one row each
 * (sync/list.h).
 *
 * A scheme sees its worker as a replica: blocks of weights and gradients, a way to compute the
 * gradient of the next batch, collectives with the other workers, and mail. It is written against
 * ranks, tags, tasks and the clock it is given, so the same code runs on shared memory, under MPI
 * and in the simulator; where the weights are NULL only time is simulated, and messages have sizes
 * without contents.
 *
 * Between two meetings the workers go their ways. In a lockstep scheme each does the same number of
 * steps; in a free one each goes as fast as it can until all together have done as many steps as
 * there were to do. At a meeting all replicas get the one model that the scheme stands for: it is
 * evaluated and saved, and training goes on from it.
 *
 * Mail is a transport of its own, with the workers as ranks 0 .. P - 1 and behind them the scheme's
 * services: tasks beside the workers that answer while these compute (parameter servers, passive
 * partners). Service s sits on worker s mod P, or, of parameter servers, on a rank of its own. */
#ifndef SH_SYNC_SYNC_H
#define SH_SYNC_SYNC_H

#include "base/trace.h"
#include "codec/codec.h"
#include "codec/exchange.h"
#include "comm/engine.h"
#include "nn/loss.h"
#include "nn/param.h"
#include "optim/optim.h"
#include "optim/schedule.h"
#include "sync/hogwild_sparse.h"
#include "sync/mail.h"
#include "sync/reducer.h"
#include "sync/statistics.h"

typedef struct sh_sync_kind sh_sync_kind;
typedef struct sh_sync_load sh_sync_load;  // sync/cost.h
typedef struct sh_sync_cost sh_sync_cost;

/* The rows of the group "Schemes" in the options of a run. */
typedef struct sh_sync_options {
    char *name;           // with its amount: "ssp:3"
    int64_t servers;      // shards of the parameters; 0: one for each worker, 16 at most
    char *server_ranks;   // shared: servers sit on workers; own: behind them
    char *placement;      // range: equal parts; variable: whole tensors
    char *staleness;      // auto, on, off: the rate is divided by the staleness
    double compensation;  // of delay: lambda of DC-ASGD; 0: none
    int64_t fetch_every, push_every;  // async: steps between two pulls, and between two pushes
    char *momentum;                   // where models are averaged: auto, average, keep, reset
    char *graph;                      // who gossips with whom: auto, or a graph's name
    int64_t snapshot_every;           // parameter servers: updates between two snapshots of a shard
    double mixing;                    // gossip through a codec: gamma; 0: by the codec
    sh_own_block own;                 // of single schemes
} sh_sync_options;

extern const sh_option_table sh_sync_table;  // for sh_sync_options; options.c

/* A scheme with its amount, as written: "ssp:3". */
typedef struct sh_scheme {
    const sh_sync_kind *kind;
    double amount;  // S, H, K, ...; 0 where the scheme has none
} sh_scheme;

/* Parameter servers have ranks of their own. */
bool sh_sync_apart(const sh_sync_options *options);
/* One worker alone needs no scheme, but for servers that stand apart. */
static inline bool sh_sync_acts(const sh_sync_options *options, int workers) {
    return workers > 1 || sh_sync_apart(options);
}

enum { SH_SCHEME_TEXT = 48 };

sh_status sh_scheme_parse(const char *text, sh_scheme *scheme_out);
/* "ssp:3", as sh_scheme_parse reads it. Returns text_out. */
const char *sh_scheme_text(sh_scheme scheme, char text_out[SH_SCHEME_TEXT]);

/* What a gradient is the mean over. */
typedef enum sh_mean {
    SH_MEAN_GLOBAL,  // its samples, divided by those of the whole batch that count: the workers'
                     // sum is the gradient of one worker with that batch
    SH_MEAN_OWN,     // that times the workers: the mean over its own samples where shares are
                     // equal, and weighted by the share where not, so that nothing is biased
} sh_mean;

/* Staleness of the updates, counted: how many others came between a worker's look at the weights
 * and its own update. */
enum { SH_STALENESS_MOST = 64 };
typedef struct sh_staleness {
    uint64_t count[SH_STALENESS_MOST + 1];  // the last: that many or more
    uint64_t updates, sum, most;
} sh_staleness;

static inline void sh_staleness_add(sh_staleness *staleness, uint64_t tau) {
    staleness->count[tau < SH_STALENESS_MOST ? tau : SH_STALENESS_MOST]++;
    staleness->updates++;
    staleness->sum += tau;
    if (tau > staleness->most) staleness->most = tau;
}

/* What a scheme keeps from meeting to meeting and a resumed run goes on with: a block of floats of
 * the run, zero as it begins, that checkpoints hold under its name. */
enum { SH_SYNC_STATES = 2 };
typedef struct sh_sync_state {
    const char *name;  // NULL: none
    size_t count;      // 0: one for each parameter, in their layout
    bool feedback;     // of a codec, and only with one that feeds back; the last
} sh_sync_state;

/* What steps that all workers take together do beside summing, by the options of the run. */
typedef struct sh_step_options {
    size_t bucket_bytes;           // gradients that travel together
    double clip_norm, clip_value;  // of the whole gradient; 0: not clipped
    bool shards;                   // each worker keeps the optimizer's state of its part alone
    bool fuses_update;             // parameters are updated on the way of their sums
    bool drops_paths;              // a step may leave parameters unused
    bool common_statistics;        // running statistics are equal on all workers anyway
    const sh_shared *gradients, *weights;  // that hold the blocks; NULL: private memory
} sh_step_options;

/* Set by a scheme, for the run to call while it computes, with `who`. */
typedef struct sh_replica_hooks {
    /* Asked while it computes; true: nobody wants the gradient any more, and it says so until the
     * next one. `compute` then breaks off. NULL: gradients are always wanted. */
    bool (*unwanted)(void *who);
    /* Of schemes that serve exact runs: the numbers of all workers become their maximum or sum.
     * True in `*over_out`: the workers meet instead, and `compute` breaks off. NULL: one worker. */
    sh_status (*combine)(void *who, sh_reduce_op op, int64_t *values, size_t count, bool *over_out);
    /* The losses of the worker's whole batch are known, and the last backward begins. NULL: nobody
     * sends while backward runs. */
    sh_status (*begins)(void *who, const sh_loss_result *losses);
    void (*ready)(void *who, size_t param);  // its gradient is final; the last parameters first
    /* Timing only: the first of the parameters that travel with the last of `end` ones. */
    size_t (*bucket_begin)(void *who, size_t end);
    void *who;
} sh_replica_hooks;

/* What a scheme asks of the run, with `self`. */
typedef struct sh_replica_ops {
    /* Forward and backward over this worker's next batch, with the weights as they stand. */
    sh_status (*compute)(void *self, sh_mean mean, sh_loss_result *result_out);
    /* Of a net that takes sparse rows, instead of `compute`: the next batch, until the one after.
     * Its `whole` is that of SH_MEAN_OWN. */
    const sh_sparse_layer *sparse;  // NULL: the net is dense
    sh_status (*next_sparse)(void *self, sh_sparse_batch *batch_out);
    /* The weights are those in `memory` from now on, for `compute` too; NULL: the replica's own
     * again. Contents are not copied. */
    void (*place)(void *self, float *memory);
    /* The user wants the run to end at once; NULL: nobody can. */
    bool (*stops)(void *self);
    /* Of an exact run: the optimizer's step, by all threads; NULL: sh_optim_apply. */
    void (*apply)(void *self, const sh_optim_step *step);
    /* Of a replica that is spread over several workers: the squares of its whole gradient, of
     * which each has a part. NULL: it is not. */
    sh_status (*squares)(void *self, double *squares_out);
    void *self;
} sh_replica_ops;

/* The batch that was taken last. */
typedef struct sh_replica_batch {
    int64_t samples;   // in this worker's part of it
    bool broke_off;    // nobody wanted it: it is gone, and there is no gradient
    bool *unused;      // per parameter: no sample had a use for it; NULL: unknown
    bool stops_now;    // a worker was asked to stop, and the sums of this step told all of them
    double grad_norm;  // before clipping, where a scheme clips what all workers summed
} sh_replica_batch;

/* Steps of all workers together. */
typedef struct sh_replica_all {
    int64_t done;   // as the last permit or meeting told this worker
    int64_t goal;   // by the next meeting
    int64_t total;  // at the end of the run
} sh_replica_all;

/* What a scheme counts on a worker. */
typedef struct sh_replica_counts {
    uint64_t sent_bytes, dense_bytes;  // by this worker
    int64_t waited_ns;                 // for others
    int64_t updated_ns;                // spent in updates, of steps of all workers together
    int64_t updates;                   // of this replica
    sh_staleness staleness;            // of updates of this replica; a service counts its own
} sh_replica_counts;

/* A worker as its scheme sees it. */
typedef struct sh_replica {
    int rank, ranks;  // of the workers
    sh_group *group;  // collectives with the other workers; NULL: there is none
    sh_mail mail;     // unless the scheme uses none
    const sh_clock *clock;
    const sh_trace *trace;
    const sh_param_list *params;
    float *weights, *gradients;      // whole blocks; NULL: timing only
    const sh_fixed_gradient *fixed;  // instead of `gradients`, of an exact run; NULL: it is none
    sh_statistics statistics;        // running statistics of the net
    float *state[SH_SYNC_STATES];    // as the kind's states say; NULL: none, or timing only
    float *spare;  // room for the largest block, where a peer's death must leave the blocks whole;
                   // NULL: it ends the run
    sh_optim *optim;  // this worker's own
    const sh_schedule *schedule;
    const sh_codec *codec;         // kind NULL: none
    const sh_step_options *steps;  // of workers that step together
    uint64_t seed;
    bool overlap;  // what may travel while the gradient is computed does
    int64_t step;  // steps that this worker has done in the run
    sh_replica_all all;
    sh_replica_ops ops;
    sh_replica_hooks hooks;
    sh_replica_batch batch;
    sh_replica_counts counts;
} sh_replica;

/* One worker's side of a scheme. */
typedef struct sh_sync {
    sh_scheme scheme;
    const sh_sync_options *options;
    sh_replica *replica;
    void *own;    // the kind's
    bool failed;  // a call of it did, or the run around it: nobody may be waited for any more
    bool silent;  // its services on this worker have ended: nobody else uses its memory
} sh_sync;

/* What a service counts. */
typedef struct sh_service_counts {
    sh_staleness staleness;
    uint64_t updates;  // steps of the optimizer on its shard
    uint64_t dropped;  // gradients that came too late to count, or were broken off
} sh_service_counts;

/* A service, seen from its own task. Its memory outlives the task. */
typedef struct sh_service {
    int index, count, workers;
    sh_mail mail;  // its own endpoint, rank workers + index
    sh_scheme scheme;
    const sh_sync_options *options;
    const sh_param_list *params;
    const float *weights;   // as the run begins; NULL: timing only
    const sh_optim *optim;  // its kind and options, and its state as the run begins
    const sh_schedule *schedule;
    const sh_codec *codec;
    uint64_t seed;
    int64_t step;          // global steps that were done before
    size_t combined_most;  // exact runs: numbers that workers combine at a time; 0: it is none
    /* Of the worker that it sits with, complete once `create` has returned there. What a service
     * may touch of it, and how, the kind says. NULL: it has a rank of its own. */
    sh_sync *worker;
    /* Asked from time to time: the user wants the run to end at once. */
    bool (*stops)(void *user);
    /* And: nobody needs it any more, so it ends with SH_E_PEER. NULL: that does not happen. */
    bool (*quits)(void *user);
    void *user;
    void *snapshot;  // as long as family->snapshot_bytes says, zeroed; outlives it. NULL: nobody
                     // would read it
    sh_service_counts counts;  // read when the task has ended
} sh_service;

/* For the loop of a service, while it has nothing to do: SH_E_PEER once a peer has left, or nobody
 * needs it any more. */
sh_status sh_service_health(const sh_service *service);

/* What a service left behind in its snapshot. */
typedef struct sh_recovered {
    bool ended;                // in order, or because others died: nothing is lost
    int64_t updates;           // that are in it
    int64_t lost;              // that came after it
    sh_service_counts counts;  // of one that ended
} sh_recovered;

/* What a scheme must get along with. */
typedef struct sh_sync_terms {
    int workers;
    int planned;  // workers that the run began with, where some are lost; 0: as many
    const sh_optim_kind *optim;
    const sh_codec *codec;  // kind NULL: none
    bool exact, shard_optimizer, balance, clips, parts, drops_paths, sync_batchnorm;
    bool simulated;
} sh_sync_terms;

/* How the workers and services of a scheme act. Rows that differ in a policy alone share it. */
typedef struct sh_sync_family {
    bool free;      // not in lockstep
    bool mails;     // uses mail
    bool together;  // each step is one of all workers: it ends with one model, and `step` gives the
                    // loss of all; nothing else is done where they meet
    /* Collective, before a checkpoint is read: what the row keeps in it. NULL: replica->state is
     * all. Where it is there, `create` follows once the run's position is known. */
    sh_status (*open)(sh_sync *sync);
    /* What `open` has made for checkpoints; returns how many. NULL: nothing. */
    size_t (*blocks)(const sh_sync *sync, sh_exchange_state blocks_out[SH_EXCHANGE_STATES]);
    /* They were read from a checkpoint of so many workers. */
    void (*adopt)(sh_sync *sync, int workers_before);
    /* Collective, before a checkpoint: what the workers hold apart becomes one, and is whole on
     * rank 0. And after it: what is needed for checkpoints alone may go again. */
    sh_status (*save)(sh_sync *sync);
    void (*saved)(sh_sync *sync);
    /* Endpoints besides the workers'; NULL: none. */
    int (*services)(sh_scheme scheme, const sh_sync_options *options, int workers);
    /* Collective. All replicas have the same weights, which are those of the services, too. */
    sh_status (*create)(sh_sync *sync);
    /* Also where create failed, and after a step failed: then it must not wait for anybody. */
    void (*destroy)(sh_sync *sync);
    /* One step of this worker. A free scheme that has nothing left to do before the meeting says so
     * in `*meets_out` and computes nothing. */
    sh_status (*step)(sh_sync *sync, sh_loss_result *result_out, bool *meets_out);
    /* Lockstep, where mail may be under way between steps: all of it arrives, before the workers
     * wait for each other elsewhere. NULL: none is. */
    sh_status (*settle)(sh_sync *sync);
    /* Collective: all replicas get the model that the scheme stands for, and its optimizer's state
     * where that lies elsewhere (rank 0's is saved). */
    sh_status (*meet)(sh_sync *sync);
    /* A service's task; returns when every worker has left. */
    sh_status (*serve)(sh_service *service);
    /* Where services hold the model, for rows that survive: bytes of the snapshot of service
     * `index`, and what is in one: into weights and optimizer. NULL: the replicas hold it. */
    sh_status (*snapshot_bytes)(const sh_service *like, int index, size_t *bytes_out);
    sh_status (*restore)(const sh_service *like, int index, const void *snapshot, float *weights,
                         sh_optim *optim, sh_recovered *recovered_out);
    /* What a step of several workers sends and how long that takes (sync/cost.h); NULL: there is no
     * closed form. */
    sh_sync_cost (*cost)(const sh_sync_load *load);
} sh_sync_family;

struct sh_sync_kind {
    const char *name, *help;  // help: what it promises
    const char *alias;        // another name that users know; NULL: none
    const char *amount;       // "S"; NULL: none
    double amount_least, amount_most, amount_initial;
    bool periodic;  // the amount is how many steps a worker goes alone
    bool survives;  // a worker's death: the others regroup and go on with the model that they hold
    bool sparse;    // its workers can step with sparse rows (sh_replica.sparse)
    bool exact;     // sums every step's gradients of all workers, also in fixed point
    const char *reads;   // options of sh_sync_options that mean something to it, by key: words
    sh_own_options own;  // options that it alone has: sh_sync_own
    sh_sync_state states[SH_SYNC_STATES];
    const sh_sync_family *family;
    /* Refuses, with a reason and a hint, what does not go together; NULL: nothing. */
    sh_status (*check)(sh_scheme scheme, const sh_sync_options *options,
                       const sh_sync_terms *terms);
    /* Of the rows that parameter servers serve (sync/ps.h): in what they differ. */
    struct sh_ps_policy (*policy)(sh_scheme scheme, const sh_sync_options *options, int workers);
};

/* Workers go their ways between meetings; otherwise they step together, as many as there are. */
static inline bool sh_scheme_acts(sh_scheme scheme, const sh_sync_options *options, int workers) {
    return !scheme.kind->family->together && sh_sync_acts(options, workers);
}
/* What as many workers do that a run has now. One that has no others trains alone; where a scheme
 * of several does not act, all that there are sum every step. */
sh_scheme sh_scheme_of(sh_scheme scheme, const sh_sync_options *options, int workers,
                       bool has_engine);

/* Further rows, which a program defines that has schemes of its own; ends with NULL. */
extern const sh_sync_kind *const sh_sync_more[] __attribute__((weak, visibility("hidden")));

const sh_own_options *sh_sync_own_at(size_t index);  // sh_own_at of this registry
/* The struct of a kind's own options. */
const void *sh_sync_own(const sh_sync_options *options, const sh_sync_kind *kind);

const sh_sync_kind *sh_sync_find(const char *name);  // NULL: unknown
const sh_sync_kind *sh_sync_at(size_t index);        // NULL: past the end
/* Whether `option`, the key without "sync.", means anything to the kind. */
bool sh_sync_reads(const sh_sync_kind *kind, const char *option);
/* What no kind of scheme can do with these terms, and what this one cannot. */
sh_status sh_scheme_check(sh_scheme scheme, const sh_sync_options *options,
                          const sh_sync_terms *terms);
static inline int sh_scheme_services(sh_scheme scheme, const sh_sync_options *options,
                                     int workers) {
    const sh_sync_family *family = scheme.kind->family;
    return family->services != NULL ? family->services(scheme, options, workers) : 0;
}

/* The replica's own optimizer takes a step with the gradient block, at the rate of the step that
 * all workers are at. */
void sh_replica_update(sh_replica *replica);
/* A step of all workers together: the optimizer on parameters whose gradients are those of all. The
 * caller says which, and what it knows of them. */
void sh_replica_apply(sh_replica *replica, sh_optim_step step);
/* Clips a part of the gradient by value; returns its squares where its norm is clipped, too. */
double sh_replica_clip(const sh_replica *replica, size_t low, size_t high);
/* Collective: a block of floats becomes its mean over the workers. `data` NULL: timing only. With a
 * spare block it stays as it was where that fails. */
sh_status sh_replica_average(sh_replica *replica, float *data, size_t count);

/* What becomes of the optimizer's state where the models become one. */
typedef enum sh_momentum { SH_MOMENTUM_AVERAGE, SH_MOMENTUM_KEEP, SH_MOMENTUM_RESET } sh_momentum;
/* The policy in the options; `usual`: where they leave it to the scheme. */
sh_momentum sh_sync_momentum(const sh_sync_options *options, sh_momentum usual);
/* Collective: the optimizer's state, by policy. */
sh_status sh_replica_average_optim(sh_replica *replica, sh_momentum policy);
/* family->meet of schemes whose model is the mean of the replicas': averages them, and the
 * optimizer's state unless it is to be reset; also where workers keep their own, since one
 * checkpoint speaks for all. */
sh_status sh_sync_meet_mean(sh_sync *sync);
/* For kind->check: "codec 'x' does not go with scheme 'y': it WHY". Lets runs without one pass. */
sh_status sh_refuse_codec(sh_scheme scheme, const sh_sync_terms *terms, const char *why);

#endif
