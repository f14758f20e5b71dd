/* Tests on top of cmocka. A name is a claim: TEST(topk, feeds_dropped_values_back) { ... }
 * Registers itself; harness.c has the main function. Run one: test.data.idx NAME-PATTERN. */
#ifndef SH_TESTS_HARNESS_H
#define SH_TESTS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"

void sh_test_register(const char *name, void (*body)(void **state));

#define TEST(group, name)                                                      \
    static void group##_##name(void **state);                                  \
    __attribute__((constructor)) static void register_##group##_##name(void) { \
        sh_test_register(#group "." #name, group##_##name);                    \
    }                                                                          \
    static void group##_##name(__attribute__((unused)) void **state)

/* The call succeeds; otherwise the test fails with its error text. */
#define CHECK_OK(expression) sh_test_ok((expression), #expression, __FILE__, __LINE__)
/* The call fails with `code` and a message that contains `part`. */
#define CHECK_FAILS(code, part, expression) \
    sh_test_fails((expression), (code), (part), #expression, __FILE__, __LINE__)
/* |a - b| <= tolerance * max(1, |a|, |b|) for all elements; names the first that differs. */
#define CHECK_CLOSE(a, b, count, tolerance) \
    sh_test_close((a), (b), (count), (tolerance), #a " against " #b, __FILE__, __LINE__)

void sh_test_ok(sh_status status, const char *what, const char *file, int line);
void sh_test_fails(sh_status status, sh_status code, const char *part, const char *what,
                   const char *file, int line);
void sh_test_close(const float *a, const float *b, size_t count, double tolerance, const char *what,
                   const char *file, int line);

/* A fresh folder below the build folder, emptied first. Static buffer per call site use: copy it.
 */
const char *sh_test_folder(const char *name);
/* Files cannot grow beyond so many bytes, as on a full disk; SIZE_MAX: they can again. */
void sh_test_limit_files(size_t bytes);
/* Seeded test data in [-1, 1). */
void sh_test_fill(float *values, size_t count, uint64_t seed);

#endif
