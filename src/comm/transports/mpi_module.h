/* What an MPI module offers: one table of plain functions and numbers. Each module is a shared
 * object built from mpi_module.c against one MPI (shoal-mpi-openmpi.so, shoal-mpi-mpich.so) and
 * loaded only when a run uses MPI; it needs no symbol of Shoal and Shoal needs none of MPI.
 *
 * A call returns 0 or MPI's own error code, which `error_text` explains. Calls may come from any
 * thread, but never from two at once. Requests are named by a cookie of the caller's, which comes
 * back when they are complete. */
#ifndef SH_COMM_TRANSPORTS_MPI_MODULE_H
#define SH_COMM_TRANSPORTS_MPI_MODULE_H

#include <stddef.h>
#include <stdint.h>

enum { SH_MPI_MODULE_VERSION = 2 };
#define SH_MPI_MODULE_SYMBOL "shoal_mpi_module"

enum { SH_MPI_ANY_PEER = -1 };

/* Numbers of the table, not MPI's, for what MPI reduces. */
enum { SH_MPI_F32, SH_MPI_F64, SH_MPI_I32, SH_MPI_I64 };
enum { SH_MPI_SUM, SH_MPI_MAX, SH_MPI_MIN, SH_MPI_PRODUCT };

typedef struct sh_mpi_world {
    int rank, ranks;
    int node_rank, node_ranks;  // among the ranks that can share memory with this one
    int node_cores;             // cores that those ranks together may run on
    int tag_max;
    int thread_level;  // granted: 0 single, 1 funneled, 2 serialized, 3 multiple
} sh_mpi_world;

typedef struct sh_mpi_done {
    uintptr_t cookie;
    int peer;  // of a receive: who sent
    int bytes;
    int error;  // MPI's code, 0: none
    int cancelled;
} sh_mpi_done;

typedef struct sh_mpi_module {
    uint32_t version;     // SH_MPI_MODULE_VERSION
    uint32_t table_size;  // sizeof of this struct
    const char *flavour;  // "openmpi" or "mpich"
    /* MPI's name and version, one line. May be called before init. */
    void (*describe)(char *text_out, size_t size);
    void (*error_text)(int error, char *text_out, size_t size);

    /* Starts MPI; once per process. */
    int (*init)(sh_mpi_world *world_out);
    /* Per rank: which node it is on, counted from 0 in the order of ranks. Collective. */
    int (*nodes)(int *node_out);
    /* Collective, and ends all use. */
    int (*finalize)(void);
    /* Ends the whole job, and does not return. */
    void (*abort)(int exit_code);

    /* Start; the buffer is borrowed until the cookie comes back. */
    int (*isend)(const void *data, int bytes, int peer, int tag, uintptr_t cookie);
    int (*irecv)(void *data, int bytes, int peer, int tag, uintptr_t cookie);
    /* Lets MPI move on and takes at most `capacity` complete requests. */
    int (*test)(sh_mpi_done *done_out, int capacity, int *count_out);
    /* Asks MPI to take a receive back. The cookie still comes back, and says whether it was. */
    int (*cancel)(uintptr_t cookie);

    /* Collective over all ranks: those that name the same team are one from now on. Until then all
     * ranks are. */
    int (*split)(int team);
    /* Blocking and collective over all ranks. */
    int (*barrier)(void);
    /* Blocking and collective over the team. `meanwhile` is called again and again until it is
     * done, on all ranks or on none; NULL: MPI alone waits. */
    int (*allreduce)(void *data, int count, int type, int op, void (*meanwhile)(void *self),
                     void *self);

    /* Memory of the team's ranks on this node, mapped by all of them: every rank brings its own
     * number of bytes, zeroed and page-aligned. base_out has one entry per rank of the run; entries
     * of others, and of ranks that brought nothing, are left alone. Collective over them. */
    int (*share)(size_t bytes, char **base_out, void **handle_out);
    int (*unshare)(void *handle);
} sh_mpi_module;

#endif
