/* A hash index of names that stand in somebody else's list: open addressing with linear probing,
 * at most half full, so that a lookup takes about one probe. It stores positions plus 1, and asks
 * the list for the names, so nothing is copied. */
#include "base/index.h"

#include <stdint.h>
#include <string.h>

#include "base/memory.h"

/* FNV-1a; the fold at the end brings high bits down, since the mask keeps low bits only. */
static uint64_t hash_of(const char *name) {
    uint64_t hash = 0xcbf29ce484222325;
    for (; *name != '\0'; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
    return hash ^ hash >> 32;
}

/* The slot of a name, or the empty one where it belongs. */
static size_t slot_of(const sh_index *index, const void *list, sh_name_at name_at,
                      const char *name) {
    // Capacity is a power of two.
    size_t mask = index->capacity - 1, slot = (size_t)hash_of(name) & mask;
    while (index->slots[slot] != 0 && strcmp(name_at(list, index->slots[slot] - 1), name) != 0)
        slot = (slot + 1) & mask;
    return slot;
}

/* Doubles the table and enters all names again: amortised O(1) per name. */
static sh_status widen(sh_index *index, const void *list, sh_name_at name_at) {
    sh_index wider = {.capacity = index->capacity == 0 ? 16 : 2 * index->capacity,
                      .count = index->count};
    wider.slots = sh_alloc(wider.capacity, sizeof *wider.slots);
    if (wider.slots == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an index of names");
    for (size_t i = 0; i < index->capacity; i++)
        if (index->slots[i] != 0)
            wider.slots[slot_of(&wider, list, name_at, name_at(list, index->slots[i] - 1))] =
                index->slots[i];
    sh_free(index->slots);
    *index = wider;
    return SH_OK;
}

/* Names are unique, so the caller has looked first; the assertion holds it to that. */
sh_status sh_index_add(sh_index *index, const void *list, sh_name_at name_at, size_t at) {
    if (2 * (index->count + 1) > index->capacity) SH_TRY(widen(index, list, name_at));
    size_t slot = slot_of(index, list, name_at, name_at(list, at));
    SH_ASSERT(index->slots[slot] == 0);
    index->slots[slot] = at + 1;
    index->count++;
    return SH_OK;
}

/* Finds a name in about one probe. The name of each slot on the way is asked from the list. */
size_t sh_index_find(const sh_index *index, const void *list, sh_name_at name_at,
                     const char *name) {
    if (index->count == 0) return SH_INDEX_NONE;
    return index->slots[slot_of(index, list, name_at, name)] - 1;  // empty: 0 - 1
}

void sh_index_fini(sh_index *index) {
    sh_free(index->slots);
    *index = (sh_index){0};
}
