/* What the doctor says of a machine, as text and as JSON. */
#include "rig.h"

#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static const char *examine(const shoal_hooks *hooks, bool json) {
    FILE *paper = rig_paper();
    SUCCEEDS(shoal_doctor(hooks, json, RIG_SINK(paper)));
    return rig_read(paper);
}

static json_t *examine_json(const shoal_hooks *hooks) {
    json_t *seen = json_loads(examine(hooks, true), 0, NULL);
    assert_non_null(seen);
    return seen;
}

TEST(doctor, text_and_json_tell_the_same_keys) {
    const char *text = examine(NULL, false);
    static const char *const lines[] = {"shoal ",    "processor ", "cores ",  "memory ",
                                        "oneDNN ",   "OpenBLAS ",  "OpenMP ", "shared memory ",
                                        "Open MPI ", "MPICH ",     "npm "};
    for (size_t i = 0; i < SH_COUNT(lines); i++) rig_has(text, lines[i]);
    json_t *seen = examine_json(NULL);
    static const char *const keys[] = {"shoal",        "processor",  "cores",  "memory_bytes",
                                       "onednn",       "openblas",   "openmp", "shared_memory",
                                       "openmpi",      "mpich",      "npm",    "data",
                                       "cache_folder", "data_folder"};
    for (size_t i = 0; i < SH_COUNT(keys); i++)
        if (json_object_get(seen, keys[i]) == NULL) fail_msg("no '%s'", keys[i]);
    assert_string_equal(json_string_value(json_object_get(seen, "shoal")), shoal_version());
    assert_true(json_integer_value(json_object_get(seen, "memory_bytes")) > 1 << 20);
    json_decref(seen);
}

static const char *path_variable(void *user, const char *name) {
    return strcmp(name, "PATH") == 0 ? user : NULL;
}

TEST(doctor, npm_is_the_first_program_of_that_name_on_the_path) {
    char path[4200], folders[9000];
    snprintf(path, sizeof path, "%s", sh_test_folder("doctor"));
    char program[4300];
    snprintf(program, sizeof program, "%s/npm", path);
    CHECK_OK(sh_file_write(program, "#!/bin/sh\n", 10));
    snprintf(folders, sizeof folders, "/nonexistent::%s:/usr/bin", path);
    shoal_hooks hooks = {.size = sizeof hooks, .user = folders, .environment = path_variable};
    json_t *seen = examine_json(&hooks);
    const char *found = json_string_value(json_object_get(seen, "npm"));
    if (found != NULL && strcmp(found, program) == 0)
        fail_msg("a file that is no program is taken");
    json_decref(seen);
    assert_int_equal(chmod(program, 0755), 0);
    seen = examine_json(&hooks);
    assert_string_equal(json_string_value(json_object_get(seen, "npm")), program);
    json_decref(seen);
    snprintf(folders, sizeof folders, "/nonexistent");
    seen = examine_json(&hooks);
    assert_true(json_is_null(json_object_get(seen, "npm")));
    rig_has(examine(&hooks, false), "shoal data get mnist");
    json_decref(seen);
}

TEST(doctor, folders_are_told_with_their_room_and_data_with_what_is_missing) {
    shoal_hooks hooks = {.size = sizeof hooks,
                         .data_folder = sh_test_folder("doctor"),
                         .cache_folder = "/nonexistent"};
    json_t *seen = examine_json(&hooks);
    const json_t *data = json_object_get(seen, "data_folder");
    assert_true(json_integer_value(json_object_get(data, "free_bytes")) > 0);
    assert_true(json_is_null(json_object_get(json_object_get(seen, "cache_folder"), "free_bytes")));
    const json_t *sets = json_object_get(seen, "data");
    assert_true(json_is_true(json_object_get(sets, "digits")));
    assert_true(json_is_false(json_object_get(sets, "mnist")));
    json_decref(seen);
    const char *text = examine(&hooks, false);
    rig_has(text, "(not there yet)");
    rig_has(text, "missing: shoal data get mnist");
}
