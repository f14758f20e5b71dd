/* Words for the user. The library never prints: it hands a line to the sink it was given. */
#ifndef SH_BASE_LOG_H
#define SH_BASE_LOG_H

typedef enum sh_log_level { SH_LOG_DEBUG, SH_LOG_INFO, SH_LOG_WARN, SH_LOG_ERROR } sh_log_level;

/* A sink for lines; the library keeps it by value. */
typedef struct sh_log {
    void (*line)(void *self, sh_log_level level, const char *text);  // NULL: silent
    void *self;
} sh_log;

/* One line, without a newline; what its arguments bring is escaped (text.h). NULL is welcome. */
void sh_log_write(const sh_log *log, sh_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define SH_INFO(log, ...) sh_log_write((log), SH_LOG_INFO, __VA_ARGS__)
#define SH_WARN(log, ...) sh_log_write((log), SH_LOG_WARN, __VA_ARGS__)

#endif
