#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "harness.h"

static char *test_path(const char *name) {
    char *path = sh_path_join(sh_test_folder("file"), name);
    assert_non_null(path);
    return path;
}

static void assert_holds(const char *path, const char *text) {
    sh_mapped mapped;
    CHECK_OK(sh_file_map(path, &mapped));
    assert_int_equal(mapped.bytes, strlen(text));
    if (mapped.bytes > 0) assert_memory_equal(mapped.data, text, mapped.bytes);
    sh_file_unmap(&mapped);
}

static int count_files(const char *path_inside) {
    char *folder = sh_strdup(path_inside);
    *strrchr(folder, '/') = '\0';
    DIR *dir = opendir(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) count += entry->d_name[0] != '.';
    closedir(dir);
    sh_free(folder);
    return count;
}

TEST(file, maps_what_was_written_and_replaces_it_whole) {
    char *path = test_path("a.txt");
    CHECK_OK(sh_file_write(path, "one", 3));
    assert_holds(path, "one");
    CHECK_OK(sh_file_write(path, "the second", 10));
    assert_holds(path, "the second");
    assert_int_equal(count_files(path), 1);
    sh_free(path);
}

TEST(file, maps_an_empty_file_as_nothing) {
    char *path = test_path("empty");
    CHECK_OK(sh_file_write(path, NULL, 0));
    sh_mapped mapped;
    CHECK_OK(sh_file_map(path, &mapped));
    assert_null(mapped.data);
    assert_int_equal(mapped.bytes, 0);
    sh_file_unmap(&mapped);
    sh_free(path);
}

TEST(file, shows_the_old_contents_until_commit) {
    char *path = test_path("a.txt");
    CHECK_OK(sh_file_write(path, "old", 3));
    sh_writer writer;
    CHECK_OK(sh_writer_open(&writer, path));
    CHECK_OK(sh_writer_write(&writer, "new", 3));
    fflush(writer.file);
    assert_holds(path, "old");
    CHECK_OK(sh_writer_commit(&writer));
    assert_holds(path, "new");
    sh_free(path);
}

TEST(file, abandon_leaves_the_old_file_and_no_other) {
    char *path = test_path("a.txt");
    CHECK_OK(sh_file_write(path, "old", 3));
    sh_writer writer;
    CHECK_OK(sh_writer_open(&writer, path));
    CHECK_OK(sh_writer_write(&writer, "half of the", 11));
    sh_writer_abandon(&writer);
    assert_holds(path, "old");
    assert_int_equal(count_files(path), 1);
    sh_free(path);
}

TEST(file, a_failed_rename_leaves_no_temporary) {
    char *path = test_path("taken");
    CHECK_OK(sh_make_folders(path));  // a folder of that name cannot be replaced by a file
    CHECK_FAILS(SH_E_IO, "cannot rename", sh_file_write(path, "x", 1));
    assert_int_equal(count_files(path), 1);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    sh_free(path);
}

static sh_status write_through(const char *path, const char *text) {
    sh_writer writer;
    SH_TRY(sh_writer_open_through(&writer, path));
    CHECK_OK(sh_writer_write(&writer, text, strlen(text)));
    return sh_writer_commit(&writer);
}

TEST(file, of_the_user_is_written_to_where_a_link_leads) {
    char *path = test_path("real.txt"), *link = test_path("link.txt"),
         *lost = test_path("lost.txt");
    CHECK_OK(sh_file_write(path, "old", 3));
    assert_int_equal(symlink("real.txt", link), 0);
    CHECK_OK(write_through(link, "new"));
    assert_holds(path, "new");
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(symlink("nowhere", lost), 0);  // one that leads nowhere is replaced
    CHECK_OK(write_through(lost, "new"));
    assert_holds(lost, "new");
    sh_free(path);
    sh_free(link);
    sh_free(lost);
}

static bool is_link(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

TEST(file, of_its_own_replaces_a_link_and_leaves_what_it_names) {
    char *path = test_path("real.txt"), *link = test_path("link.txt");
    CHECK_OK(sh_file_write(path, "old", 3));
    assert_int_equal(symlink("real.txt", link), 0);
    CHECK_OK(sh_file_write(link, "new", 3));
    assert_holds(path, "old");
    assert_holds(link, "new");
    assert_false(is_link(link));
    sh_free(path);
    sh_free(link);
}

TEST(file, of_its_own_is_not_opened_through_a_link) {
    char *path = test_path("real.txt"), *link = test_path("link.txt");
    int fd = -1;
    CHECK_OK(sh_file_write(path, "old", 3));
    assert_int_equal(symlink("real.txt", link), 0);
    CHECK_FAILS(SH_E_IO, "is a link", sh_file_open_own(link, O_APPEND, &fd));
    CHECK_FAILS(SH_E_IO, "is a link", sh_file_open_own(link, O_TRUNC, &fd));
    assert_holds(path, "old");
    CHECK_OK(sh_file_open_own(path, O_APPEND, &fd));
    assert_int_equal(write(fd, "er", 2), 2);
    close(fd);
    assert_holds(path, "older");
    sh_free(path);
    sh_free(link);
}

/* Each of these would wait for the other end of the pipe. */
TEST(file, that_is_no_file_is_refused_at_once) {
    char *pipe = test_path("pipe"), *folder = test_path("folder");
    sh_mapped mapped;
    int fd = -1;
    assert_int_equal(mkfifo(pipe, 0600), 0);
    CHECK_OK(sh_make_folders(folder));
    CHECK_FAILS(SH_E_IO, "is a pipe, not a regular file", sh_file_map(pipe, &mapped));
    CHECK_FAILS(SH_E_IO, "is a device, not a regular", sh_file_map("/dev/zero", &mapped));
    CHECK_FAILS(SH_E_IO, "is a folder, not a regular", sh_file_map(folder, &mapped));
    CHECK_FAILS(SH_E_IO, "is a pipe", sh_file_open_own(pipe, O_APPEND, &fd));
    CHECK_FAILS(SH_E_IO, "is a device", sh_file_open_own("/dev/null", O_APPEND, &fd));
    CHECK_FAILS(SH_E_IO, "is a pipe", sh_file_write(pipe, "x", 1));
    int reader = open(pipe, O_RDONLY | O_NONBLOCK);  // a pipe that could be written to
    CHECK_FAILS(SH_E_IO, "is a pipe", sh_file_open_own(pipe, O_APPEND, &fd));
    CHECK_FAILS(SH_E_IO, "is a pipe", sh_file_write(pipe, "x", 1));
    close(reader);
    assert_int_equal(fd, -1);
    sh_free(pipe);
    sh_free(folder);
}

TEST(file, of_the_user_does_not_replace_a_pipe) {
    char *path = test_path("pipe"), text[8] = "";
    assert_int_equal(mkfifo(path, 0600), 0);
    CHECK_FAILS(SH_E_IO, "cannot write", write_through(path, "x"));  // nobody reads
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    CHECK_OK(write_through(path, "through"));
    assert_int_equal(read(fd, text, sizeof text), 7);
    assert_string_equal(text, "through");
    close(fd);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(count_files(path), 1);
    sh_free(path);
}

TEST(file, a_full_disk_leaves_the_old_file) {
    FILE *full = fopen("/dev/full", "wb");
    if (full == NULL) skip();
    char *path = test_path("a.txt");
    CHECK_OK(sh_file_write(path, "old", 3));
    sh_writer writer;
    CHECK_OK(sh_writer_open(&writer, path));
    fclose(writer.file);
    writer.file = full;  // every flush to this device says that there is no space
    CHECK_OK(sh_writer_write(&writer, "new", 3));
    CHECK_FAILS(SH_E_IO, "No space left", sh_writer_commit(&writer));
    assert_holds(path, "old");
    assert_int_equal(count_files(path), 1);
    sh_free(path);
}

TEST(file, a_write_that_failed_earlier_is_not_forgotten) {
    FILE *full = fopen("/dev/full", "wb");
    if (full == NULL) skip();
    char *path = test_path("b.txt");
    CHECK_OK(sh_file_write(path, "old", 3));
    sh_writer writer;
    CHECK_OK(sh_writer_open(&writer, path));
    FILE *own = writer.file;
    fputs("lost", full);
    assert_int_not_equal(fflush(full), 0);  // as in the middle of a long file
    writer.file = full;
    fclose(own);
    CHECK_FAILS(SH_E_IO, "b.txt", sh_writer_commit(&writer));
    assert_holds(path, "old");
    sh_free(path);
}

TEST(file, obeys_the_umask) {
    char *path = test_path("c.txt");
    mode_t before = umask(077);
    CHECK_OK(sh_file_write(path, "mine", 4));
    umask(before);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    sh_free(path);
}

TEST(file, names_what_is_missing) {
    sh_mapped mapped;
    CHECK_FAILS(SH_E_IO, "'no/such/file'", sh_file_map("no/such/file", &mapped));
    CHECK_FAILS(SH_E_IO, "'no/such/file'", sh_file_write("no/such/file", "x", 1));
    CHECK_FAILS(SH_E_IO, "not a regular file", sh_file_map("/", &mapped));
}

TEST(file, makes_folders_with_parents) {
    char *path = test_path("a/b/c/");
    CHECK_OK(sh_make_folders(path));
    CHECK_OK(sh_make_folders(path));
    assert_true(sh_file_exists(path));
    sh_free(path);
    path = test_path("plain");
    CHECK_OK(sh_file_write(path, "x", 1));
    char *below = sh_path_join(path, "sub");
    CHECK_FAILS(SH_E_IO, "plain", sh_make_folders(below));
    sh_free(below);
    sh_free(path);
}

TEST(file, joins_paths_with_one_slash) {
    char *a = sh_path_join("runs", "x"), *b = sh_path_join("runs/", "x");
    assert_string_equal(a, "runs/x");
    assert_string_equal(b, "runs/x");
    sh_free(a);
    sh_free(b);
}
