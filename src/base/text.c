/* Text without the locale, and text without tricks. Programs that embed the library may have set a
 * locale in which 1.5 is "1,5"; files and messages must not follow it. And what comes from outside
 * is shown escaped: no control codes, no marks that turn the direction of writing. */
#include "base/text.h"

#include <locale.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static locale_t plain;
static pthread_once_t plain_once = PTHREAD_ONCE_INIT;

/* Made once and never freed: it belongs to the process. */
static void make_plain(void) { plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* Puts this thread alone into the C locale, whatever it was in before. Without memory for a locale
 * there is none to enter, and it stays where it is. */
static locale_t enter_plain(void) {
    pthread_once(&plain_once, make_plain);
    return uselocale(plain);
}

/* As vsnprintf, in the C locale. */
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

/* As vasprintf, in the C locale. The caller frees the text. */
int sh_vasprintf(char **text_out, const char *format, va_list arguments) {
    locale_t before = enter_plain();
    int length = vasprintf(text_out, format, arguments);
    uselocale(before);
    return length;
}

/* As fprintf, in the C locale. */
int sh_fprintf(FILE *file, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    locale_t before = enter_plain();
    int length = vfprintf(file, format, arguments);
    uselocale(before);
    va_end(arguments);
    return length;
}

/* As sscanf, in the C locale. */
int sh_sscanf(const char *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    locale_t before = enter_plain();
    int found = vsscanf(text, format, arguments);
    uselocale(before);
    va_end(arguments);
    return found;
}

/* As strtod, in the C locale. */
double sh_strtod(const char *text, char **end_out) {
    locale_t before = enter_plain();
    double number = strtod(text, end_out);
    uselocale(before);
    return number;
}

/* The length of the UTF-8 character at `at`, and the character; 0: none starts there. */
static size_t decode(const unsigned char *at, uint32_t *point_out) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (at[0] < 0x80) {
        *point_out = at[0];
        return 1;
    }
    if (at[0] < 0xc2 || at[0] > 0xf4) return 0;
    size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    uint32_t point = at[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {  // a final zero ends it, too
        if ((at[i] & 0xc0) != 0x80) return 0;
        point = point << 6 | (at[i] & 0x3fu);
    }
    bool surrogate = point >= 0xd800 && point < 0xe000;
    if (point < least[length] || point > 0x10ffff || surrogate) return 0;
    *point_out = point;
    return length;
}

/* Controls (C0, DEL, C1), separators of lines and paragraphs, and marks of direction. */
static bool is_shown(uint32_t point, bool keeps_lines) {
    if (point < 0x20) return point == '\t' || (point == '\n' && keeps_lines);
    if (point >= 0x7f && point < 0xa0) return false;
    bool directs = point == 0x061c || point == 0x200e || point == 0x200f ||
                   (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
    return !directs && point != 0xfeff;
}

/* Writes one character of `taken` bytes. Returns the length. */
static size_t escape_one(const unsigned char *at, size_t taken, char piece_out[17]) {
    if (*at == '\n') return (size_t)sprintf(piece_out, "\\n");
    size_t length = 0;
    for (size_t i = 0; i < taken; i++)
        length += (size_t)sprintf(piece_out + length, "\\x%02x", at[i]);
    return length;
}

/* Cuts at the last whole character that fits; always ends the text. */
void sh_escape(char *out, size_t size, const char *text, bool keeps_lines) {
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;
    if (size == 0) return;
    while (*at != '\0') {
        char piece[17];
        uint32_t point = 0;
        size_t taken = decode(at, &point), length = taken;
        bool shows = taken > 0 && is_shown(point, keeps_lines);
        if (taken == 0) taken = 1;
        if (!shows) length = escape_one(at, taken, piece);
        if (length >= size - used) break;
        memcpy(out + used, shows ? (const void *)at : piece, length);
        used += length;
        at += taken;
    }
    out[used] = '\0';
}

/* For messages: names from outside, cut to SH_ESCAPED. */
const char *sh_escaped(const char *name, char out[SH_ESCAPED]) {
    sh_escape(out, SH_ESCAPED, name, false);
    return out;
}
