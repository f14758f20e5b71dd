/* Rates, times and sizes as people write them. */
#ifndef SH_EXPLAIN_UNITS_H
#define SH_EXPLAIN_UNITS_H

#include <stdbool.h>

#include "base/status.h"
#include "comm/schedule.h"

enum { SH_UNIT_TEXT = 32 };  // a number with its unit

/* "1Gbit,50us": the rate and the latency of a link; a third part, "1Gbit,50us,10GB", is how many
 * bytes a second one rank reduces (default 10 GB/s). Rates in bit, Kbit, Mbit, Gbit, Tbit or B, KB,
 * MB, GB, TB per second, powers of 1000; times in ns, us, ms, s. `flag` names it in messages. */
sh_status sh_link_parse(const char *text, const char *flag, sh_link *link_out);
/* The same form again, rounded to three digits. */
const char *sh_link_text(const sh_link *link, char text_out[3 * SH_UNIT_TEXT]);

/* "20ms" in [text, end); false when it is no time. */
bool sh_seconds_take(const char *text, const char *end, double *seconds_out);

/* "12.3 KiB", powers of 1024. */
const char *sh_bytes_text(double bytes, char text_out[SH_UNIT_TEXT]);
/* "10 GB", powers of 1000, for bytes a second. */
const char *sh_rate_text(double bytes, char text_out[SH_UNIT_TEXT]);
/* "50 us", "1.25 ms". */
const char *sh_seconds_text(double seconds, char text_out[SH_UNIT_TEXT]);

#endif
