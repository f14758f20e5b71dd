/* The error record: one per thread, or per coroutine while one runs (fiber.c swaps them). SH_FAIL
 * fills it where a fault is first understood; callers pass the code on. Work that crosses threads
 * carries a copy and adopts it on arrival. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static _Thread_local sh_error thread_error;
static _Thread_local sh_error *task_record;  // of the coroutine that runs, or NULL

/* The record of whoever runs now. */
static sh_error *last(void) { return task_record != NULL ? task_record : &thread_error; }

void sh_error_record(sh_error *record) { task_record = record; }

const sh_error *sh_error_last(void) { return last(); }

void sh_error_clear(void) { *last() = (sh_error){.code = SH_OK}; }

// The brackets keep out the macros that status.h gives to analyzers.
sh_status(sh_error_adopt)(const sh_error *error) {
    sh_error *own = last();
    if (error != own) *own = *error;
    return own->code;
}

/* Lines of a message are those of its format: what an argument brings must not look like one, nor
 * command the terminal. */
static void render(char *out, size_t size, const char *format, va_list arguments) {
    char text[sizeof((sh_error *)NULL)->text];
    sh_vsnprintf(text, sizeof text, format, arguments);
    sh_escape(out, size, text, strchr(format, '\n') != NULL);
}

/* Replaces the record, hint included: the latest fault is the one that is reported. */
sh_status sh_error_set(sh_status code, const char *file, int line, const char *format, ...) {
    SH_ASSERT(code != SH_OK);
    // Arguments may point into the record itself, so a copy is built first.
    sh_error error = {.code = code, .file = file, .line = line};
    va_list arguments;
    va_start(arguments, format);
    render(error.text, sizeof error.text, format, arguments);
    va_end(arguments);
    *last() = error;
    return code;
}

sh_status(sh_error_hint)(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    sh_error *own = last();
    render(own->hint, sizeof own->hint, format, arguments);
    va_end(arguments);
    return own->code;
}

/* The names are stable: metrics and tests read them. */
const char *sh_status_name(sh_status status) {
    static const char *const names[] = {
        [SH_OK] = "ok",
        [SH_E_USAGE] = "usage",
        [SH_E_IO] = "io",
        [SH_E_FORMAT] = "format",
        [SH_E_SHAPE] = "shape",
        [SH_E_MEMORY] = "memory",
        [SH_E_NUMERIC] = "numeric",
        [SH_E_UNSUPPORTED] = "unsupported",
        [SH_E_INTERRUPTED] = "interrupted",
        [SH_E_PEER] = "peer",
    };
    return (size_t)status < SH_COUNT(names) ? names[status] : "unknown";
}

/* A fault of the program, not of the world: the only place where the library prints and ends. */
void sh_assert_failed(const char *file, int line, const char *condition) {
    fprintf(stderr, "shoal: internal error at %s:%d: '%s' does not hold\n", file, line, condition);
    abort();
}
