/* JSON from outside: bounded before the JSON library sees it, which would take any nesting on the
 * stack and any number of values into memory. */
#ifndef SH_BASE_JSON_H
#define SH_BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

enum { SH_JSON_BYTES_MOST = 16 << 20, SH_JSON_FAULT = 256 };

/* A string of any bytes: one that is not UTF-8 is escaped (text.h). NULL when out of memory. */
json_t *sh_json_string(const char *text);

/* A map, or NULL with the reason in `fault_out`. Duplicate keys and text after it are refused. */
json_t *sh_json_read_map(const char *text, size_t bytes, char fault_out[SH_JSON_FAULT]);

#endif
