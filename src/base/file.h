/* Files. Reading maps the whole file; writing goes to a temporary name in the same folder, is
 * synced and renamed, so that a reader sees the old file or the new one and never half of it. */
#ifndef SH_BASE_FILE_H
#define SH_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

typedef struct sh_mapped {
    const unsigned char *data;  // read-only
    size_t bytes;
} sh_mapped;

/* Maps a regular file. An empty file gives data NULL and bytes 0. */
sh_status sh_file_map(const char *path, sh_mapped *mapped_out);
void sh_file_unmap(sh_mapped *mapped);

/* A file being written. Either commit or abandon it. A link stays, and what it names is written;
 * a device or a pipe is written to directly. */
typedef struct sh_writer {
    FILE *file;
    char *path, *temporary;
    bool special;  // a device or a pipe
} sh_writer;

sh_status sh_writer_open(sh_writer *writer, const char *path);
sh_status sh_writer_write(sh_writer *writer, const void *data, size_t bytes);
/* Flushes, syncs, renames, syncs the folder. On failure the temporary file is removed. */
sh_status sh_writer_commit(sh_writer *writer);
void sh_writer_abandon(sh_writer *writer);

/* All of the above for a short text. */
sh_status sh_file_write(const char *path, const void *data, size_t bytes);

/* Creates a folder and its parents. */
sh_status sh_make_folders(const char *path);
/* Makes what was renamed or removed beside `path` last; what cannot be is left. */
void sh_sync_folder_of(const char *path);
bool sh_file_exists(const char *path);
bool sh_is_folder(const char *path);
/* "train.csv" ends in ".csv". */
bool sh_name_ends_in(const char *name, const char *end);
/* `folder`/`name`, to be freed with sh_free; NULL when out of memory. */
char *sh_path_join(const char *folder, const char *name);

#endif
