/* The step counter of a free scheme. Workers go at their own pace, so somebody must know when all
 * of them together have done the steps up to the next meeting. One service holds the counter; a
 * worker asks it for a permit before every step, the next time already while it computes, so that
 * the answer is there when it is needed. Each step is granted once. When none is left before the
 * meeting, or the user wants the run to end, every worker gets an answer without a permit, and the
 * number of steps that were granted. */
#ifndef SH_SYNC_STEP_COUNTER_H
#define SH_SYNC_STEP_COUNTER_H

#include "sync/sync.h"

/* Tags of the counter's messages, above all tags that a scheme uses for its own. */
enum { SH_TAG_STEP_REQUEST = 0x10001, SH_TAG_GRANT = 0x10002 };

typedef struct sh_grant {
    int64_t go;    // 0: meet
    int64_t done;  // steps granted before this one to all workers, from the run's beginning
} sh_grant;

/* ---- the service's side */

typedef struct sh_step_counter {
    int64_t granted;
    bool stopped;
    int64_t goal;        // of the worker that asks
    sh_message request;  // from anybody
} sh_step_counter;

/* Borrows the counter until sh_step_counter_end. */
sh_status sh_step_counter_begin(sh_step_counter *counter, sh_service *service);
/* Answers whoever has asked; true in `*answered_out` if somebody had. */
sh_status sh_step_counter_serve(sh_step_counter *counter, sh_service *service, bool *answered_out);
void sh_step_counter_end(sh_step_counter *counter, sh_service *service);

/* ---- a worker's side */

typedef struct sh_permit {
    bool asked;  // the answer is under way
    int64_t goal;
    sh_grant grant;
    sh_message request, answer;
} sh_permit;

/* Waits for the permit for a step and asks for the next. `*meets_out`: none is left, meet.
 * Moves replica->all.done on. `endpoint`: the service that holds the counter. */
sh_status sh_permit_take(sh_permit *permit, sh_replica *replica, int endpoint, bool *meets_out);
/* After a failure: takes back what is under way. */
void sh_permit_drop(sh_permit *permit, sh_replica *replica);

#endif
