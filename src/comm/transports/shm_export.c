/* Exported memory: a rank takes it for what it sends often and long, and its peers read messages
 * from it where they lie. All of it is one nameless file that is mapped whole, at one address,
 * before any fork, so a place in it means the same to every rank and nobody maps anything later.
 * The mapping is addresses alone; memory comes with each piece that is given out. Pieces are cut
 * one after the other and never used again: programs take a few as they begin. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/addresses.h"
#include "base/memory.h"
#include "comm/transports/shm_internal.h"

enum {
    PAGE = 4096,
    SHORT_BYTES = 16 << 10  // a copy through the ring is over before a reader answers
};

/* In front of each piece, on a page of its own. */
typedef struct export_head {
    size_t bytes;  // of the piece and this page
} export_head;

/* As much as the machine has memory; where addresses are limited, this fabric's part of half of
 * what is left of them. */
static size_t room(int fabrics) {
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page_bytes <= 0) return 0;
    size_t bytes = (size_t)pages * (size_t)page_bytes, left = sh_addresses_left();
    if (left == SIZE_MAX) return bytes;
    left = left / 2 / (size_t)fabrics / PAGE * PAGE;
    return left < bytes ? left : bytes;
}

/* Without it, all messages go through the rings. */
void shm_export_init(sh_shm *fabric, int fabrics) {
    size_t bytes = room(fabrics);
    if (bytes == 0) return;
    fabric->export_file = memfd_create("shoal-exports", MFD_CLOEXEC);
    if (fabric->export_file < 0) return;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      fabric->export_file, 0);
    if (base == MAP_FAILED) return;
    fabric->exports = base;
    fabric->export_bytes = bytes;
}

void shm_export_fini(sh_shm *fabric) {
    if (fabric->exports != NULL) munmap(fabric->exports, fabric->export_bytes);
    if (fabric->export_file >= 0) close(fabric->export_file);
}

/* Lock-free: an offset is taken by an addition, so that any task of any process may ask. */
void *sh_shm_export(sh_shm *fabric, size_t bytes) {
    if (bytes > fabric->export_bytes / 2) return NULL;
    size_t whole = PAGE + sh_round_up(bytes, PAGE);
    // Relaxed: where a piece lies is told to others by messages alone.
    uint64_t offset =
        atomic_fetch_add_explicit(&fabric->control->exports, whole, memory_order_relaxed);
    if (offset > fabric->export_bytes - whole) return NULL;
    // Memory is there from now on: later a lack of it would be a SIGBUS.
    if (fallocate(fabric->export_file, 0, (off_t)offset, (off_t)whole) != 0) return NULL;
    char *base = fabric->exports + offset;
    *(export_head *)base = (export_head){.bytes = whole};
    return base + PAGE;
}

void *shm_export_acquire(sh_transport *transport, size_t bytes) {
    return sh_shm_export(shm_of(transport)->fabric, bytes);
}

/* The pages go back to the system; the addresses are not used again. */
void shm_export_release(sh_transport *transport, void *memory) {
    sh_shm *fabric = shm_of(transport)->fabric;
    char *base = (char *)memory - PAGE;
    SH_ASSERT(base >= fabric->exports && base < fabric->exports + fabric->export_bytes);
    fallocate(fabric->export_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)(base - fabric->exports), (off_t)((export_head *)base)->bytes);
}

/* By its address alone: senders need not say that they use exported memory. */
bool shm_is_exported(const sh_shm *fabric, const sh_message *message) {
    uintptr_t data = (uintptr_t)message->data, base = (uintptr_t)fabric->exports;
    return message->bytes >= SHORT_BYTES && data - base < fabric->export_bytes;
}
