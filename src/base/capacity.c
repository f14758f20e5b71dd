/* The memory that this process may use: the least of the machine, its control groups (containers),
 * and `ulimit -v`. Asked before large allocations, because Linux promises memory that it does not
 * have and kills the process later. */
#include "base/capacity.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/addresses.h"

/* The number in a file; SIZE_MAX: it holds another text ("max"), or cannot be read. */
static size_t number_in(const char *path) {
    FILE *file = fopen(path, "re");
    unsigned long long number;
    if (file == NULL) return SIZE_MAX;
    bool known = fscanf(file, "%llu", &number) == 1 && number < SIZE_MAX;
    fclose(file);
    return known ? (size_t)number : SIZE_MAX;
}

/* The smaller of two limits; SIZE_MAX is no limit. */
static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Lowest limit on the way from `group` up to the root, since a group is bound by all groups above
 * it. */
size_t sh_capacity_of_group(const char *root, const char *group, const char *file) {
    char path[4096];
    size_t bytes = SIZE_MAX, length = strlen(group);
    for (;;) {
        int used = snprintf(path, sizeof path, "%s%.*s/%s", root, (int)length, group, file);
        if (used > 0 && (size_t)used < sizeof path) bytes = least(bytes, number_in(path));
        if (length == 0) return bytes;
        while (length > 0 && group[--length] != '/') continue;
    }
}

/* A line of /proc/self/cgroup is "NUMBER:CONTROLLERS:GROUP"; version 2 names no controllers. In a
 * container the group's path may not exist below its own root, which then has the limit. */
static size_t limit_of_line(char *line) {
    char *controllers = strchr(line, ':'), *group = NULL;
    if (controllers != NULL) group = strchr(++controllers, ':');
    if (group == NULL) return SIZE_MAX;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (*controllers == '\0') return sh_capacity_of_group("/sys/fs/cgroup", group, "memory.max");
    if (strcmp(controllers, "memory") != 0) return SIZE_MAX;
    return sh_capacity_of_group("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
}

static pthread_once_t group_once = PTHREAD_ONCE_INIT;
static size_t group_bytes = SIZE_MAX;  // of this process's control groups; set once

/* Reads the control groups' limits once per process: a process is rarely moved while it runs. */
static void read_groups(void) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[4096];
    if (file == NULL) return;
    while (fgets(line, sizeof line, file) != NULL)
        group_bytes = least(group_bytes, limit_of_line(line));
    fclose(file);
}

/* Least of the three limits. `taken` counts as free again, because the caller asks about the total
 * of one purpose. */
sh_capacity sh_capacity_now(size_t taken) {
    size_t left = sh_addresses_left();
    if (left <= SIZE_MAX - taken) left += taken;
    pthread_once(&group_once, read_groups);
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    const sh_capacity limits[] = {{group_bytes, "memory of its control group"},
                                  {left, "addresses that 'ulimit -v' leaves"}};
    sh_capacity capacity = {memory, "memory of this machine"};
    for (size_t i = 0; i < SH_COUNT(limits); i++)
        if (limits[i].bytes < capacity.bytes) capacity = limits[i];
    return capacity;
}
