/* A FILE over the caller's sink: whatever prints to a FILE inside the library can then print to a
 * program's own function. glibc's fopencookie passes buffered pieces on. */
#include "api/sink.h"

#include <errno.h>

/* fopencookie's write. The stream remembers a refusal, which sh_sink_close reports. */
static ssize_t pass(void *cookie, const char *text, size_t bytes) {
    const shoal_sink *sink = cookie;
    if (sink->write(sink->user, text, bytes)) return (ssize_t)bytes;
    errno = EIO;
    return 0;  // as fopencookie has it: 0 is an error
}

/* sh_log.line over hooks; a program without the hook hears nothing. */
static void pass_line(void *self, sh_log_level level, const char *text) {
    const shoal_hooks *hooks = self;
    if (hooks->line != NULL) hooks->line(hooks->user, (shoal_log_level)level, text);
}

sh_log sh_log_to_hooks(const shoal_hooks *hooks) {
    return (sh_log){.line = pass_line, .self = (void *)(uintptr_t)hooks};
}

/* The cookie is not const, but pass only reads it. */
sh_status sh_sink_open(const shoal_sink *sink, FILE **file_out) {
    void *cookie = (void *)(uintptr_t)sink;
    FILE *file = fopencookie(cookie, "w", (cookie_io_functions_t){.write = pass});
    if (file == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for text");
    *file_out = file;
    return SH_OK;
}

/* fclose hands over the last piece, so both stream and close are asked for errors. An earlier
 * failure is reported instead, as it is the cause. */
shoal_status sh_sink_close(FILE *file, sh_status status) {
    bool failed = ferror(file) != 0;
    failed = fclose(file) != 0 || failed;
    if (status == SH_OK && failed) status = SH_FAIL(SH_E_IO, "the text could not be handed over");
    return (shoal_status)status;
}
