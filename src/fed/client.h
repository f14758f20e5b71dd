/* A federated client as a pure state machine: what the server said and the time go in, what to do
 * next comes out. Whoever runs it does the asking, fetching, training and sending.
 *
 *   ASK --train--> FETCH --> TRAIN --> SEND --receipt--> ASK ... --over--> END
 *    ^               |                  |
 *    +-- wait -------+---- a failure ---+   (exponential back-off with jitter)
 *
 * A trained update is held until the server says that it was counted in a closed round, or that the
 * round closed without it. Whenever the server has lost it meanwhile, it is sent again. */
#ifndef SH_FED_CLIENT_H
#define SH_FED_CLIENT_H

#include "base/rng.h"
#include "fed/message.h"

typedef enum sh_fed_step {
    SH_FED_ASK,     // ask the server for a task
    SH_FED_FETCH,   // download the model `task.model`
    SH_FED_LEARN,   // train it and keep what changed as the held update
    SH_FED_SEND,    // send the held update, as of task.attempt
    SH_FED_FINISH,  // there is nothing left to do
} sh_fed_step;

typedef enum sh_fed_fate {
    SH_FED_PENDING,  // there is no held update, or nothing is known of it
    SH_FED_SERVED,   // it is part of a closed round
    SH_FED_DROPPED,  // it will never be
} sh_fed_fate;

typedef struct sh_fed_client {
    sh_fed_step step;
    int64_t at_ms;     // not before this time
    sh_fed_task task;  // the newest
    bool holds;        // an update, with the next two
    uint64_t held_round;
    unsigned char held_model[SH_FED_HASH];
    int failures;  // in a row
    sh_rng rng;
} sh_fed_client;

void sh_fed_client_init(sh_fed_client *client, uint64_t seed, uint64_t name);

/* The server's answer to a question. Tells what has become of the held update. */
sh_fed_fate sh_fed_client_on_task(sh_fed_client *client, int64_t now_ms, const sh_fed_task *task);
/* The model of the task is here. */
void sh_fed_client_on_model(sh_fed_client *client, int64_t now_ms);
/* The update of the task is made. */
void sh_fed_client_on_trained(sh_fed_client *client, int64_t now_ms);
/* What became of an update that was sent; one of an older sending is ignored. */
sh_fed_fate sh_fed_client_on_receipt(sh_fed_client *client, int64_t now_ms,
                                     const sh_fed_receipt *receipt);
/* The step at hand failed and is tried again later. */
void sh_fed_client_on_failure(sh_fed_client *client, int64_t now_ms);
/* The client was killed and comes back with nothing: the held update is gone, too. */
void sh_fed_client_forget(sh_fed_client *client, int64_t now_ms);

#endif
