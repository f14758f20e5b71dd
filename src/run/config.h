/* The options of a run: one struct, one table. `shoal train --help`, the run file, the flags and
 * docs/run-file.md all come from it. The rows stand with the parts that they concern, and
 * config.c puts them together. */
#ifndef SH_RUN_CONFIG_H
#define SH_RUN_CONFIG_H

#include "base/option.h"
#include "data/dataset.h"
#include "nn/loss.h"
#include "optim/optim.h"
#include "optim/schedule.h"
#include "sync/sync.h"

/* The rows of the group "Pipeline". */
typedef struct sh_pipe_options {
    char *schedule;         // as sh_pipeline_init reads it
    int64_t micro_batches;  // 0: four for each stage
    char *cut;              // first layers of the stages; NULL: by what layers take
    double memory_mb;       // of a stage, for cutting; 0: no bound
} sh_pipe_options;

/* The values of all rows. Texts and nodes are owned by the struct: sh_config_copy copies them,
 * sh_config_fini frees them. */
typedef struct sh_config {
    sh_node *model;
    sh_data_options data;
    int64_t batch;
    bool drop_last;
    sh_loss_options loss;
    sh_optim_options optim;
    sh_schedule_options schedule;
    double clip_norm, clip_value;
    int64_t accumulate;
    int64_t epochs, steps;
    int64_t workers, threads;
    char *transport;         // auto, shm, mpi
    sh_sync_options scheme;  // how workers agree on the parameters
    char *layout;            // how the workers form a mesh; NULL: all along data
    sh_pipe_options pipe;
    char *allreduce;   // auto, or a schedule's name
    double bucket_mb;  // 0: the measured default
    sh_codec_settings codec;
    bool balance;          // shares of the batch follow the workers' speed
    bool sync_batchnorm;   // statistics of the whole batch
    bool shard_optimizer;  // each worker keeps the state of its part
    bool overlap;          // buckets travel while backward runs
    int64_t restarts;      // after a worker died
    bool elastic;          // then with one worker less
    double watchdog;       // seconds without progress; 0: from the measured step times
    int64_t check_every;   // steps between comparisons of the replicas
    int64_t seed;
    bool exact;
    int64_t shards;  // of a global batch, with exact
    char *out, *name, *resume, *load;
    bool overwrite;
    int64_t checkpoint_every, checkpoint_keep;
    double eval_every;
    int64_t eval_batch;
    double target;  // stop once the test accuracy is there
    int64_t log_every;
    bool trace, tensorboard;
    char *kernels;  // measure, default
} sh_config;

/* All options, of the run itself and of its parts. */
sh_option_table sh_config_table(void);

sh_status sh_config_init(sh_config *config);
void sh_config_fini(sh_config *config);
sh_status sh_config_copy(const sh_config *from, sh_config *to);
/* What single rows cannot see: settings that do not go together. */
sh_status sh_config_check(const sh_config *config);
/* The part of it that concerns where the run is written. */
sh_status sh_config_check_out(const sh_config *config);

#endif
