/* The client's state machine (client.h): every event sets the next step and the time before which
 * it is not taken. No clock, network or file, so that tests drive it through any order of events.
 */
#include "fed/client.h"

#include <string.h>

enum { FIRST_PAUSE_MS = 500, DOUBLINGS_MOST = 7 };  // up to 64 s

/* The stream of jitter is the client's own: equal streams would keep clients in step. */
void sh_fed_client_init(sh_fed_client *client, uint64_t seed, uint64_t name) {
    *client =
        (sh_fed_client){.step = SH_FED_ASK, .rng = sh_rng_stream(seed, SH_RNG_FED_RETRY, 0, name)};
}

/* The one way to change the step, with the time before which it is not taken. */
static void go(sh_fed_client *client, sh_fed_step step, int64_t at_ms) {
    client->step = step;
    client->at_ms = at_ms;
}

/* Between three quarters and five quarters of a pause: clients that a server's end has put in step
 * do not stay in step. */
static int64_t jittered(sh_fed_client *client, int64_t pause_ms) {
    return pause_ms * 3 / 4 +
           // In [3/4, 5/4) of the pause.
           (int64_t)((double)pause_ms * 0.5 * (double)sh_rng_uniform(&client->rng));
}

/* Served once a task says that the held update's round was counted. Dropped once the server is past
 * that round and would not take it late; pending while it may still count. */
static sh_fed_fate fate_of_held(sh_fed_client *client, const sh_fed_task *task) {
    if (!client->holds) return SH_FED_PENDING;
    if (task->counted >= client->held_round) {
        client->holds = false;
        return SH_FED_SERVED;
    }
    // May be counted yet.
    if (task->action != SH_FED_OVER && (task->holds || task->takes_late)) return SH_FED_PENDING;
    if (task->action != SH_FED_OVER && task->round <= client->held_round) return SH_FED_PENDING;
    client->holds = false;
    return SH_FED_DROPPED;
}

/* The server has none of the held update, and would take it. */
static bool must_send(const sh_fed_client *client, const sh_fed_task *task) {
    if (!client->holds || task->holds) return false;
    if (client->held_round < task->round) return task->takes_late;
    // The round began again from the same model: the update still fits.
    return task->action == SH_FED_TRAIN &&
           memcmp(client->held_model, task->model, SH_FED_HASH) == 0;
}

/* An answer that comes twice, or after a newer one. */
static bool is_older(const sh_fed_task *a, const sh_fed_task *b) {
    return a->round < b->round || (a->round == b->round && a->attempt < b->attempt);
}

sh_fed_fate sh_fed_client_on_task(sh_fed_client *client, int64_t now_ms, const sh_fed_task *task) {
    if (client->step != SH_FED_ASK || is_older(task, &client->task)) return SH_FED_PENDING;
    client->task = *task;
    sh_fed_fate fate = fate_of_held(client, task);
    if (task->action == SH_FED_OVER)
        go(client, SH_FED_FINISH, now_ms);
    else if (must_send(client, task))
        go(client, SH_FED_SEND, now_ms);
    else if (task->action == SH_FED_TRAIN && !task->holds)
        go(client, SH_FED_FETCH, now_ms);
    else {
        client->failures = 0;  // the server has answered: back-off starts anew
        go(client, SH_FED_ASK, now_ms + jittered(client, task->wait_ms));
    }
    return fate;
}

/* An event that does not belong to the step at hand comes late, and is ignored. */
void sh_fed_client_on_model(sh_fed_client *client, int64_t now_ms) {
    if (client->step != SH_FED_FETCH) return;
    client->failures = 0;  // the server has answered
    go(client, SH_FED_LEARN, now_ms);
}

/* From here on the update survives failures: it is held until its fate is known. */
void sh_fed_client_on_trained(sh_fed_client *client, int64_t now_ms) {
    if (client->step != SH_FED_LEARN) return;
    client->holds = true;
    client->held_round = client->task.round;
    memcpy(client->held_model, client->task.model, SH_FED_HASH);
    go(client, SH_FED_SEND, now_ms);
}

sh_fed_fate sh_fed_client_on_receipt(sh_fed_client *client, int64_t now_ms,
                                     const sh_fed_receipt *receipt) {
    if (client->step != SH_FED_SEND || receipt->round != client->held_round ||
        receipt->attempt != client->task.attempt)
        return SH_FED_PENDING;  // of an attempt that the server has left
    client->failures = 0;
    go(client, SH_FED_ASK, now_ms + jittered(client, client->task.wait_ms));
    // It will never count.
    if (receipt->verdict == SH_FED_REFUSED || receipt->verdict == SH_FED_LATE) {
        client->holds = false;
        return SH_FED_DROPPED;
    }
    return SH_FED_PENDING;  // the next task tells whether the round closed with it
}

/* Exponential back-off: 0.5 s, 1 s, 2 s, ... 64 s, with jitter. */
void sh_fed_client_on_failure(sh_fed_client *client, int64_t now_ms) {
    int doublings = client->failures < DOUBLINGS_MOST ? client->failures : DOUBLINGS_MOST;
    int64_t pause = (int64_t)FIRST_PAUSE_MS << doublings;
    client->failures++;
    // The next question tells whether what failed is still wanted.
    go(client, SH_FED_ASK, now_ms + jittered(client, pause));
}

/* The held update is lost to the caller: asked anew at once. */
void sh_fed_client_forget(sh_fed_client *client, int64_t now_ms) {
    client->holds = false;
    go(client, SH_FED_ASK, now_ms);
}
