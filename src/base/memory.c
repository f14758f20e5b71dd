/* Allocations that are counted (a run must not allocate after its first step; a test reads the
 * count), and arenas: mapped memory with three lifetimes, so that a step's buffers cost one
 * addition and never fragment. */
#include "base/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/addresses.h"
#include "base/text.h"

static _Atomic uint64_t calls;  // relaxed: a statistic, orders nothing

static void count_call(void) { atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed); }

uint64_t sh_alloc_calls(void) { return atomic_load_explicit(&calls, memory_order_relaxed); }

/* Zeroed; never NULL for a size of 0. */
void *sh_alloc(size_t count, size_t size) {
    count_call();
    return calloc(count ? count : 1, size ? size : 1);
}

/* Checks the product for overflow. */
void *sh_realloc(void *pointer, size_t count, size_t size) {
    count_call();
    return reallocarray(pointer, count ? count : 1, size ? size : 1);
}

void sh_free(void *pointer) { free(pointer); }

char *sh_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = sh_alloc(bytes, 1);
    if (copy != NULL) memcpy(copy, text, bytes);
    return copy;
}

/* Without the locale: numbers in files and messages look the same everywhere. */
char *sh_format(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = NULL;
    count_call();
    int length = sh_vasprintf(&text, format, arguments);
    va_end(arguments);
    return length < 0 ? NULL : text;
}

/* Doubles, so that appending n items costs O(n) in all. */
sh_status sh_grow(void **items_inout, size_t *capacity_inout, size_t needed, size_t size) {
    if (needed <= *capacity_inout) return SH_OK;
    size_t capacity = *capacity_inout ? *capacity_inout : 8;
    while (capacity < needed) capacity = capacity <= SIZE_MAX / 2 ? capacity * 2 : needed;
    void *items = sh_realloc(*items_inout, capacity, size);
    if (items == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu items of %zu bytes", capacity, size);
    *items_inout = items;
    *capacity_inout = capacity;
    return SH_OK;
}

/* Memory appears page by page on first use. Large arenas start at a huge page: then the system may
 * back them with fewer, larger pages. */
sh_status sh_arena_init(sh_arena *arena, const char *name, size_t size_bytes) {
    const size_t huge_bytes = (size_t)2 << 20;
    size_t rounded = sh_round_up(size_bytes ? size_bytes : 1, 4096);
    count_call();
    // Over-allocate by one huge page, so that the start can be aligned to one.
    size_t slack = rounded >= huge_bytes ? huge_bytes : 0;
    unsigned char *map = mmap(NULL, rounded + slack, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        SH_FAIL(SH_E_MEMORY, "cannot map %.1f MiB for %s: %s", (double)rounded / 1048576, name,
                strerror(errno));
        return sh_addresses_hint(NULL);
    }
    unsigned char *base = map;
    if (slack != 0) {
        base = (unsigned char *)sh_round_up((uintptr_t)map, huge_bytes);
        size_t before = (size_t)(base - map);
        if (before != 0) munmap(map, before);
        if (slack - before != 0) munmap(base + rounded, slack - before);
        madvise(base, rounded, MADV_HUGEPAGE);  // advice: failing is fine
    }
    *arena = (sh_arena){.base = base, .size_bytes = rounded, .name = name};
    return SH_OK;
}

void sh_arena_fini(sh_arena *arena) {
    if (arena->base != NULL) munmap(arena->base, arena->size_bytes);
    *arena = (sh_arena){0};
}

/* Sizes are planned beforehand, so a lack of room is a fault of the program. */
void *sh_arena_take(sh_arena *arena, size_t bytes) {
    size_t taken = sh_round_up(bytes, SH_ALIGN);
    SH_ASSERT(taken >= bytes);
    SH_ASSERT(taken <= arena->size_bytes - arena->used_bytes);
    void *memory = arena->base + arena->used_bytes;
    arena->used_bytes += taken;
    return memory;
}

/* Whole pages inside the range go back to the system and read as zero afterwards. */
void sh_arena_drop(void *begin, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t low = sh_round_up((uintptr_t)begin, page);
    uintptr_t high = ((uintptr_t)begin + bytes) / page * page;
    if (low < high) madvise((void *)low, high - low, MADV_DONTNEED);
}

void sh_arena_rewind(sh_arena *arena, size_t used_bytes) {
    SH_ASSERT(used_bytes <= arena->used_bytes);
    arena->used_bytes = used_bytes;
}
