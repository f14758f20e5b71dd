/* The files of page/ and Chart.js (MIT licence, its notice stands at its top), taken into the
 * program by the assembler as texts that end in a zero byte. The build defines where they lie. */
#include <stddef.h>
#include <string.h>

#include "obs/report.h"

/* Puts a file's bytes and a zero into the program's read-only data, under a hidden symbol. */
#define TAKE(symbol, path)                                   \
    __asm__(".pushsection .rodata\n" #symbol                 \
            ":\n"                                            \
            ".incbin \"" path "\"\n.byte 0\n.popsection\n"); \
    extern const char symbol[] __attribute__((visibility("hidden")))

TAKE(sh_page_html, SHOAL_PAGE "/report.html");
TAKE(sh_page_css, SHOAL_PAGE "/report.css");
TAKE(sh_page_js, SHOAL_PAGE "/report.js");
TAKE(sh_page_chart_js, SHOAL_CHART_JS);

/* The text lives as long as the program. */
const char *sh_page_file(const char *name) {
    static const struct {
        const char *name, *text;
    } files[] = {
        {"report.html", sh_page_html},
        {"report.css", sh_page_css},
        {"report.js", sh_page_js},
        {"chart.js", sh_page_chart_js},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(files[i].name, name) == 0) return files[i].text;
    return NULL;
}
