/* The memory that a process can have: what the machine has, or less where a control group or a
 * limit of addresses says so. */
#ifndef SH_BASE_CAPACITY_H
#define SH_BASE_CAPACITY_H

#include <stddef.h>

typedef struct sh_capacity {
    size_t bytes;
    const char *what;  // whose bytes these are, for messages
} sh_capacity;

/* The least of physical memory, the limits of the control groups of this process (version 1 and
 * 2), and the addresses that `ulimit -v` leaves beside the `taken` bytes that the caller has for
 * the same purpose. The
 * limits of control groups are those at the first call. Any task. */
sh_capacity sh_capacity_now(size_t taken);

/* The lowest limit of `group` ("/a/b") and of the groups above it, of files `file` below `root`;
 * SIZE_MAX: there is none. */
size_t sh_capacity_of_group(const char *root, const char *group, const char *file);

#endif
