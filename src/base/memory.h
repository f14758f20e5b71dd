/* Memory. Small things come from sh_alloc (zeroed; NULL when there is none). Big things come from
 * arenas: one mapping each, bumped and rewound, 64-byte aligned, in huge pages where the system
 * offers them.
 *
 * Every call is counted, so that a test can show that after the first step nothing is allocated. */
#ifndef SH_BASE_MEMORY_H
#define SH_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SH_ALIGN = 64 };

/* Zeroed memory for `count` objects; NULL when there is none or the product overflows. */
void *sh_alloc(size_t count, size_t size);
/* Keeps the old contents, does not zero the new part. */
void *sh_realloc(void *pointer, size_t count, size_t size);
void sh_free(void *pointer);
char *sh_strdup(const char *text);
char *sh_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Calls of sh_alloc, sh_realloc and arena growth by all tasks so far. */
uint64_t sh_alloc_calls(void);

/* Grows `*items_inout` (elements of `size`) so that it holds at least `needed`; doubles. */
sh_status sh_grow(void **items_inout, size_t *capacity_inout, size_t needed, size_t size);

typedef struct sh_arena {
    unsigned char *base;
    size_t used_bytes, size_bytes;
    const char *name;  // borrowed, for messages
} sh_arena;

/* One mapping of `size_bytes` (rounded up); pages cost memory only once touched. */
sh_status sh_arena_init(sh_arena *arena, const char *name, size_t size_bytes);
void sh_arena_fini(sh_arena *arena);
/* 64-byte aligned, zero on first use. Asserts that it fits: sizes are planned beforehand. */
void *sh_arena_take(sh_arena *arena, size_t bytes);
void sh_arena_rewind(sh_arena *arena, size_t used_bytes);

/* Gives whole pages inside a stretch of an arena back to the system; they read as zero again. */
void sh_arena_drop(void *begin, size_t bytes);

static inline size_t sh_round_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

#endif
