/* A model that is split over the workers along tensor or space: the mesh of the run, and the part
 * of the net that this worker has (parallel/layout.h). Other runs have none.
 *
 * Checkpoints hold the whole model, whatever the layout: parts are gathered on rank 0 before one is
 * written, and dealt out after one was read. In between nobody holds the whole. */
#ifndef SH_RUN_SPLIT_H
#define SH_RUN_SPLIT_H

#include "ckpt/checkpoint.h"
#include "data/loader.h"
#include "nn/net.h"
#include "parallel/mesh.h"
#include "parallel/split_loss.h"
#include "run/config.h"

struct shoal_run;

/* Blocks of the whole model on rank 0, while a checkpoint is written or read. */
typedef struct sh_whole_blocks {
    float *weights, *states;  // NULL: they are not here
    float **slots;            // of the optimizer
    int slot_count;
} sh_whole_blocks;

typedef struct sh_run_layout {
    sh_mesh mesh;
    sh_peers peers;  // of the layers that exchange values
    sh_net *whole;   // the net of one worker; nothing of it is computed
    sh_split_cross_entropy loss;
    bool splits_loss;
    sh_whole_blocks blocks;
} sh_run_layout;

/* Collective. `spec_inout` becomes the part of this worker, where the run has a layout. */
sh_status sh_run_layout_apply(struct shoal_run *run, sh_net_spec *spec_inout);
void sh_run_layout_destroy(sh_run_layout *layout);

/* Which of the workers along `data` this is, and how many there are: replicas of the model, each
 * perhaps of several workers. */
int sh_run_replica(const struct shoal_run *run);
int sh_run_replicas(const struct shoal_run *run);
/* The replica's part of every batch. */
sh_batch_share sh_run_share(const struct shoal_run *run);

/* Collective: what rank 0 is about to write becomes whole there. */
sh_status sh_run_layout_gather(struct shoal_run *run);
/* Rank 0: room for what it is about to read. */
sh_status sh_run_layout_reserve(struct shoal_run *run);
/* Collective: every worker takes its part of what rank 0 has read; without optimizer state of step
 * 0. */
sh_status sh_run_layout_scatter(struct shoal_run *run, bool has_slots);
void sh_run_layout_drop(struct shoal_run *run);
/* Parameters and states of a model file, of which a worker takes its part. */
sh_status sh_run_load_model(struct shoal_run *run, const char *path);
/* Collective, where gradient norms are clipped: squares of the whole gradient, in which replicated
 * parameters count once. */
sh_status sh_run_layout_squares(struct shoal_run *run, double *squares_out);
/* Collective: a worker was asked to stop. */
sh_status sh_run_layout_agree(struct shoal_run *run, bool *stops_inout);

#endif
