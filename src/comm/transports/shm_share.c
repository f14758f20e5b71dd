/* Memory that all ranks share (sh_share): regions of the fabric's file, one behind the other, each
 * with a part per rank.
 *
 * Taking one is collective in two rounds: first all agree that it is possible, then each backs its
 * own part with memory and says whether that worked. Either all ranks get the region or none does,
 * and a machine that is short of memory gives an error here instead of a SIGBUS later. */
#include "comm/transports/shm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"

/* A region: a head page that counts who is done with it, then one part per rank. Parts of a huge
 * page or more begin at one, so that the system may use huge pages where it is allowed to. */
typedef struct shm_region {
    size_t offset, head_bytes, part_bytes, bytes;
} shm_region;

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, PREPARED_AT_ONCE = 64 << 20 };
static const size_t region_most = (size_t)1 << 46, prepared_for_peers_most = (size_t)1 << 30;

typedef struct region_head {
    _Atomic int done;
} region_head;

typedef struct shared_own {
    shm_mapping *mapping;
    shm_region region;
} shared_own;

/* False: no machine has so much memory. */
static bool lay_out_region(const shm_transport *shm, size_t bytes, shm_region *region_out) {
    size_t ranks = (size_t)shm->base.ranks;
    if (bytes > region_most / ranks / 2) return false;
    size_t page = bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE;
    *region_out = (shm_region){
        .offset = sh_round_up(shm->share_offset, page),
        .head_bytes = page,
        .part_bytes = sh_round_up(bytes > 0 ? bytes : 1, page),
    };
    region_out->bytes = region_out->head_bytes + ranks * region_out->part_bytes;
    return true;
}

/* What the system could give without swapping, SIZE_MAX if it does not say. */
static size_t available_bytes(void) {
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL) return SIZE_MAX;
    char line[128];
    unsigned long long kib = 0;
    bool found = false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
    fclose(file);
    return found ? (size_t)kib << 10 : SIZE_MAX;
}

/* One mapping per process and region. */
static shm_mapping *acquire_mapping(sh_shm *fabric, const shm_region *region) {
    pthread_mutex_lock(&fabric->lock);
    shm_mapping *mapping = fabric->mappings;
    while (mapping != NULL && mapping->offset != region->offset) mapping = mapping->next;
    if (mapping == NULL && (mapping = sh_alloc(1, sizeof *mapping)) != NULL) {
        void *base = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                          fabric->file, (off_t)region->offset);
        if (base == MAP_FAILED) {
            sh_free(mapping);
            mapping = NULL;
        } else {
            madvise(base, region->bytes, MADV_HUGEPAGE);  // advice: a refusal changes nothing
            *mapping = (shm_mapping){.offset = region->offset,
                                     .bytes = region->bytes,
                                     .base = base,
                                     .next = fabric->mappings};
            fabric->mappings = mapping;
        }
    }
    if (mapping != NULL) mapping->users++;
    pthread_mutex_unlock(&fabric->lock);
    return mapping;
}

/* The last rank of this process unmaps; others may still use it in theirs. */
static void release_mapping(sh_shm *fabric, shm_mapping *mapping) {
    pthread_mutex_lock(&fabric->lock);
    if (--mapping->users == 0) {
        shm_mapping **at = &fabric->mappings;
        while (*at != mapping) at = &(*at)->next;
        *at = mapping->next;
        munmap(mapping->base, mapping->bytes);
        sh_free(mapping);
    }
    pthread_mutex_unlock(&fabric->lock);
}

/* Gives the memory of a range back to the system; the addresses stay. */
static void punch_hole(sh_shm *fabric, size_t offset, size_t bytes) {
    fallocate(fabric->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
              (off_t)bytes);
}

/* Backs [offset, offset + bytes) of the mapping with memory now: later a lack of it would be a
 * SIGBUS. Populating makes huge pages where the system allows them; old kernels do not know it. */
static bool prepare(sh_shm *fabric, const shm_mapping *mapping, size_t offset, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        size_t part = bytes - at < PREPARED_AT_ONCE ? bytes - at : PREPARED_AT_ONCE;
        int failed = -1;
        errno = ENOSYS;
#ifdef MADV_POPULATE_WRITE
        failed = madvise(mapping->base + offset + at, part, MADV_POPULATE_WRITE);
#endif
        if (failed != 0 && errno != EINTR)
            failed =
                fallocate(fabric->file, 0, (off_t)(mapping->offset + offset + at), (off_t)part);
        if (failed != 0 && errno != EINTR) return false;
        if (failed == 0) at += part;
    }
    return true;
}

/* Tells all ranks a status and a size and waits until all have told theirs. */
static sh_status exchange(shm_transport *shm, sh_status status, size_t bytes) {
    sh_shm *fabric = shm->fabric;
    uint64_t round = ++shm->share_round;
    shm_offer *own = &shm->wakeup->offers[round % 2];
    own->status = (int)status;
    own->bytes = bytes;
    atomic_store_explicit(&own->round, round, memory_order_release);
    for (int rank = 0; rank < fabric->ranks; rank++)
        if (rank != shm->base.rank) shm_notify(fabric, rank);
    for (int rank = 0; rank < fabric->ranks; rank++) {
        const shm_offer *offer = &fabric->wakeups[rank].offers[round % 2];
        while (atomic_load_explicit(&offer->round, memory_order_acquire) != round) {
            SH_TRY(sh_transport_health(&shm->base));
            if (!sh_transport_progress(&shm->base)) sh_transport_idle(&shm->base);
        }
    }
    return SH_OK;
}

/* All ranks reach the same verdict. */
static sh_status judge(const shm_transport *shm) {
    const shm_wakeup *wakeups = shm->fabric->wakeups;
    size_t turn = shm->share_round % 2, bytes = wakeups[0].offers[turn].bytes;
    for (int rank = 1; rank < shm->base.ranks; rank++)
        if (wakeups[rank].offers[turn].bytes != bytes)
            return SH_FAIL(SH_E_PEER, "rank 0 shares %zu bytes where rank %d shares %zu", bytes,
                           rank, wakeups[rank].offers[turn].bytes);
    for (int rank = 0; rank < shm->base.ranks; rank++) {
        if (wakeups[rank].offers[turn].status == SH_OK) continue;
        SH_FAIL(SH_E_MEMORY, "not enough memory on this machine: %d workers share %zu MiB each",
                shm->base.ranks, bytes >> 20);
        return shm_limit_hint(
            bytes * (size_t)shm->base.ranks,
            "use fewer workers, or a smaller model; in a benchmark smaller --sizes");
    }
    return SH_OK;
}

/* Backs this rank's part of the region with memory; on failure nothing of it stays. */
static sh_status reserve(shm_transport *shm, const shm_region *region, shm_mapping **mapping_out) {
    sh_shm *fabric = shm->fabric;
    // All ranks set the same size, and none is past this share before all have.
    if (ftruncate(fabric->file, (off_t)(region->offset + region->bytes)) != 0) return SH_E_MEMORY;
    shm_mapping *mapping = acquire_mapping(fabric, region);
    if (mapping == NULL) return SH_E_MEMORY;
    size_t offset = region->head_bytes + (size_t)shm->base.rank * region->part_bytes;
    bool ready =
        prepare(fabric, mapping, offset, region->part_bytes) && prepare(fabric, mapping, 0, PAGE);
    if (!ready) {
        release_mapping(fabric, mapping);
        punch_hole(fabric, region->offset + offset, region->part_bytes);
        return SH_E_MEMORY;
    }
    *mapping_out = mapping;
    return SH_OK;
}

/* Tells the caller where each rank's part lies. */
static sh_status fill_shared(shm_transport *shm, size_t bytes, const shm_region *region,
                             shm_mapping *mapping, sh_shared *shared_out) {
    size_t ranks = (size_t)shm->base.ranks;
    shared_own *own = sh_alloc(1, sizeof *own);
    char **base = sh_alloc(ranks, sizeof *base);
    if (own == NULL || base == NULL) {
        sh_free(own);
        sh_free(base);
        return SH_E_MEMORY;
    }
    for (size_t rank = 0; rank < ranks; rank++)
        base[rank] = mapping->base + region->head_bytes + rank * region->part_bytes;
    *own = (shared_own){.mapping = mapping, .region = *region};
    *shared_out =
        (sh_shared){.bytes = bytes, .base = base, .stride = region->part_bytes, .own = own};
    return SH_OK;
}

static void drop_shared(sh_shared *shared) {
    sh_free(shared->base);
    sh_free(shared->own);
    *shared = (sh_shared){0};
}

/* See the head of this file for the two rounds. */
sh_status shm_share(sh_transport *transport, size_t bytes, sh_shared *shared_out) {
    shm_transport *shm = shm_of(transport);
    shm_region region = {0};
    bool possible = lay_out_region(shm, bytes, &region);
    // One rank asks for all, before any of them takes.
    if (transport->rank == 0 && region.bytes > available_bytes()) possible = false;
    SH_TRY(exchange(shm, possible ? SH_OK : SH_E_MEMORY, bytes));
    SH_TRY(judge(shm));
    shm->share_offset = region.offset + region.bytes;

    shm_mapping *mapping = NULL;
    sh_shared shared = {0};
    sh_status status = reserve(shm, &region, &mapping);
    if (status == SH_OK) status = fill_shared(shm, bytes, &region, mapping, &shared);
    sh_status told = exchange(shm, status, bytes);
    if (told == SH_OK) told = judge(shm);
    if (told != SH_OK) {
        drop_shared(&shared);
        if (mapping != NULL) release_mapping(shm->fabric, mapping);
        size_t part = region.head_bytes + (size_t)transport->rank * region.part_bytes;
        punch_hole(shm->fabric, region.offset + part, region.part_bytes);
        return told;
    }
    SH_ASSERT(mapping != NULL);  // this rank offered SH_OK
    // Memory of all is there now; the page tables of what peers own are a convenience.
    if (region.bytes <= prepared_for_peers_most)
        prepare(shm->fabric, mapping, region.head_bytes, region.bytes - region.head_bytes);
    *shared_out = shared;
    return SH_OK;
}

/* The last rank to leave gives the memory back; until then peers may still read it. */
void shm_unshare(sh_transport *transport, sh_shared *shared) {
    if (shared == NULL || shared->own == NULL) return;
    sh_shm *fabric = shm_of(transport)->fabric;
    shared_own own = *(shared_own *)shared->own;
    region_head *head = (region_head *)own.mapping->base;
    bool last = atomic_fetch_add(&head->done, 1) + 1 == transport->ranks;
    if (last) punch_hole(fabric, own.region.offset, own.region.bytes);
    release_mapping(fabric, own.mapping);
    drop_shared(shared);
}
