/* A run: what shoal_run_open makes and the files of this folder work on. */
#ifndef SH_RUN_RUN_H
#define SH_RUN_RUN_H

#include "ckpt/checkpoint.h"
#include "data/loader.h"
#include "obs/chrome_trace.h"
#include "obs/metrics.h"
#include "obs/run_log.h"
#include "shoal/shoal.h"
#include "run/config.h"
#include "run/learner.h"
#include "run/need.h"
#include "sync/sync.h"
#include "run/scheme_state.h"
#include "run/model.h"
#include "run/split.h"
#include "run/team.h"

/* The public handle of a config: keeps the fields of sh_config out of the public header. */
struct shoal_config {
    sh_config config;
};

/* Where the time of a run goes. */
typedef struct sh_time_spent {
    int64_t data_ns, compute_ns, update_ns, eval_ns, checkpoint_ns;
    int64_t exposed_ns;  // communication that computing did not hide
} sh_time_spent;

/* What this worker and the services of its scheme that sat on it counted. */
typedef struct sh_scheme_counts {
    int64_t updates;       // of this worker's own replica
    int64_t alone;         // steps of a worker that was left alone, or of all who sum every step
    double shard_updates;  // of the services on it, as parts of updates of the whole model
    uint64_t stale_updates, stale_sum, stale_most;
    sh_staleness histogram;  // of the service that leads, as long as it sat here
    uint64_t dropped;        // gradients, by that service
} sh_scheme_counts;

/* Copies of the hooks'; NULL: as there. */
typedef struct sh_run_folders {
    char *data, *cache;
} sh_run_folders;

/* Momentum that a codec applies instead of the optimizer. */
typedef struct sh_codec_momentum {
    double momentum;
    bool nesterov;
} sh_codec_momentum;

/* One sample of a dataset, in bytes, and the rows it gives the loss. */
typedef struct sh_sample_sizes {
    size_t x_bytes, y_bytes;
    int64_t rows;
} sh_sample_sizes;

/* What a run writes (run/folder.c). */
typedef struct sh_run_files {
    char *folder;      // NULL until training begins
    int folder_claim;  // an open file, locked: no other run writes there; 0: none
    sh_metrics *metrics;
    sh_tensorboard *tensorboard;  // NULL unless it is asked for
    sh_run_log *run_log;
    sh_chrome_trace *trace_file;
    sh_trace trace;
} sh_run_files;

/* How far a run has come. */
typedef struct sh_position {
    int64_t step, epoch, batch;  // finished steps; the epoch in progress and its finished batches
    int64_t samples;             // seen over the whole run
    int64_t samples_here;        // seen by this process
    int64_t first_step;          // where this process began
    int64_t paid;  // the last step after which what was due (evaluation, checkpoint) was done
} sh_position;

/* How far it will go. */
typedef struct sh_length {
    int64_t steps;  // of the whole run
    int64_t steps_per_epoch;
    int64_t eval_every;  // steps; 0: an epoch
} sh_length;

/* What this worker has counted and timed. */
typedef struct sh_run_stats {
    uint64_t sent_bytes, dense_bytes;  // by this worker, and what it would be without a codec
    double grad_norm;                  // before clipping, of the last step
    sh_time_spent spent;
    int64_t start_ns, loop_ns;  // began to train; its first step
} sh_run_stats;

/* What came of it so far. */
typedef struct sh_run_results {
    double best;                    // test accuracy, or minus the test loss
    shoal_result test, validation;  // the last evaluation; samples 0: none
    bool saved;                     // there is a checkpoint to go back to
} sh_run_results;

/* One worker's run, from sh_run_open to shoal_run_close. Its main task owns it; services of the
 * scheme look at parts of it until their tasks have ended. */
struct shoal_run {
    sh_config config;
    shoal_hooks hooks;
    sh_run_folders folders;
    sh_log log;  // to the hooks, and into the run's log once it has a folder
    const sh_clock *clock;
    sh_data data;
    sh_learner learner;
    sh_model model;
    sh_optim optim;  // made when training begins
    sh_schedule schedule;
    sh_loader *loader;
    sh_team team;
    struct sh_exact *exact;        // with --exact, made when it is needed (exact.h)
    sh_scheme_state scheme_state;  // by the scheme, for checkpoints
    struct sh_sparse_run *sparse;  // where steps are sparse (sparse.h)
    struct sh_scheme_run *scheme;  // how its workers train; made when training begins (scheme.h)
    sh_scheme_counts counts;       // of schemes in earlier generations

    sh_run_files files;
    sh_position at;
    sh_length length;
    sh_run_stats stats;
    sh_run_results results;
    sh_codec_momentum codec_momentum;
    bool drops_paths;     // a step may leave parameters unused
    bool servers_set_up;  // servers on ranks of their own have begun (server.h)
};

static inline int64_t sh_run_now(const shoal_run *run) { return sh_clock_now_ns(run->clock); }

/* As shoal_run_open, for a worker of a team; `env` NULL: alone. */
sh_status sh_run_open(const sh_config *config, const shoal_hooks *hooks, const sh_worker_env *env,
                      shoal_run **run_out);
/* A run alone that opens parts of its data when they are asked for, since what it has to know of
 * the training set is `known`, which is taken over, also on failure. */
sh_status sh_run_open_known(const sh_config *config, const shoal_hooks *hooks, sh_data *known,
                            shoal_run **run_out);
/* The model that the config asks for now, in place of the one there was, to evaluate and save. */
sh_status sh_run_rebuild(shoal_run *run);
/* Cores that this process may use. */
int sh_cores(void);
/* Threads this run computes with. */
int sh_run_threads(const shoal_run *run);
/* The executors of a batch and its parts, and of evaluation, so that nothing is made later. Rank 0
 * makes them first and measures; the others take its choices. Collective. */
sh_status sh_run_prepare_team(shoal_run *run, bool evaluates);
sh_status sh_run_prepare(shoal_run *run, bool evaluates);
/* Those of evaluation alone. */
sh_status sh_run_prepare_evaluation(shoal_run *run);
/* One batch of so many samples, of all workers, is done: the position moves past it (position.c).
 */
void sh_run_step_done(shoal_run *run, int64_t samples);
/* The position follows from the step, which all workers have agreed on. */
void sh_run_move_to(shoal_run *run, int64_t step);
/* Samples in the batches of steps `from` to `to`; of data in parts about as many. */
double sh_run_samples_between(const shoal_run *run, int64_t from, int64_t to);

/* Forward and backward alone: the gradient block gets the mean gradient of the batch, while what
 * the scheme has hooked in is called. */
sh_status sh_run_gradient(shoal_run *run, sh_replica *replica, const sh_batch *batch, sh_mean mean,
                          sh_loss_result *result_out);
sh_status sh_run_evaluate(shoal_run *run, const sh_dataset *dataset, shoal_result *result_out);
sh_sample_sizes sh_sample_sizes_of(const sh_data_info *info);
/* What the mean of a batch is taken over: rows of the global batch whose label counts. */
double sh_run_rows(const sh_batch *batch);
/* The loss is not finite: says where it began. The weights are still those before this step. */
sh_status sh_run_explain_bad(shoal_run *run, sh_executor *executor, const sh_step_context *step,
                             const void *x, double loss);
/* Optimizer and schedule, zeroed. */
sh_status sh_run_make_optimizer(shoal_run *run);
/* The dataset of "train", "validation" or "test"; opens it where a checkpoint is used. */
sh_status sh_run_part(shoal_run *run, const char *part, const sh_dataset **dataset_out);
sh_status sh_run_loader(shoal_run *run, int64_t epochs, sh_loader **loader_out);

/* The run's folder, files and checkpoints (folder.c). Opening claims the folder and loads what is
 * resumed; only when the run is sure to begin its files are replaced. */
sh_status sh_run_open_folder(shoal_run *run);
sh_status sh_run_begin_files(shoal_run *run);
sh_status sh_run_resume(shoal_run *run);
/* Goes on writing the files of a rank 0 that has died. */
sh_status sh_run_take_over_folder(shoal_run *run);
bool sh_run_measured_mib(const shoal_run *run, double *mib_out);
sh_status sh_run_save(shoal_run *run);
/* Collective: rank 0 saves, and the others are patient meanwhile. */
sh_status sh_run_save_together(shoal_run *run);
/* Kernel choices remembered on this machine. */
void sh_run_load_kernels(shoal_run *run);
void sh_run_save_kernels(shoal_run *run);

#endif
