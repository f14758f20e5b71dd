/* The comm task: owns the transport and drives the engine, where the transport makes no progress by
 * itself (MPI). Callers hand it calls and jobs in a list; it takes them in order, polls while any
 * call is under way, and sleeps on a condition when there is none. Where tasks of the worker have
 * mail over the transport (sh_engine_keep_polling) it polls all the time, as politely as the
 * transport can. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/task.h"
#include "comm/engine_internal.h"

enum { LOOK_NS = 200000000 };  // between looks at a comm task that may be lost

typedef struct job {
    struct job *next;
    sh_driver_job body;
    void *argument;
    sh_status status;
    sh_error error;
    bool done;
} job;

struct sh_driver {
    sh_task *task;
    pthread_mutex_t lock;
    pthread_cond_t work;              // something came, or the end
    pthread_cond_t news;              // a job or a call ended
    job *first_job, *last_job;        // guarded by lock
    sh_call *first_call, *last_call;  // guarded by lock
    bool ends;                        // guarded by lock
    sh_error error;                   // guarded by lock; of the last call that failed
    _Atomic int waiting;  // calls and jobs in the lists, and the end; relaxed: a hint to look under
                          // the lock
};

/* Calls go first: a job was handed over after them, by a caller that waits for it. */
static void take(sh_driver *driver, bool waits, sh_call **call_out, job **job_out, bool *ends_out) {
    pthread_mutex_lock(&driver->lock);
    while (waits && driver->first_call == NULL && driver->first_job == NULL && !driver->ends)
        pthread_cond_wait(&driver->work, &driver->lock);
    *call_out = driver->first_call;
    *job_out = NULL;
    if (*call_out != NULL) {
        driver->first_call = (*call_out)->next;
        if (driver->first_call == NULL) driver->last_call = NULL;
    } else if (driver->first_job != NULL) {
        *job_out = driver->first_job;
        driver->first_job = (*job_out)->next;
        if (driver->first_job == NULL) driver->last_job = NULL;
    } else {
        *ends_out = driver->ends;
    }
    if (*call_out != NULL || *job_out != NULL)
        atomic_fetch_sub_explicit(&driver->waiting, 1, memory_order_relaxed);
    pthread_mutex_unlock(&driver->lock);
}

static void do_job(sh_engine *engine, job *taken) {
    sh_driver *driver = engine->driver;
    sh_status status = taken->body(engine, taken->argument);
    pthread_mutex_lock(&driver->lock);
    taken->status = status;
    if (status != SH_OK) taken->error = *sh_error_last();
    taken->done = true;
    pthread_cond_broadcast(&driver->news);
    pthread_mutex_unlock(&driver->lock);
}

/* Mail travels also while no call is under way. */
static void keep_polling(sh_transport *transport) {
    if (!sh_transport_progress(transport)) sh_transport_idle(transport);
}

/* The comm task's loop: takes what was handed over, moves it, and waits politely. */
static sh_status drive(void *argument) {
    sh_engine *engine = argument;
    sh_driver *driver = engine->driver;
    bool ends = false;
    for (int turn = 0; !ends; turn++) {
        bool idle = engine->under_way == 0 && !engine->keeps_polling;
        if (idle || atomic_load_explicit(&driver->waiting, memory_order_relaxed) > 0) {
            sh_call *call;
            job *taken;
            take(driver, idle, &call, &taken, &ends);
            // One that cannot start ends at once; whoever waits for it learns why.
            if (call != NULL) (void)sh_engine_begin(engine, call);
            if (taken != NULL) do_job(engine, taken);
            turn = 0;
        }
        if (engine->under_way == 0) {
            if (engine->keeps_polling) keep_polling(engine->transport);
        } else if (sh_engine_progress(engine)) {
            turn = 0;
        } else {
            (void)sh_engine_back_off(engine, &turn);  // its failure has ended all calls
        }
    }
    return SH_OK;
}

/* The comm task may rest between two looks at the transport, while calls are under way. */
static void wake(sh_engine *engine) { sh_wake(engine->transport, engine->transport->rank); }

/* Where no comm task drives, the caller is the driver: the job runs at once. */
sh_status sh_engine_job(sh_engine *engine, sh_driver_job body, void *argument) {
    sh_driver *driver = engine->driver;
    if (driver == NULL) return body(engine, argument);
    job put = {.body = body, .argument = argument};
    pthread_mutex_lock(&driver->lock);
    if (driver->last_job != NULL)
        driver->last_job->next = &put;
    else
        driver->first_job = &put;
    driver->last_job = &put;
    atomic_fetch_add_explicit(&driver->waiting, 1, memory_order_relaxed);
    pthread_cond_signal(&driver->work);
    wake(engine);
    while (!put.done) pthread_cond_wait(&driver->news, &driver->lock);
    pthread_mutex_unlock(&driver->lock);
    return put.status == SH_OK ? SH_OK : sh_error_adopt(&put.error);
}

sh_status sh_driver_start(sh_engine *engine, sh_call *call) {
    sh_driver *driver = engine->driver;
    call->next = NULL;
    pthread_mutex_lock(&driver->lock);
    if (driver->last_call != NULL)
        driver->last_call->next = call;
    else
        driver->first_call = call;
    driver->last_call = call;
    atomic_fetch_add_explicit(&driver->waiting, 1, memory_order_relaxed);
    pthread_cond_signal(&driver->work);
    pthread_mutex_unlock(&driver->lock);
    wake(engine);
    return SH_OK;
}

/* Whether the comm task is lost in the transport's own all-reduce, which no watchdog can end: then
 * the caller must not wait for it either. */
static bool is_lost(const sh_engine *engine, double *seconds_out) {
    int64_t away_ns = atomic_load_explicit(&engine->away_ns, memory_order_relaxed);
    int64_t timeout_ns = engine->options.timeout_ns;
    if (away_ns == 0 || timeout_ns <= 0) return false;
    int64_t waited_ns = sh_clock_now_ns(engine->transport->clock) - away_ns;
    *seconds_out = (double)waited_ns * 1e-9;
    return waited_ns > timeout_ns;
}

/* The limit only bounds how late a lost comm task is noticed. */
static void await_news(sh_driver *driver) {
    struct timespec until = sh_deadline_in(LOOK_NS);
    pthread_cond_clockwait(&driver->news, &driver->lock, CLOCK_MONOTONIC, &until);
}

/* The caller's wait for a call, for reports. */
typedef struct long_wait {
    int64_t begin_ns, looked_ns;
    int told;  // reports so far
} long_wait;

/* Reports a long wait, without the lock: writing the line may take its time. */
static void report(sh_engine *engine, const sh_call *call, long_wait *wait) {
    sh_driver *driver = engine->driver;
    int64_t now_ns = sh_clock_now_ns(engine->transport->clock);
    if (wait->begin_ns == 0 || sh_was_stopped(wait->looked_ns, now_ns)) wait->begin_ns = now_ns;
    wait->looked_ns = now_ns;
    int64_t waited_ns = now_ns - wait->begin_ns;
    if (!sh_wait_report_is_due(engine->options.wait_report, waited_ns, wait->told)) return;
    wait->told++;
    char what[128], place[SH_PLACE_TEXT];
    snprintf(what, sizeof what, "%s (%s)", sh_collective_name(call->what),
             sh_call_place(call, place));
    pthread_mutex_unlock(&driver->lock);
    sh_wait_report_tell(engine->options.wait_report, waited_ns,
                        sh_board_waits(engine->transport->board), what);
    pthread_mutex_lock(&driver->lock);
}

sh_status sh_driver_wait(sh_engine *engine, sh_call *call) {
    sh_driver *driver = engine->driver;
    double seconds = 0;
    long_wait wait = {0};
    pthread_mutex_lock(&driver->lock);
    while (!call->done && !is_lost(engine, &seconds)) {
        await_news(driver);
        if (engine->options.wait_report != NULL && !call->done) report(engine, call, &wait);
    }
    if (!call->done) {
        pthread_mutex_unlock(&driver->lock);
        char place[SH_PLACE_TEXT];
        return SH_FAIL(SH_E_PEER,
                       "rank %d waited %.1f s for the others in %s's own all-reduce (%s)",
                       engine->transport->rank, seconds, engine->transport->ops->name,
                       sh_call_place(call, place));
    }
    sh_status status = call->status;
    if (status != SH_OK) sh_error_adopt(&driver->error);
    pthread_mutex_unlock(&driver->lock);
    return status;
}

/* A call has ended: waiting tasks hear of it. */
static void ended(sh_engine *engine, sh_call *call) {
    sh_driver *driver = engine->driver;
    pthread_mutex_lock(&driver->lock);
    if (call->status != SH_OK)
        driver->error = engine->status != SH_OK ? engine->error : *sh_error_last();
    // Release: sh_engine_test reads it without the lock.
    __atomic_store_n(&call->done, true, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&driver->news);
    pthread_mutex_unlock(&driver->lock);
}

/* The task opens nothing: the transport was opened by whoever starts it. */
sh_status sh_driver_create(sh_engine *engine) {
    sh_driver *driver = sh_alloc(1, sizeof *driver);
    if (driver == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for the comm task");
    pthread_mutex_init(&driver->lock, NULL);
    pthread_cond_init(&driver->work, NULL);
    pthread_cond_init(&driver->news, NULL);
    engine->driver = driver;
    engine->ended = ended;
    sh_status status = sh_task_spawn("comm", drive, engine, &driver->task);
    if (status != SH_OK) sh_driver_destroy(engine);
    return status;
}

void sh_driver_destroy(sh_engine *engine) {
    sh_driver *driver = engine->driver;
    if (driver == NULL) return;
    pthread_mutex_lock(&driver->lock);
    driver->ends = true;
    atomic_fetch_add_explicit(&driver->waiting, 1, memory_order_relaxed);
    pthread_cond_signal(&driver->work);
    pthread_mutex_unlock(&driver->lock);
    wake(engine);
    sh_task_wait(driver->task);
    pthread_cond_destroy(&driver->news);
    pthread_cond_destroy(&driver->work);
    pthread_mutex_destroy(&driver->lock);
    sh_free(driver);
    engine->driver = NULL;
    engine->ended = NULL;
}
