/* Address space under `ulimit -v`. Shoal maps far more than it uses (rings, exported memory,
 * stacks), which costs nothing unless addresses are limited; then whoever maps must ask first how
 * many are left. */
#include "base/addresses.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* Limit of the address space in bytes; SIZE_MAX: none is set. */
static size_t limit_bytes(void) {
    struct rlimit limit;
    bool known = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return known && limit.rlim_cur < SIZE_MAX ? (size_t)limit.rlim_cur : SIZE_MAX;
}

/* Addresses in use, as the kernel counts them, since mappings of libraries count too; 0 where
 * /proc is not mounted. */
static size_t used_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;
    if (file == NULL) return 0;
    if (fscanf(file, "%lu", &pages) != 1) pages = 0;
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Other tasks may map meanwhile, so the result is an estimate: a mapping can still fail. */
size_t sh_addresses_left(void) {
    size_t limit = limit_bytes();
    if (limit == SIZE_MAX) return SIZE_MAX;
    size_t used = used_bytes();
    return used < limit ? limit - used : 0;
}

/* Ends a failure of a mapping: where addresses are limited that is the likely reason, so the hint
 * says so and appends the caller's. */
sh_status sh_addresses_hint(const char *hint) {
    size_t limit = limit_bytes();
    if (limit == SIZE_MAX) return hint != NULL ? sh_error_hint("%s", hint) : sh_error_last()->code;
    return sh_error_hint(
        "each process is limited to %zu MiB of addresses: 'ulimit -v unlimited'%s%s", limit >> 20,
        hint != NULL ? ", or " : "", hint != NULL ? hint : "");
}
