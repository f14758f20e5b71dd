/* MPI_Init and MPI_Finalize wait for all ranks, for ever if need be. They run in a task of their
 * own; whoever asked for them waits with a limit and goes on without them when it has passed. */
#include "comm/transports/mpi_starter.h"

#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/task.h"

enum { LOOK_NS = 200000000 };

struct sh_mpi_starter {
    sh_task *task;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sh_mpi_starter_body body;  // guarded by lock; NULL: nothing to do
    void *argument;            // guarded by lock
    sh_status status;          // guarded by lock; of the last body,
    sh_error error;            // guarded by lock; and its error
    bool ends;                 // guarded by lock
};

/* The task: runs one body at a time until it is told to end. */
static sh_status serve(void *self) {
    sh_mpi_starter *starter = self;
    pthread_mutex_lock(&starter->lock);
    while (!starter->ends) {
        if (starter->body == NULL) {
            pthread_cond_wait(&starter->changed, &starter->lock);
            continue;
        }
        sh_mpi_starter_body body = starter->body;
        pthread_mutex_unlock(&starter->lock);
        sh_status status = body(starter->argument);
        pthread_mutex_lock(&starter->lock);
        starter->status = status;
        if (status != SH_OK) starter->error = *sh_error_last();
        starter->body = NULL;
        pthread_cond_broadcast(&starter->changed);
    }
    pthread_mutex_unlock(&starter->lock);
    return SH_OK;
}

sh_status sh_mpi_starter_create(sh_mpi_starter **starter_out) {
    sh_mpi_starter *starter = sh_alloc(1, sizeof *starter);
    if (starter == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for MPI's start");
    pthread_mutex_init(&starter->lock, NULL);
    pthread_cond_init(&starter->changed, NULL);
    sh_status status = sh_task_spawn("mpi", serve, starter, &starter->task);
    if (status != SH_OK) {
        sh_free(starter);
        return status;
    }
    *starter_out = starter;
    return SH_OK;
}

/* A process that was stopped meanwhile (Ctrl-Z) has not waited. */
static bool await(sh_mpi_starter *starter, int64_t limit_ns) {
    int64_t begin_ns = sh_clock_now_ns(&sh_clock_real), looked_ns = begin_ns;
    while (starter->body != NULL) {
        struct timespec until = sh_deadline_in(LOOK_NS);
        pthread_cond_clockwait(&starter->changed, &starter->lock, CLOCK_MONOTONIC, &until);
        int64_t now_ns = sh_clock_now_ns(&sh_clock_real);
        if (sh_was_stopped(looked_ns, now_ns)) begin_ns = now_ns;
        looked_ns = now_ns;
        if (starter->body != NULL && limit_ns > 0 && now_ns - begin_ns > limit_ns) return false;
    }
    return true;
}

/* A body that is late keeps running: the starter must not be destroyed then, as mpi_starter.h
 * says. */
sh_status sh_mpi_starter_run(sh_mpi_starter *starter, sh_mpi_starter_body body, void *argument,
                             double limit_s, bool *late_out) {
    pthread_mutex_lock(&starter->lock);
    starter->body = body;
    starter->argument = argument;
    pthread_cond_broadcast(&starter->changed);
    *late_out = !await(starter, (int64_t)(limit_s * 1e9));
    sh_status status = *late_out ? SH_OK : starter->status;
    if (status != SH_OK) sh_error_adopt(&starter->error);
    pthread_mutex_unlock(&starter->lock);
    return status;
}

/* Only when the last body has returned. */
void sh_mpi_starter_destroy(sh_mpi_starter *starter) {
    pthread_mutex_lock(&starter->lock);
    starter->ends = true;
    pthread_cond_broadcast(&starter->changed);
    pthread_mutex_unlock(&starter->lock);
    sh_task_wait(starter->task);
    pthread_cond_destroy(&starter->changed);
    pthread_mutex_destroy(&starter->lock);
    sh_free(starter);
}
