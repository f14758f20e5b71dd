/* Hogwild: one block of weights that all workers read and update, without a lock (Recht, Re, Wright
 * and Niu, NIPS 2011).
 *
 *   w <- w - lr g_i(w)        by whichever worker is ready, on the weights as they are
 *
 * The weights are rank 0's, in memory that all workers map; forward and backward read them there
 * while others write. That race is the method: what a worker reads is a mix of older and newer
 * weights, and where gradients are sparse two workers seldom meet at one of them. The kernels of
 * forward and backward read with plain loads, which on every processor that Shoal runs on give an
 * old or a new float, never a torn one; the loops that write are ours and use relaxed atomics
 * (tensor/kernels/update.h).
 *
 * The paper's analysis takes each component's addition as atomic. A load and a store are not: an
 * addition by another worker that falls between them is lost. A compare-and-swap would keep it, at
 * the price of a locked instruction an element even where nobody else writes, and what is lost is
 * as rare as the collisions that the method bets on; so updates are plain loads and stores.
 *
 * `hogwild-locked` is what it is measured against: a lock around reading and another time around
 * updating, so that a worker computes from a consistent copy and no addition is lost. (For sparse
 * data the one lock is held from the first read to the last write: a copy would cost more than the
 * step.)
 *
 * Steps are handed out by a counter beside the weights; a worker's gradient is the mean over its
 * own samples, so that P workers do P updates of a batch each P times smaller. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "sync/cost.h"
#include "sync/list.h"

/* In rank 0's shared memory, before the weights; a line of its own for everything that is written
 * often. */
typedef struct common {
    _Alignas(64) atomic_int_fast64_t taken;    // steps that have begun, of all workers
    _Alignas(64) atomic_int_fast64_t applied;  // updates that are done
    _Alignas(64) atomic_bool stops;            // the user wants to stop: all meet
    _Alignas(64) pthread_mutex_t lock;         // of hogwild-locked: process-shared and robust
    _Alignas(64) float weights[];
} common;

typedef struct hogwild {
    sh_shared shared;
    common *common;  // NULL: not yet
    bool locked;
    bool placed;  // the replica works on the shared weights, not on a copy
} hogwild;

static bool is_locked(const sh_sync *sync) { return sync->scheme.kind == &sh_sync_hogwild_locked; }

static sh_status check(sh_scheme scheme, const sh_sync_options *options,
                       const sh_sync_terms *terms) {
    (void)options;
    const char *name = scheme.kind->name;
    if (terms->workers == 1) return SH_OK;
    if (terms->simulated) {
        SH_FAIL(SH_E_USAGE, "scheme '%s' cannot be simulated: its races are the processor's", name);
        return sh_error_hint("simulate --sync async, which has the same staleness");
    }
    if (!terms->optim->shares) {
        SH_FAIL(SH_E_USAGE,
                "scheme '%s' does not go with optimizer '%s', whose state is updated "
                "together with the weights that others write",
                name, terms->optim->name);
        return sh_error_hint("use --optimizer sgd or momentum, whose state is a worker's own");
    }
    if (terms->codec->kind != NULL) {
        SH_FAIL(SH_E_USAGE, "scheme '%s' sends no gradients that --compress could shrink", name);
        return sh_error_hint("leave out --compress");
    }
    if (!terms->clips) return SH_OK;
    SH_FAIL(SH_E_USAGE, "scheme '%s' does not clip gradients", name);
    return sh_error_hint("leave out --clip-norm and --clip-value, or use --sync bsp");
}

/* ---- the shared block ---- */

static sh_status init_lock(pthread_mutex_t *lock) {
    pthread_mutexattr_t attributes;
    int failed = pthread_mutexattr_init(&attributes);
    if (failed == 0) failed = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (failed == 0) failed = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (failed == 0) failed = pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    if (failed == 0) return SH_OK;
    return SH_FAIL(SH_E_UNSUPPORTED, "no lock between processes: %s", strerror(failed));
}

static sh_status lock(sh_replica *replica, common *c) {
    int64_t begin = sh_clock_now_ns(replica->clock);
    int failed = pthread_mutex_lock(&c->lock);
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    if (failed == 0) return SH_OK;
    if (failed == EOWNERDEAD) pthread_mutex_unlock(&c->lock);  // unusable: every later lock fails
    return SH_FAIL(SH_E_PEER, "a worker left while it held the lock of the weights");
}

static sh_status check_mapped(const sh_sync *sync, const sh_shared *shared) {
    for (int r = 0; r < sync->replica->ranks; r++) {
        if (shared->base[r] != NULL) continue;
        SH_FAIL(SH_E_USAGE, "scheme '%s' needs all workers on one machine; worker %d is on another",
                sync->scheme.kind->name, r);
        return sh_error_hint("start them on one machine, or use --sync async");
    }
    return SH_OK;
}

/* Rank 0 fills the block before the others look at it. */
static sh_status fill(sh_replica *replica, common *c) {
    if (replica->rank != 0) return SH_OK;
    atomic_init(&c->taken, replica->all.done);
    atomic_init(&c->applied, 0);
    atomic_init(&c->stops, false);
    memcpy(c->weights, replica->weights, replica->params->total * sizeof *c->weights);
    return init_lock(&c->lock);
}

static sh_status hogwild_create(sh_sync *sync) {
    sh_replica *replica = sync->replica;
    hogwild *h = sync->own = sh_alloc(1, sizeof *h);
    if (h == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for Hogwild");
    if (replica->weights == NULL)
        return SH_FAIL(SH_E_USAGE, "scheme '%s' cannot run without weights",
                       sync->scheme.kind->name);
    h->locked = is_locked(sync);
    size_t bytes = sizeof(common) + replica->params->total * sizeof(float);
    SH_TRY(sh_group_share(replica->group, bytes, &h->shared));
    SH_TRY(check_mapped(sync, &h->shared));
    common *c = (common *)(void *)h->shared.base[0];
    SH_TRY(fill(replica, c));
    SH_TRY(sh_group_barrier(replica->group));
    h->common = c;
    h->placed = !h->locked || replica->ops.sparse != NULL;
    if (h->placed) replica->ops.place(replica->ops.self, c->weights);
    return SH_OK;
}

/* The replica keeps the model when the memory goes. */
static void hogwild_destroy(sh_sync *sync) {
    hogwild *h = sync->own;
    sh_replica *replica = sync->replica;
    if (h == NULL) return;
    if (h->placed) replica->ops.place(replica->ops.self, NULL);
    if (h->common != NULL)
        memcpy(replica->weights, h->common->weights, replica->params->total * sizeof(float));
    if (h->shared.base != NULL) sh_group_unshare(replica->group, &h->shared);
    sh_free(h);
    sync->own = NULL;
}

/* ---- steps ---- */

/* The number of the step that this worker may do; false: there is none before the meeting. Orders
 * are relaxed: the counters guard nothing, and a meeting begins with a barrier. */
static bool take_step(sh_replica *replica, common *c, int64_t *number_out) {
    if (replica->ops.stops != NULL && replica->ops.stops(replica->ops.self))
        atomic_store_explicit(&c->stops, true, memory_order_relaxed);
    if (atomic_load_explicit(&c->stops, memory_order_relaxed)) return false;
    *number_out = atomic_fetch_add_explicit(&c->taken, 1, memory_order_relaxed);
    if (*number_out >= replica->all.goal) return false;
    replica->all.done = *number_out + 1;
    return true;
}

static void update(sh_replica *replica, float *weights, int64_t number, bool shared) {
    const sh_optim_step step = {
        .params = replica->params,
        .count = replica->params->count,
        .high = replica->params->total,
        .shared = shared,
        .weights = weights,
        .gradients = replica->gradients,
        .gradient_scale = 1,
        .lr = sh_schedule_lr(replica->schedule, number / replica->ranks),
        .step = replica->step + 1,
    };
    sh_optim_apply(replica->optim, &step);
}

static sh_status free_step(sh_replica *replica, common *c, int64_t number,
                           sh_loss_result *result_out) {
    SH_TRY(replica->ops.compute(replica->ops.self, SH_MEAN_OWN, result_out));
    update(replica, c->weights, number, true);
    return SH_OK;
}

static sh_status locked_step(sh_replica *replica, common *c, int64_t number,
                             sh_loss_result *result_out) {
    SH_TRY(lock(replica, c));
    memcpy(replica->weights, c->weights, replica->params->total * sizeof(float));
    pthread_mutex_unlock(&c->lock);
    SH_TRY(replica->ops.compute(replica->ops.self, SH_MEAN_OWN, result_out));
    SH_TRY(lock(replica, c));
    update(replica, c->weights, number, false);
    pthread_mutex_unlock(&c->lock);
    return SH_OK;
}

/* A row at a time there is nothing to copy: the locked step holds the lock from the first read to
 * the last write. */
static sh_status sparse_step(sh_replica *replica, common *c, int64_t number, bool locked,
                             sh_loss_result *result_out) {
    sh_sparse_batch batch;
    double lr = sh_schedule_lr(replica->schedule, number / replica->ranks);
    SH_TRY(replica->ops.next_sparse(replica->ops.self, &batch));
    if (locked) SH_TRY(lock(replica, c));
    *result_out = sh_sparse_step(replica->ops.sparse, &batch, lr, c->weights);
    if (locked) pthread_mutex_unlock(&c->lock);
    if (isfinite(result_out->sum)) return SH_OK;
    SH_FAIL(SH_E_NUMERIC, "step %ld: the loss is not finite", (long)number + 1);
    return sh_error_hint("lower --lr");
}

static sh_status any_step(hogwild *h, sh_replica *replica, int64_t number,
                          sh_loss_result *result_out) {
    if (replica->ops.sparse != NULL)
        return sparse_step(replica, h->common, number, h->locked, result_out);
    return (h->locked ? locked_step : free_step)(replica, h->common, number, result_out);
}

static sh_status hogwild_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    hogwild *h = sync->own;
    sh_replica *replica = sync->replica;
    common *c = h->common;
    int64_t number;
    *meets_out = !take_step(replica, c, &number);
    if (*meets_out) return SH_OK;
    int64_t seen = atomic_load_explicit(&c->applied, memory_order_relaxed);
    SH_TRY(any_step(h, replica, number, result_out));
    int64_t now = atomic_fetch_add_explicit(&c->applied, 1, memory_order_relaxed);
    sh_staleness_add(&replica->counts.staleness, (uint64_t)(now - seen));
    return SH_OK;
}

/* After the first barrier nobody writes; before the second, nobody goes on. */
static sh_status hogwild_meet(sh_sync *sync) {
    hogwild *h = sync->own;
    sh_replica *replica = sync->replica;
    common *c = h->common;
    int64_t begin = sh_clock_now_ns(replica->clock);
    SH_TRY(sh_group_barrier(replica->group));
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    // Every worker asked once more than it did.
    int64_t taken = atomic_load_explicit(&c->taken, memory_order_relaxed);
    replica->all.done = taken < replica->all.goal ? taken : replica->all.goal;
    if (!h->placed) memcpy(replica->weights, c->weights, replica->params->total * sizeof(float));
    SH_TRY(sh_group_barrier(replica->group));
    if (replica->rank == 0) {
        atomic_store_explicit(&c->taken, replica->all.done, memory_order_relaxed);
        atomic_store_explicit(&c->stops, false, memory_order_relaxed);
    }
    return sh_group_barrier(replica->group);
}

/* The workers share memory: nothing is sent. */
static sh_sync_cost hogwild_cost(const sh_sync_load *load) {
    (void)load;
    return (sh_sync_cost){0};
}

static const sh_sync_family hogwild_family = {
    .free = true,
    .create = hogwild_create,
    .destroy = hogwild_destroy,
    .step = hogwild_step,
    .meet = hogwild_meet,
    .cost = hogwild_cost,
};

const sh_sync_kind sh_sync_hogwild = {
    .name = "hogwild",
    .help = "one block of weights that all workers of a machine update without a lock",
    .survives = true,
    .sparse = true,
    .family = &hogwild_family,
    .check = check,
};

const sh_sync_kind sh_sync_hogwild_locked = {
    .name = "hogwild-locked",
    .help = "the same with a lock around reading and updating, for comparison",
    .survives = true,
    .sparse = true,
    .family = &hogwild_family,
    .check = check,
};
