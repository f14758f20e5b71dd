/* Numbers as text, with a decimal point in every locale that the program around the library may
 * have set: files, messages and options are the same everywhere. As the functions without "sh_"
 * are, but for that; any thread; the locale of the program is never changed. */
#ifndef SH_BASE_TEXT_H
#define SH_BASE_TEXT_H

#include <stdarg.h>
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

#endif
