#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"

void sh_log_write(const sh_log *log, sh_log_level level, const char *format, ...) {
    if (log == NULL || log->line == NULL) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    sh_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    log->line(log->self, level, text);
}
