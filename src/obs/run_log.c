/* The log file of a run: every line with time and level, also those that the terminal does not
 * show. Times are UTC, from one reading of the time of day and the monotonic clock since. */
#include "obs/run_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

struct sh_run_log {
    pthread_mutex_t lock;
    FILE *file;  // guarded by lock
    char *path;
    const sh_clock *clock;
    int64_t unix_ns_less_clock;  // what turns clock time into time of day
    int write_errno;             // the first fault, 0: none; guarded by lock
    sh_log next;
};

/* Opens for appending: a resumed run goes on in the same file. */
sh_status sh_run_log_open(const sh_run_log_options *options, sh_run_log **run_log_out) {
    sh_run_log *log = sh_alloc(1, sizeof *log);
    char *path = sh_strdup(options->path);
    if (log == NULL || path == NULL) {
        sh_free(log);
        sh_free(path);
        return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", options->path);
    }
    log->path = path;
    log->clock = options->clock;
    log->unix_ns_less_clock = options->unix_ns - sh_clock_now_ns(options->clock);
    log->next = options->next;
    int fd = -1;
    sh_status status = sh_file_open_own(path, O_APPEND, &fd);
    if (status == SH_OK) log->file = fdopen(fd, "a");
    if (log->file == NULL) {
        if (status == SH_OK) {
            status = SH_FAIL(SH_E_IO, "cannot write '%s': %s", path, strerror(errno));
            close(fd);
        }
        sh_free(path);
        sh_free(log);
        return status;
    }
    pthread_mutex_init(&log->lock, NULL);
    *run_log_out = log;
    return SH_OK;
}

sh_status sh_run_log_close(sh_run_log *log) {
    if (log == NULL) return SH_OK;
    if (fclose(log->file) != 0 && log->write_errno == 0) log->write_errno = errno;
    sh_status status = SH_OK;
    if (log->write_errno != 0)
        status = SH_FAIL(SH_E_IO, "cannot write '%s': %s", log->path, strerror(log->write_errno));
    pthread_mutex_destroy(&log->lock);
    sh_free(log->path);
    sh_free(log);
    return status;
}

/* Time as "2026-11-16T03:31:42.123Z", in UTC, so that logs of several machines compare. */
static void format_time(int64_t unix_ns, char text_out[40]) {
    time_t seconds = (time_t)(unix_ns / 1000000000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    char day[32];
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text_out, 40, "%s.%03dZ", day, (int)(unix_ns / 1000000 % 1000));
}

/* Writes a text; its further lines are indented, so that every entry begins with a time. */
static void write_text(FILE *file, const char *text) {
    for (; *text != '\0'; text++) {
        fputc(*text, file);
        if (*text == '\n') fputs("    ", file);
    }
    fputc('\n', file);
}

/* Flushes each line, so that a crash leaves its cause in the file. */
void sh_run_log_note(sh_run_log *log, sh_log_level level, const char *text) {
    static const char *const words[] = {"debug", "info ", "warn ", "error"};
    if (log == NULL) return;
    char when[40];
    pthread_mutex_lock(&log->lock);
    format_time(log->unix_ns_less_clock + sh_clock_now_ns(log->clock), when);
    fprintf(log->file, "%s %s ", when, (size_t)level < SH_COUNT(words) ? words[level] : "     ");
    write_text(log->file, text);
    if (fflush(log->file) != 0 && log->write_errno == 0) log->write_errno = errno;
    pthread_mutex_unlock(&log->lock);
}

/* Sink: writes to the file first, then passes the line on. */
static void take_line(void *self, sh_log_level level, const char *text) {
    sh_run_log *log = self;
    sh_run_log_note(log, level, text);
    if (log->next.line != NULL) log->next.line(log->next.self, level, text);
}

sh_log sh_run_log_sink(sh_run_log *log) { return (sh_log){.line = take_line, .self = log}; }
