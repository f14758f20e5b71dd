/* Numbers to work through a schedule: a text file with one line per rank, each an optional name and
 * the rank's values, separated by spaces or commas. `A 17 11 1 9`, `A: 17, 11, 1, 9` and
 * `A=[17,11,1,9]` are alike; empty lines and those that start with # are skipped. */
#ifndef SH_EXPLAIN_VALUES_H
#define SH_EXPLAIN_VALUES_H

#include <stddef.h>

#include "base/status.h"

/* Bounds: bytes of a name with its zero, ranks (a set of them fits 64 bits), values per rank. */
enum { SH_VALUES_NAME = 16, SH_VALUES_RANKS = 64, SH_VALUES_COUNT = 4096 };

typedef struct sh_values {
    int ranks;
    size_t count;                   // per rank
    double *x;                      // (ranks, count)
    char (*names)[SH_VALUES_NAME];  // per rank; its number where the file gives no name
} sh_values;

/* Reads a file; errors name its line. */
sh_status sh_values_read(const char *path, sh_values *values_out);
/* The same from memory; `path` names it in messages. */
sh_status sh_values_parse(const char *path, const char *text, size_t bytes, sh_values *values_out);
void sh_values_fini(sh_values *values);

#endif
