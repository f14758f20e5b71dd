#include "harness.h"

#include <fnmatch.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/file.h"
#include "base/rng.h"

enum { TESTS_MOST = 512 };
static struct CMUnitTest tests[TESTS_MOST];
static size_t test_count;

void sh_test_register(const char *name, void (*body)(void **state)) {
    SH_ASSERT(test_count < TESTS_MOST);
    tests[test_count++] = (struct CMUnitTest){.name = name, .test_func = body};
}

void sh_test_ok(sh_status status, const char *what, const char *file, int line) {
    if (status == SH_OK) return;
    const sh_error *error = sh_error_last();
    print_error("%s failed: %s (%s) from %s:%d\n", what, error->text, sh_status_name(status),
                error->file ? error->file : "?", error->line);
    _fail(file, line);
}

void sh_test_fails(sh_status status, sh_status code, const char *part, const char *what,
                   const char *file, int line) {
    const sh_error *error = sh_error_last();
    if (status == code && strstr(error->text, part) != NULL) return;
    print_error("%s: expected '%s' with \"%s\", got '%s' with \"%s\"\n", what, sh_status_name(code),
                part, sh_status_name(status), status == SH_OK ? "" : error->text);
    _fail(file, line);
}

void sh_test_close(const float *a, const float *b, size_t count, double tolerance, const char *what,
                   const char *file, int line) {
    for (size_t i = 0; i < count; i++) {
        double scale = fmax(1.0, fmax(fabs((double)a[i]), fabs((double)b[i])));
        double difference = fabs((double)a[i] - (double)b[i]);
        if (difference <= tolerance * scale) continue;  // false for NaN
        print_error("%s: element %zu of %zu: %.9g and %.9g\n", what, i, count, (double)a[i],
                    (double)b[i]);
        _fail(file, line);
    }
}

const char *sh_test_folder(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/tests/tmp/%s", SHOAL_BINARY, name);
    char command[4200];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) fail_msg("cannot empty %s", path);
    CHECK_OK(sh_make_folders(path));
    return path;
}

void sh_test_limit_files(size_t bytes) {
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

void sh_test_fill(float *values, size_t count, uint64_t seed) {
    sh_rng rng = sh_rng_stream(seed, SH_RNG_TEST, 0, 0);
    for (size_t i = 0; i < count; i++) values[i] = 2.0f * sh_rng_uniform(&rng) - 1.0f;
}

int main(int argc, char **argv) {
    struct CMUnitTest chosen[TESTS_MOST];
    size_t count = 0;
    for (size_t i = 0; i < test_count; i++)
        if (argc < 2 || fnmatch(argv[1], tests[i].name, 0) == 0) chosen[count++] = tests[i];
    if (count == 0) {
        fprintf(stderr, "%s: no test is called '%s'\n", argv[0], argc < 2 ? "" : argv[1]);
        return 1;
    }
    return _cmocka_run_group_tests(argv[0], chosen, count, NULL, NULL) == 0 ? 0 : 1;
}
