/* Finds things of a list by their names in constant time. The list stays the owner of the names,
 * and may move: it is passed with every call. Things are only added. */
#ifndef SH_BASE_INDEX_H
#define SH_BASE_INDEX_H

#include <stddef.h>

#include "base/status.h"

/* The name of thing `at` of the list. */
typedef const char *(*sh_name_at)(const void *list, size_t at);

/* A hash table with open addressing, at most half full. */
typedef struct sh_index {
    size_t *slots;  // place in the list + 1; 0: empty
    size_t capacity, count;
} sh_index;

#define SH_INDEX_NONE ((size_t)-1)

/* Enters thing `at`, whose name is not there yet. */
sh_status sh_index_add(sh_index *index, const void *list, sh_name_at name_at, size_t at);
/* The place of a name in the list; SH_INDEX_NONE where there is none. */
size_t sh_index_find(const sh_index *index, const void *list, sh_name_at name_at, const char *name);
void sh_index_fini(sh_index *index);

#endif
