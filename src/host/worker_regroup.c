/* A worker process moves from generation to generation of its team (run/regroup.h). */
#include <time.h>

#include "host/launch.h"
#include "run/server.h"

sh_status sh_worker_enter(sh_worker *worker, int generation) {
    sh_generations *generations = worker->generations;
    sh_shm *fabric = sh_generation_fabric(generations, generation);
    worker->now = (sh_worker_generation){.generation = generation};
    worker->rank = sh_generation_rank(generations, generation, worker->slot);
    worker->board = &sh_generation_board(generations, generation)->rank[worker->rank];
    // Who is left alone needs none, unless it has servers beside it.
    bool served = generation == 0 || sh_servers_apart(worker->config, worker->slots) > 0;
    if (sh_generation_ranks(generations, generation) == 1 && !served) return SH_OK;
    sh_transport *transport = NULL;
    SH_TRY(sh_shm_attach(fabric, worker->rank, worker->cores, &transport));
    transport->board = worker->board;
    sh_engine_options options = {.algorithm = worker->config->allreduce};
    return sh_engine_create(transport, &options, &worker->now.engine);
}

void sh_worker_leave(sh_worker_generation *membership) {
    if (membership->engine == NULL) return;
    sh_engine_destroy(membership->engine);
    membership->engine = NULL;
}

/* The slot holds the state; the note only makes the parent look, so losing the order of notes
 * does no harm. */
static void say_state(sh_worker *worker, sh_member_state state) {
    sh_slot_set(worker->generations, worker->slot, state, worker->now.generation);
    sh_worker_note(worker, &(sh_note){.kind = SH_NOTE_STATE, .rank = worker->rank});
}

/* The parent publishes it; should it decide otherwise, it ends this process. */
static int await_generation(const sh_worker *worker) {
    const struct timespec moment = {.tv_nsec = 1000000};
    for (;;) {
        int newest = sh_generations_newest(worker->generations);
        if (newest > worker->now.generation &&
            sh_generation_rank(worker->generations, newest, worker->slot) >= 0)
            return newest;
        nanosleep(&moment, NULL);
    }
}

/* Env hook (sh_regroup_ops.next). The engine of a worker that trained stays open as `before`
 * until it has joined: peers may still leave that generation. */
static sh_status next(void *self, sh_worker_env *env_out) {
    sh_worker *worker = self;
    if (worker->trains)
        worker->before = worker->now;
    else
        sh_worker_leave(&worker->now);
    worker->trains = false;
    worker->now = (sh_worker_generation){.generation = worker->now.generation};
    say_state(worker, worker->held ? SH_MEMBER_WAITS : SH_MEMBER_READY);
    SH_TRY(sh_worker_enter(worker, await_generation(worker)));
    env_out->engine = worker->now.engine;
    env_out->board = worker->board;
    return SH_OK;
}

/* In its mail, which lives as long as the generation. */
static void *keep(void *self, size_t bytes) {
    const sh_worker *worker = self;
    return sh_shm_export(sh_generation_mail(worker->generations, worker->now.generation), bytes);
}

/* Env hook: the worker holds the model here, so all that it has of earlier generations can go. */
static void joined(void *self) {
    sh_worker *worker = self;
    sh_worker_leave(&worker->before);
    sh_generations_forget(worker->generations, worker->now.generation);
    worker->trains = worker->held = true;
    say_state(worker, SH_MEMBER_TRAINS);
}

/* Env hook of rank 0 while the first generation opens its data. */
static void note(void *self, const double *values, size_t count) {
    const sh_worker *worker = self;
    sh_generations_note(worker->generations, values, count);
}

/* Env hook of a worker that joins: reads the noted numbers in order, each worker from a place
 * of its own. */
static sh_status recall(void *self, double *values_out, size_t count) {
    sh_worker *worker = self;
    if (sh_generations_recall(worker->generations, &worker->recalled, values_out, count))
        return SH_OK;
    return SH_FAIL(SH_E_PEER, "worker %d cannot join: its part of the data has changed",
                   worker->slot);
}

/* Env hook: a member of this generation is lost, and whoever trains in it should leave. */
static bool moved(void *self) {
    const sh_worker *worker = self;
    return sh_generation_is_over(worker->generations, worker->now.generation);
}

static bool wished(void *self) {
    const sh_worker *worker = self;
    return sh_generations_wished(worker->generations);
}

const sh_regroup_ops sh_worker_regroup = {
    .next = next,
    .keep = keep,
    .joined = joined,
    .moved = moved,
    .wished = wished,
    .note = note,
    .recall = recall,
};
