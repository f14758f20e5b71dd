/* A pipeline schedule as a picture: time runs to the right, a row is a rank, a box is a part of a
 * micro-batch, and what stays empty is idle. */
#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "explain/pipeline.h"

enum {
    MARGIN = 20,        // pixels, as all sizes here
    LABEL = 64,         // room for "rank 12"
    HEAD = 74,          // room for the title
    ROW = 30,           // from rank to rank
    BOX = 24,           // height of a box
    FOOT = 44,          // room for the legend
    BOX_WIDTH = 22,     // of the shortest part
    WIDTH_MOST = 6000,  // of the time axis; wider pictures are scaled down
    DIGIT = 8,          // width of a digit: smaller boxes have no number
};

/* The picture under way. Everything is borrowed. */
typedef struct drawing {
    const sh_pipe_question *question;
    const sh_pipe_answer *answer;
    FILE *file;
    double scale;  // pixels per unit of time
    int width, height;
} drawing;

/* Colour of an action: a hue per kind, darker for later chunks of a rank. */
static const char *colour_of(const sh_pipe_action *action) {
    static const char *const forward[] = {"#a5d8ff", "#4dabf7", "#228be6"};
    static const char *const data[] = {"#ffd8a8", "#ffa94d", "#fd7e14"};
    static const char *const weight[] = {"#b2f2bb", "#69db7c", "#40c057"};
    int shade = action->chunk < 2 ? action->chunk : 2;
    if (action->kind == SH_PIPE_FORWARD) return forward[shade];
    return action->kind == SH_PIPE_BACKWARD_WEIGHT ? weight[shade] : data[shade];
}

/* Draws one part of a micro-batch; its number only where it fits, the rest as a tooltip. */
static void draw_box(const drawing *d, const sh_pipe_event *e) {
    double x = MARGIN + LABEL + e->start_s * d->scale, width = (e->end_s - e->start_s) * d->scale;
    int y = HEAD + e->rank * ROW;
    if (width <= 0) return;  // a part of cost 0 would be a stray line
    sh_fprintf(d->file,
               "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
               "stroke=\"#868e96\" stroke-width=\"0.5\"><title>%s, micro-batch %d, chunk "
               "%d</title></rect>\n",
               x, y, width, BOX, colour_of(&e->action), sh_pipe_kind_name(e->action.kind),
               e->action.micro, e->action.chunk);
    char label[16];
    int length = snprintf(label, sizeof label, "%d", e->action.micro);
    if (width >= DIGIT * length)
        sh_fprintf(d->file, "<text class=\"box\" x=\"%.2f\" y=\"%d\">%s</text>\n", x + width / 2,
                   y + BOX / 2 + 4, label);
}

/* Opens the SVG document and prints the title with makespan and idle share. */
static void draw_head(const drawing *d) {
    const sh_pipe_question *q = d->question;
    char name[SH_PIPE_TEXT], time[SH_UNIT_TEXT];
    sh_pipeline_text(&q->pipeline, name);
    fprintf(d->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" role=\"img\" font-family=\"sans-serif\">\n"
            "<title>pipeline by %s</title>\n"
            "<style>.box{font-size:12px;text-anchor:middle}.title{font-size:16px;"
            "font-weight:bold}.rank{font-size:13px;font-weight:bold}.note{font-size:12px;"
            "fill:#495057}</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
            d->width, d->height, d->width, d->height, name, d->width, d->height);
    fprintf(d->file,
            "<text class=\"title\" x=\"%d\" y=\"28\">%s: %d ranks, %d micro-batches</text>\n",
            MARGIN, name, q->pipeline.ranks, q->pipeline.micros);
    sh_fprintf(d->file, "<text class=\"note\" x=\"%d\" y=\"50\">makespan %s, idle %.1f %%</text>\n",
               MARGIN, sh_pipe_time_text(q, d->answer->makespan_s, time),
               100 * d->answer->idle_share);
}

/* Draws a grey bar per rank over the makespan, then the boxes on top: what remains grey is idle.
 * Messages and updates are not drawn. */
static void draw_rows(const drawing *d) {
    int ranks = d->question->pipeline.ranks;
    for (int r = 0; r < ranks; r++)
        sh_fprintf(d->file,
                   "<text class=\"rank\" x=\"%d\" y=\"%d\">rank %d</text>\n"
                   "<rect x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"#f1f3f5\"/>\n",
                   MARGIN, HEAD + r * ROW + BOX / 2 + 4, r, MARGIN + LABEL, HEAD + r * ROW,
                   d->answer->makespan_s * d->scale, BOX);
    for (size_t i = 0; i < d->answer->event_count; i++)
        // Kinds up to this one compute; the later ones are messages and updates.
        if (d->answer->events[i].action.kind <= SH_PIPE_BACKWARD_WEIGHT)
            draw_box(d, &d->answer->events[i]);
}

/* Draws the legend; the weight part only for schedules that split the backward pass. */
static void draw_legend(const drawing *d) {
    bool splits = d->question->pipeline.schedule->splits;
    const struct {
        const char *colour, *words;
    } entries[] = {{"#a5d8ff", "forward"},
                   {"#ffd8a8", splits ? "backward, data" : "backward"},
                   {"#f1f3f5", "idle"},
                   {"#b2f2bb", "backward, weight"}};
    // The weight part stands last.
    for (size_t i = 0; i < SH_COUNT(entries) - (splits ? 0 : 1); i++)
        fprintf(d->file,
                "<rect x=\"%zu\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\" "
                "stroke=\"#868e96\" stroke-width=\"0.5\"/>"
                "<text class=\"note\" x=\"%zu\" y=\"%d\">%s</text>\n",
                MARGIN + i * 130, d->height - 30, entries[i].colour, MARGIN + i * 130 + 20,
                d->height - 18, entries[i].words);
}

/* Chooses the scale: the shortest part is as wide as its number, unless the whole picture would
 * exceed WIDTH_MOST. Refuses pictures with too many ranks or events. */
static sh_status measure(drawing *d) {
    double shortest_s = INFINITY;
    for (size_t i = 0; i < d->answer->event_count; i++) {
        double length_s = d->answer->events[i].end_s - d->answer->events[i].start_s;
        if (d->answer->events[i].action.kind <= SH_PIPE_BACKWARD_WEIGHT && length_s > 0)
            shortest_s = fmin(shortest_s, length_s);
    }
    int ranks = d->question->pipeline.ranks;
    if (d->answer->events == NULL || ranks > SH_PIPE_SHOWN_RANKS) {
        SH_FAIL(SH_E_USAGE, "%d ranks with %d micro-batches are too much for a picture", ranks,
                d->question->pipeline.micros);
        return sh_error_hint("draw fewer, such as -p 8 -m 16");
    }
    d->scale = fmin(BOX_WIDTH / shortest_s, WIDTH_MOST / d->answer->makespan_s);
    d->width = (int)ceil(d->answer->makespan_s * d->scale) + 2 * MARGIN + LABEL;
    if (d->width < 560) d->width = 560;
    d->height = HEAD + ranks * ROW + FOOT;
    return SH_OK;
}

/* Measures before the first byte is written, so that a refused picture leaves no half document. */
sh_status sh_pipeline_svg(const sh_pipe_question *question, FILE *file) {
    sh_pipe_answer answer;
    drawing d = {.question = question, .answer = &answer, .file = file};
    sh_status status = sh_pipe_answer_init(&answer, question);
    if (status == SH_OK) status = measure(&d);
    if (status == SH_OK) {
        draw_head(&d);
        draw_rows(&d);
        draw_legend(&d);
        fprintf(file, "</svg>\n");
    }
    sh_pipe_answer_fini(&answer);
    return status;
}
