/* The fabric: one nameless file (memfd) that all ranks map before they part. It holds the status
 * board, a wake-up word per rank, a bitmap of who ever sent to whom, and a ring per ordered pair
 * of ranks. It is addresses alone: a pair costs memory once it has talked, so 4096 ranks fit on
 * any machine. When the last process is gone, so is the file. */
#include "comm/transports/shm_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/addresses.h"
#include "base/memory.h"

/* Rings shrink with the number of pairs; they cost memory only once used. */
enum { RING_LEAST = 4 << 10, RING_MOST = 256 << 10 };
static const size_t rings_total = (size_t)256 << 20;

/* The longest ring with which all pairs together stay below rings_total. */
static size_t ring_bytes_for(int ranks) {
    size_t bytes = RING_MOST, pairs = (size_t)ranks * (size_t)ranks;
    while (bytes > RING_LEAST && bytes * pairs > rings_total) bytes /= 2;
    return bytes;
}

/* Places the parts of the control block behind each other; `base` is 0 to learn the size. */
static size_t lay_out(sh_shm *fabric, uintptr_t base) {
    size_t ranks = (size_t)fabric->ranks, at = 0;
    fabric->control = (shm_control *)(base + at);
    at = sh_round_up(at + sizeof *fabric->control, 128);
    fabric->board = (sh_status_board *)(base + at);
    at = sh_round_up(at + sh_board_bytes(fabric->ranks), 128);
    fabric->wakeups = (shm_wakeup *)(base + at);
    at = sh_round_up(at + ranks * sizeof *fabric->wakeups, 128);
    fabric->opened = (_Atomic uint64_t *)(base + at);
    at = sh_round_up(at + ranks * fabric->opened_words * sizeof *fabric->opened, 4096);
    fabric->rings = (char *)(base + at);
    return at + ranks * ranks * fabric->ring_stride;
}

/* ulimit -f counts shared memory as a file, which surprises everybody: the hint names it. */
sh_status shm_limit_hint(size_t bytes, const char *hint) {
    struct rlimit files;
    if (getrlimit(RLIMIT_FSIZE, &files) != 0 || bytes <= files.rlim_cur)  // infinity is the largest
        return sh_addresses_hint(hint);
    return sh_error_hint(
        "files, and so shared memory, are limited to %zu MiB: 'ulimit -f unlimited'",
        (size_t)files.rlim_cur >> 20);
}

/* Creates and maps the file. Each failure names what is limited, for memory is rarely the reason.
 */
static sh_status map_control(sh_shm *fabric) {
    fabric->control_bytes = sh_round_up(lay_out(fabric, 0), 4096);
    fabric->file = memfd_create("shoal", MFD_CLOEXEC);
    if (fabric->file < 0)
        return SH_FAIL(SH_E_IO, "cannot create shared memory for %d workers: %s", fabric->ranks,
                       strerror(errno));
    if (ftruncate(fabric->file, (off_t)fabric->control_bytes) != 0) {
        SH_FAIL(SH_E_MEMORY, "cannot size the shared memory of %d workers: %s", fabric->ranks,
                strerror(errno));
        return shm_limit_hint(fabric->control_bytes, "use fewer workers");
    }
    void *base = mmap(NULL, fabric->control_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fabric->file, 0);
    if (base == MAP_FAILED) {
        SH_FAIL(SH_E_MEMORY, "cannot map the shared memory of %d workers: %s", fabric->ranks,
                strerror(errno));
        return sh_addresses_hint("use fewer workers");
    }
    fabric->base = base;
    lay_out(fabric, (uintptr_t)base);
    return SH_OK;
}

sh_status sh_shm_create(int ranks, sh_shm **fabric_out) {
    return sh_shm_create_of(1, ranks, fabric_out);
}

sh_status sh_shm_create_of(int fabrics, int ranks, sh_shm **fabric_out) {
    if (ranks < 1 || ranks > SH_SHM_RANKS_MAX)
        return SH_FAIL(SH_E_USAGE, "%d workers on one machine: 1 to %d can share memory", ranks,
                       SH_SHM_RANKS_MAX);
    sh_shm *fabric = sh_alloc(1, sizeof *fabric);
    if (fabric == NULL) return SH_FAIL(SH_E_MEMORY, "no memory for a fabric of %d ranks", ranks);
    fabric->ranks = ranks;
    fabric->file = fabric->export_file = -1;
    fabric->ring_bytes = ring_bytes_for(ranks);
    fabric->ring_stride = sizeof(shm_ring) + fabric->ring_bytes;
    fabric->opened_words = ((size_t)ranks + SHM_BITS - 1) / SHM_BITS;
    pthread_mutex_init(&fabric->lock, NULL);
    sh_status status = map_control(fabric);
    if (status != SH_OK) {
        sh_shm_destroy(fabric);
        return status;
    }
    shm_export_init(fabric, fabrics);
    fabric->board->ranks = ranks;
    *fabric_out = fabric;
    return SH_OK;
}

void sh_shm_limit(sh_shm *fabric, int ranks) {
    SH_ASSERT(ranks >= 1 && ranks <= fabric->ranks);
    fabric->ranks = ranks;  // rings lie closer together then, for all processes alike
    fabric->board->ranks = ranks;
}

void sh_shm_destroy(sh_shm *fabric) {
    if (fabric == NULL) return;
    shm_export_fini(fabric);
    if (fabric->base != NULL) munmap(fabric->base, fabric->control_bytes);
    if (fabric->file >= 0) close(fabric->file);
    pthread_mutex_destroy(&fabric->lock);
    sh_free(fabric);
}

sh_status_board *sh_shm_board(sh_shm *fabric) { return fabric->board; }

/* Waits fail from now on; everybody is woken to notice it. */
void sh_shm_end(sh_shm *fabric) {
    atomic_store_explicit(&fabric->control->over, true, memory_order_relaxed);
    for (int peer = 0; peer < fabric->ranks; peer++) shm_notify(fabric, peer);
}

/* The order matters: the board tells of the death before the count of deaths makes ranks look. */
void sh_shm_mark_dead(sh_shm *fabric, int rank) {
    SH_ASSERT(rank >= 0 && rank < fabric->ranks);
    if (atomic_exchange(&fabric->board->rank[rank].dead, true)) return;
    atomic_fetch_add(&fabric->control->deaths, 1);
    for (int peer = 0; peer < fabric->ranks; peer++) shm_notify(fabric, peer);
}
