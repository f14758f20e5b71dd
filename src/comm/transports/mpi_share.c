/* Memory between the ranks of one node, as an MPI window. Ranks of other nodes see NULL. Where no
 * node has two ranks, or MPI cannot share, each rank gets private memory and every base but its
 * own is NULL: then messages do all the work, and all ranks choose that alike. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/transports/mpi_internal.h"

/* What hangs on sh_shared.own. */
typedef struct share_own {
    void *window;          // the module's; NULL: nothing is shared
    void *private_memory;  // this rank's part where nothing is shared
    size_t private_bytes;
} share_own;

/* This rank's part as plain memory of its own. */
static sh_status take_private(sh_mpi *mpi, size_t bytes, sh_shared *shared) {
    share_own *own = shared->own;
    if (bytes == 0) return SH_OK;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu bytes of buffers", bytes);
    own->private_memory = memory;
    own->private_bytes = bytes;
    shared->base[mpi->base.rank] = memory;
    return SH_OK;
}

/* All nodes share or none does, so that all ranks choose the same algorithms. */
static sh_status take_shared(sh_mpi *mpi, size_t bytes, size_t private_bytes, sh_shared *shared) {
    share_own *own = shared->own;
    int error = mpi->module->share(bytes, shared->base, &own->window);
    int32_t shares = error == 0;
    error = mpi->module->allreduce(&shares, 1, SH_MPI_I32, SH_MPI_MIN, NULL, NULL);
    if (error != 0) return sh_mpi_fail(mpi, error, "shared memory");
    if (shares != 0) return SH_OK;
    if (own->window != NULL) mpi->module->unshare(own->window);
    own->window = NULL;
    for (int r = 0; r < mpi->base.ranks; r++) shared->base[r] = NULL;
    return take_private(mpi, private_bytes, shared);
}

static bool any_neighbours(const sh_mpi *mpi) {
    // The numbers are the same on all ranks: fewer nodes than ranks means that some share one.
    int last = 0;
    for (int r = 0; r < mpi->base.ranks; r++)
        if (mpi->base.node[r] > last) last = mpi->base.node[r];
    return last + 1 < mpi->base.ranks;
}

/* Collective, with sizes that may differ: the page of wake-up words is brought by the first rank
 * of each node. */
sh_status sh_mpi_share_uneven(sh_mpi *mpi, size_t bytes, size_t private_bytes,
                              sh_shared *shared_out) {
    sh_shared shared = {.bytes = bytes};
    shared.base = sh_alloc((size_t)mpi->base.ranks, sizeof *shared.base);
    shared.own = sh_alloc(1, sizeof(share_own));
    sh_status status = SH_OK;
    if (shared.base == NULL || shared.own == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for %d ranks", mpi->base.ranks);
    else if (any_neighbours(mpi))
        status = take_shared(mpi, bytes, private_bytes, &shared);
    else
        status = take_private(mpi, private_bytes, &shared);
    if (status != SH_OK) {
        sh_free(shared.base);
        sh_free(shared.own);
        return status;
    }
    *shared_out = shared;
    return SH_OK;
}

bool sh_mpi_is_mapped(const sh_shared *shared) {
    const share_own *own = shared->own;
    return own != NULL && own->window != NULL;
}

sh_status sh_mpi_share(sh_transport *transport, size_t bytes, sh_shared *shared_out) {
    SH_TRY(transport->ops->health(transport));
    // All ranks ask for the same and have much the same machine, so all refuse together.
    size_t memory_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > memory_bytes)
        return SH_FAIL(SH_E_MEMORY, "%zu bytes of buffers, but this machine has %zu of memory",
                       bytes, memory_bytes);
    return sh_mpi_share_uneven((sh_mpi *)transport, bytes, bytes, shared_out);
}

void sh_mpi_unshare(sh_transport *transport, sh_shared *shared) {
    sh_mpi *mpi = (sh_mpi *)transport;
    share_own *own = shared->own;
    if (own == NULL) return;
    // Collective: after a failure nobody else would come, and the memory goes with the process.
    bool ends = !mpi->failed && transport->board->status == SH_OK;
    if (own->window != NULL && ends) mpi->module->unshare(own->window);
    if (own->private_memory != NULL) munmap(own->private_memory, own->private_bytes);
    sh_free(own);
    sh_free(shared->base);
    *shared = (sh_shared){0};
}
