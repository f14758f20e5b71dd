/* A learner: what a run trains, and how it learns from the run's data. The loop (run/loop.h) drives
 * one through this table and knows nothing else of it: steps, what is due where the workers hold
 * one model (evaluation, checkpoint, stop), and the lines of metrics are the same for all.
 *
 *   begin -> (step ... step -> merge -> evaluate, save) ... -> finish -> end
 *
 * One row per learner, one file each. The row `net` (run/learner_net.c) is a net with a loss and an
 * optimizer, whose workers agree by a scheme (sync/sync.h). A learner without gradients fills in
 * the same table:
 *
 *   - `own` is its memory. Everything else comes from the run: `run->config` and `run->data`, the
 *     batches of `run->loader` (sh_run_loader), `run->team` (group, rank, sums and broadcasts over
 *     the workers: sh_team_sum, sh_team_broadcast), `run->clock`, `run->log`, `run->at`.
 *   - No optimizer and no scheme: its `step` takes a batch or a pass over this worker's share of
 * the data, sums over the workers what they found, and changes its model in the same way on all of
 *     them. It moves `run->at` on (sh_run_step_done), sets `run->team.stops` to what all agreed on,
 *     and says `meets` after every step; `merge` is then NULL.
 *   - `blocks` names the blocks that are its model and its state; checkpoints, resuming and the
 *     broadcast of rank 0's state at the start go by these names alone.
 *   - `metrics` are its own fields in a line of metrics. */
#ifndef SH_RUN_LEARNER_H
#define SH_RUN_LEARNER_H

#include "base/node.h"
#include "ckpt/checkpoint.h"
#include "data/dataset.h"
#include "nn/loss.h"
#include "obs/metrics.h"
#include "shoal/shoal.h"

struct shoal_run;
struct sh_model_kind;

typedef struct sh_learner_kind sh_learner_kind;

/* A learner of one run; `own` is made and freed by the kind alone. */
typedef struct sh_learner {
    const sh_learner_kind *kind;
    struct shoal_run *run;
    void *own;  // the kind's memory
} sh_learner;

/* What one step gave. */
typedef struct sh_learner_step {
    sh_loss_result
        loss;    // of all workers' samples where every step meets, of this worker's elsewhere
    bool meets;  // the workers merge now, before anything else
    bool late;   // the loss is of a step that had ended before this call
} sh_learner_step;

/* What the loop knows of the losses, before a merge by this worker alone. */
typedef struct sh_learner_merge {
    sh_loss_result since;  // since the last line of metrics
    double loss;           // the newest mean
    double used;  // which part of the samples dealt out since the last merge was learnt from
} sh_learner_merge;

/* What a step computes and sends, for whoever plans or explains a run. */
typedef struct sh_learner_cost {
    double flops;            // of one sample, forward and backward
    double forward_flops;    // of one sample, forward alone
    double parameter_bytes;  // of the model
    double exchanged_bytes;  // that the workers add up in a step, without codec; of one worker
} sh_learner_cost;

enum { SH_LEARNER_SLOTS = 10, SH_LEARNER_METRICS = 8 };

struct sh_learner_kind {
    const char *name, *help;
    /* The run's data and net are there, nothing is loaded yet: makes `own`, with what `blocks`
     * names. NULL: there is none. */
    sh_status (*open)(sh_learner *learner);
    /* Steps of the whole run, at most; NULL: epochs of batches. */
    int64_t (*steps)(const sh_learner *learner);
    /* Collective, when all workers hold the same model and position: makes all that steps need, so
     * that none of them allocates. */
    sh_status (*begin)(sh_learner *learner);
    /* One step of this worker, at most up to step `to` of the run, where something is due. */
    sh_status (*step)(sh_learner *learner, int64_t to, sh_learner_step *step_out);
    /* Collective, after a step that meets: the workers' models become one. NULL: every step ends
     * with one model, and its loss is that of all. */
    sh_status (*merge)(sh_learner *learner, sh_learner_merge *merge_inout);
    /* Collective: the model on a dataset. */
    sh_status (*evaluate)(sh_learner *learner, const sh_dataset *dataset, shoal_result *result_out);
    /* Collective: a checkpoint, which rank 0 writes. Refuses a model that is not finite. */
    sh_status (*save)(sh_learner *learner);
    /* The blocks of a checkpoint, and room for what is read from one. `slots`: room for
     * SH_LEARNER_SLOTS of them beside weights and state. */
    sh_checkpoint (*blocks)(const sh_learner *learner, sh_checkpoint_slot *slots);
    /* They were read from a checkpoint that so many workers have made, 0 where that does not
     * matter. NULL: nothing follows from it. */
    void (*adopt)(sh_learner *learner, int64_t workers);
    /* Its fields in the line of a step, at most SH_LEARNER_METRICS; returns how many. */
    size_t (*metrics)(const sh_learner *learner, const sh_loss_result *since,
                      sh_metric *fields_out);
    sh_learner_cost (*cost)(const sh_learner *learner);
    /* Collective, at the end of a run that went well, or before the team changes: nothing is under
     * way any more. */
    sh_status (*finish)(sh_learner *learner);
    /* Frees `own`, also where begin or a step failed. NULL: there is nothing to free. */
    void (*close)(sh_learner *learner);
};

/* One row per learner. X(name) declares sh_learner_name, at the end of its file: `net` here, the
 * others in src/learn. */
#define SH_LEARNER_LIST(X) \
    X(net)                 \
    X(kmeans)              \
    X(linear)              \
    X(svm)

#define X(name) extern const sh_learner_kind sh_learner_##name;
SH_LEARNER_LIST(X)
#undef X

/* Who learns what a run file's `model:` asks for; an unknown model is a net, which says so. */
const sh_learner_kind *sh_learner_of(const sh_node *model);
/* The row of the named model; NULL: it is a list of layers. */
const struct sh_model_kind *sh_model_kind_of(const sh_node *model);

/* A net that workers hold in stages, where the layout asks for it. */
extern const sh_learner_kind sh_learner_pipe;

#endif
