/* The ledger of a free scheme: workers go as fast as they can, and somebody must know when all of
 * them together have done the steps that there are to do. One service keeps the ledger; a worker
 * asks it before every step ("may I"), the next time already while it computes, so that the answer
 * is there when it is needed. Each step is granted once; when none is left before the meeting, or
 * the user wants the run to end, every worker hears so, with the number that was granted. */
#ifndef SH_SYNC_LEDGER_H
#define SH_SYNC_LEDGER_H

#include "sync/sync.h"

/* Tags of its messages, apart from those of schemes. */
enum { SH_TAG_MAY_I = 0x10001, SH_TAG_GRANT = 0x10002 };

typedef struct sh_grant {
    int64_t go;    // 0: meet
    int64_t done;  // steps granted before this one to all workers, from the run's beginning
} sh_grant;

/* ---- the service's side */

typedef struct sh_ledger {
    int64_t granted;
    bool stopped;
    int64_t goal;        // of the worker that asks
    sh_message request;  // from anybody
} sh_ledger;

/* Keeps `ledger` where it is until sh_ledger_end. */
sh_status sh_ledger_begin(sh_ledger *ledger, sh_service *service);
/* Answers whoever has asked; true in `*answered_out` if somebody had. */
sh_status sh_ledger_serve(sh_ledger *ledger, sh_service *service, bool *answered_out);
void sh_ledger_end(sh_ledger *ledger, sh_service *service);

/* ---- a worker's side */

typedef struct sh_ticket {
    bool asked;  // the answer is under way
    int64_t goal;
    sh_grant grant;
    sh_message request, answer;
} sh_ticket;

/* Waits for leave to do a step and asks for the next. True in `*meets_out`: none is left, meet.
 * Moves replica->all.done on. `endpoint`: the service that keeps the ledger. */
sh_status sh_ticket_take(sh_ticket *ticket, sh_replica *replica, int endpoint, bool *meets_out);
/* After a failure: takes back what is under way. */
void sh_ticket_drop(sh_ticket *ticket, sh_replica *replica);

#endif
