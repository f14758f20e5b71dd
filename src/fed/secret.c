/* Files that only their owner may read. Created with mode 0600 under a temporary name, never made
 * private afterwards, so that there is no moment at which another user can open them. */
#include "fed/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

/* Synced before the rename: a crash leaves the old file or the new one. */
static bool write_all(int fd, const char *text) {
    for (size_t left = strlen(text); left > 0;) {
        ssize_t written = write(fd, text, left);
        if (written < 0 && errno == EINTR) continue;  // a signal is no failure
        if (written < 0) return false;
        text += written;
        left -= (size_t)written;
    }
    return fsync(fd) == 0;
}

/* O_EXCL and O_NOFOLLOW refuse a file or link that somebody else put in the way. */
sh_status sh_secret_write(const char *path, const char *text) {
    char *temporary = sh_format("%s.tmp", path);
    if (temporary == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a path");
    unlink(temporary);  // left over by a crash
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool done = fd >= 0 && write_all(fd, text);
    // Close reports what a network file system could not write.
    if (fd >= 0) done = close(fd) == 0 && done;
    done = done && rename(temporary, path) == 0;
    sh_status status = SH_OK;
    if (!done) {
        status = SH_FAIL(SH_E_IO, "cannot write '%s': %s", path, strerror(errno));
        unlink(temporary);
    }
    sh_sync_folder_of(path);  // the rename is durable only with its folder
    sh_free(temporary);
    return status;
}

/* Below 1 MiB: keys and certificates are some kilobytes, and anything larger is a mistake. */
sh_status sh_secret_read(const char *path, char **text_out) {
    sh_mapped file;
    SH_TRY(sh_file_map(path, &file));
    char *text = file.bytes < (1 << 20) ? sh_alloc(file.bytes + 1, 1) : NULL;
    if (text != NULL && file.bytes > 0) memcpy(text, file.data, file.bytes);
    sh_file_unmap(&file);
    if (text == NULL) return SH_FAIL(SH_E_FORMAT, "'%s' is too large for a key", path);
    *text_out = text;
    return SH_OK;
}
