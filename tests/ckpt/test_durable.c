/* What a power failure must not take: a file is synced before it gets its name, and a folder before
 * anything relies on a name in it. The functions below stand in the place of the C library's: they
 * note what happens to which file, and do it. */
#include "ckpt/rig.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

typedef enum event_kind { SYNC_FILE, SYNC_FOLDER, RENAME, REMOVE, MAKE_FOLDER } event_kind;

typedef struct event {
    event_kind kind;
    ino_t file;      // that was synced, that got a name, or that a folder is
    off_t bytes;     // of a file
    ino_t folder;    // that was synced, or whose names change
    char name[128];  // in it
} event;

static event events[256];
static size_t event_count;
static bool notes;

static void note(event_kind kind, const char *path, const struct stat *file) {
    if (!notes) return;
    if (event_count == SH_COUNT(events)) fail_msg("more than %zu events", SH_COUNT(events));
    event *e = &events[event_count++];
    *e = (event){.kind = kind, .file = file->st_ino, .bytes = file->st_size};
    if (kind == SYNC_FOLDER) e->folder = file->st_ino;
    if (path == NULL) return;
    char folder[4200];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    struct stat info;
    assert_non_null(slash);
    snprintf(e->name, sizeof e->name, "%s", slash + 1);
    *slash = '\0';
    assert_int_equal(stat(folder, &info), 0);
    e->folder = info.st_ino;
}

int fsync(int fd) {
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    note(S_ISDIR(info.st_mode) ? SYNC_FOLDER : SYNC_FILE, NULL, &info);
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to) {
    struct stat info = {0};
    (void)stat(from, &info);
    note(RENAME, to, &info);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path) {
    struct stat info = {0};
    if (stat(path, &info) == 0) note(REMOVE, path, &info);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int mkdir(const char *path, mode_t mode) {
    int result = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    struct stat info;
    if (result == 0 && stat(path, &info) == 0) note(MAKE_FOLDER, path, &info);
    return result;
}

static void begin(void) {
    event_count = 0;
    notes = true;
}

/* The last event of that kind on a name; fails where there is none. */
static size_t find(event_kind kind, const char *name) {
    for (size_t i = event_count; i-- > 0;)
        if (events[i].kind == kind && strcmp(events[i].name, name) == 0) return i;
    fail_msg("no event %d on '%s'", (int)kind, name);
    return 0;
}

/* All of the file that got this name was on disk before. */
static void check_file_synced(const char *name) {
    size_t named = find(RENAME, name), i = 0;
    const event *e = &events[named];
    while (i < named && (events[i].kind != SYNC_FILE || events[i].file != e->file ||
                         events[i].bytes != e->bytes))
        i++;
    if (i == named) fail_msg("'%s' got its name before it was synced", name);
    assert_true(e->bytes > 0);
}

/* Where the folder is synced first after event `at`. */
static size_t folder_synced(size_t at) {
    size_t i = at + 1;
    while (i < event_count &&
           (events[i].kind != SYNC_FOLDER || events[i].folder != events[at].folder))
        i++;
    if (i == event_count) fail_msg("the folder of '%s' was not synced after it", events[at].name);
    return i;
}

TEST(durable, a_file_is_synced_then_named_then_its_folder_is_synced) {
    char *path = sh_path_join(sh_test_folder("durable_file"), "a.txt");
    begin();
    CHECK_OK(sh_file_write(path, "text", 4));
    notes = false;
    check_file_synced("a.txt");
    assert_int_equal(folder_synced(find(RENAME, "a.txt")), event_count - 1);
    sh_free(path);
}

TEST(durable, folders_that_are_made_are_synced_into_theirs) {
    char *path = sh_path_join(sh_test_folder("durable_folder"), "one/two");
    begin();
    CHECK_OK(sh_make_folders(path));
    notes = false;
    assert_true(folder_synced(find(MAKE_FOLDER, "one")) < event_count);
    assert_true(folder_synced(find(MAKE_FOLDER, "two")) < event_count);
    sh_free(path);
}

TEST(durable, a_snapshot_is_on_disk_before_an_older_one_goes) {
    fixture f;
    fixture_init(&f, "durable_snapshot");
    CHECK_OK(save(&f, 1, 1));
    begin();
    CHECK_OK(save(&f, 2, 1));
    notes = false;
    static const char *const parts[] = {"model-00000002.safetensors",
                                        "optimizer-00000002.safetensors", "manifest-00000002.json"};
    size_t manifest = find(RENAME, parts[2]);
    for (size_t i = 0; i < SH_COUNT(parts); i++) {
        check_file_synced(parts[i]);
        assert_true(find(RENAME, parts[i]) <= manifest);
    }
    size_t synced = folder_synced(manifest);
    static const char *const old[] = {"model-00000001.safetensors",
                                      "optimizer-00000001.safetensors", "manifest-00000001.json"};
    for (size_t i = 0; i < SH_COUNT(old); i++) assert_true(find(REMOVE, old[i]) > synced);
    // Its manifest says whose the other files are, so it goes last.
    for (size_t i = 0; i < 2; i++) assert_true(find(REMOVE, old[i]) < find(REMOVE, old[2]));
    fixture_fini(&f);
}

/* The same step again: its manifest is gone before any file that it names is another. */
TEST(durable, a_manifest_never_names_files_of_another_snapshot) {
    fixture f;
    fixture_init(&f, "durable_again");
    CHECK_OK(save(&f, 2, 1));
    begin();
    CHECK_OK(save(&f, 2, 1));
    notes = false;
    size_t removed = find(REMOVE, "manifest-00000002.json");
    assert_true(removed < find(RENAME, "model-00000002.safetensors"));
    assert_true(removed < find(RENAME, "optimizer-00000002.safetensors"));
    (void)folder_synced(find(RENAME, "manifest-00000002.json"));
    fixture_fini(&f);
}
