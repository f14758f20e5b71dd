#include "comm/transports/mpi_gate.h"

#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/task.h"

enum { LOOK_NS = 200000000 };

struct sh_mpi_gate {
    sh_task *task;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sh_mpi_gate_body body;  // guarded by lock; NULL: nothing to do
    void *argument;         // guarded by lock
    sh_status status;       // guarded by lock; of the last body,
    sh_error error;         // guarded by lock; and its error
    bool ends;              // guarded by lock
};

static sh_status serve(void *self) {
    sh_mpi_gate *gate = self;
    pthread_mutex_lock(&gate->lock);
    while (!gate->ends) {
        if (gate->body == NULL) {
            pthread_cond_wait(&gate->changed, &gate->lock);
            continue;
        }
        sh_mpi_gate_body body = gate->body;
        pthread_mutex_unlock(&gate->lock);
        sh_status status = body(gate->argument);
        pthread_mutex_lock(&gate->lock);
        gate->status = status;
        if (status != SH_OK) gate->error = *sh_error_last();
        gate->body = NULL;
        pthread_cond_broadcast(&gate->changed);
    }
    pthread_mutex_unlock(&gate->lock);
    return SH_OK;
}

sh_status sh_mpi_gate_open(sh_mpi_gate **gate_out) {
    sh_mpi_gate *gate = sh_alloc(1, sizeof *gate);
    if (gate == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for MPI's start");
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
    sh_status status = sh_task_spawn("mpi", serve, gate, &gate->task);
    if (status != SH_OK) {
        sh_free(gate);
        return status;
    }
    *gate_out = gate;
    return SH_OK;
}

/* A process that was stopped meanwhile (Ctrl-Z) has not waited. */
static bool await(sh_mpi_gate *gate, int64_t limit_ns) {
    int64_t begin_ns = sh_clock_now_ns(&sh_clock_real), looked_ns = begin_ns;
    while (gate->body != NULL) {
        struct timespec until = sh_deadline_in(LOOK_NS);
        pthread_cond_clockwait(&gate->changed, &gate->lock, CLOCK_MONOTONIC, &until);
        int64_t now_ns = sh_clock_now_ns(&sh_clock_real);
        if (sh_was_stopped(looked_ns, now_ns)) begin_ns = now_ns;
        looked_ns = now_ns;
        if (gate->body != NULL && limit_ns > 0 && now_ns - begin_ns > limit_ns) return false;
    }
    return true;
}

sh_status sh_mpi_gate_pass(sh_mpi_gate *gate, sh_mpi_gate_body body, void *argument, double limit_s,
                           bool *late_out) {
    pthread_mutex_lock(&gate->lock);
    gate->body = body;
    gate->argument = argument;
    pthread_cond_broadcast(&gate->changed);
    *late_out = !await(gate, (int64_t)(limit_s * 1e9));
    sh_status status = *late_out ? SH_OK : gate->status;
    if (status != SH_OK) sh_error_adopt(&gate->error);
    pthread_mutex_unlock(&gate->lock);
    return status;
}

void sh_mpi_gate_close(sh_mpi_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->ends = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
    sh_task_wait(gate->task);
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
    sh_free(gate);
}
