/* What the rows of learners (run/learner.h) in this folder share: options, the team, the rows of
 * this worker, and all that the run's net does for them. */
#ifndef SH_LEARN_LEARNER_H
#define SH_LEARN_LEARNER_H

#include "learn/rows.h"
#include "run/run.h"

/* The options of the run's model, as a struct of its table, for the caller to finish. */
sh_status sh_learner_options(const shoal_run *run, void **options_out);
void sh_learner_options_free(const shoal_run *run, void *options);

sh_learn_team sh_learner_team(const shoal_run *run);

/* Collective, when training begins: what every run has, and this worker's rows. Refuses settings
 * that concern gradients alone. */
sh_status sh_learner_begin(shoal_run *run, sh_learn_team *team, sh_rows *rows_out);

/* A step over all rows has ended; `done`: it was the last one. Collective: the workers agree
 * whether they were asked to stop. */
sh_status sh_learner_stepped(shoal_run *run, sh_learn_team *team, bool done, double loss_sum,
                             sh_learner_step *step_out);

sh_status sh_learner_evaluate(sh_learner *learner, const sh_dataset *dataset,
                              shoal_result *result_out);
sh_status sh_learner_save(sh_learner *learner);
sh_status sh_learner_finish(sh_learner *learner);
sh_learner_cost sh_learner_net_cost(const sh_learner *learner);
/* The net's parameters and nothing else. */
sh_checkpoint sh_learner_net_blocks(const sh_learner *learner);

#endif
