/* Numbers in text files, fast: CSV and LIBSVM files have hundreds of millions of them, and strtod
 * with its locale takes ten times as long. The result is the correctly rounded double in every
 * case; hard cases go the slow way. */
#include "data/number.h"

#include <string.h>

#include "base/text.h"

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

/* Characters that a number in any notation of strtod may contain. */
static bool can_belong(uint8_t c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '+' || c == '-';
}

/* Parses by strtod whatever the quick way cannot do exactly. Copies the text first, as it need not
 * end with a zero. */
static bool take_slowly(const uint8_t **at_inout, const uint8_t *end, double *number_out) {
    char text[512];
    size_t length = 0;
    const uint8_t *at = *at_inout;
    while (at + length < end && length < sizeof text - 1 && can_belong(at[length])) length++;
    memcpy(text, at, length);
    text[length] = '\0';
    char *rest = text;
    *number_out = sh_strtod(text, &rest);
    *at_inout += rest - text;
    return rest != text;
}

/* Up to 15 digits and a power of ten up to 22 are exact in a double, so one multiplication or
 * division rounds correctly (Clinger, "How to read floating point numbers accurately", 1990). */
bool sh_number_take(const uint8_t **at_inout, const uint8_t *end, double *number_out) {
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const uint8_t *at = *at_inout;
    bool negative = at < end && *at == '-';  // kept apart, so that -0 stays -0
    if (at < end && (*at == '-' || *at == '+')) at++;
    uint64_t digits = 0;
    int count = 0, after = 0, exponent = 0;
    const uint8_t *first = at;
    for (; at < end && is_digit(*at) && count < 16; at++, count++) digits = digits * 10 + *at - '0';
    if (at < end && *at == '.')
        for (at++; at < end && is_digit(*at) && count < 16; at++, count++, after++)
            digits = digits * 10 + *at - '0';
    if (at < end && (*at == 'e' || *at == 'E') && count > 0) {
        bool down = at + 1 < end && at[1] == '-';
        const uint8_t *mark = at + 1 + (at + 1 < end && (at[1] == '-' || at[1] == '+'));
        if (mark >= end || !is_digit(*mark)) return take_slowly(at_inout, end, number_out);
        for (at = mark; at < end && is_digit(*at) && exponent < 1000; at++)
            exponent = exponent * 10 + *at - '0';
        if (down) exponent = -exponent;
    }
    exponent -= after;
    bool is_simple = count > 0 && count <= 15 && exponent >= -22 && exponent <= 22 && at > first &&
                     (at == end || !can_belong(*at));
    if (!is_simple) return take_slowly(at_inout, end, number_out);
    double number =
        exponent < 0 ? (double)digits / power[-exponent] : (double)digits * power[exponent];
    *number_out = negative ? -number : number;
    *at_inout = at;
    return true;
}

static bool is_space(uint8_t c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Tells whether the whole range, spaces around it aside, is one number. */
bool sh_number_is(const uint8_t *at, const uint8_t *end, double *number_out) {
    while (at < end && is_space(*at)) at++;
    if (at == end || !sh_number_take(&at, end, number_out)) return false;
    while (at < end && is_space(*at)) at++;
    return at == end;
}
