/* Between the files of the plan: plan.c builds ops, plan_memory.c packs buffers, plan_run.c runs.
 */
#ifndef SH_NN_PLAN_INTERNAL_H
#define SH_NN_PLAN_INTERNAL_H

#include "nn/plan.h"

/* Memory that is live over an interval of the plan's times: forward of op i is time i, the loss is
 * time n, backward of op i is time 2n - i. */
typedef struct sh_buffer {
    size_t bytes, offset;
    int start, end;
} sh_buffer;

/* Decides what shares memory and where everything lies. */
sh_status sh_plan_assign_memory(sh_plan *plan);

/* Number of ops that read `value` in forward. */
int sh_plan_readers(const sh_plan *plan, const sh_value *value);

#endif
