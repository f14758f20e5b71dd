#include "base/capacity.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/addresses.h"
#include "base/file.h"
#include "harness.h"

static void put(const char *root, const char *path, const char *text) {
    char whole[4300];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    CHECK_OK(sh_file_write(whole, text, strlen(text)));
}

TEST(capacity, of_a_group_is_the_lowest_limit_from_its_root_on) {
    char root[4096], folder[4200];
    snprintf(root, sizeof root, "%s", sh_test_folder("capacity"));
    snprintf(folder, sizeof folder, "%s/jobs/7", root);
    CHECK_OK(sh_make_folders(folder));
    assert_true(sh_capacity_of_group(root, "/jobs/7", "memory.max") == SIZE_MAX);
    put(root, "jobs/7/memory.max", "max\n");
    assert_true(sh_capacity_of_group(root, "/jobs/7", "memory.max") == SIZE_MAX);
    put(root, "jobs/memory.max", "5000000\n");
    assert_int_equal(sh_capacity_of_group(root, "/jobs/7", "memory.max"), 5000000);
    put(root, "jobs/7/memory.max", "3000000\n");
    assert_int_equal(sh_capacity_of_group(root, "/jobs/7", "memory.max"), 3000000);
    assert_int_equal(sh_capacity_of_group(root, "/jobs", "memory.max"), 5000000);
    put(root, "memory.max", "1000000\n");
    assert_int_equal(sh_capacity_of_group(root, "/jobs/7", "memory.max"), 1000000);
    assert_int_equal(sh_capacity_of_group(root, "/", "memory.max"), 1000000);
    // In a container the group's path names folders that it does not see.
    assert_int_equal(sh_capacity_of_group(root, "/elsewhere/x", "memory.max"), 1000000);
}

TEST(capacity, is_no_more_than_the_machine_has) {
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    sh_capacity capacity = sh_capacity_now(0);
    assert_true(capacity.bytes > 0 && capacity.bytes <= memory);
    assert_non_null(capacity.what);
}
