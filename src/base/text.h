/* Text for files and terminals.
 *
 * Numbers have a decimal point in every locale that the program around the library may have set:
 * files, messages and options are the same everywhere. As the functions without "sh_" are, but for
 * that; any thread; the locale of the program is never changed.
 *
 * Names of files, layers, runs, columns and hosts come from outside and may hold anything: what
 * shows them escapes them. */
#ifndef SH_BASE_TEXT_H
#define SH_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

int sh_snprintf(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int sh_vsnprintf(char *text, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));
int sh_vasprintf(char **text_out, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));
int sh_fprintf(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
int sh_sscanf(const char *text, const char *format, ...) __attribute__((format(scanf, 2, 3)));
double sh_strtod(const char *text, char **end_out);

/* Copies `text` without what commands a terminal or deceives its reader: control characters (but
 * tabs), marks that turn the direction of writing, and bytes that are not UTF-8 become "\xHH", a
 * newline becomes "\n" unless `keeps_lines`. Cuts at a whole character; escapes nothing twice. */
void sh_escape(char *out, size_t size, const char *text, bool keeps_lines);
/* A name as it is shown on one line; `out` has room for SH_ESCAPED. */
enum { SH_ESCAPED = 512 };
const char *sh_escaped(const char *name, char out[SH_ESCAPED]);

#endif
