#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

static _Thread_local sh_error thread_error;
static _Thread_local sh_error *lent;  // of the coroutine that runs, or NULL

static sh_error *last(void) { return lent != NULL ? lent : &thread_error; }

void sh_error_record(sh_error *record) { lent = record; }

const sh_error *sh_error_last(void) { return last(); }

void sh_error_clear(void) { *last() = (sh_error){.code = SH_OK}; }

// The brackets keep out the macros that status.h gives to analyzers.
sh_status(sh_error_adopt)(const sh_error *error) {
    sh_error *own = last();
    if (error != own) *own = *error;
    return own->code;
}

/* What was read from a file must not command the terminal. */
static void make_plain(char *text) {
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7F) *text = '?';
    }
}

sh_status sh_error_set(sh_status code, const char *file, int line, const char *format, ...) {
    SH_ASSERT(code != SH_OK);
    // Arguments may point into the record itself, so it is built aside first.
    sh_error error = {.code = code, .file = file, .line = line};
    va_list arguments;
    va_start(arguments, format);
    sh_vsnprintf(error.text, sizeof error.text, format, arguments);
    va_end(arguments);
    make_plain(error.text);
    *last() = error;
    return code;
}

sh_status(sh_error_hint)(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    sh_error *own = last();
    sh_vsnprintf(own->hint, sizeof own->hint, format, arguments);
    va_end(arguments);
    make_plain(own->hint);
    return own->code;
}

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

void sh_assert_failed(const char *file, int line, const char *condition) {
    fprintf(stderr, "shoal: internal error at %s:%d: '%s' does not hold\n", file, line, condition);
    abort();
}
