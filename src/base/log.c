/* A line for the user: formatted without the locale, escaped so that file names and texts from
 * outside cannot move the cursor or fake a line, and handed to the sink. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Cuts lines at 1023 bytes. Newlines are kept only if the format itself has some: those of
 * arguments could fake a line. */
void sh_log_write(const sh_log *log, sh_log_level level, const char *format, ...) {
    if (log == NULL || log->line == NULL) return;
    char raw[1024], text[1024];
    va_list arguments;
    va_start(arguments, format);
    sh_vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    sh_escape(text, sizeof text, raw, strchr(format, '\n') != NULL);
    log->line(log->self, level, text);
}
