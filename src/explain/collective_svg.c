/* A collective as a picture. Time runs downwards: a row holds the buffers of all ranks, block
 * beside block, after a step; an arrow leads from the blocks that a rank sends to where they arrive
 * in the next row. The colour of a block says how much of the result it holds. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "explain/collective.h"
#include "explain/play.h"
#include "explain/units.h"

enum {
    MARGIN = 20,     // pixels around the picture, as all sizes here
    LABEL = 96,      // room for "step 12, reduce"
    HEAD = 84,       // title and the ranks' names
    FOOT = 44,       // legend
    CELL = 26,       // height of a block
    FLIGHT = 52,     // height of the arrows
    APART = 22,      // between ranks
    SOURCE = 20,     // height of what an all-to-all sends, below what it received
    LETTER = 7,      // width of a digit
    CELL_TEXT = 48,  // bytes of a block's label
};

/* The picture under way; `play` is the state after the rows drawn so far. */
typedef struct drawing {
    const sh_shown *shown;
    sh_play play;
    FILE *file;
    int cell, column;  // width in pixels of a block, and of all blocks of a rank
    int width, height;
} drawing;

/* Arrow colours, also in the legend. */
static const char *const REDUCE_COLOUR = "#d9480f";
static const char *const COPY_COLOUR = "#1971c2";

/* Left edge in pixels of a block. */
static int left_of(const drawing *d, int rank, int block) {
    return MARGIN + LABEL + rank * (d->column + APART) + block * d->cell;
}
/* Extra height of a row: an all-to-all also shows the blocks that it has yet to send. */
static int source_of(const drawing *d) {
    return d->play.algorithm->does == SH_ALLTOALL ? SOURCE : 0;
}
/* Top edge in pixels of the buffers after `row` steps. */
static int top_of(const drawing *d, int row) { return HEAD + row * (CELL + source_of(d) + FLIGHT); }
/* Bottom edge of that row, where the arrows leave. */
static int bottom_of(const drawing *d, int row) { return top_of(d, row) + CELL + source_of(d); }

static bool counts(const sh_play *play) {  // blocks fill rank by rank
    sh_collective does = play->algorithm->does;
    return does == SH_ALLREDUCE || does == SH_REDUCE_SCATTER || does == SH_BARRIER;
}

/* Writes up to three values of a block; " .." stands for the rest. */
static void values_text(const sh_play *play, const double *x, int rank, int block,
                        char text_out[CELL_TEXT]) {
    sh_range range = sh_block_range(play->elements, play->blocks, block);
    text_out[0] = '\0';
    for (size_t i = 0; i < range.count && i < 3; i++) {
        size_t length = strlen(text_out);
        sh_snprintf(text_out + length, CELL_TEXT - length, "%s%.4g", i > 0 ? " " : "",
                    x[(size_t)rank * play->elements + range.first + i]);
    }
    if (range.count > 3) strcat(text_out, " ..");
}

/* Writes the label of a block: its values if there are any, else how many ranks are in its sum,
 * else its number. */
static void cell_text(const sh_play *play, int rank, int block, char text_out[CELL_TEXT]) {
    uint64_t has = sh_play_has(play, rank, block);
    text_out[0] = '\0';
    if (play->elements > 0 && (has != 0 || play->algorithm->does == SH_BROADCAST))
        values_text(play, play->now, rank, block, text_out);
    else if (counts(play))
        snprintf(text_out, CELL_TEXT, "%d/%d", __builtin_popcountll(has), play->topology.ranks);
    else if (has != 0)
        snprintf(text_out, CELL_TEXT, "%d", block);
}

/* Colour of a block: darker with a larger share of the ranks in it, green when complete. */
static const char *cell_colour(const sh_play *play, int rank, int block) {
    static const char *const shades[] = {"#e7f5ff", "#d0ebff", "#a5d8ff", "#74c0fc"};
    uint64_t has = sh_play_has(play, rank, block);
    if (sh_play_is_final(play, rank, block)) return "#b2f2bb";
    if (has == 0) return "#f8f9fa";
    // 1..ranks contributions to shades 0..3.
    return shades[(__builtin_popcountll(has) * 4 - 1) / play->topology.ranks];
}

/* Draws one block of one rank, coloured by how complete it is. */
static void draw_cell(const drawing *d, int rank, int block) {
    char text[CELL_TEXT];
    int x = left_of(d, rank, block), y = top_of(d, d->play.step);
    cell_text(&d->play, rank, block, text);
    fprintf(d->file,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" "
            "stroke=\"#adb5bd\"/>\n",
            x, y, d->cell, CELL, cell_colour(&d->play, rank, block));
    if (text[0] != '\0')
        fprintf(d->file, "<text class=\"cell\" x=\"%d\" y=\"%d\">%s</text>\n", x + d->cell / 2,
                y + CELL / 2 + 4, text);
}

/* Draws a block that an all-to-all has yet to send, dashed below the buffers: these blocks do not
 * change. */
static void draw_source(const drawing *d, int rank, int block) {
    char text[CELL_TEXT];
    int x = left_of(d, rank, block), y = top_of(d, d->play.step) + CELL;
    snprintf(text, sizeof text, "%d", block);
    if (d->play.elements > 0) values_text(&d->play, d->play.before, rank, block, text);
    fprintf(d->file,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#ffffff\" "
            "stroke=\"#ced4da\" stroke-dasharray=\"3 2\"/>\n"
            "<text class=\"cell\" fill=\"#868e96\" x=\"%d\" y=\"%d\">%s</text>\n",
            x, y, d->cell, SOURCE, x + d->cell / 2, y + SOURCE / 2 + 4, text);
}

/* Draws all blocks first, then frames around those that arrived in this step; otherwise a later
 * block would cover its neighbour's frame. */
static void draw_row(const drawing *d) {
    const sh_play *play = &d->play;
    int cells = play->topology.ranks * play->blocks;
    for (int i = 0; i < cells; i++) {
        draw_cell(d, i / play->blocks, i % play->blocks);
        if (source_of(d) > 0 && play->step < play->steps)
            draw_source(d, i / play->blocks, i % play->blocks);
    }
    for (int i = 0; i < cells; i++)
        if (play->fresh[i])
            fprintf(d->file,
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
                    "stroke=\"#212529\"/>\n",
                    left_of(d, i / play->blocks, i % play->blocks), top_of(d, play->step), d->cell,
                    CELL);
}

/* Marks a message of several blocks by a bar along the edge where the arrow leaves or lands. */
static void draw_bar(const drawing *d, int rank, const sh_move *move, int y, const char *colour) {
    if (move->count < 2) return;
    fprintf(d->file, "<path d=\"M%d %dh%d\" stroke=\"%s\" stroke-width=\"3\"/>\n",
            left_of(d, rank, move->first) + 2, y, move->count * d->cell - 4, colour);
}

/* Horizontal end of an arrow: the middle of the blocks it carries. A message without blocks (a
 * barrier's signal) takes the whole rank. */
static int middle_of(const drawing *d, int rank, const sh_move *move) {
    int count = move->count > 0 ? move->count : d->play.blocks;
    return left_of(d, rank, move->first) + count * d->cell / 2;
}

/* Draws a message as a Bezier curve that leaves and lands vertically, so that crossing arrows stay
 * apart. The colour is the receiver's action: reduce or copy. */
static void draw_arrow(const drawing *d, int rank, int step) {
    const sh_play *play = &d->play;
    sh_move send = play->algorithm->step(&play->topology, rank, step).send;
    if (send.peer < 0) return;
    sh_moves theirs = play->algorithm->step(&play->topology, send.peer, step);
    bool reduces = theirs.then == SH_THEN_REDUCE;
    const char *colour = reduces ? REDUCE_COLOUR : COPY_COLOUR;
    int x0 = middle_of(d, rank, &send), y0 = bottom_of(d, step);
    int x1 = middle_of(d, send.peer, &theirs.receive), y1 = top_of(d, step + 1);
    draw_bar(d, rank, &send, y0 + 2, colour);
    draw_bar(d, send.peer, &theirs.receive, y1 - 2, colour);
    fprintf(d->file,
            "<path d=\"M%d %dC%d %d %d %d %d %d\" stroke=\"%s\" marker-end=\"url(#%s)\"/>\n", x0,
            y0 + 3, x0, y0 + FLIGHT / 2, x1, y1 - FLIGHT / 2, x1, y1 - 5, colour,
            reduces ? "reduce" : "copy");
}

/* Draws the label and the arrows of one step, between two rows of buffers. */
static void draw_step(drawing *d) {
    int step = d->play.step, ranks = d->shown->topology.ranks;
    // What the step's label says.
    bool reduces = false, signals = d->play.algorithm->does == SH_BARRIER;
    for (int r = 0; r < ranks; r++) {
        sh_moves moves = d->play.algorithm->step(&d->play.topology, r, step);
        reduces = reduces || (moves.receive.peer >= 0 && moves.then == SH_THEN_REDUCE);
    }
    fprintf(d->file, "<text class=\"step\" x=\"%d\" y=\"%d\">step %d</text>\n", MARGIN,
            bottom_of(d, step) + FLIGHT / 2 - 4, step + 1);
    fprintf(d->file, "<text class=\"note\" x=\"%d\" y=\"%d\">%s</text>\n", MARGIN,
            bottom_of(d, step) + FLIGHT / 2 + 11,
            signals   ? "signal"
            : reduces ? "reduce"
                      : "copy");
    fprintf(d->file, "<g fill=\"none\" stroke-width=\"1.5\">\n");
    for (int r = 0; r < ranks; r++) draw_arrow(d, r, step);
    fprintf(d->file, "</g>\n");
}

/* Draws the title, and above each column its rank; nodes only where they differ. */
static void draw_head(const drawing *d) {
    const sh_shown *shown = d->shown;
    const sh_algorithm *algorithm = shown->algorithm;
    const sh_places *places = shown->topology.places;
    fprintf(d->file, "<text class=\"title\" x=\"%d\" y=\"30\">%s by %s, %d rank%s</text>\n", MARGIN,
            sh_collective_name(algorithm->does), algorithm->name, shown->topology.ranks,
            shown->topology.ranks == 1 ? "" : "s");
    bool mixed = places != NULL && places->nodes > 1 && places->nodes < shown->topology.ranks;
    for (int r = 0; r < shown->topology.ranks; r++) {
        char name[SH_RANK_TEXT];
        int x = left_of(d, r, 0) + d->column / 2;
        fprintf(d->file, "<text class=\"rank\" x=\"%d\" y=\"%d\">%s%s</text>\n", x, HEAD - 22,
                shown->values != NULL ? "" : "rank ", sh_shown_rank(shown, r, name));
        if (mixed)
            fprintf(d->file, "<text class=\"node\" x=\"%d\" y=\"%d\">node %d</text>\n", x, HEAD - 8,
                    places->node[r]);
    }
}

/* Draws the legend with only those entries that occur in this picture. */
static void draw_legend(const drawing *d) {
    bool grows = counts(&d->play), swaps = source_of(d) > 0;
    const struct {
        bool shown;
        int height;
        const char *colour, *words;
    } entries[] = {
        {grows && d->play.algorithm->does != SH_BARRIER, 3, REDUCE_COLOUR, "sent and reduced"},
        {true, 3, COPY_COLOUR, "sent and copied"},
        {grows, 12, "#a5d8ff", "partly there"},
        {true, 12, "#b2f2bb", "complete"},
        {swaps, 1, "#868e96", "dashed: what is sent"},
    };
    int y = d->height - 16, x = MARGIN;
    for (size_t i = 0; i < SH_COUNT(entries); i++) {
        if (!entries[i].shown) continue;
        fprintf(d->file,
                "<rect x=\"%d\" y=\"%d\" width=\"16\" height=\"%d\" fill=\"%s\"/>"
                "<text class=\"note\" x=\"%d\" y=\"%d\">%s</text>\n",
                x, y - 4 - entries[i].height / 2, entries[i].height, entries[i].colour, x + 22, y,
                entries[i].words);
        // SVG has no text measure, so the width is estimated by a digit's.
        x += 34 + (int)strlen(entries[i].words) * LETTER;
    }
}

/* Opens the SVG document: fonts and colours as a style sheet, arrow heads as markers. */
static void open_document(const drawing *d) {
    fprintf(d->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" role=\"img\" font-family=\"sans-serif\">\n",
            d->width, d->height, d->width, d->height);
    fprintf(d->file, "<title>%s by %s</title>\n", sh_collective_name(d->shown->algorithm->does),
            d->shown->algorithm->name);
    fprintf(d->file,
            "<style>.cell,.rank,.node{text-anchor:middle}.cell{font-size:12px}"
            ".title{font-size:16px;font-weight:bold}.rank{font-size:14px;font-weight:bold}"
            ".step{font-size:13px;font-weight:bold}.note,.node{font-size:12px;fill:#495057}"
            "</style>\n<defs>\n");
    static const char *const names[] = {"reduce", "copy"};
    const char *const colours[] = {REDUCE_COLOUR, COPY_COLOUR};
    for (int i = 0; i < 2; i++)
        fprintf(d->file,
                "<marker id=\"%s\" viewBox=\"0 0 8 8\" refX=\"4\" refY=\"4\" markerWidth=\"7\" "
                "markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">"
                "<path d=\"M0 0L8 4L0 8z\" fill=\"%s\"/></marker>\n",
                names[i], colours[i]);
    fprintf(d->file, "</defs>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", d->width,
            d->height);
}

/* Finds the picture's size. Plays the schedule once to find the longest label, so that all blocks
 * are equally wide; then resets the play for drawing. */
static sh_status measure(drawing *d) {
    const sh_shown *shown = d->shown;
    sh_play *play = &d->play;
    SH_TRY(sh_play_init(play, shown->algorithm, &shown->topology, shown->values));
    int longest = 2;  // characters of a label
    do {
        for (int i = 0; i < shown->topology.ranks * play->blocks; i++) {
            char text[CELL_TEXT];
            cell_text(play, i / play->blocks, i % play->blocks, text);
            if ((int)strlen(text) > longest) longest = (int)strlen(text);
        }
    } while (sh_play_next(play));
    d->cell = longest * LETTER + 12;
    // A rank's column must have room for its name.
    if (d->cell * play->blocks < 60) d->cell = 60 / play->blocks;
    d->column = d->cell * play->blocks;
    d->width = left_of(d, shown->topology.ranks, 0) - APART + MARGIN;
    if (d->width < 480) d->width = 480;
    d->height = top_of(d, play->steps) + CELL + FOOT;
    sh_play_fini(play);
    return sh_play_init(play, shown->algorithm, &shown->topology, shown->values);
}

/* Refuses a picture that would be too large to read, before any memory is taken for it. */
static sh_status check_size(const sh_shown *shown) {
    const sh_algorithm *algorithm = shown->algorithm;
    if (algorithm->native)
        return SH_FAIL(SH_E_USAGE, "the steps of '%s' are the library's own: nothing to draw",
                       algorithm->name);
    int ranks = shown->topology.ranks, steps = algorithm->steps(&shown->topology);
    int blocks = algorithm->blocks(&shown->topology);
    if (ranks <= SH_VALUES_RANKS && steps <= SH_SHOWN_STEPS && ranks * blocks <= SH_SHOWN_CELLS)
        return SH_OK;
    SH_FAIL(SH_E_USAGE,
            "%d ranks with %d blocks in %d steps are too much for a picture (at most %d ranks, %d "
            "blocks in all, %d steps)",
            ranks, blocks, steps, SH_VALUES_RANKS, SH_SHOWN_CELLS, SH_SHOWN_STEPS);
    return sh_error_hint("draw fewer ranks, such as -n 8");
}

/* Draws rows of buffers from top to bottom with the arrows of a step between them. */
sh_status sh_collective_svg(const sh_shown *shown, FILE *file) {
    SH_TRY(check_size(shown));
    drawing d = {.shown = shown, .file = file};
    SH_TRY(measure(&d));
    open_document(&d);
    draw_head(&d);
    draw_row(&d);
    for (int s = 0; s < d.play.steps; s++) {
        draw_step(&d);
        sh_play_next(&d.play);
        draw_row(&d);
    }
    draw_legend(&d);
    fprintf(file, "</svg>\n");
    sh_play_fini(&d.play);
    return SH_OK;
}
