/* The engine as its callers see it: create, start, test, wait, poll, run. A call begins here
 * (which checks it and picks its way) and moves in engine_message.c or engine_direct.c. With a
 * comm task (engine_task.c) these functions hand over and wait; without one they drive. */
#include "comm/engine.h"

#include <inttypes.h>
#include <string.h>

#include "comm/engine_internal.h"

enum { SEGMENT_BYTES = 1 << 20 };

/* Until something was measured: 1 Gbit/s between nodes, a copy through memory inside one. */
static const sh_link default_link = {.alpha_s = 40e-6, .beta_s = 8.5e-9, .gamma_s = 5e-11};
static const sh_link default_node_link = {.alpha_s = 4e-7, .beta_s = 1e-10, .gamma_s = 5e-11};

int sh_engine_rank(const sh_engine *engine) { return engine->transport->rank; }
int sh_engine_ranks(const sh_engine *engine) { return engine->transport->ranks; }
const char *sh_engine_transport(const sh_engine *engine) { return engine->transport->ops->name; }

int sh_engine_nodes(const sh_engine *engine) {
    const sh_places *places = engine->world->places;
    return places != NULL ? places->nodes : 1;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* What the caller may have got wrong; the same answer on every rank, since calls are alike. */
static sh_status check_call(const sh_engine *engine, const sh_call *call) {
    const sh_group *group = sh_call_group(engine, call);
    bool sized_only = call->data == NULL && call->count > 0;
    SH_ASSERT(!sized_only || engine->transport->virtual_time);
    if (call->what == SH_ALLREDUCE || call->what == SH_REDUCE_SCATTER) {
        if (call->dtype == SH_DTYPE_BYTE)
            return SH_FAIL(SH_E_UNSUPPORTED, "bytes can be moved but not reduced");
        if (call->fused.work != NULL &&
            (call->algorithm != NULL || !sh_direct_serves(engine, call)))
            return SH_FAIL(SH_E_UNSUPPORTED,
                           "only an all-reduce of mapped memory can be worked on on its way");
    } else if (call->what == SH_ALLTOALL) {
        if (call->count % (size_t)group->ranks != 0)
            return SH_FAIL(SH_E_SHAPE, "all-to-all of %zu elements among %d ranks", call->count,
                           group->ranks);
    } else if (call->what == SH_BROADCAST) {
        if (call->root < 0 || call->root >= group->ranks)
            return SH_FAIL(SH_E_USAGE, "broadcast from rank %d of %d", call->root, group->ranks);
    }
    return SH_OK;
}

/* One rank alone has the result already, but for what it would send to itself. */
static void finish_alone(sh_engine *engine, sh_call *call) {
    size_t bytes = call->count * sh_dtype_bytes(call->dtype);
    if (call->what == SH_ALLTOALL && bytes > 0 && call->data != NULL)
        memcpy(call->data, call->source, bytes);
    sh_call_finish(engine, call, SH_OK);
}

/* Whether the call may begin, and by which algorithm. */
static sh_status admit(sh_engine *engine, sh_call *call, const sh_algorithm **algorithm_out) {
    if (engine->status != SH_OK) return sh_error_adopt(&engine->error);
    SH_TRY(check_call(engine, call));
    return sh_engine_pick(engine, call, algorithm_out);
}

/* One way in for all calls: pick, record, start. A call that cannot start ends at once with its
 * reason. */
sh_status sh_engine_begin(sh_engine *engine, sh_call *call) {
    const sh_algorithm *algorithm = NULL;
    sh_status status = admit(engine, call, &algorithm);
    if (status != SH_OK) {
        sh_call_return(engine, call, status);
        return status;
    }
    if (call->count * sh_dtype_bytes(call->dtype) > SH_SMALL_BYTES) sh_engine_now(engine);
    call->status = SH_OK;
    call->sent_bytes = call->messages = 0;
    call->start_ns = engine->now_ns;
    sh_call_record(engine, call, algorithm);
    engine->under_way++;
    if (sh_call_group(engine, call)->ranks == 1) {
        finish_alone(engine, call);
        return SH_OK;
    }
    status = algorithm == NULL ? sh_direct_begin(engine, call)
                               : sh_message_collective_begin(engine, call, algorithm);
    if (status != SH_OK && engine->status == SH_OK) sh_call_finish(engine, call, status);
    sh_engine_end_failed(engine);
    return status;
}

/* Everything that can move; stops at the engine's failure. */
static bool move_all(sh_engine *engine) {
    bool moved = sh_direct_progress_all(engine);
    if (engine->messages.first == NULL && !engine->keeps_polling) return moved;
    moved |= sh_transport_progress(engine->transport);
    if (sh_agree_settle(engine) != SH_OK) return true;
    sh_message_collective *at = engine->messages.first, *next;
    for (; at != NULL && engine->status == SH_OK; at = next) {
        next = at->next;
        moved |= sh_message_collective_progress(engine, at);
    }
    return moved;
}

bool sh_engine_progress(sh_engine *engine) {
    bool moved = move_all(engine);
    sh_engine_end_failed(engine);
    return moved;
}

sh_status sh_engine_await(sh_engine *engine, sh_call *call) {
    sh_status status = SH_OK;
    engine->waiting = true;
    for (int turn = 0; !call->done && status == SH_OK; turn++) {
        if (sh_engine_progress(engine)) turn = 0;
        if (!call->done) status = sh_engine_back_off(engine, &turn);
    }
    engine->waiting = false;
    SH_TRY(status);
    if (call->status != SH_OK) sh_error_adopt(&engine->error);
    return call->status;
}

/* As sh_engine_await, but for all calls under way. */
sh_status sh_engine_drain(sh_engine *engine) {
    sh_status status = SH_OK;
    engine->waiting = true;
    for (int turn = 0; engine->under_way > 0 && status == SH_OK; turn++) {
        if (sh_engine_progress(engine)) turn = 0;
        if (engine->under_way > 0) status = sh_engine_back_off(engine, &turn);
    }
    engine->waiting = false;
    SH_TRY(status);
    return engine->status == SH_OK ? SH_OK : sh_error_adopt(&engine->error);
}

/* ---- What callers see ------------------------------------------------------------------------ */

sh_status sh_engine_start(sh_engine *engine, sh_call *call) {
    call->done = false;
    if (engine->driver != NULL) return sh_driver_start(engine, call);
    return sh_engine_begin(engine, call);
}

bool sh_engine_test(sh_engine *engine, sh_call *call) {
    // Acquire: the comm task wrote the results before.
    if (engine->driver != NULL) return __atomic_load_n(&call->done, __ATOMIC_ACQUIRE);
    if (!call->done) sh_engine_progress(engine);
    return call->done;
}

sh_status sh_engine_wait(sh_engine *engine, sh_call *call) {
    if (engine->driver != NULL) return sh_driver_wait(engine, call);
    return sh_engine_await(engine, call);
}

void sh_engine_poll(sh_engine *engine) {
    if (engine->driver == NULL && engine->under_way > 0) sh_engine_progress(engine);
}

sh_status sh_engine_run(sh_engine *engine, sh_call *call) {
    if (engine->driver == NULL && sh_direct_quick(engine, call))
        return call->done ? SH_OK : sh_engine_await(engine, call);
    SH_TRY(sh_engine_start(engine, call));
    return sh_engine_wait(engine, call);
}

sh_status sh_engine_barrier(sh_engine *engine) {
    sh_call call = SH_CALL(.what = SH_BARRIER);
    return sh_engine_run(engine, &call);
}

typedef struct share_job {
    size_t bytes;
    sh_shared *shared;
} share_job;

/* Through the driver, and with nothing under way: the transport's share is collective too. */
static sh_status share(sh_engine *engine, void *argument) {
    share_job *job = argument;
    SH_TRY(sh_engine_drain(engine));
    return sh_share(engine->transport, job->bytes, job->shared);
}

static sh_status unshare(sh_engine *engine, void *argument) {
    sh_unshare(engine->transport, argument);
    return SH_OK;
}

sh_status sh_engine_share(sh_engine *engine, size_t bytes, sh_shared *shared_out) {
    return sh_engine_job(engine, share, &(share_job){bytes, shared_out});
}

void sh_engine_unshare(sh_engine *engine, sh_shared *shared) {
    sh_engine_job(engine, unshare, shared);
}

static sh_status abandon(sh_engine *engine, void *argument) {
    (void)argument;
    sh_status status = SH_FAIL(SH_E_PEER, "rank %d has left its team", engine->transport->rank);
    sh_engine_fail(engine, status);
    sh_engine_end_failed(engine);
    return status;
}

void sh_engine_abandon(sh_engine *engine) { sh_engine_job(engine, abandon, NULL); }

static sh_status set_timeout(sh_engine *engine, void *argument) {
    engine->options.timeout_ns = *(const int64_t *)argument;
    return SH_OK;
}

void sh_engine_set_timeout(sh_engine *engine, int64_t timeout_ns) {
    sh_engine_job(engine, set_timeout, &timeout_ns);
}

typedef struct polling_job {
    void (*start)(sh_transport *transport);
} polling_job;

static sh_status keep_polling(sh_engine *engine, void *argument) {
    const polling_job *job = argument;
    if (job->start != NULL && !engine->keeps_polling) job->start(engine->transport);
    engine->keeps_polling = engine->driver != NULL;
    return SH_OK;
}

sh_status sh_engine_keep_polling(sh_engine *engine, void (*start)(sh_transport *transport)) {
    polling_job job = {start};
    return sh_engine_job(engine, keep_polling, &job);
}

/* Answers from other costs are forgotten. */
static void keep_costs(sh_engine *engine, const sh_costs *costs) {
    engine->options.costs = *costs;
    if (costs->link.beta_s <= 0) engine->options.costs.link = default_link;
    if (costs->node_link.beta_s <= 0) engine->options.costs.node_link = default_node_link;
    for (sh_group *group = engine->groups; group != NULL; group = group->next)
        memset(group->choices, 0, sizeof group->choices);
}

static sh_status set_costs(sh_engine *engine, void *argument) {
    SH_TRY(sh_engine_drain(engine));
    keep_costs(engine, argument);
    return SH_OK;
}

sh_status sh_engine_set_costs(sh_engine *engine, const sh_costs *costs) {
    sh_costs copy = *costs;
    return sh_engine_job(engine, set_costs, &copy);
}

/* ---- Creation -------------------------------------------------------------------------------- */

/* The flags and scratch of direct collectives. Simulated ranks map nothing: their time is virtual.
 */
static sh_status map_area(sh_engine *engine) {
    sh_transport *transport = engine->transport;
    if (transport->ranks == 1 || transport->virtual_time) return SH_OK;
    SH_TRY(sh_share(transport, sizeof(sh_area), &engine->shared));
    engine->area = (sh_area *)(void *)engine->shared.base[transport->rank];
    return SH_OK;
}

static sh_status set_up(sh_engine *engine, void *argument) {
    (void)argument;
    SH_TRY(map_area(engine));
    return sh_group_init(engine, NULL, engine->transport->ranks, 0, &engine->world);
}

static sh_status tear_down(sh_engine *engine, void *argument) {
    (void)argument;
    if (engine->area != NULL) sh_unshare(engine->transport, &engine->shared);
    return SH_OK;
}

/* Refuses an all-reduce that is not known or not here, before any rank waits in it. */
static sh_status keep_options(sh_engine *engine, const sh_engine_options *options) {
    engine->options = *options;
    engine->options.algorithm = NULL;
    if (engine->options.segment_bytes == 0) engine->options.segment_bytes = SEGMENT_BYTES;
    keep_costs(engine, &options->costs);
    if (options->algorithm == NULL || strcmp(options->algorithm, "auto") == 0) return SH_OK;
    engine->forced = sh_algorithm_find(SH_ALLREDUCE, options->algorithm);
    if (engine->forced == NULL) {
        SH_FAIL(SH_E_USAGE, "there is no all-reduce '%s'", options->algorithm);
        return sh_error_hint("shoal list collectives");
    }
    if (engine->forced->native && engine->transport->ops->allreduce == NULL) {
        SH_FAIL(SH_E_USAGE, "all-reduce '%s' needs MPI", options->algorithm);
        return sh_error_hint("mpirun, or --transport mpi");
    }
    return SH_OK;
}

sh_status sh_engine_create(sh_transport *transport, const sh_engine_options *options,
                           sh_engine **engine_out) {
    sh_engine *engine = sh_alloc(1, sizeof *engine);
    if (engine == NULL) {
        sh_transport_close(transport);
        return SH_FAIL(SH_E_MEMORY, "out of memory for the engine");
    }
    engine->transport = transport;
    engine->combine = sh_combine();
    sh_agree_watch(engine);
    sh_engine_now(engine);
    sh_status status = keep_options(engine, options);
    if (status == SH_OK && options->task) status = sh_driver_create(engine);
    if (status == SH_OK) status = sh_engine_job(engine, set_up, NULL);
    if (status != SH_OK) {
        sh_error error = *sh_error_last();
        sh_engine_destroy(engine);
        return sh_error_adopt(&error);
    }
    *engine_out = engine;
    return SH_OK;
}

void sh_engine_destroy(sh_engine *engine) {
    if (engine == NULL) return;
    sh_engine_job(engine, tear_down, NULL);
    sh_driver_destroy(engine);
    sh_transport_close(engine->transport);  // by the task that opened it, as MPI wants it
    while (engine->groups != NULL) sh_group_free(engine->groups);
    sh_message_collectives_destroy(engine->messages.spare);
    sh_free(engine);
}
