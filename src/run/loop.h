/* The training loop of one worker, and where it is between two lines of metrics. A death among the
 * workers ends a call of sh_loop_run, not the run: the next call goes on (run/train.c). */
#ifndef SH_RUN_LOOP_H
#define SH_RUN_LOOP_H

#include "run/run.h"

/* What has been summed up since the last line of metrics. */
typedef struct sh_interval {
    sh_loss_result loss;
    int64_t begin_ns;
    int64_t told;    // the step of that line
    int64_t end_ns;  // when the last step of the next line had ended; 0: now
    double used;  // of the samples in the steps since, the part that a scheme has learnt from, as
                  // far as workers have met
} sh_interval;

/* What the loop carries from round to round. */
typedef struct sh_loop {
    sh_interval since;
    double loss;
    bool epoch_end;
} sh_loop;

/* The loop before the first step of this process. It survives regrouping, so that no loss is told
 * twice. */
sh_loop sh_loop_begin(const shoal_run *run);
/* Steps, evaluations and checkpoints until the run has all its steps, reaches its target or is
 * stopped. SH_E_PEER: a worker has left. */
sh_status sh_loop_run(shoal_run *run, sh_loop *at);

static inline double sh_seconds_between(int64_t begin_ns, int64_t end_ns) {
    return (double)(end_ns - begin_ns) * 1e-9;
}
/* From the first step to `now_ns`, without evaluation and checkpoints: what schemes are compared
 * by.
 */
double sh_run_training_s(const shoal_run *run, int64_t now_ns);

#endif
