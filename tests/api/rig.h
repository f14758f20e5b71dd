/* What tests of the public interface share: statuses with their texts, configs from rows, and what
 * functions print. */
#ifndef SH_TESTS_API_RIG_H
#define SH_TESTS_API_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "shoal/tools.h"

#define SUCCEEDS(call)                                                         \
    do {                                                                       \
        if ((call) != SHOAL_OK) fail_msg("%s: %s", #call, shoal_error_text()); \
    } while (0)

/* The call is refused with this code, and its text contains `part`. */
#define REFUSED(code, part, call) rig_refused((call), (code), (part), #call)

static inline void rig_refused(shoal_status status, shoal_status code, const char *part,
                               const char *call) {
    if (status != code || strstr(shoal_error_text(), part) == NULL)
        fail_msg("%s: status %d with '%s', expected %d with '%s'", call, (int)status,
                 status == SHOAL_OK ? "" : shoal_error_text(), (int)code, part);
}

static inline void rig_hint(const char *part) {
    if (strstr(shoal_error_hint(), part) == NULL)
        fail_msg("the hint '%s' does not contain '%s'", shoal_error_hint(), part);
}

/* A config of key, value, ..., NULL on a small run; destroy it. */
static inline shoal_config *rig_config(const char *const *settings) {
    static const char *const usual[] = {"model",      "{name: mlp, hidden: [8]}",
                                        "data",       "digits",
                                        "threads",    "1",
                                        "kernels",    "default",
                                        "data.batch", "50",
                                        NULL};
    shoal_config *config = NULL;
    SUCCEEDS(shoal_config_create(&config));
    for (const char *const *at = usual; *at != NULL; at += 2)
        SUCCEEDS(shoal_config_set(config, at[0], at[1]));
    for (; settings != NULL && *settings != NULL; settings += 2)
        SUCCEEDS(shoal_config_set(config, settings[0], settings[1]));
    return config;
}
#define RIG_CONFIG(...) rig_config((const char *const[]){__VA_ARGS__, NULL})

/* Where a function prints to, and the text that it printed, which lasts until the next. */
static inline FILE *rig_paper(void) {
    FILE *file = tmpfile();
    assert_non_null(file);
    return file;
}

static inline bool rig_write(void *user, const char *text, size_t bytes) {
    return fwrite(text, 1, bytes, user) == bytes;
}
#define RIG_SINK(paper) (&(const shoal_sink){(paper), rig_write})

static inline const char *rig_read(FILE *file) {
    static char text[1 << 18];
    rewind(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    fclose(file);
    return text;
}

static inline void rig_has(const char *text, const char *part) {
    if (strstr(text, part) == NULL) fail_msg("no '%s' in:\n%s", part, text);
}

static inline size_t rig_count(const char *text, const char *part) {
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
    return count;
}

#endif
