/* All algorithms of a collective side by side: their terms, their cost at four sizes, and for each
 * range of sizes the cheapest with the reason why. Everything comes from the same cost functions
 * that the engine chooses by (comm/price.c), so the table cannot differ from what a run does. */
#include <stdio.h>

#include "base/text.h"
#include "explain/collective.h"
#include "explain/units.h"

/* Number of other algorithms of the same collective. Native ones (the MPI library's own) do not
 * count: their cost is not known. */
int sh_rivals(const sh_algorithm *algorithm) {
    const sh_algorithm *row;
    int rivals = 0;
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++)
        rivals += row != algorithm && row->does == algorithm->does && !row->native;
    return rivals;
}

/* Prints a row per algorithm: its terms, then its price at four sizes. 25 MiB is a common bucket
 * size. */
static void print_rivals(const sh_shown *shown, FILE *file) {
    static const double sizes[] = {0x1p10, 0x1p16, 0x1p20, 25 * 0x1p20};
    char text[SH_UNIT_TEXT];
    const sh_algorithm *row;
    fprintf(file, "\n%-17s %8s %8s %9s", "algorithm", "messages", "bytes/n", "reduced/n");
    for (size_t i = 0; i < SH_COUNT(sizes); i++)
        fprintf(file, " %10s", sh_bytes_text(sizes[i], text));
    fputc('\n', file);
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++) {
        if (row->does != shown->algorithm->does) continue;
        if (row->native) {
            fprintf(file, "%-17s chosen by the library; only a measurement tells\n", row->name);
            continue;
        }
        // At 1 byte: the terms per byte of the buffer.
        sh_terms t = sh_terms_of(row, &shown->topology, 1, &shown->links);
        sh_fprintf(file, "%-17s %8g %8.3g %9.3g", row->name, t.messages, t.sent, t.reduced);
        for (size_t k = 0; k < SH_COUNT(sizes); k++)
            fprintf(file, " %10s",
                    sh_seconds_text(
                        sh_algorithm_price(row, &shown->topology, sizes[k], &shown->links), text));
        fputc('\n', file);
    }
}

/* Tells whether some ranks share a node and some do not; only then both kinds of link matter. */
static bool is_mixed(const sh_topology *topology) {
    const sh_places *places = topology->places;
    return places != NULL && places->nodes > 1 && places->nodes < topology->ranks;
}

/* Explains a single winner at all sizes, which has no border with a neighbour: it is first in both
 * terms, or the only algorithm. */
static void print_unbeaten(const sh_shown *shown, const sh_algorithm *winner, FILE *file) {
    sh_terms a = sh_terms_of(winner, &shown->topology, 1, &shown->links);
    const sh_algorithm *row;
    bool fewest = true, least = true;  // in latency, in bandwidth
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++) {
        if (row->does != winner->does || row->native || row == winner) continue;
        sh_terms b = sh_terms_of(row, &shown->topology, 1, &shown->links);
        // Equal costs may differ in the last bits, hence the tolerance.
        fewest = fewest && a.latency_s <= b.latency_s * (1 + 1e-9);
        least = least && a.bandwidth_s <= b.bandwidth_s * (1 + 1e-9);
    }
    if (sh_rivals(winner) == 0)
        fprintf(file, "there is no other");
    else if (fewest && least)
        fprintf(file, is_mixed(&shown->topology)
                          ? "no other loses less to latency, none less to the wires"
                          : "no other has fewer messages in a row, none fewer bytes");
}

/* Explains why `winner` beats its neighbour `other`: towards larger sizes bytes decide, towards
 * smaller ones messages. The better latency term is named first. */
static void print_reason(const sh_shown *shown, const sh_algorithm *winner,
                         const sh_algorithm *other, FILE *file) {
    const sh_topology *topology = &shown->topology;
    sh_terms a = sh_terms_of(winner, topology, 1, &shown->links);
    sh_terms b = sh_terms_of(other, topology, 1, &shown->links);
    bool mixed = is_mixed(topology);
    if (a.latency_s < b.latency_s && a.messages <= b.messages)
        sh_fprintf(file, "%g messages in a row, not %g as %s", a.messages, b.messages, other->name);
    else if (a.latency_s < b.latency_s)
        fprintf(file, "fewer slow messages between nodes than %s", other->name);
    else if (mixed)
        fprintf(file, "fewer bytes on the slow wires than %s", other->name);
    else
        sh_fprintf(file, "%.3g n bytes, not %.3g n as %s", a.sent, b.sent, other->name);
}

/* Prints the ranges of sizes from small to large; each says why it beats both of its neighbours. */
static void print_ranges(const sh_shown *shown, FILE *file) {
    sh_size_range ranges[SH_RANGES_MOST];
    char from[SH_UNIT_TEXT], to[SH_UNIT_TEXT];
    int count = sh_size_ranges(shown->algorithm->does, &shown->topology, &shown->links, ranges);
    fprintf(file, "\ncheapest on these links\n");
    for (int i = 0; i < count; i++) {
        const sh_size_range *r = &ranges[i];
        sh_bytes_text(r->from_bytes, from);
        sh_bytes_text(r->to_bytes, to);
        if (count == 1)
            fprintf(file, "  at any size             ");
        else if (i == 0)
            fprintf(file, "  below %-18s", to);
        else if (i == count - 1)
            fprintf(file, "  from %-19s", from);
        else
            fprintf(file, "  %9s to %-11s", from, to);
        fprintf(file, "%-18s", r->algorithm->name);
        // Reasons: against the next larger range's winner, then against the next smaller one's.
        if (count == 1) print_unbeaten(shown, r->algorithm, file);
        if (i + 1 < count) print_reason(shown, r->algorithm, ranges[i + 1].algorithm, file);
        if (i + 1 < count && i > 0) fprintf(file, "; ");
        if (i > 0) print_reason(shown, r->algorithm, ranges[i - 1].algorithm, file);
        fputc('\n', file);
    }
    if (shown->algorithm->does != SH_ALLREDUCE) return;
    if (shown->tried != NULL)
        fprintf(
            file,
            "From %s workers take %s: of those that should cost alike, the fastest when tried.\n",
            sh_bytes_text(shown->tried_bytes, from), shown->tried->name);
    fprintf(file, "That is over messages; ranks that share memory take `direct`, in one pass.\n");
}

/* Last part of `shoal explain collective`: all algorithms side by side, then the winners by
 * size. */
void sh_collective_compare(const sh_shown *shown, FILE *file) {
    print_rivals(shown, file);
    print_ranges(shown, file);
}
