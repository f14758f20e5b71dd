/* Line charts as SVG text. Axes end on round numbers (1, 2 or 5 times a power of ten); lines
 * differ by colour and dash, so that they can be told apart in print; styles follow a light or a
 * dark page. */
#include "obs/plot.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

enum {
    LEFT = 64,       // the frame's distance from the edge: room for the numbers
    TOP = 48,        // title
    BOTTOM = 56,     // numbers and name of the axis
    WIDE = 520,      // of the frame
    HIGH = 300,      //
    GAP = 20,        // between frame and legend
    SAMPLE = 34,     // the piece of a line in the legend
    LETTER = 7,      // width of a letter, about
    ROW = 20,        // of the legend
    COLOURS = 8,     // classes c0 .. c7
    TICKS_MOST = 7,  // steps between numbers at an axis
};

/* The range of an axis. A bound of NaN: no value was seen yet. */
typedef struct span {
    double low, high, step;
    double unit;         // what a shown 1 is
    const char *suffix;  // of the axis: " (s)"
} span;

/* The picture under way. */
typedef struct drawing {
    const sh_plot *plot;
    FILE *file;
    span x, y;
    int width, height;
} drawing;

/* The power of ten just below, times the first factor that leaves at most `most` steps. */
double sh_plot_step(double low, double high, int most) {
    double step = pow(10, floor(log10((high - low) / most)));
    static const double factors[] = {1, 2, 5, 10};
    for (size_t i = 0; i < SH_COUNT(factors); i++)
        if ((high - low) / (step * factors[i]) <= most) return step * factors[i];
    return step * 10;
}

/* ---- scales ---- */

/* Tells whether a value can be drawn; sizes beyond 1e100 count as not finite. */
static bool is_number(double value) { return fabs(value) < 1e100; }

/* Tells whether both coordinates can be drawn. */
static bool is_point(const sh_plot_point *point) {
    return is_number(point->x) && is_number(point->y);
}

/* Extends a range to a value; the negated comparisons also replace NaN. */
static void widen(span *scale, double value) {
    if (!is_number(value)) return;
    if (!(scale->low <= value)) scale->low = value;
    if (!(scale->high >= value)) scale->high = value;
}

/* Chooses the unit of an axis by its largest value. */
static span in_unit(span scale, sh_plot_unit unit) {
    scale.unit = 1;
    scale.suffix = "";
    if (unit == SH_PLOT_PERCENT) {
        scale.unit = 0.01;
        scale.suffix = " (%)";
    }
    if (unit != SH_PLOT_SECONDS) return scale;
    static const struct {
        double above, unit;
        const char *suffix;
    } units[] = {
        {2 * 3600, 3600, " (h)"}, {120, 60, " (min)"}, {0.5, 1, " (s)"}, {0, 1e-3, " (ms)"}};
    size_t i = 0;
    while (i + 1 < SH_COUNT(units) && !(scale.high > units[i].above)) i++;
    scale.unit = units[i].unit;
    scale.suffix = units[i].suffix;
    return scale;
}

/* Ends a range on round numbers (if `to_step`), in the shown unit. */
static span rounded(span scale, bool to_step) {
    if (isnan(scale.low)) scale.low = 0, scale.high = 1;  // nothing to show
    double size = fmax(fabs(scale.low), fabs(scale.high));
    if (!(scale.high - scale.low > fmax(1e-9 * size, 1e-90)))  // one number needs room, too
        scale.high = scale.low + (size > 1e-80 ? 0.1 * size : 1);
    scale.step = sh_plot_step(scale.low / scale.unit, scale.high / scale.unit, TICKS_MOST);
    scale.step *= scale.unit;
    if (!to_step) return scale;
    scale.low = floor(scale.low / scale.step + 1e-9) * scale.step;
    scale.high = ceil(scale.high / scale.step - 1e-9) * scale.step;
    return scale;
}

/* Finds the ranges of both axes over all lines, and the picture's size. */
static void measure(drawing *d) {
    const sh_plot *plot = d->plot;
    span x = {.low = 0, .high = NAN}, y = {.low = NAN, .high = NAN};
    size_t longest = plot->mark_name != NULL ? strlen(plot->mark_name) : 0;
    for (size_t i = 0; i < plot->line_count; i++) {
        const sh_plot_line *line = &plot->lines[i];
        if (strlen(line->name) > longest) longest = strlen(line->name);
        for (size_t k = 0; k < line->count; k++) {
            if (!is_point(&line->points[k])) continue;
            widen(&x, line->points[k].x);
            widen(&y, line->points[k].y);
        }
    }
    if (isnan(x.high)) x.low = NAN;
    widen(&y, plot->mark);
    d->x = rounded(in_unit(x, plot->x.unit), false);
    d->y = rounded(in_unit(y, plot->y.unit), true);
    d->width = LEFT + WIDE + GAP + SAMPLE + 8 + (int)longest * LETTER + 12;
    int rows = (int)plot->line_count + (is_number(plot->mark) ? 1 : 0);
    d->height = TOP + (rows * ROW > HIGH ? rows * ROW : HIGH) + BOTTOM;
}

/* The picture's x of a value. */
static double across(const drawing *d, double x) {
    return LEFT + WIDE * (x - d->x.low) / (d->x.high - d->x.low);
}

/* The picture's y of a value; it grows downward. */
static double down(const drawing *d, double y) {
    return TOP + HIGH * (d->y.high - y) / (d->y.high - d->y.low);
}

/* ---- the picture ---- */

/* Writes text as XML, which takes neither control characters nor bytes that are not UTF-8. */
static void put_text(FILE *file, const char *text) {
    char shown[SH_ESCAPED];
    for (const char *at = sh_escaped(text, shown); *at != '\0'; at++) {
        if (*at == '&')
            fputs("&amp;", file);
        else if (*at == '<')
            fputs("&lt;", file);
        else if (*at == '>')
            fputs("&gt;", file);
        else
            fputc(*at, file);
    }
}

/* Colours of the same names for a light page and, brighter, for a dark one. */
static void put_style(FILE *file) {
    static const char *const light[COLOURS] = {"#1971c2", "#d9480f", "#2f9e44", "#9c36b5",
                                               "#c92a2a", "#0b7285", "#b08000", "#495057"};
    static const char *const dark[COLOURS] = {"#4dabf7", "#ff922b", "#69db7c", "#da77f2",
                                              "#ff8787", "#3bc9db", "#ffd43b", "#ced4da"};
    fputs(
        "<style>text{font-size:12px;fill:#212529}.title{font-size:15px;font-weight:bold}"
        ".number{fill:#495057}.page{fill:#ffffff}.grid{stroke:#e9ecef}.frame{stroke:#868e96}"
        ".mark{stroke:#495057}",
        file);
    for (int i = 0; i < COLOURS; i++) fprintf(file, ".c%d{stroke:%s}", i, light[i]);
    fputs(
        "@media(prefers-color-scheme:dark){text{fill:#e9ecef}.number{fill:#adb5bd}"
        ".page{fill:#161b22}.grid{stroke:#2d333b}.frame{stroke:#868e96}.mark{stroke:#ced4da}",
        file);
    for (int i = 0; i < COLOURS; i++) fprintf(file, ".c%d{stroke:%s}", i, dark[i]);
    fputs("}</style>\n", file);
}

/* Writes the head of the document: size, style, background, title. */
static void open_document(const drawing *d) {
    fprintf(d->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" role=\"img\" font-family=\"sans-serif\">\n<title>",
            d->width, d->height, d->width, d->height);
    put_text(d->file, d->plot->title);
    fputs("</title>\n", d->file);
    put_style(d->file);
    fprintf(d->file, "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n", d->width, d->height);
    fprintf(d->file, "<text class=\"title\" x=\"%d\" y=\"28\">", LEFT);
    put_text(d->file, d->plot->title);
    fputs("</text>\n", d->file);
}

/* Writes a number at an axis with as many digits as tell neighbours apart. */
static void put_number(const drawing *d, const span *scale, double value) {
    double step = scale->step / scale->unit;
    int digits = step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    double shown = round(value / scale->step) * step;
    if (step >= 1e6 || digits > 6)
        sh_fprintf(d->file, "%.3g", shown);
    else
        sh_fprintf(d->file, "%.*f", digits, shown == 0 ? 0.0 : shown);
}

/* Draws grid lines and their numbers. */
static void draw_ticks(const drawing *d) {
    for (int i = 0; i <= TICKS_MOST + 1; i++) {
        double x = (ceil(d->x.low / d->x.step - 1e-9) + i) * d->x.step;
        if (x > d->x.high + 1e-9 * d->x.step) break;
        sh_fprintf(d->file, "<path class=\"grid\" d=\"M%.1f %dv%d\"/>", across(d, x), TOP, HIGH);
        sh_fprintf(d->file, "<text class=\"number\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">",
                   across(d, x), TOP + HIGH + 18);
        put_number(d, &d->x, x);
        fputs("</text>\n", d->file);
    }
    for (int i = 0; i <= TICKS_MOST + 1; i++) {
        double y = d->y.low + i * d->y.step;
        if (y > d->y.high + 1e-9 * d->y.step) break;
        sh_fprintf(d->file, "<path class=\"grid\" d=\"M%d %.1fh%d\"/>", LEFT, down(d, y), WIDE);
        sh_fprintf(d->file, "<text class=\"number\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">",
                   LEFT - 8, down(d, y) + 4);
        put_number(d, &d->y, y);
        fputs("</text>\n", d->file);
    }
}

/* Draws the frame, the ticks and the names of both axes. */
static void draw_axes(const drawing *d) {
    draw_ticks(d);
    fprintf(d->file, "<path class=\"frame\" fill=\"none\" d=\"M%d %dv%dh%d\"/>\n", LEFT, TOP, HIGH,
            WIDE);
    fprintf(d->file, "<text text-anchor=\"middle\" x=\"%d\" y=\"%d\">", LEFT + WIDE / 2,
            TOP + HIGH + 40);
    put_text(d->file, d->plot->x.name);
    fprintf(d->file, "%s</text>\n", d->x.suffix);
    int middle = TOP + HIGH / 2;
    fprintf(d->file, "<text text-anchor=\"middle\" transform=\"translate(18 %d) rotate(-90)\">",
            middle);
    put_text(d->file, d->plot->y.name);
    fprintf(d->file, "%s</text>\n", d->y.suffix);
}

/* Colours come again after eight lines, dashes after five: forty lines differ. */
static void open_path(const drawing *d, size_t index) {
    static const char *const dashes[] = {"", "8 3", "2 3", "10 3 2 3", "5 2"};
    const char *dash = dashes[index % SH_COUNT(dashes)];
    fprintf(d->file,
            "<path class=\"c%zu\" fill=\"none\" stroke-width=\"2\" stroke-linejoin=\"round\"",
            index % COLOURS);
    if (*dash != '\0') fprintf(d->file, " stroke-dasharray=\"%s\"", dash);
    fputs(" d=\"", d->file);
}

/* Draws one line; a point that is not finite interrupts it, and a point without neighbours becomes
 * a cross. */
static void draw_line(const drawing *d, size_t index) {
    const sh_plot_line *line = &d->plot->lines[index];
    bool joined = false, alone = true;
    open_path(d, index);
    fputs("M0 0", d->file);  // a path must begin with one, also where there is nothing to show
    for (size_t k = 0; k < line->count; k++) {
        const sh_plot_point *point = &line->points[k];
        if (!is_point(point)) {
            joined = false;
            continue;
        }
        bool next = k + 1 < line->count && is_point(&line->points[k + 1]);
        alone = !joined && !next;
        sh_fprintf(d->file, "%s%.1f %.1f%s", joined ? "L" : "M", across(d, point->x),
                   down(d, point->y), alone ? "m-3 0h6m-3 -3v6" : "");
        joined = true;
    }
    fputs("\"><title>", d->file);
    put_text(d->file, line->name);
    fputs("</title></path>\n", d->file);
}

/* Draws the dotted line of a goal. */
static void draw_mark(const drawing *d) {
    if (!is_number(d->plot->mark)) return;
    sh_fprintf(d->file, "<path class=\"mark\" stroke-dasharray=\"1 4\" d=\"M%d %.1fh%d\"/>\n", LEFT,
               down(d, d->plot->mark), WIDE);
}

/* One name beside its piece of line. */
static void legend_text(const drawing *d, int y, const char *name) {
    fprintf(d->file, "<text x=\"%d\" y=\"%d\">", LEFT + WIDE + GAP + SAMPLE + 8, y + 4);
    put_text(d->file, name);
    fputs("</text>\n", d->file);
}

/* Draws the legend at the right, one entry per line. */
static void draw_legend(const drawing *d) {
    int x = LEFT + WIDE + GAP, y = TOP + ROW / 2;
    for (size_t i = 0; i < d->plot->line_count; i++, y += ROW) {
        open_path(d, i);
        fprintf(d->file, "M%d %dh%d\"/>", x, y, SAMPLE);
        legend_text(d, y, d->plot->lines[i].name);
    }
    if (!is_number(d->plot->mark)) return;
    fprintf(d->file, "<path class=\"mark\" stroke-dasharray=\"1 4\" d=\"M%d %dh%d\"/>", x, y,
            SAMPLE);
    legend_text(d, y, d->plot->mark_name != NULL ? d->plot->mark_name : "mark");
}

void sh_plot_svg(const sh_plot *plot, FILE *file) {
    drawing d = {.plot = plot, .file = file};
    measure(&d);
    open_document(&d);
    draw_axes(&d);
    draw_mark(&d);
    for (size_t i = 0; i < plot->line_count; i++) draw_line(&d, i);
    draw_legend(&d);
    fputs("</svg>\n", file);
}
