/* The learning-rate schedules: one file and one row each. */
#ifndef SH_OPTIM_SCHEDULES_LIST_H
#define SH_OPTIM_SCHEDULES_LIST_H

#include "optim/schedule.h"

/* Order of `shoal list` and of the help. */
#define SH_SCHEDULE_LIST(X) \
    X(constant)             \
    X(step)                 \
    X(cosine)               \
    X(linear)               \
    X(onecycle)

#define X(name) extern const sh_schedule_kind sh_schedule_##name;
SH_SCHEDULE_LIST(X)
#undef X

#endif
