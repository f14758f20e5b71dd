/* Rates, times and sizes as people write them: "1Gbit,50us" in, "1.2 MiB" out. Rates count in
 * thousands, as networks do, sizes in 1024, as memory does. */
#include "explain/units.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "data/number.h"

/* A unit's name and its size in the base unit (bytes per second, or seconds). Tables ascend and
 * end with NULL. */
typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit bit_rates[] = {{"bit", 1. / 8},   {"Kbit", 1e3 / 8},  {"Mbit", 1e6 / 8},
                                 {"Gbit", 1e9 / 8}, {"Tbit", 1e12 / 8}, {NULL, 0}};
static const unit byte_rates[] = {{"B", 1},    {"KB", 1e3},  {"MB", 1e6},
                                  {"GB", 1e9}, {"TB", 1e12}, {NULL, 0}};
static const unit times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};

/* Parses "NUMBER UNIT" in [at, end), the whole of it. False for anything else, also for negative
 * and infinite numbers. */
static bool take(const char *at, const char *end, const unit *units, double *value_out) {
    const uint8_t *rest = (const uint8_t *)at, *stop = (const uint8_t *)end;
    double number;
    if (!sh_number_take(&rest, stop, &number) || !isfinite(number) || number < 0) return false;
    while (rest < stop && *rest == ' ') rest++;
    size_t length = (size_t)(stop - rest);
    for (; units->name != NULL; units++) {
        if (strlen(units->name) != length || strncmp(units->name, (const char *)rest, length) != 0)
            continue;
        *value_out = number * units->factor;
        return true;
    }
    return false;
}

/* Parses a rate in bits or bytes per second; below 1 B/s it is taken for a typing error. */
static bool take_rate(const char *at, const char *end, double *value_out) {
    bool found = take(at, end, bit_rates, value_out) || take(at, end, byte_rates, value_out);
    return found && *value_out >= 1;
}

/* Reports a bad link; each message shows a right one. */
static sh_status refuse(const char *flag, const char *text, const char *wrong) {
    SH_FAIL(SH_E_USAGE, "--%s '%.60s': %s", flag, text, wrong);
    return sh_error_hint("--%s 1Gbit,50us: the rate, then the latency", flag);
}

/* Grammar: RATE,LATENCY[,RATE OF REDUCTION]. alpha is the latency, beta and gamma are reciprocal
 * rates. */
sh_status sh_link_parse(const char *text, const char *flag, sh_link *link_out) {
    const char *comma = strchr(text, ','), *second = NULL;
    if (comma != NULL) second = strchr(comma + 1, ',');
    const char *end = text + strlen(text);
    double rate, latency, reduced = 10e9;
    if (!take_rate(text, comma != NULL ? comma : end, &rate))
        return refuse(flag, text, "the first part is no rate such as 100Mbit, 1Gbit or 5GB");
    if (comma == NULL || !take(comma + 1, second != NULL ? second : end, times, &latency))
        return refuse(flag, text, "the second part is no time such as 2us or 1ms");
    if (second != NULL && !take_rate(second + 1, end, &reduced))
        return refuse(flag, text, "the third part is no rate of reduction such as 10GB");
    *link_out = (sh_link){.alpha_s = latency, .beta_s = 1 / rate, .gamma_s = 1 / reduced};
    return SH_OK;
}

bool sh_seconds_take(const char *text, const char *end, double *seconds_out) {
    return take(text, end, times, seconds_out);
}

/* Writes the number with three digits in the largest unit that leaves at least 1 before the point.
 * The limits lie half a digit below the powers, so that 999.7 becomes 1 of the next unit and not
 * 1e+03. */
static const char *with_unit(double value, const unit *units, char text_out[SH_UNIT_TEXT]) {
    const unit *best = units;
    for (const unit *u = units; u->name != NULL; u++)
        if (value >= u->factor * 0.9995) best = u;
    double number = value / best->factor;
    if (number < 999.5)
        sh_snprintf(text_out, SH_UNIT_TEXT, "%.3g %s", number, best->name);
    else
        sh_snprintf(text_out, SH_UNIT_TEXT, "%.0f %s", number, best->name);
    return text_out;
}

/* Writes the form that sh_link_parse reads, in bits per second. */
const char *sh_link_text(const sh_link *link, char text_out[3 * SH_UNIT_TEXT]) {
    char rate[SH_UNIT_TEXT], latency[SH_UNIT_TEXT];
    with_unit(1 / link->beta_s, bit_rates, rate);
    snprintf(text_out, 3 * SH_UNIT_TEXT, "%s/s, %s", rate,
             link->alpha_s > 0 ? with_unit(link->alpha_s, times, latency) : "0 s");
    return text_out;
}

const char *sh_bytes_text(double bytes, char text_out[SH_UNIT_TEXT]) {
    static const unit sizes[] = {{"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                 {"GiB", 0x1p30}, {"TiB", 0x1p40}, {NULL, 0}};
    return with_unit(bytes, sizes, text_out);
}

const char *sh_rate_text(double bytes, char text_out[SH_UNIT_TEXT]) {
    return with_unit(bytes, byte_rates, text_out);
}

/* Three digits and the largest unit that fits. */
const char *sh_seconds_text(double seconds, char text_out[SH_UNIT_TEXT]) {
    if (seconds <= 0) return snprintf(text_out, SH_UNIT_TEXT, "0 s"), text_out;
    return with_unit(seconds, times, text_out);
}
