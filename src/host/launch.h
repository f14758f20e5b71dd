/* Workers as processes of this machine: the parent forks them, joined by shared memory, draws what
 * rank 0 reports and watches over them. When one dies, the others go on if their scheme can
 * (run/regroup.h), and one that takes its place joins them; otherwise all start again from the
 * last checkpoint.
 * The parent never computes, and forks before anything else runs: a process that has used OpenMP
 * cannot be forked. */
#ifndef SH_HOST_LAUNCH_H
#define SH_HOST_LAUNCH_H

#include <limits.h>
#include <sys/types.h>

#include "host/generations.h"
#include "run/run.h"
#include "shoal/tools.h"

/* What a worker says to the parent. Shorter than PIPE_BUF, so that notes never mix. */
typedef enum sh_note_kind {
    SH_NOTE_LINE,
    SH_NOTE_PROGRESS,
    SH_NOTE_FOLDER,
    SH_NOTE_TIMING,
    SH_NOTE_STATE,  // its slot has another state: look
} sh_note_kind;

typedef struct sh_note {
    int32_t kind, rank, level;
    union {
        char text[2048];
        shoal_progress progress;
        shoal_timing timing;
    };
} sh_note;
_Static_assert(sizeof(sh_note) <= PIPE_BUF, "writes to a pipe are whole only up to PIPE_BUF");

/* A job that all workers do: training, or a benchmark. */
typedef struct sh_job {
    const sh_config *config;  // restarts may change a copy of it
    const shoal_hooks *hooks;
    sh_status (*body)(shoal_run *run, void *argument);
    void *argument;
    shoal_timing *timing;  // that the body fills in rank 0; NULL: none
    bool restarts;         // after a death; needs a run's folder
} sh_job;

typedef struct sh_outcome {
    char *folder;  // of the run, NULL: none was opened; sh_free it
    shoal_timing timing;
    int64_t begin_ns;  // when the launch began
    int64_t saved;     // step of the last checkpoint that this launch has written; 0: none
} sh_outcome;

sh_status sh_launch(const sh_job *job, sh_outcome *outcome);

/* Whether this process is to work under MPI, by who started it and by --transport (launcher.c).
 * The hooks' environment tells. */
sh_status sh_launcher_check(const shoal_hooks *hooks, const char *transport, bool *mpi_out);
/* Then it joins the others that the launcher started, `apart` and `limit_s` as in sh_mpi_options.
 */
sh_status sh_launcher_join(const shoal_hooks *hooks, int apart, double limit_s,
                           sh_transport **transport_out);
/* And is one rank of the job (worker_mpi.c). */
sh_status sh_rank_run(const sh_job *job, sh_outcome *outcome);

/* A worker in one generation of its team. */
typedef struct sh_worker_generation {
    int generation;
    sh_engine *engine;  // NULL: it is alone, or in none
} sh_worker_generation;

/* The workers' side (worker.c). */
typedef struct sh_worker {
    const sh_job *job;
    const sh_config *config;
    sh_generations *generations;
    pid_t parent;
    int slot, slots;          // from `slots` on: a parameter server
    bool joins;               // a team that is under way
    int notes_fd;             // to the parent
    const _Atomic int *stop;  // set by the parent
    // Its own:
    sh_worker_generation now, before;
    int cores;              // of all workers: each may have bound itself to its part
    int rank;               // on the board; -1: none yet
    bool trains, held;      // in this generation, and in any
    size_t recalled;        // of what the first one noted
    sh_rank_status *board;  // of this generation
} sh_worker;
/* In a process just forked: it ends when `parent`, which forked it, does. */
void sh_die_with(pid_t parent);
/* Never returns. */
_Noreturn void sh_worker_main(sh_worker *worker);
void sh_worker_note(const sh_worker *worker, const sh_note *note);
/* Opens what the worker has of a generation: its engine, unless it is alone there
 * (worker_regroup.c). */
sh_status sh_worker_enter(sh_worker *worker, int generation);
void sh_worker_leave(sh_worker_generation *membership);
extern const sh_regroup_ops sh_worker_regroup;
/* Cores are divided: worker r of n gets the r-th part, where there is at least one for each. */
void sh_take_cores(int rank, int ranks);
/* Threads of each of `workers` on `cores`. */
int sh_threads_each(const sh_config *config, int workers, int cores);

#endif
