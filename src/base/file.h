/* Files. Only regular files are read, so that nothing waits for a pipe or wakes a device; reading
 * maps the whole file. Writing goes to a temporary name in the same folder, is
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

/* Opens a regular file for reading; fails on a pipe, a device or a folder, and waits for none.
 * `*bytes_out` (may be NULL) is its size. Caller closes. */
sh_status sh_file_open(const char *path, int *fd_out, size_t *bytes_out);
/* Opens a regular file of Shoal's own folders for writing, made where there is none. A link is not
 * followed, a pipe or a device refused. `flags`: O_APPEND, O_TRUNC or 0. Caller closes. */
sh_status sh_file_open_own(const char *path, int flags, int *fd_out);

/* Maps a regular file. An empty file gives data NULL and bytes 0. */
sh_status sh_file_map(const char *path, sh_mapped *mapped_out);
void sh_file_unmap(sh_mapped *mapped);

/* A file being written. Either commit or abandon it. */
typedef struct sh_writer {
    FILE *file;
    char *path, *temporary;
    bool special;  // a device or a pipe
} sh_writer;

/* For a file of Shoal's own folders: a link is replaced, not followed; a pipe or a device fails. */
sh_status sh_writer_open(sh_writer *writer, const char *path);
/* For a file that the user named: a link stays, and what it names is written; a device or a pipe is
 * written to directly. */
sh_status sh_writer_open_through(sh_writer *writer, const char *path);
sh_status sh_writer_write(sh_writer *writer, const void *data, size_t bytes);
/* Flushes, syncs, renames, syncs the folder. On failure the temporary file is removed. */
sh_status sh_writer_commit(sh_writer *writer);
void sh_writer_abandon(sh_writer *writer);

/* All of the above for a short text in Shoal's own folders. */
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
