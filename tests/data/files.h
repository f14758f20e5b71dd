/* Small data files for the tests. */
#ifndef SH_TESTS_DATA_FILES_H
#define SH_TESTS_DATA_FILES_H

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "harness.h"

static char test_root[4096];

static inline void use_folder(const char *name) {
    snprintf(test_root, sizeof test_root, "%s", sh_test_folder(name));
}

/* A path below the folder in use; four of them can be alive at once. */
static inline char *test_path(const char *name) {
    static char paths[4][8192];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", test_root, name);
    return path;
}

static inline char *put_file(const char *name, const void *data, size_t bytes) {
    char *path = test_path(name);
    CHECK_OK(sh_file_write(path, data, bytes));
    return path;
}

static inline char *put_text(const char *name, const char *text) {
    return put_file(name, text, strlen(text));
}

/* Writes an IDX file of bytes: value i is (i * step) % modulus. */
static inline char *put_idx(const char *name, int rank, const uint32_t *dim, unsigned step,
                            unsigned modulus) {
    static uint8_t data[1 << 16];
    size_t used = 0, count = 1;
    data[used++] = 0;
    data[used++] = 0;
    data[used++] = 8;
    data[used++] = (uint8_t)rank;
    for (int i = 0; i < rank; i++) {
        for (int shift = 24; shift >= 0; shift -= 8) data[used++] = (uint8_t)(dim[i] >> shift);
        count *= dim[i];
    }
    assert_true(used + count <= sizeof data);
    for (size_t i = 0; i < count; i++) data[used++] = (uint8_t)(i * step % modulus);
    return put_file(name, data, used);
}

#endif
