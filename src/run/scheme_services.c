/* The services of a scheme that sit on this worker: their tasks, and what they counted. */
#include <omp.h>

#include "run/exact.h"
#include "run/scheme_internal.h"
#include "run/server.h"
#include "run/server_snapshots.h"

static sh_status serve(void *argument) {
    service_task *task = argument;
    // The worker's threads compute; a service has the one it runs on. A worker that waits for it
    // leaves a core idle, and the system finds which.
    if (task->real) omp_set_num_threads(1);
    if (task->cores != NULL) sched_setaffinity(0, sizeof *task->cores, task->cores);
    return task->service.scheme.kind->family->serve(&task->service);
}

/* Hook of a service: the scheme of this generation is being left, so nobody will ask it for
 * anything more. */
static bool quits(void *self) {
    const shoal_run *run = self;
    // Relaxed: what it guards is waited for by the end of the task.
    return atomic_load_explicit(&run->scheme->quits, memory_order_relaxed);
}

sh_service scheme_service_of(shoal_run *run, int index, int count) {
    struct sh_scheme_run *s = run->scheme;
    return (sh_service){
        .index = index,
        .count = count,
        .workers = sh_run_replicas(run),
        .mail = {.workers = sh_run_replicas(run)},
        .scheme = s->sync.scheme,
        .options = s->sync.options,
        .params = s->replica.params,
        .weights = s->replica.weights,
        .optim = &run->optim,
        .schedule = &run->schedule,
        .codec = &s->codec,
        .seed = s->replica.seed,
        .step = run->at.step,
        .combined_most = sh_exact_combined_most(&run->config, run->model.net),
        .worker = &s->sync,
        .stops = scheme_stops,
        .quits = quits,
        .user = run,
        .snapshot = sh_server_snapshots_at(&run->team.snapshots, index),
    };
}

/* The worker opens the service's endpoint before its task begins, so that a failure is told by
 * the worker. */
static sh_status start_service(shoal_run *run, service_task *task, int index, int count) {
    const sh_worker_env *env = &run->team.env;
    task->service = scheme_service_of(run, index, count);
    task->real = env->spend == NULL;
    task->cores = env->cores;
    SH_TRY(env->open_mail(env->self, sh_run_replicas(run) + index, &task->service.mail.transport));
    return sh_task_spawn("service", serve, task, &task->task);
}

/* Those with ranks of their own wait for worker 0's word; it keeps their places in the list. */
static sh_status set_up_servers(shoal_run *run, int count) {
    struct sh_scheme_run *s = run->scheme;
    if (run->team.rank != 0) return SH_OK;
    for (int index = 0; index < count; index++) s->services[index].service.index = index;
    s->service_count = count;
    return sh_servers_set_up(run, &s->replica.mail, count);
}

/* Service s sits on worker s mod P. */
sh_status scheme_start_services(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    int ranks = sh_run_replicas(run);
    int count = sh_scheme_services(s->sync.scheme, s->sync.options, ranks);
    if (count == 0) return SH_OK;
    s->services = sh_alloc((size_t)count, sizeof *s->services);
    if (s->services == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %d services", count);
    if (s->replica.mail.apart) return set_up_servers(run, count);
    for (int index = run->team.rank; index < count; index += ranks)
        SH_TRY(start_service(run, &s->services[s->service_count++], index, count));
    return SH_OK;
}

/* Servers with ranks of their own send their counts; those on workers are read where they lie.
 * `counted` keeps a restore from snapshots from counting them again. */
sh_status scheme_hear_services(shoal_run *run) {
    struct sh_scheme_run *s = run->scheme;
    for (int i = 0; s->replica.mail.apart && i < s->service_count; i++)
        SH_TRY(sh_server_read_counts(&s->replica.mail, &s->services[i].service));
    run->team.snapshots.counted = true;
    return SH_OK;
}

/* All are waited for, whatever the first one says: each of them still looks at the run's
 * memory. */
sh_status scheme_wait_for_services(struct sh_scheme_run *s) {
    sh_status status = SH_OK;
    for (int i = 0; i < s->service_count; i++) {
        sh_status ended = s->services[i].task != NULL ? sh_task_wait(s->services[i].task) : SH_OK;
        s->services[i].task = NULL;
        if (status == SH_OK) status = ended;
    }
    return status;
}

/* ---- counts ---- */

/* Of several services sums and counts add up, and the largest staleness is the largest of any. */
static void add_staleness(sh_scheme_counts *counts, const sh_staleness *staleness) {
    counts->stale_updates += staleness->updates;
    counts->stale_sum += staleness->sum;
    if (staleness->most > counts->stale_most) counts->stale_most = staleness->most;
}

/* Histograms of one service in several generations add up bin by bin. */
static void add_histogram(sh_staleness *histogram, const sh_staleness *more) {
    for (size_t i = 0; i < SH_COUNT(more->count); i++) histogram->count[i] += more->count[i];
    histogram->updates += more->updates;
    histogram->sum += more->sum;
    if (more->most > histogram->most) histogram->most = more->most;
}

void sh_scheme_add_service(sh_scheme_counts *counts, int index, int services,
                           const sh_service_counts *more) {
    // Every shard counts its own updates; the model is updated when all its shards are.
    counts->shard_updates += (double)more->updates / services;
    add_staleness(counts, &more->staleness);
    if (index > 0) return;
    add_histogram(&counts->histogram, &more->staleness);
    counts->dropped += more->dropped;
}

sh_scheme_counts sh_scheme_count(const shoal_run *run) {
    const struct sh_scheme_run *s = run->scheme;
    sh_scheme_counts counts = run->counts;
    // A step of all workers together is one update of the model, counted by rank 0 alone.
    if (s == NULL || sh_scheme_is_together(run)) {
        if (sh_team_leads(&run->team)) counts.alone += run->at.step - run->team.step;
        return counts;
    }
    counts.updates += s->replica.counts.updates;
    int shards = sh_scheme_services(s->sync.scheme, s->sync.options, sh_run_replicas(run));
    add_staleness(&counts, &s->replica.counts.staleness);
    for (int i = 0; i < s->service_count; i++) {
        const sh_service *service = &s->services[i].service;
        sh_scheme_add_service(&counts, service->index, shards, &service->counts);
    }
    return counts;
}
