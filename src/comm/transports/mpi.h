/* The MPI transport: ranks started by mpirun or srun, on one node or many. MPI itself is behind a
 * module that is loaded here (mpi_module.h), so a program that never opens this transport never
 * meets MPI.
 *
 * MPI makes no progress on its own: whoever owns the transport calls progress and idle. Ranks of
 * one node share memory between themselves (sh_share). A dead rank ends the whole job, that is what
 * MPI's launchers do; a run continues from its checkpoint when it is launched again. */
#ifndef SH_COMM_TRANSPORTS_MPI_H
#define SH_COMM_TRANSPORTS_MPI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "comm/transport.h"

typedef enum sh_mpi_flavour {
    SH_MPI_NONE,  // no MPI launcher
    SH_MPI_OPENMPI,
    SH_MPI_MPICH,
} sh_mpi_flavour;

const char *sh_mpi_flavour_name(sh_mpi_flavour flavour);  // "openmpi", "mpich", "none"

/* What launchers leave in the environment: the values of these variables, NULL where unset. The
 * library reads no environment; its caller does. */
typedef struct sh_mpi_launch {
    const char *ompi_size;    // OMPI_COMM_WORLD_SIZE: mpirun of Open MPI
    const char *pmi_size;     // PMI_SIZE: mpirun of MPICH and its kin; srun --mpi=pmi2
    const char *pmix_rank;    // PMIX_RANK: srun --mpi=pmix, prterun
    const char *slurm_tasks;  // SLURM_STEP_NUM_TASKS: any srun
} sh_mpi_launch;

/* Which MPI started this process, and how many ranks there are (0: it does not say; 1: this process
 * is alone and needs no MPI). Fails where srun started several tasks without telling them of each
 * other. */
sh_status sh_mpi_detect(const sh_mpi_launch *launch, sh_mpi_flavour *flavour_out, int *ranks_out);

typedef struct sh_mpi_options {
    const char *module;  // a module, or a folder with modules; NULL: beside the program or library
    sh_mpi_flavour flavour;  // NONE: whichever module is there
    int ranks;               // as the launcher says; 0: unknown
    const sh_clock *clock;   // NULL: the real one
    size_t part_bytes;       // longest single MPI message; 0: what serves best
    int apart;  // so many of the last ranks are each alone, the only rank of their transport; that
                // of the others leaves them out. Mail joins all. Ignored where none would be left
    double limit_s;  // of MPI's start and end, which wait for all ranks; 0: none
} sh_mpi_options;

/* Starts MPI, once in the life of a process. Collective over all processes that the launcher
 * started. Fails with SH_E_PEER if that takes too long.
 *
 * Close is collective too and ends MPI; sh_mpi_ended tells how. After a failure (board->status, or
 * MPI's own) it does not wait for others: MPI stays open so that the program can still report, and
 * sh_mpi_abort then ends the job. */
sh_status sh_mpi_open(const sh_mpi_options *options, sh_transport **transport_out);
/* Another limit for the end. */
void sh_mpi_limit_end(sh_transport *transport, double limit_s);
/* After close: fails with SH_E_PEER if the others were waited for in vain. */
sh_status sh_mpi_ended(void);

/* Mail: further endpoints over all ranks that the launcher started, each a transport of its own
 * that any one task may use. They hand their messages to the task that owns `transport`, which
 * moves them in its progress, and sleep while they wait. Memory is not shared through them.
 *
 * `hosts`: per endpoint, the rank that it sits on; borrowed. From sh_mpi_start_mail on, which the
 * owner calls at the same place on all ranks, MPI's own all-reduce lets mail move too. Close the
 * endpoints first, while the owner still makes progress. */
void sh_mpi_start_mail(sh_transport *transport);
sh_status sh_mpi_open_mail(sh_transport *transport, const int *hosts, int endpoints, int endpoint,
                           sh_transport **mail_out);
/* Among all ranks that the launcher started. */
int sh_mpi_world_rank(const sh_transport *transport);
int sh_mpi_world_ranks(const sh_transport *transport);

/* The ranks of this rank's node, and the cores that they may use together. */
void sh_mpi_place(const sh_transport *transport, int *node_ranks_out, int *node_cores_out);

/* The last act of a program whose run failed: ends all ranks of the job, and does not return. Where
 * MPI's start or end hangs it ends this process, and its launcher the others. Does nothing if MPI
 * was not started here or was ended in order. */
void sh_mpi_abort(int exit_code);

/* What `shoal doctor` says of one module: whether it is there and loads. */
typedef struct sh_mpi_report {
    bool found, loads;
    char path[1024];  // of the module; empty where not found
    char text[256];   // MPI's name and version, or why it does not load
} sh_mpi_report;

void sh_mpi_probe(sh_mpi_flavour flavour, sh_mpi_report *report_out);

#endif
