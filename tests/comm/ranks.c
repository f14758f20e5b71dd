#include "comm/ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/task.h"

typedef struct rank_job {
    sh_shm *fabric;
    int rank;
    sh_rank_body body;
    void *argument;
    bool gives;  // the body closes the transport
} rank_job;

static int core_count(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : (int)count;
}

static sh_status run_rank(void *argument) {
    rank_job *job = argument;
    sh_transport *transport = NULL;
    sh_status status = sh_shm_attach(job->fabric, job->rank, core_count(), &transport);
    if (status == SH_OK) {
        status = job->body(transport, job->argument);
        if (!job->gives) sh_transport_close(transport);
    }
    if (status != SH_OK) sh_shm_mark_dead(job->fabric, job->rank);
    return status;
}

/* Keeps the failure that explains the others. */
static void keep_cause(sh_status status, sh_error *cause) {
    if (status == SH_OK) return;
    if (cause->code == SH_OK || (cause->code == SH_E_PEER && status != SH_E_PEER))
        *cause = *sh_error_last();
}

static sh_status run_threads(int ranks, sh_rank_body body, void *argument, bool gives) {
    sh_shm *fabric = NULL;
    SH_TRY(sh_shm_create(ranks, &fabric));
    rank_job *jobs = sh_alloc((size_t)ranks, sizeof *jobs);
    sh_task **tasks = sh_alloc((size_t)ranks, sizeof *tasks);
    SH_ASSERT(jobs != NULL && tasks != NULL);
    sh_error cause = {0};
    for (int rank = 0; rank < ranks; rank++) {
        jobs[rank] = (rank_job){fabric, rank, body, argument, gives};
        sh_status status = sh_task_spawn("rank", run_rank, &jobs[rank], &tasks[rank]);
        keep_cause(status, &cause);
        if (status != SH_OK) sh_shm_mark_dead(fabric, rank);
    }
    for (int rank = 0; rank < ranks; rank++)
        if (tasks[rank] != NULL) keep_cause(sh_task_wait(tasks[rank]), &cause);
    sh_free(tasks);
    sh_free(jobs);
    sh_shm_destroy(fabric);
    return cause.code == SH_OK ? SH_OK : sh_error_adopt(&cause);
}

sh_status run_ranks(int ranks, sh_rank_body body, void *argument) {
    return run_threads(ranks, body, argument, false);
}

sh_status run_ranks_given(int ranks, sh_rank_body body, void *argument) {
    return run_threads(ranks, body, argument, true);
}

/* The child's last words go through its board entry, as a worker's do. */
static void run_child(rank_job *job) {
    sh_status status = run_rank(job);
    sh_rank_status *board = &sh_shm_board(job->fabric)->rank[job->rank];
    board->status = (int32_t)status;
    if (status != SH_OK) {
        snprintf(board->error, sizeof board->error, "%.500s", sh_error_last()->text);
        _exit(1);
    }
    _exit(0);
}

static void note_end(sh_shm *fabric, int rank, int how, sh_error *cause) {
    sh_rank_status *board = &sh_shm_board(fabric)->rank[rank];
    if (WIFSIGNALED(how)) {
        snprintf(board->error, sizeof board->error, "killed by signal %d", WTERMSIG(how));
        board->status = SH_E_PEER;
    }
    if (how != 0) {
        keep_cause(SH_FAIL((sh_status)board->status, "rank %d: %s", rank, board->error), cause);
        sh_shm_mark_dead(fabric, rank);
    }
}

sh_status run_forked(int ranks, sh_rank_body body, void *argument) {
    sh_shm *fabric = NULL;
    SH_TRY(sh_shm_create(ranks, &fabric));
    pid_t *children = sh_alloc((size_t)ranks, sizeof *children);
    SH_ASSERT(children != NULL);
    for (int rank = 0; rank < ranks; rank++) {
        children[rank] = fork();
        SH_ASSERT(children[rank] >= 0);
        if (children[rank] == 0) run_child(&(rank_job){fabric, rank, body, argument, false});
    }
    sh_error cause = {0};
    for (int left = ranks; left > 0; left--) {
        int how = 0, rank = 0;
        pid_t child = waitpid(-1, &how, 0);
        SH_ASSERT(child > 0);
        while (rank < ranks && children[rank] != child) rank++;
        SH_ASSERT(rank < ranks);
        note_end(fabric, rank, how, &cause);
    }
    sh_free(children);
    sh_shm_destroy(fabric);
    return cause.code == SH_OK ? SH_OK : sh_error_adopt(&cause);
}

sh_status wait_message(sh_transport *transport, sh_message *message) {
    while (message->state == SH_MESSAGE_PENDING) {
        if (sh_transport_progress(transport)) continue;
        SH_TRY(sh_transport_health(transport));
        sh_transport_idle(transport);
    }
    if (message->state == SH_MESSAGE_DONE) return SH_OK;
    SH_TRY(sh_transport_health(transport));
    return SH_FAIL(SH_E_FORMAT, "rank %d: a message with rank %d, tag %llu, ended in state %d",
                   transport->rank, message->peer, (unsigned long long)message->tag,
                   (int)message->state);
}

static sh_status pass_token(sh_transport *transport, int peer, uint64_t tag, bool sends) {
    sh_message message = {.peer = peer, .tag = tag};
    SH_TRY(sends ? sh_send(transport, &message) : sh_receive(transport, &message));
    return wait_message(transport, &message);
}

sh_status meet_ranks(sh_transport *transport, uint64_t tag) {
    if (transport->rank != 0) {
        SH_TRY(pass_token(transport, 0, tag, true));
        return pass_token(transport, 0, tag, false);
    }
    for (int peer = 1; peer < transport->ranks; peer++)
        SH_TRY(pass_token(transport, peer, tag, false));
    for (int peer = 1; peer < transport->ranks; peer++)
        SH_TRY(pass_token(transport, peer, tag, true));
    return SH_OK;
}
