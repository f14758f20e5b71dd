#include "data/npm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/task.h"
#include "harness.h"

/* In place of npm: the archive that it leaves says which signals it blocks. It starts no program,
 * for which some shells would unblock them. */
static const char program[] =
    "#!/bin/sh\n"
    "while read -r name value; do [ \"$name\" != SigBlk: ] || echo \"$value\"; done "
    "</proc/self/status >mask.tgz\n";

static sh_status pack(void *folder) {
    sh_blob archive;
    SH_TRY(sh_npm_pack("package", folder, &archive));
    bool none = archive.bytes == 17 && memcmp(archive.data, "0000000000000000\n", 17) == 0;
    sh_blob_close(&archive);
    return none ? SH_OK : SH_FAIL(SH_E_IO, "npm blocks signals");
}

TEST(npm, can_be_ended_though_a_thread_that_takes_no_signals_starts_it) {
    char folder[512], path[600], programs[1200];
    snprintf(folder, sizeof folder, "%s", sh_test_folder("npm"));
    snprintf(path, sizeof path, "%s/npm", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(program, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0755), 0);
    snprintf(programs, sizeof programs, "%s:%s", folder, getenv("PATH"));
    assert_int_equal(setenv("PATH", programs, 1), 0);
    sh_task *task = NULL;
    CHECK_OK(sh_task_spawn("packs", pack, folder, &task));
    CHECK_OK(sh_task_wait(task));
}
