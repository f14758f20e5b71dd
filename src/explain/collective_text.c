/* A collective as tables for people: what it is, each message of each step with the values it
 * carries, the result, the traffic, and the cost taken apart. The schedule is played (play.c) on
 * the user's numbers, so what is printed is what the algorithm computes. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "explain/collective.h"
#include "explain/play.h"
#include "explain/units.h"

enum { TERMS_MOST = 4 };  // values per message that are worked out in its row

/* The user's name of a rank, or its number. The result may be `text_out`. */
const char *sh_shown_rank(const sh_shown *shown, int rank, char text_out[SH_RANK_TEXT]) {
    if (shown->values != NULL) return shown->values->names[rank];
    snprintf(text_out, SH_RANK_TEXT, "%d", rank);
    return text_out;
}

/* Plural ending of a count: "1 rank", "2 ranks". */
static const char *plural(int count) { return count == 1 ? "" : "s"; }

/* ---- Head ------------------------------------------------------------------------------------ */

/* Prints which rank sits on which node, at most 16 nodes of 16 ranks. */
static void print_nodes(const sh_shown *shown, FILE *file) {
    const sh_places *places = shown->topology.places;
    if (places == NULL || places->nodes == 1) {
        fprintf(file, "ranks: all on one node\n");
        return;
    }
    if (places->nodes == shown->topology.ranks) {
        fprintf(file, "ranks: each on a node of its own (--per-node N puts N on each)\n");
        return;
    }
    fprintf(file, "ranks:");
    for (int k = 0; k < places->nodes && k < 16; k++) {
        fprintf(file, "%s node %d:", k > 0 ? "," : "", k);
        for (int i = places->start[k]; i < places->start[k + 1] && i < places->start[k] + 16; i++) {
            char name[SH_RANK_TEXT];
            fprintf(file, " %s", sh_shown_rank(shown, places->member[i], name));
        }
        if (places->start[k + 1] - places->start[k] > 16) fprintf(file, " ..");
    }
    fprintf(file, "%s\n", places->nodes > 16 ? ", .." : "");
}

/* Prints the first lines: collective, algorithm, size, nodes, number of steps. */
static void print_head(const sh_shown *shown, FILE *file) {
    const sh_algorithm *algorithm = shown->algorithm;
    int ranks = shown->topology.ranks;
    char size[SH_UNIT_TEXT], name[SH_RANK_TEXT];
    fprintf(file, "%s by %s, %d rank%s", sh_collective_name(algorithm->does), algorithm->name,
            ranks, plural(ranks));
    if (algorithm->does != SH_BARRIER)
        fprintf(file, ", %zu float32 (%s)", shown->elements,
                sh_bytes_text(sh_shown_bytes(shown), size));
    if (algorithm->does == SH_BROADCAST)
        fprintf(file, ", from rank %s", sh_shown_rank(shown, shown->topology.root, name));
    fprintf(file, "\n%s: %s\n", algorithm->name, algorithm->help);
    if (shown->chosen && sh_rivals(algorithm) > 0)
        fprintf(file, "chosen as the cheapest at this size; --algorithm NAME shows another\n");
    print_nodes(shown, file);
    if (algorithm->native) return;
    int steps = algorithm->steps(&shown->topology), blocks = algorithm->blocks(&shown->topology);
    fprintf(file, "steps: %d", steps);
    if (algorithm->does != SH_BARRIER)
        fprintf(file, "; the buffer is cut into %d block%s", blocks, plural(blocks));
    fputc('\n', file);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Width of the rank columns, so that user-given names line up. */
static int name_width(const sh_shown *shown) {
    int width = 4;
    for (int r = 0; r < shown->topology.ranks; r++) {
        char name[SH_RANK_TEXT];
        int length = (int)strlen(sh_shown_rank(shown, r, name));
        if (length > width) width = length;
    }
    return width;
}

/* Writes the blocks of a message: "0", "2-3", or "-" for none. */
static const char *blocks_text(const sh_move *move, char text_out[SH_UNIT_TEXT]) {
    if (move->count <= 1)
        snprintf(text_out, SH_UNIT_TEXT, move->count == 1 ? "%d" : "-", move->first);
    else
        snprintf(text_out, SH_UNIT_TEXT, "%d-%d", move->first, move->first + move->count - 1);
    return text_out;
}

/* Prints what the receiver holds afterwards: "5 + 17 = 22" for a reduction, the value alone for a
 * copy; at most TERMS_MOST values. */
static void print_work(const sh_play *play, int rank, const sh_moves *moves, FILE *file) {
    const sh_move *receive = &moves->receive;
    sh_range to = sh_stretch_range(play->elements, play->blocks, receive->first, receive->count);
    size_t row = (size_t)rank * play->elements, from = (size_t)receive->peer * play->elements;
    for (size_t i = to.first; i < to.first + to.count; i++) {
        fprintf(file, "%s", i > to.first ? ", " : "  ");
        // Long blocks would make the row unreadable.
        if (i - to.first == TERMS_MOST) {
            fprintf(file, "..");
            return;
        }
        if (moves->then == SH_THEN_REDUCE)
            sh_fprintf(file, "%.10g + %.10g = ", play->before[row + i], play->before[from + i]);
        sh_fprintf(file, "%.10g", play->now[row + i]);
    }
}

/* Name of what the receiver does with a message. */
static const char *then_text(sh_collective does, sh_then then) {
    if (does == SH_BARRIER) return "signal";
    return then == SH_THEN_REDUCE ? "reduce" : "copy";
}

/* Prints one row per message of a step, in the order of the senders. `play` is already past this
 * step; NULL: no numbers to show. */
static void print_step(const sh_shown *shown, const sh_play *play, int step, int width,
                       FILE *file) {
    const sh_algorithm *algorithm = shown->algorithm;
    int blocks = algorithm->blocks(&shown->topology);
    for (int r = 0; r < shown->topology.ranks; r++) {
        sh_move send = algorithm->step(&shown->topology, r, step).send;
        if (send.peer < 0) continue;
        sh_moves theirs = algorithm->step(&shown->topology, send.peer, step);
        sh_range range = sh_stretch_range(shown->elements, blocks, send.first, send.count);
        char from[SH_RANK_TEXT], to[SH_RANK_TEXT], stretch[SH_UNIT_TEXT], size[SH_UNIT_TEXT];
        fprintf(file, "%4d  %*s  %*s  %7s  %9s  %s", step + 1, width, sh_shown_rank(shown, r, from),
                width, sh_shown_rank(shown, send.peer, to), blocks_text(&send, stretch),
                sh_bytes_text((double)range.count * 4, size),
                then_text(algorithm->does, theirs.then));
        if (play != NULL && theirs.then == SH_THEN_COPY) fprintf(file, "  ");
        if (play != NULL && play->elements > 0) print_work(play, send.peer, &theirs, file);
        fputc('\n', file);
    }
}

/* Prints the buffers of all ranks; '*' marks values received in the last step, '.' those not there
 * yet. */
static void print_buffers(const sh_shown *shown, const sh_play *play, int width, FILE *file) {
    for (int r = 0; r < shown->topology.ranks; r++) {
        char name[SH_RANK_TEXT];
        fprintf(file, "      %*s", width, sh_shown_rank(shown, r, name));
        for (int b = 0; b < play->blocks; b++) {
            sh_range range = sh_block_range(play->elements, play->blocks, b);
            size_t at = (size_t)r * play->elements + range.first;
            bool fresh =
                play->step > 0 && play->fresh[(size_t)r * (size_t)play->blocks + (size_t)b];
            for (size_t i = 0; i < range.count; i++) {
                char text[SH_UNIT_TEXT] = ".";
                if (sh_play_shows(play, r, b))
                    sh_snprintf(text, sizeof text, "%s%.6g", fresh ? "*" : "", play->now[at + i]);
                fprintf(file, " %9s", text);
            }
        }
        fputc('\n', file);
    }
}

/* Prints all steps. With values each step has its own table and the buffers behind it; without,
 * one table holds all. */
static sh_status print_steps(const sh_shown *shown, FILE *file) {
    int width = name_width(shown), steps = shown->algorithm->steps(&shown->topology);
    bool plays = shown->values != NULL;
    sh_play play = {0};
    if (plays) SH_TRY(sh_play_init(&play, shown->algorithm, &shown->topology, shown->values));
    if (plays) {
        fprintf(file, "\nat the start\n");
        print_buffers(shown, &play, width, file);
    }
    for (int s = 0; s < steps; s++) {
        if (s == 0 || plays)
            fprintf(file, "\n%s  %*s  %*s  %7s  %9s  %s\n", "step", width, "from", width, "to",
                    "block", "bytes", plays ? "then    the receiver's values" : "then");
        if (plays) sh_play_next(&play);  // the rows show the state after the step
        print_step(shown, plays ? &play : NULL, s, width, file);
        if (plays) {
            fprintf(file, "after step %d (* received)\n", s + 1);
            print_buffers(shown, &play, width, file);
        }
    }
    sh_play_fini(&play);
    return SH_OK;
}

/* ---- Summary --------------------------------------------------------------------------------- */

/* Prints what each rank ends with; one line when all ranks are equal. In a reduce-scatter rank r's
 * result is block r alone. */
static sh_status print_result(const sh_shown *shown, FILE *file) {
    sh_play play;
    SH_TRY(sh_play_init(&play, shown->algorithm, &shown->topology, shown->values));
    while (sh_play_next(&play)) continue;
    bool alike = true, splits = shown->algorithm->does == SH_REDUCE_SCATTER;
    for (size_t i = play.elements; i < (size_t)shown->topology.ranks * play.elements; i++)
        alike = alike && play.now[i] == play.now[i % play.elements];  // every rank against rank 0
    for (int r = 0; r < (alike ? 1 : shown->topology.ranks); r++) {
        char name[SH_RANK_TEXT];
        sh_range range = {0, play.elements};
        if (splits) range = sh_block_range(play.elements, play.blocks, r);
        if (alike)
            fprintf(file, "result    ");
        else
            fprintf(file, "result of %s ", sh_shown_rank(shown, r, name));
        for (size_t i = range.first; i < range.first + range.count; i++)
            sh_fprintf(file, " %.10g", play.now[(size_t)r * play.elements + i]);
        fprintf(file, "%s\n", alike && shown->topology.ranks > 1 ? "  on every rank" : "");
    }
    sh_play_fini(&play);
    return SH_OK;
}

/* Prints messages and bytes, in total and per rank. */
static void print_traffic(const sh_shown *shown, FILE *file) {
    sh_traffic t = sh_traffic_of(shown);
    char all[SH_UNIT_TEXT], least[SH_UNIT_TEXT], most[SH_UNIT_TEXT];
    sh_fprintf(file, "messages   %.0f in all, ", t.messages);
    if (t.least == t.most)
        fprintf(file, "%d sent by each rank\n", t.most);
    else
        fprintf(file, "%d to %d sent by a rank\n", t.least, t.most);
    if (shown->algorithm->does == SH_BARRIER) return;
    fprintf(file, "bytes      %s in all, ", sh_bytes_text(t.bytes, all));
    sh_bytes_text(t.bytes_least, least);
    sh_bytes_text(t.bytes_most, most);
    if (strcmp(least, most) == 0)
        fprintf(file, "%s sent by each rank\n", most);
    else
        fprintf(file, "%s to %s sent by a rank\n", least, most);
}

/* Prints the links that the seconds below assume, and where they were measured. */
static void print_links(const sh_shown *shown, FILE *file) {
    const sh_places *places = shown->topology.places;
    bool between = places != NULL && places->nodes > 1, inside = places == NULL || places->most > 1;
    char text[3 * SH_UNIT_TEXT], rate[SH_UNIT_TEXT];
    fprintf(file, "      on ");
    if (between) fprintf(file, "%s between nodes", sh_link_text(&shown->links.between, text));
    if (inside)
        fprintf(file, "%s%s inside a node", between ? "; " : "",
                sh_link_text(&shown->links.inside, text));
    const sh_link *link = between ? &shown->links.between : &shown->links.inside;
    fprintf(file, "; reduced at %s/s\n", sh_rate_text(1 / link->gamma_s, rate));
    if (shown->measured != NULL) fprintf(file, "      as measured between %s\n", shown->measured);
}

/* Prints one term of the cost; a term that costs nothing is left out. */
static void print_term(const char *name, double times, const char *what, double seconds,
                       FILE *file) {
    char text[SH_UNIT_TEXT];
    if (seconds <= 0) return;
    sh_fprintf(file, "  %-9s %7.4g %-17s %10s\n", name, times, what,
               sh_seconds_text(seconds, text));
}

/* Prints the closed formula, its terms with numbers, and the total. */
static void print_cost(const sh_shown *shown, FILE *file) {
    char text[SH_UNIT_TEXT];
    sh_terms t =
        sh_terms_of(shown->algorithm, &shown->topology, sh_shown_bytes(shown), &shown->links);
    fprintf(file, "\ncost  %s\n", shown->algorithm->formula);
    if (shown->topology.ranks > 1)
        print_links(shown, file);
    else
        fprintf(file, "      one rank has nobody to send to\n");
    print_term("latency", t.messages, t.messages == 1 ? "message" : "messages in a row",
               t.latency_s, file);
    print_term("bandwidth", t.sent, "n bytes", t.bandwidth_s, file);
    print_term("reduction", t.reduced, "n bytes", t.reduction_s, file);
    fprintf(file, "  %-35s %10s\n", "total", sh_seconds_text(t.total_s, text));
    // On mixed topologies one node may wait for latency while another is busy sending.
    if (t.latency_s + t.bandwidth_s + t.reduction_s > t.total_s * 1.001)
        fprintf(file, "  (less than the sum: nodes are busy with different terms at once)\n");
}

/* Prints the whole page. A native algorithm has no schedule, so steps, traffic and cost are left
 * out. */
sh_status sh_collective_text(const sh_shown *shown, FILE *file) {
    print_head(shown, file);
    int ranks = shown->topology.ranks;
    if (!shown->algorithm->native) {
        if (sh_moves_count(shown) > SH_SHOWN_MOVES)
            fprintf(file, "more than %d messages: too many to list, the summary follows\n",
                    SH_SHOWN_MOVES);
        else
            SH_TRY(print_steps(shown, file));
        fputc('\n', file);
        print_traffic(shown, file);
        if (shown->values != NULL) SH_TRY(print_result(shown, file));
        print_cost(shown, file);
    }
    if (ranks > 1 && shown->algorithm->does != SH_BARRIER) sh_collective_compare(shown, file);
    return SH_OK;
}
