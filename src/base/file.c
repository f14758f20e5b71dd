/* Files, written so that they appear whole or not at all, and read so that nothing strange blocks.
 *
 * A writer writes to a temporary name beside the file, syncs it, renames it, and syncs the folder:
 * after a crash there is the old file or the new one. Readers refuse pipes, devices and folders by
 * name, instead of waiting in open() for somebody at the other end. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

/* Refuses a file that is not regular; each kind has its own next step for the user. */
static sh_status fail_kind(const char *path, mode_t mode) {
    const char *kind = S_ISDIR(mode)    ? "a folder"
                       : S_ISFIFO(mode) ? "a pipe"
                       : S_ISSOCK(mode) ? "a socket"
                       : S_ISLNK(mode)  ? "a link"
                                        : "a device";
    SH_FAIL(SH_E_IO, "'%s' is %s, not a regular file", path, kind);
    if (S_ISDIR(mode)) return sh_error_hint("name a file in it");
    if (S_ISLNK(mode)) return sh_error_hint("remove it: Shoal writes through no link of its own");
    return sh_error_hint("copy what it gives into a file, and name that");
}

/* Flags for every open: neither waits for a pipe's other end, nor takes a terminal as controlling
 * terminal, nor leaks into child processes. */
enum { NO_WAIT = O_NONBLOCK | O_NOCTTY | O_CLOEXEC };

/* Checks an opened file, so that no swap between check and open can deceive; closes it on failure.
 * Gives its size. */
static sh_status check_regular(const char *path, int fd, size_t *bytes_out) {
    struct stat info;
    sh_status status = SH_OK;
    if (fstat(fd, &info) != 0)
        status = SH_FAIL(SH_E_IO, "cannot inspect '%s': %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = fail_kind(path, info.st_mode);
    if (status != SH_OK)
        close(fd);
    else if (bytes_out != NULL)
        *bytes_out = (size_t)info.st_size;
    return status;
}

/* Opens a regular file for reading. ENXIO means a socket or a device without a driver; the message
 * names the kind instead. */
sh_status sh_file_open(const char *path, int *fd_out, size_t *bytes_out) {
    struct stat info;
    int fd = open(path, O_RDONLY | NO_WAIT);
    int error = errno;
    if (fd < 0 && error == ENXIO && stat(path, &info) == 0) return fail_kind(path, info.st_mode);
    if (fd < 0) return SH_FAIL(SH_E_IO, "cannot open '%s': %s", path, strerror(error));
    SH_TRY(check_regular(path, fd, bytes_out));
    *fd_out = fd;
    return SH_OK;
}

/* Opens a file of a run folder for writing, never through a link, which somebody else may have put
 * there. */
sh_status sh_file_open_own(const char *path, int flags, int *fd_out) {
    struct stat info;
    int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | NO_WAIT | flags, 0666);
    int error = errno;
    bool is_kind = fd < 0 && lstat(path, &info) == 0 && !S_ISREG(info.st_mode);
    if (is_kind) return fail_kind(path, info.st_mode);
    if (fd < 0) return SH_FAIL(SH_E_IO, "cannot write '%s': %s", path, strerror(error));
    SH_TRY(check_regular(path, fd, NULL));
    *fd_out = fd;
    return SH_OK;
}

/* Maps a file for reading. An empty one maps to nothing, as mmap refuses a length of 0. */
sh_status sh_file_map(const char *path, sh_mapped *mapped_out) {
    int fd = -1;
    size_t bytes = 0;
    SH_TRY(sh_file_open(path, &fd, &bytes));
    sh_status status = SH_OK;
    sh_mapped mapped = {0};
    if (bytes > 0) {
        void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = SH_FAIL(SH_E_IO, "cannot map '%s': %s", path, strerror(errno));
        else
            mapped = (sh_mapped){data, bytes};
    }
    close(fd);
    if (status == SH_OK) *mapped_out = mapped;
    return status;
}

void sh_file_unmap(sh_mapped *mapped) {
    if (mapped->data != NULL) munmap((void *)(uintptr_t)mapped->data, mapped->bytes);
    *mapped = (sh_mapped){0};
}

/* Frees the paths; the stream itself is closed by then. */
static void writer_free(sh_writer *writer) {
    sh_free(writer->path);
    sh_free(writer->temporary);
    *writer = (sh_writer){0};
}

/* A temporary name that no other writer has, in this process or in one beside it. */
static char *temporary_name(const char *path) {
    static _Atomic unsigned count;  // relaxed: a number, orders nothing
    unsigned number = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    return sh_format("%s.tmp.%ld-%u", path, (long)getpid(), number);
}

/* Tells whether `path` is a device or a pipe, which cannot be replaced and is written to in
 * place. */
static bool is_special(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

/* Path of the file itself if `path` is a link to it, so that the rename replaces the file and
 * keeps the link. */
static char *target_of(const char *path) {
    struct stat info;
    bool link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && !is_special(path);
    char *real = link ? realpath(path, NULL) : NULL;  // NULL: it leads nowhere
    char *copy = sh_strdup(real != NULL ? real : path);
    free(real);
    return copy;
}

/* Opens a device or pipe without waiting (a pipe without a reader is an error), then lets writes
 * wait as a pipe needs. */
static int open_special(const char *path) {
    int fd = open(path, O_WRONLY | NO_WAIT);  // a pipe without a reader is an error
    if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

/* Opens the temporary file exclusively: a name that exists belongs to somebody else. */
static int open_writer(const sh_writer *writer) {
    if (writer->special) return open_special(writer->path);
    unlink(writer->temporary);  // of a dead process that had the same number
    return open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

/* Special files were written in place and have no temporary file. */
static void remove_temporary(const sh_writer *writer) {
    if (!writer->special) unlink(writer->temporary);
}

/* Opens a writer and takes over `path`, also on failure. `name` is for messages. */
static sh_status open_at(sh_writer *writer, const char *name, char *path, bool special) {
    if (path == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory while writing '%s'", name);
    if (*name == '\0') {
        sh_free(path);
        return SH_FAIL(SH_E_IO, "cannot write '': it names no file");
    }
    *writer = (sh_writer){.path = path, .special = special};
    writer->temporary = temporary_name(path);
    if (writer->temporary == NULL) {
        writer_free(writer);
        return SH_FAIL(SH_E_MEMORY, "out of memory while writing '%s'", name);
    }
    int fd = open_writer(writer);
    if (fd >= 0) writer->file = fdopen(fd, "wb");
    if (writer->file == NULL) {
        sh_status status = SH_FAIL(SH_E_IO, "cannot write '%s': %s", name, strerror(errno));
        if (fd >= 0) {
            close(fd);
            remove_temporary(writer);
        }
        writer_free(writer);
        return status;
    }
    return SH_OK;
}

/* The file at `path` is replaced; a link there is replaced too, not followed. */
sh_status sh_writer_open(sh_writer *writer, const char *path) {
    struct stat info;
    bool exists = lstat(path, &info) == 0;
    bool can = !exists || S_ISREG(info.st_mode) || S_ISLNK(info.st_mode) || S_ISDIR(info.st_mode);
    if (!can) return fail_kind(path, info.st_mode);
    return open_at(writer, path, sh_strdup(path), false);
}

/* For paths that the user named: a link is followed, a pipe or device written to. */
sh_status sh_writer_open_through(sh_writer *writer, const char *path) {
    return open_at(writer, path, target_of(path), is_special(path));
}

/* Reports a failed write or rename. A full disk is the one fault with an obvious next step. */
static sh_status fail_to(const char *verb, const char *path, int error) {
    SH_FAIL(SH_E_IO, "cannot %s '%s': %s", verb, path, strerror(error));
    return error == ENOSPC ? sh_error_hint("make room there, or write elsewhere") : SH_E_IO;
}

/* Writes through stdio's buffer; the commit writes what that still holds and reports late errors.
 */
sh_status sh_writer_write(sh_writer *writer, const void *data, size_t bytes) {
    if (bytes != 0 && fwrite(data, 1, bytes, writer->file) != bytes)
        return fail_to("write", writer->path, errno);
    return SH_OK;
}

/* A rename is durable only once its folder is on disk. */
void sh_sync_folder_of(const char *path) {
    char *folder = sh_strdup(path);
    if (folder == NULL) return;
    char *slash = strrchr(folder, '/');
    if (slash != NULL) slash[slash == folder ? 1 : 0] = '\0';
    int fd = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);  // best effort: some file systems refuse to sync a folder
        close(fd);
    }
    sh_free(folder);
}

/* Makes the file durable and visible. The order is what counts: flush, sync, close, rename, sync
 * the folder. An error that stdio kept from an earlier write counts as well. */
sh_status sh_writer_commit(sh_writer *writer) {
    const char *failed = "write";
    int error = 0;
    bool lost = ferror(writer->file) != 0;  // an earlier write, whose errno is gone
    if (fflush(writer->file) != 0 || (!writer->special && fsync(fileno(writer->file)) != 0))
        error = errno;
    else if (lost)
        error = EIO;
    if (fclose(writer->file) != 0 && error == 0) error = errno;
    writer->file = NULL;
    if (error == 0 && !writer->special && rename(writer->temporary, writer->path) != 0) {
        failed = "rename";
        error = errno;
    }
    sh_status status = SH_OK;
    if (error != 0) {
        remove_temporary(writer);
        status = fail_to(failed, writer->path, error);
    } else if (!writer->special) {
        sh_sync_folder_of(writer->path);
    }
    writer_free(writer);
    return status;
}

/* After any failure, or instead of a commit: the old file stays as it was. */
void sh_writer_abandon(sh_writer *writer) {
    if (writer->file != NULL) {
        fclose(writer->file);
        remove_temporary(writer);
    }
    writer_free(writer);
}

/* A whole file in one call; on failure the old one stays. */
sh_status sh_file_write(const char *path, const void *data, size_t bytes) {
    sh_writer writer;
    SH_TRY(sh_writer_open(&writer, path));
    sh_status status = sh_writer_write(&writer, data, bytes);
    if (status != SH_OK) {
        sh_writer_abandon(&writer);
        return status;
    }
    return sh_writer_commit(&writer);
}

/* As `mkdir -p`; each new folder is synced, so that files in it survive a crash. */
sh_status sh_make_folders(const char *path) {
    char *copy = sh_strdup(path);
    if (copy == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory");
    sh_status status = SH_OK;
    for (char *end = copy + 1; status == SH_OK; end++) {
        if (*end != '/' && *end != '\0') continue;
        char kept = *end;
        *end = '\0';
        struct stat info;
        if (mkdir(copy, 0777) == 0)
            sh_sync_folder_of(copy);
        else if (errno != EEXIST)
            status = SH_FAIL(SH_E_IO, "cannot create folder '%s': %s", copy, strerror(errno));
        else if (stat(copy, &info) == 0 && !S_ISDIR(info.st_mode))
            status = SH_FAIL(SH_E_IO, "'%s' exists and is not a folder", copy);
        *end = kept;
        if (kept == '\0') break;
    }
    sh_free(copy);
    return status;
}

/* By name: a folder or a pipe exists, too. */
bool sh_file_exists(const char *path) { return access(path, F_OK) == 0; }

bool sh_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Longer than the ending: ".npy" alone is a hidden file, not an array. */
bool sh_name_ends_in(const char *name, const char *end) {
    size_t length = strlen(name), end_length = strlen(end);
    return length > end_length && strcmp(name + length - end_length, end) == 0;
}

char *sh_path_join(const char *folder, const char *name) {
    size_t length = strlen(folder);
    bool has_slash = length > 0 && folder[length - 1] == '/';
    return sh_format("%s%s%s", folder, has_slash ? "" : "/", name);
}
