/* Errors. A function that can fail because of the world (a file, a peer, the user) returns
 * sh_status and leaves one record per task: code, message, next step, place. The record is filled
 * where the fault is first understood; callers above only pass the code on with SH_TRY.
 *
 * The programmer's faults are assertions, kept in release builds. */
#ifndef SH_BASE_STATUS_H
#define SH_BASE_STATUS_H

#include <stddef.h>

typedef enum sh_status {
    SH_OK = 0,
    SH_E_USAGE,        // the user asked for something that cannot be: exit 2
    SH_E_IO,           // the operating system said no
    SH_E_FORMAT,       // a file or message is malformed
    SH_E_SHAPE,        // sizes that do not fit together
    SH_E_MEMORY,       // not enough memory
    SH_E_NUMERIC,      // the numbers failed (NaN, infinity)
    SH_E_UNSUPPORTED,  // valid, but this build or machine cannot
    SH_E_INTERRUPTED,  // the user asked to stop
    SH_E_PEER,         // another rank left or broke its promise
} sh_status;

typedef struct sh_error {
    sh_status code;
    char text[1024];
    char hint[512];  // the next step, may be empty
    const char *file;
    int line;
} sh_error;

/* The record of the calling task. Valid until its next failure. */
const sh_error *sh_error_last(void);
void sh_error_clear(void);
/* From now on the calling thread's failures go to this record: a coroutine brings its own. NULL: to
 * the thread's. */
void sh_error_record(sh_error *record);

/* Copies a record into the calling task's, for work that crossed tasks. Returns its code. */
sh_status sh_error_adopt(const sh_error *error);

sh_status sh_error_set(sh_status code, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds the next step to the record just set. Returns its code, so that it can end a function. */
sh_status sh_error_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

const char *sh_status_name(sh_status status);

/* Tells compilers and analyzers what sh_error_set asserts: a failure is never SH_OK. */
static inline sh_status sh_failed(sh_status status) {
    if (status == SH_OK) __builtin_unreachable();
    return status;
}

#if defined(__clang_analyzer__)
#define sh_error_hint(...)  sh_failed(sh_error_hint(__VA_ARGS__))
#define sh_error_adopt(...) sh_failed(sh_error_adopt(__VA_ARGS__))
#endif

#if defined(__clang_analyzer__)
/* The analyzer does not follow every call: here a constant code stays one for it. */
#define SH_FAIL(code, ...) \
    ((void)sh_error_set((code), __FILE__, __LINE__, __VA_ARGS__), (sh_status)(code))
#else
#define SH_FAIL(code, ...) sh_failed(sh_error_set((code), __FILE__, __LINE__, __VA_ARGS__))
#endif

#define SH_TRY(expression)                    \
    do {                                      \
        sh_status status_ = (expression);     \
        if (status_ != SH_OK) return status_; \
    } while (0)

/* Like SH_TRY for functions that clean up: sets `status` and jumps to `out`. */
#define SH_TRY_OUT(expression)         \
    do {                               \
        status = (expression);         \
        if (status != SH_OK) goto out; \
    } while (0)

_Noreturn void sh_assert_failed(const char *file, int line, const char *condition);

#define SH_ASSERT(condition) \
    ((condition) ? (void)0 : sh_assert_failed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define SH_DCHECK(condition) ((void)0)
#else
#define SH_DCHECK(condition) SH_ASSERT(condition)
#endif

#define SH_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
