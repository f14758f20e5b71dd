/* The text of a progress line: parts with a weight, of which the heaviest that fit are shown. Where
 * room is short, words are shortened before a number is left out: on 80 columns epoch, step, loss,
 * accuracy, speed and the time left stand side by side. */
#include "obs/progress.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

enum { PART_BYTES = 48, PARTS_MAX = 8 };

typedef struct line_part {
    char text[PART_BYTES];
    char brief[PART_BYTES];  // the same in fewer words; "": there is no such form
    int weight;              // the heaviest stay longest when room is short
    bool shown;
} line_part;

typedef struct part_list {
    line_part parts[PARTS_MAX];
    int count;
} part_list;

void sh_progress_format_time(double seconds, char text_out[24]) {
    if (!(seconds >= 0)) seconds = 0;
    if (seconds > 999 * 86400.0) seconds = 999 * 86400.0;
    int64_t total = (int64_t)(seconds + 0.5);
    int days = (int)(total / 86400), hours = (int)(total / 3600 % 24);
    int minutes = (int)(total / 60 % 60), rest = (int)(total % 60);
    if (days > 0)
        snprintf(text_out, 24, "%dd %02dh", days, hours);
    else if (hours > 0)
        snprintf(text_out, 24, "%d:%02d:%02d", hours, minutes, rest);
    else
        snprintf(text_out, 24, "%d:%02d", minutes, rest);
}

/* Appends an empty part; text stays the caller's to fill. */
static line_part *new_part(part_list *list, int weight) {
    SH_ASSERT(list->count < PARTS_MAX);
    line_part *part = &list->parts[list->count++];
    *part = (line_part){.weight = weight};
    return part;
}

static char *add_part(part_list *list, int weight) { return new_part(list, weight)->text; }

static void add_count(part_list *list, int weight, const char *name, int64_t at, int64_t of) {
    if (at <= 0) return;
    char *text = add_part(list, weight);
    if (of > 0)
        snprintf(text, PART_BYTES, "%s %" PRId64 "/%" PRId64, name, at, of);
    else
        snprintf(text, PART_BYTES, "%s %" PRId64, name, at);
}

/* Four decimals, or an exponent where those would show nothing. */
static void add_loss(part_list *list, int weight, const char *name, double value) {
    if (isnan(value)) return;
    bool plain = value == 0 || (fabs(value) >= 1e-3 && fabs(value) < 1e4);
    sh_snprintf(add_part(list, weight), PART_BYTES, plain ? "%s %.4f" : "%s %.3e", name, value);
}

static void add_accuracy(part_list *list, int weight, double accuracy) {
    if (isnan(accuracy)) return;
    line_part *part = new_part(list, weight);
    sh_snprintf(part->text, PART_BYTES, "accuracy %.2f %%", 100 * accuracy);
    sh_snprintf(part->brief, PART_BYTES, "acc %.2f%%", 100 * accuracy);
}

/* A speed of 0 is left out: it has not been measured yet. */
static void add_rate(part_list *list, int weight, double samples_per_s) {
    if (!isfinite(samples_per_s) || samples_per_s <= 0) return;
    line_part *part = new_part(list, weight);
    int digits = samples_per_s < 99.5 ? 1 : 0;
    sh_snprintf(part->text, PART_BYTES, "%.*f samples/s", digits, samples_per_s);
    sh_snprintf(part->brief, PART_BYTES, "%.*f/s", digits, samples_per_s);
}

static void add_time(part_list *list, int weight, const char *format, double seconds) {
    if (!isfinite(seconds)) return;
    char text[24];
    sh_progress_format_time(seconds, text);
    snprintf(add_part(list, weight), PART_BYTES, "%s%s", format, text);
}

/* The order is that on the screen, the weight that of importance. */
static void collect(const sh_progress_line *line, part_list *list) {
    add_count(list, 6, "epoch", line->point.epoch, line->epochs);
    add_count(list, 7, "step", line->point.step, line->steps);
    add_loss(list, 8, "loss", line->point.loss);
    add_loss(list, 2, "test loss", line->point.test_loss);
    add_accuracy(list, 5, line->point.accuracy);
    add_rate(list, 3, line->samples_per_s);
    add_time(list, 4, "ETA ", line->left_s);
    add_time(list, 1, "in ", line->passed_s);
}

static const char *shortest(const line_part *part) {
    return part->brief[0] != '\0' ? part->brief : part->text;
}

/* Marks parts from the heaviest down while their shortest forms fit, with two blanks between them.
 * Returns the columns that this takes. */
static int choose(part_list *list, int columns) {
    int used = 0;
    for (int weight = PARTS_MAX; weight > 0; weight--)
        for (int i = 0; i < list->count; i++) {
            line_part *part = &list->parts[i];
            if (part->weight != weight) continue;
            int more = (int)strlen(shortest(part)) + (used > 0 ? 2 : 0);
            part->shown = used + more <= columns;
            if (part->shown) used += more;
        }
    return used;
}

/* Drops the brief forms that need not be; the last part first, as a speed needs its unit more than
 * accuracy its name in full. */
static void lengthen(part_list *list, int columns, int used) {
    for (int i = list->count - 1; i >= 0; i--) {
        line_part *part = &list->parts[i];
        int more = (int)strlen(part->text) - (int)strlen(shortest(part));
        if (!part->shown || used + more > columns) continue;
        part->brief[0] = '\0';
        used += more;
    }
}

void sh_progress_format(const sh_progress_line *line, int columns, char *text_out) {
    part_list list = {.count = 0};
    size_t length = 0;
    text_out[0] = '\0';
    if (line->label != NULL && columns > 0) {  // it stays, whatever else has room
        sh_escape(text_out, (size_t)columns + 1, line->label, false);
        length = strlen(text_out);
    }
    collect(line, &list);
    int room = columns - (int)length - (length > 0 ? 2 : 0);
    lengthen(&list, room, choose(&list, room));
    for (int i = 0; i < list.count; i++) {
        if (!list.parts[i].shown) continue;
        if (length > 0) length += (size_t)sprintf(text_out + length, "  ");
        length += (size_t)sprintf(text_out + length, "%s", shortest(&list.parts[i]));
    }
}
