/* Workers as processes of this machine: the parent forks them, joined by shared memory, draws what
 * rank 0 reports, watches over them, and starts them again from the last checkpoint when one dies.
 * The parent never computes, and forks before anything else runs: a process that has used OpenMP
 * cannot be forked. */
#ifndef SH_TRAIN_LAUNCH_H
#define SH_TRAIN_LAUNCH_H

#include "comm/transports/shm.h"
#include "train/run.h"

/* What a worker says to the parent. Shorter than PIPE_BUF, so that notes never mix. */
typedef enum sh_note_kind {
    SH_NOTE_LINE,
    SH_NOTE_PROGRESS,
    SH_NOTE_FOLDER,
    SH_NOTE_TIMING,
} sh_note_kind;

typedef struct sh_note {
    int32_t kind, rank, level;
    union {
        char text[2048];
        shoal_progress progress;
        shoal_timing timing;
    };
} sh_note;

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
} sh_outcome;

sh_status sh_launch(const sh_job *job, sh_outcome *outcome);

/* Whether this process is to work under MPI, by who started it and by --transport (launcher.c).
 * `launcher` NULL: a user. */
sh_status sh_launcher_check(const shoal_launcher *launcher, const char *transport, bool *mpi_out);
/* Then it joins the others that the launcher started, `apart` as in sh_mpi_options. */
sh_status sh_launcher_join(const shoal_launcher *launcher, int apart, sh_transport **transport_out);
/* And is one rank of the job (worker_mpi.c). */
sh_status sh_rank_run(const sh_job *job, sh_outcome *outcome);

/* The workers' side (worker.c): never returns. */
typedef struct sh_worker {
    const sh_job *job;
    const sh_config *config;
    sh_shm *fabric;
    sh_shm *mail;             // of the scheme; NULL: it has none
    sh_board *board;          // of all processes
    int rank, ranks;          // from `ranks` on: a parameter server
    int notes_fd;             // to the parent
    const _Atomic int *stop;  // set by the parent
} sh_worker;
_Noreturn void sh_worker_main(const sh_worker *worker);
/* Cores are divided: worker r of n gets the r-th part, where there is at least one for each. */
void sh_take_cores(int rank, int ranks);
/* Threads of each of `workers` on `cores`. */
int sh_threads_each(const sh_config *config, int workers, int cores);

#endif
