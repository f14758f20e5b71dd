/* A report's page: the template page/report.html, in which a line "@NAME@" stands for a file of
 * page/ and "@data@" for the runs. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "obs/report.h"

/* Writes JSON inside a script element. "<" becomes an escape, so that no text of a run can end the
 * element or begin another. */
static sh_status write_data(const json_t *runs, sh_writer *writer) {
    char *text = json_dumps(runs, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a report");
    sh_status status = SH_OK;
    for (const char *at = text; *at != '\0' && status == SH_OK;) {
        size_t plain = strcspn(at, "<");
        status = sh_writer_write(writer, at, plain);
        at += plain;
        if (*at != '<' || status != SH_OK) continue;
        status = sh_writer_write(writer, "\\u003c", 6);
        at++;
    }
    free(text);  // jansson's
    return status;
}

/* Writes the file, or the data, that `name` stands for: the word between two "@" on a line of its
 * own. */
static sh_status write_part(const json_t *runs, const char *name, sh_writer *writer) {
    if (strcmp(name, "data") == 0) return write_data(runs, writer);
    const char *text = sh_page_file(name);
    SH_ASSERT(text != NULL);
    return sh_writer_write(writer, text, strlen(text));
}

static sh_status write_line(const json_t *runs, const char *line, size_t bytes, sh_writer *writer) {
    char name[32];
    bool stands_in = bytes > 2 && bytes < sizeof name && line[0] == '@' && line[bytes - 1] == '@';
    if (!stands_in) return sh_writer_write(writer, line, bytes);
    memcpy(name, line + 1, bytes - 2);
    name[bytes - 2] = '\0';
    return write_part(runs, name, writer);
}

static sh_status write_page(const json_t *runs, sh_writer *writer) {
    for (const char *at = sh_page_file("report.html"); *at != '\0';) {
        size_t bytes = strcspn(at, "\n");
        SH_TRY(write_line(runs, at, bytes, writer));
        SH_TRY(sh_writer_write(writer, "\n", 1));
        at += bytes + (at[bytes] == '\n');
    }
    return SH_OK;
}

sh_status sh_report_write(const json_t *runs, const char *path) {
    sh_writer writer;
    SH_TRY(sh_writer_open_through(&writer, path));
    sh_status status = write_page(runs, &writer);
    if (status == SH_OK) return sh_writer_commit(&writer);
    sh_writer_abandon(&writer);
    return status;
}
