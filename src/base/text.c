#include "base/text.h"

#include <locale.h>
#include <pthread.h>
#include <stdlib.h>

static locale_t plain;
static pthread_once_t plain_once = PTHREAD_ONCE_INIT;

static void make_plain(void) { plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* Puts this thread alone into the C locale, whatever it was in before. Without memory for a locale
 * there is none to enter, and it stays where it is. */
static locale_t enter_plain(void) {
    pthread_once(&plain_once, make_plain);
    return uselocale(plain);
}

int sh_vsnprintf(char *text, size_t size, const char *format, va_list arguments) {
    locale_t before = enter_plain();
    int length = vsnprintf(text, size, format, arguments);
    uselocale(before);
    return length;
}

int sh_snprintf(char *text, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = sh_vsnprintf(text, size, format, arguments);
    va_end(arguments);
    return length;
}

int sh_vasprintf(char **text_out, const char *format, va_list arguments) {
    locale_t before = enter_plain();
    int length = vasprintf(text_out, format, arguments);
    uselocale(before);
    return length;
}

int sh_fprintf(FILE *file, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    locale_t before = enter_plain();
    int length = vfprintf(file, format, arguments);
    uselocale(before);
    va_end(arguments);
    return length;
}

int sh_sscanf(const char *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    locale_t before = enter_plain();
    int found = vsscanf(text, format, arguments);
    uselocale(before);
    va_end(arguments);
    return found;
}

double sh_strtod(const char *text, char **end_out) {
    locale_t before = enter_plain();
    double number = strtod(text, end_out);
    uselocale(before);
    return number;
}
