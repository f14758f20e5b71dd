#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

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
