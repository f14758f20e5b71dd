/* The memory of unexpected messages: blocks of powers of two that are kept for reuse. A run whose
 * messages arrive in the same order step by step then allocates nothing, and a burst of long ones
 * does not hold its memory for ever (SPARE_BYTES_MAX). */
#include "comm/transports/shm_internal.h"

#include "base/memory.h"

/* Released ones are kept, so that a run that goes on as before allocates nothing. */
enum { LEAST_BYTES = 1024, SPARE_BYTES_MAX = 64 << 20 };

static shm_unexpected *reuse(shm_transport *shm, size_t bytes) {
    for (shm_unexpected **at = &shm->spare; *at != NULL; at = &(*at)->next) {
        shm_unexpected *early = *at;
        // One much too large would be missed by the next message of its size.
        if (early->room < bytes || early->room / 4 > bytes + LEAST_BYTES) continue;
        *at = early->next;
        shm->spare_bytes -= early->room;
        return early;
    }
    return NULL;
}

/* NULL: no memory. The contents are not cleared. */
shm_unexpected *shm_unexpected_acquire(shm_transport *shm, size_t bytes) {
    shm_unexpected *early = reuse(shm, bytes);
    if (early != NULL) return early;
    size_t room = LEAST_BYTES;
    while (room < bytes && room <= SIZE_MAX / 4) room *= 2;
    if (room < bytes) return NULL;
    early = sh_alloc(1, sizeof *early + room);
    if (early != NULL) early->room = room;
    return early;
}

void shm_unexpected_release(shm_transport *shm, shm_unexpected *early) {
    if (shm->spare_bytes + early->room > SPARE_BYTES_MAX) {
        sh_free(early);
        return;
    }
    early->next = shm->spare;
    shm->spare = early;
    shm->spare_bytes += early->room;
}
