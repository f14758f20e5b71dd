#include "comm/transports/shm_internal.h"

#include "base/memory.h"

/* Released ones are kept, so that a run that goes on as before allocates nothing. */
enum { LEAST_BYTES = 1024, SPARE_BYTES_MAX = 64 << 20 };

static shm_aside *reuse(shm_transport *shm, size_t bytes) {
    for (shm_aside **at = &shm->spare; *at != NULL; at = &(*at)->next) {
        shm_aside *aside = *at;
        // One much too large would be missed by the next message of its size.
        if (aside->room < bytes || aside->room / 4 > bytes + LEAST_BYTES) continue;
        *at = aside->next;
        shm->spare_bytes -= aside->room;
        return aside;
    }
    return NULL;
}

shm_aside *shm_aside_acquire(shm_transport *shm, size_t bytes) {
    shm_aside *aside = reuse(shm, bytes);
    if (aside != NULL) return aside;
    size_t room = LEAST_BYTES;
    while (room < bytes && room <= SIZE_MAX / 4) room *= 2;
    if (room < bytes) return NULL;
    aside = sh_alloc(1, sizeof *aside + room);
    if (aside != NULL) aside->room = room;
    return aside;
}

void shm_aside_release(shm_transport *shm, shm_aside *aside) {
    if (shm->spare_bytes + aside->room > SPARE_BYTES_MAX) {
        sh_free(aside);
        return;
    }
    aside->next = shm->spare;
    shm->spare = aside;
    shm->spare_bytes += aside->room;
}
