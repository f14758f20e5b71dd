/* A collective for machines: one JSON object on one line. Names are letters, digits, '_', '-' and
 * '.', so nothing needs escaping. */
#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "explain/collective.h"
#include "explain/play.h"

/* Prints a number with 17 digits, which give the same double back; JSON has no infinity, so that
 * becomes null. */
static void print_number(double number, FILE *file) {
    if (isfinite(number))
        sh_fprintf(file, "%.17g", number);
    else
        fprintf(file, "null");
}

/* Opens the object: collective, algorithm, ranks with names and nodes, buffer size. */
static void print_head(const sh_shown *shown, FILE *file) {
    const sh_algorithm *algorithm = shown->algorithm;
    const sh_places *places = shown->topology.places;
    fprintf(file, "{\"collective\":\"%s\",\"algorithm\":\"%s\",\"ranks\":%d,\"names\":[",
            sh_collective_name(algorithm->does), algorithm->name, shown->topology.ranks);
    for (int r = 0; r < shown->topology.ranks; r++) {
        char name[SH_RANK_TEXT];
        fprintf(file, "%s\"%s\"", r > 0 ? "," : "", sh_shown_rank(shown, r, name));
    }
    fprintf(file, "],\"nodes\":[");
    for (int r = 0; r < shown->topology.ranks; r++)
        fprintf(file, "%s%d", r > 0 ? "," : "", places != NULL ? places->node[r] : 0);
    fprintf(file, "],\"elements\":%zu,\"bytes\":%zu", shown->elements, shown->elements * 4);
    if (algorithm->does == SH_BROADCAST) fprintf(file, ",\"root\":%d", shown->topology.root);
}

/* Prints the buffers of all ranks, (ranks, elements); null where a rank holds nothing yet. */
static void print_values(const sh_play *play, FILE *file) {
    fputc('[', file);
    for (int r = 0; r < play->topology.ranks; r++) {
        fprintf(file, "%s[", r > 0 ? "," : "");
        for (int b = 0; b < play->blocks; b++) {
            sh_range range = sh_block_range(play->elements, play->blocks, b);
            bool known = sh_play_shows(play, r, b);  // NAN prints as null
            for (size_t i = range.first; i < range.first + range.count; i++) {
                if (i > 0) fputc(',', file);
                print_number(known ? play->now[(size_t)r * play->elements + i] : NAN, file);
            }
        }
        fputc(']', file);
    }
    fputc(']', file);
}

/* Prints the messages of one step in the order of the senders. What happens on arrival ("reduce"
 * or "copy") is the receiver's move. */
static void print_step(const sh_shown *shown, int step, FILE *file) {
    const sh_algorithm *algorithm = shown->algorithm;
    int blocks = algorithm->blocks(&shown->topology);
    const char *comma = "";
    for (int r = 0; r < shown->topology.ranks; r++) {
        sh_move send = algorithm->step(&shown->topology, r, step).send;
        if (send.peer < 0) continue;
        // What happens on arrival is the receiver's move, not the sender's.
        sh_then then = algorithm->step(&shown->topology, send.peer, step).then;
        sh_range range = sh_stretch_range(shown->elements, blocks, send.first, send.count);
        fprintf(file,
                "%s{\"from\":%d,\"to\":%d,\"first_block\":%d,\"blocks\":%d,\"elements\":%zu,"
                "\"then\":\"%s\"}",
                comma, r, send.peer, send.first, send.count, range.count,
                then == SH_THEN_REDUCE ? "reduce" : "copy");
        comma = ",";
    }
}

/* Prints the steps, and the buffers after each if there are values. Above SH_SHOWN_MOVES messages
 * the steps are left out and `step_count` remains. */
static sh_status print_steps(const sh_shown *shown, FILE *file) {
    int steps = shown->algorithm->steps(&shown->topology);
    fprintf(file, ",\"blocks\":%d,\"step_count\":%d", shown->algorithm->blocks(&shown->topology),
            steps);
    bool plays = shown->values != NULL;
    sh_play play = {0};
    if (plays) {
        SH_TRY(sh_play_init(&play, shown->algorithm, &shown->topology, shown->values));
        fprintf(file, ",\"values\":");
        print_values(&play, file);
    }
    if (sh_moves_count(shown) <= SH_SHOWN_MOVES) {
        fprintf(file, ",\"steps\":[");
        for (int s = 0; s < steps; s++) {
            fprintf(file, "%s{\"messages\":[", s > 0 ? "," : "");
            print_step(shown, s, file);
            fputc(']', file);
            if (plays) {
                sh_play_next(&play);
                fprintf(file, ",\"values\":");
                print_values(&play, file);
            }
            fputc('}', file);
        }
        fputc(']', file);
    }
    sh_play_fini(&play);
    return SH_OK;
}

/* Prints the terms as counts and as seconds. Their sum can exceed the total where nodes work on
 * different terms at the same time. */
static void print_cost(const sh_shown *shown, FILE *file) {
    sh_traffic traffic = sh_traffic_of(shown);
    sh_terms t =
        sh_terms_of(shown->algorithm, &shown->topology, sh_shown_bytes(shown), &shown->links);
    sh_fprintf(file,
               ",\"messages\":%.0f,\"messages_per_rank\":[%d,%d],\"sent_bytes\":%.0f,"
               "\"sent_bytes_per_rank\":[%.0f,%.0f]",
               traffic.messages, traffic.least, traffic.most, traffic.bytes, traffic.bytes_least,
               traffic.bytes_most);
    sh_fprintf(file,
               ",\"cost\":{\"messages\":%.17g,\"sent\":%.17g,\"reduced\":%.17g,\"latency_s\":%.17g,"
               "\"bandwidth_s\":%.17g,\"reduction_s\":%.17g,\"total_s\":%.17g}",
               t.messages, t.sent, t.reduced, t.latency_s, t.bandwidth_s, t.reduction_s, t.total_s);
}

/* Prints the cheapest algorithm for each range of sizes and closes the object. The last range has
 * no end: null. */
static void print_ranges(const sh_shown *shown, FILE *file) {
    sh_size_range ranges[SH_RANGES_MOST];
    int count = sh_size_ranges(shown->algorithm->does, &shown->topology, &shown->links, ranges);
    fprintf(file, ",\"cheapest\":[");
    for (int i = 0; i < count; i++) {
        sh_fprintf(file,
                   "%s{\"algorithm\":\"%s\",\"from_bytes\":%.0f,\"to_bytes\":", i > 0 ? "," : "",
                   ranges[i].algorithm->name, ranges[i].from_bytes);
        print_number(isfinite(ranges[i].to_bytes) ? floor(ranges[i].to_bytes) : INFINITY, file);
        fputc('}', file);
    }
    fprintf(file, "]}\n");
}

/* A native algorithm has no schedule to read, so its object has neither steps nor cost. */
sh_status sh_collective_json(const sh_shown *shown, FILE *file) {
    print_head(shown, file);
    if (!shown->algorithm->native) {
        SH_TRY(print_steps(shown, file));
        print_cost(shown, file);
    }
    print_ranges(shown, file);
    return SH_OK;
}
