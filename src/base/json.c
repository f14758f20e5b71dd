/* JSON from outside. The parser (jansson) allocates as it reads, so nesting and the number of
 * values are counted over the plain text first: a few megabytes of brackets must not become
 * gigabytes of nodes. */
#include "base/json.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* Far above any header or manifest, far below what hurts. */
enum { TOKENS_MOST = 1 << 20, DEPTH_MOST = 16 };

/* Counts nesting and values without parsing: strings are skipped, escapes included. Returns what
 * exceeds the bounds, or NULL. Too strict a count on malformed text does no harm, as the parser
 * refuses that anyway. */
static const char *find_excess(const char *text, size_t bytes) {
    size_t depth = 0, tokens = 0;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"') in_string = true;
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && depth > 0) depth--;
        tokens += c == '{' || c == '[' || c == ',';
        if (depth > DEPTH_MOST) return "it nests too deeply";
        if (tokens > TOKENS_MOST) return "it has too many values";
    }
    return NULL;
}

/* Duplicate keys are refused, since two readers could otherwise see two values. */
json_t *sh_json_read_map(const char *text, size_t bytes, char fault_out[SH_JSON_FAULT]) {
    const char *fault = NULL;
    if (bytes == 0 || text[0] != '{')
        fault = "it is no map";
    else if (bytes > SH_JSON_BYTES_MOST)
        fault = "it is larger than 16 MiB";
    else
        fault = find_excess(text, bytes);
    if (fault != NULL) {
        snprintf(fault_out, SH_JSON_FAULT, "%s", fault);
        return NULL;
    }
    json_error_t error;
    json_t *map = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (map == NULL) snprintf(fault_out, SH_JSON_FAULT, "byte %d: %s", error.position, error.text);
    return map;
}

/* Text that is not UTF-8 is escaped byte by byte, so that a file name never makes a log line fail.
 */
json_t *sh_json_string(const char *text) {
    json_t *string = json_string(text);
    if (string != NULL) return string;
    size_t size = 4 * strlen(text) + 1;
    char *escaped = sh_alloc(size, 1);
    if (escaped == NULL) return NULL;
    sh_escape(escaped, size, text, false);
    string = json_string(escaped);
    sh_free(escaped);
    return string;
}
