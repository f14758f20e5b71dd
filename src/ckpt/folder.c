/* The snapshots of a checkpoint folder by their names: listing, pruning, and what a new run may
 * not overwrite. A snapshot exists when its manifest does; files without one are left-overs of a
 * write that was cut short. */
#include "ckpt/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

/* File names of a snapshot's parts, around the step. The order is that of removal: the manifest
 * comes last. */
static const struct {
    const char *prefix, *suffix;
} parts[] = {
    [SH_SNAPSHOT_MODEL] = {"model-", ".safetensors"},
    [SH_SNAPSHOT_OPTIMIZER] = {"optimizer-", ".safetensors"},
    [SH_SNAPSHOT_MANIFEST] = {"manifest-", ".json"},
};

/* Eight digits at least, so that listings sort by step. */
const char *sh_snapshot_name(sh_snapshot_part part, int64_t step, char name_out[SH_SNAPSHOT_NAME]) {
    snprintf(name_out, SH_SNAPSHOT_NAME, "%s%08" PRId64 "%s", parts[part].prefix, step,
             parts[part].suffix);
    return name_out;
}

/* A file name taken apart. */
typedef struct file_name {
    sh_snapshot_part part;
    int64_t step;
    bool temporary;  // a writer's unfinished file: NAME.tmp.XXXXXX
} file_name;

/* Takes a file name apart; false for names that Shoal does not write. Only such files are ever
 * removed. */
static bool parse_name(const char *name, file_name *out) {
    for (size_t part = 0; part < SH_COUNT(parts); part++) {
        size_t length = strlen(parts[part].prefix);
        if (strncmp(name, parts[part].prefix, length) != 0) continue;
        const char *digits = name + length;
        if (!isdigit((unsigned char)digits[0])) return false;
        char *end;
        errno = 0;
        long long step = strtoll(digits, &end, 10);
        // Shoal writes at least eight digits, so a shorter number is not its own.
        if (errno != 0 || end - digits < 8) return false;
        length = strlen(parts[part].suffix);
        if (strncmp(end, parts[part].suffix, length) != 0) return false;
        bool temporary = strncmp(end + length, ".tmp.", 5) == 0;
        if (end[length] != '\0' && !temporary) return false;
        *out = (file_name){(sh_snapshot_part)part, step, temporary};
        return true;
    }
    return false;
}

/* Takes a name apart; unfinished (temporary) files do not belong to a snapshot. */
bool sh_snapshot_parse(const char *name, sh_snapshot_part *part_out, int64_t *step_out) {
    file_name found;
    if (!parse_name(name, &found) || found.temporary) return false;
    *part_out = found.part;
    *step_out = found.step;
    return true;
}

/* Order for qsort: descending steps. */
static int newest_first(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a > b ? -1 : a < b;
}

/* Lists steps that have a manifest, in descending order; the caller frees the list. */
sh_status sh_snapshots_list(const char *folder, int64_t **steps_out, size_t *count_out) {
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return SH_FAIL(SH_E_IO, "cannot open folder '%s': %s", folder, strerror(errno));
    int64_t *steps = NULL;
    size_t count = 0, capacity = 0;  // grown as manifests are found
    sh_status status = SH_OK;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        file_name name;
        if (!parse_name(entry->d_name, &name)) continue;
        // A snapshot exists when its manifest does.
        if (name.part != SH_SNAPSHOT_MANIFEST || name.temporary) continue;
        SH_TRY_OUT(sh_grow((void **)&steps, &capacity, count + 1, sizeof *steps));
        steps[count++] = name.step;
    }
    if (count > 1) qsort(steps, count, sizeof *steps, newest_first);
    *steps_out = steps;
    *count_out = count;
    steps = NULL;
out:
    sh_free(steps);
    closedir(dir);
    return status;
}

/* Removes a snapshot, manifest last: until then it says whose the other files are. What is left at
 * any moment is either whole or seen to be damaged. */
static void remove_snapshot(const char *folder, int64_t step) {
    for (int part = 0; part < SH_SNAPSHOT_PARTS; part++) {
        char name[SH_SNAPSHOT_NAME];
        char *path = sh_path_join(folder, sh_snapshot_name((sh_snapshot_part)part, step, name));
        if (path != NULL) unlink(path);
        sh_free(path);
    }
}

/* Removes unfinished files of writers that died; there is one writer per folder, so none of them
 * is in use. */
static void remove_temporaries(const char *folder) {
    DIR *dir = opendir(folder);
    if (dir == NULL) return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        file_name name;
        if (parse_name(entry->d_name, &name) && name.temporary)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
}

/* Keeps the newest `keep` snapshots up to `step`. A failure to remove costs disk space and does
 * not fail the run. */
void sh_snapshots_prune(const char *folder, int64_t step, int keep) {
    int64_t *steps = NULL;
    size_t count = 0;
    remove_temporaries(folder);  // also where all snapshots are kept
    if (keep == 0 || sh_snapshots_list(folder, &steps, &count) != SH_OK) return;
    // The list is in descending order, so the newest are kept.
    int left = keep;
    for (size_t i = 0; i < count; i++) {
        if (steps[i] > step) continue;  // of another run or branch: not ours to judge
        if (left > 0)
            left--;
        else
            remove_snapshot(folder, steps[i]);
    }
    sh_free(steps);
}

/* Runs before training: what would be overwritten is refused now and not at the first checkpoint,
 * hours later. */
sh_status sh_snapshots_check(const char *folder, int64_t every, int64_t last, bool fresh) {
    struct stat info;
    // Pruning removes files, which must not happen behind a link.
    if (lstat(folder, &info) == 0 && S_ISLNK(info.st_mode)) {
        SH_FAIL(SH_E_IO, "'%s' is a link, and checkpoints are not written through links", folder);
        return sh_error_hint("let --out name the folder itself, where the room is");
    }
    DIR *dir = fresh ? opendir(folder) : NULL;
    if (dir == NULL) return SH_OK;
    sh_status status = SH_OK;
    for (struct dirent *entry; status == SH_OK && (entry = readdir(dir)) != NULL;) {
        file_name name;
        if (!parse_name(entry->d_name, &name) || name.temporary) continue;
        // Only steps at which this run writes can clash.
        if (name.step > last || (name.step != last && name.step % every != 0)) continue;
        SH_FAIL(SH_E_USAGE, "'%s/%s' is there, and this run would write over it", folder,
                entry->d_name);
        status = sh_error_hint("move it away, or take another folder: --out DIR");
    }
    closedir(dir);
    return status;
}

/* Removes whole snapshots only; files that no manifest names stay, as they may be the user's. */
sh_status sh_snapshots_remove_all(const char *folder) {
    int64_t *steps = NULL;
    size_t count = 0;
    SH_TRY(sh_snapshots_list(folder, &steps, &count));
    for (size_t i = 0; i < count; i++) remove_snapshot(folder, steps[i]);
    sh_free(steps);
    return SH_OK;
}
