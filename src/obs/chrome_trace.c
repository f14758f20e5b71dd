/* Trace events as JSON for chrome://tracing and Perfetto. Events are formatted into a buffer under
 * a lock and written at least once a second, so a killed run loses a second at most and the file
 * stays readable. */
#include "obs/chrome_trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

enum { BUFFER_BYTES = 1 << 16, EVENT_BYTES_MAX = 1024, NAME_BYTES_MAX = 256, THREADS_MAX = 64 };

static const int64_t flush_ns = 1000000000;  // what a kill can cost at most

struct sh_chrome_trace {
    pthread_mutex_t lock;
    int fd;
    int rank;
    char *path;
    const sh_clock *clock;
    int64_t start_ns;
    int64_t flushed_ns;          // guarded by lock, as all below
    int write_errno;             // the first fault, 0: none
    pid_t threads[THREADS_MAX];  // those whose name was written
    int thread_count;
    size_t used_bytes;
    char buffer[BUFFER_BYTES];  // whole events only
};

/* Writes the buffer. After a first fault nothing more is written; close reports it. */
static void flush(sh_chrome_trace *trace) {
    size_t done = 0;
    while (done < trace->used_bytes && trace->write_errno == 0) {
        ssize_t written = write(trace->fd, trace->buffer + done, trace->used_bytes - done);
        if (written >= 0)
            done += (size_t)written;
        else if (errno != EINTR)
            trace->write_errno = errno;
    }
    trace->used_bytes = 0;
    trace->flushed_ns = sh_clock_now_ns(trace->clock);
}

/* Adds one event to the buffer. Names are bounded by NAME_BYTES_MAX, so an event always fits
 * EVENT_BYTES_MAX. */
__attribute__((format(printf, 2, 3))) static void add(sh_chrome_trace *trace, const char *format,
                                                      ...) {
    if (BUFFER_BYTES - trace->used_bytes < EVENT_BYTES_MAX) flush(trace);
    va_list arguments;
    va_start(arguments, format);
    int length =
        sh_vsnprintf(trace->buffer + trace->used_bytes, EVENT_BYTES_MAX, format, arguments);
    va_end(arguments);
    SH_ASSERT(length >= 0 && length < EVENT_BYTES_MAX);
    trace->used_bytes += (size_t)length;
}

/* A JSON string with quotes. What does not fit or is not UTF-8 becomes "?". */
static const char *quote(const char *text, char quoted_out[NAME_BYTES_MAX]) {
    json_t *string = json_string(text);
    size_t bytes = 0;
    if (string != NULL) bytes = json_dumpb(string, quoted_out, NAME_BYTES_MAX, JSON_ENCODE_ANY);
    json_decref(string);
    if (bytes == 0 || bytes >= NAME_BYTES_MAX) return "\"?\"";
    quoted_out[bytes] = '\0';
    return quoted_out;
}

/* Writes the name of a thread before its first event, so that rows of the picture carry names. */
static void introduce_thread(sh_chrome_trace *trace, pid_t thread) {
    for (int i = 0; i < trace->thread_count; i++)
        if (trace->threads[i] == thread) return;
    if (trace->thread_count == THREADS_MAX) return;
    trace->threads[trace->thread_count++] = thread;
    char name[32] = "?", quoted[NAME_BYTES_MAX];
    pthread_getname_np(pthread_self(), name, sizeof name);
    add(trace,
        ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":%s}}",
        trace->rank, (int)thread, quote(name, quoted));
}

/* The sink. Called by any task; the lock orders events of several threads. */
static void emit(void *self, const sh_trace_event *event) {
    sh_chrome_trace *trace = self;
    char name[NAME_BYTES_MAX], category[NAME_BYTES_MAX];
    const char *quoted_name = quote(event->name, name);
    const char *quoted_category = quote(event->category, category);
    pid_t thread = gettid();
    pthread_mutex_lock(&trace->lock);
    introduce_thread(trace, thread);
    // Microseconds from the start of the trace.
    add(trace,
        ",\n{\"name\":%s,\"cat\":%s,\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d,"
        "\"args\":{\"step\":%" PRId64 "}}",
        quoted_name, quoted_category, (double)(event->start_ns - trace->start_ns) / 1e3,
        (double)(event->end_ns - event->start_ns) / 1e3, trace->rank, (int)thread, event->step);
    if (event->end_ns - trace->flushed_ns >= flush_ns) flush(trace);
    pthread_mutex_unlock(&trace->lock);
}

/* Opens the array and names the process. */
sh_status sh_chrome_trace_open(const char *path, int rank, const sh_clock *clock,
                               sh_chrome_trace **trace_out) {
    sh_chrome_trace *trace = sh_alloc(1, sizeof *trace);
    char *copy = sh_strdup(path);
    if (trace == NULL || copy == NULL) {
        sh_free(trace);
        sh_free(copy);
        return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", path);
    }
    sh_status status = sh_file_open_own(path, O_TRUNC, &trace->fd);
    if (status != SH_OK) {
        sh_free(copy);
        sh_free(trace);
        return status;
    }
    pthread_mutex_init(&trace->lock, NULL);
    trace->path = copy;
    trace->rank = rank;
    trace->clock = clock;
    trace->start_ns = sh_clock_now_ns(clock);
    // The first event has no comma; with it in place every other can lead with one.
    add(trace,
        "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
        rank, rank);
    flush(trace);
    *trace_out = trace;
    return SH_OK;
}

/* Closes the trace, once no task emits any more: hence no lock. */
sh_status sh_chrome_trace_close(sh_chrome_trace *trace) {
    if (trace == NULL) return SH_OK;
    add(trace, "\n]\n");
    flush(trace);
    if (close(trace->fd) != 0 && trace->write_errno == 0) trace->write_errno = errno;
    sh_status status = SH_OK;
    if (trace->write_errno != 0)
        status =
            SH_FAIL(SH_E_IO, "cannot write '%s': %s", trace->path, strerror(trace->write_errno));
    pthread_mutex_destroy(&trace->lock);
    sh_free(trace->path);
    sh_free(trace);
    return status;
}

/* The sink to be passed down to the tasks. */
sh_trace sh_chrome_trace_sink(sh_chrome_trace *trace) {
    return (sh_trace){.emit = emit, .self = trace, .clock = trace->clock};
}
