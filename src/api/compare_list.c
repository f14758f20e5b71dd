/* Comma lists to rows: cuts the lists of schemes, codecs and workers, checks every entry by the
 * parser that a run uses, and makes a row for each combination. All faults are found here, before
 * the first variant trains. Names and folders follow from the entries. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "api/compare.h"

/* Most entries of a list, most rows of a comparison, bytes of an entry with its end. */
enum { ITEMS_MOST = 64, ROWS_MOST = 1024, TEXT = 64 };

/* One comma list, cut into its entries. */
typedef struct entries {
    const char *flag;  // name of the list in messages
    char items[ITEMS_MOST][TEXT];
    size_t count;
} entries;

/* Adds an entry. A repeated one is refused: both rows would train into one folder. */
static sh_status add_item(entries *list, const char *item, size_t length) {
    if (length == 0 || length >= TEXT) {
        SH_FAIL(SH_E_USAGE, "--%s: '%.*s' is no entry of a list", list->flag,
                (int)(length < 80 ? length : 80), item);
        return sh_error_hint("separate entries by single commas, without blanks");
    }
    // The array is full; more entries would make more rows than anybody waits for.
    if (list->count == ITEMS_MOST)
        return SH_FAIL(SH_E_USAGE, "--%s has more than %d entries", list->flag, ITEMS_MOST);
    char *text = list->items[list->count];
    snprintf(text, TEXT, "%.*s", (int)length, item);
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], text) == 0)
            return SH_FAIL(SH_E_USAGE, "--%s has '%s' twice", list->flag, text);
    list->count++;
    return SH_OK;
}

/* Cuts at commas; empty entries are refused by add_item. */
static sh_status cut(const char *text, entries *list) {
    for (;; text++) {
        size_t length = strcspn(text, ",");
        SH_TRY(add_item(list, text, length));
        text += length;
        if (*text == '\0') return SH_OK;
    }
}

/* Every scheme must parse with its parameters ("ssp:3"): a typing error must not show after hours
 * of training the variants before it. */
static sh_status check_schemes(const entries *list) {
    sh_scheme scheme;
    for (size_t i = 0; i < list->count; i++) SH_TRY(sh_scheme_parse(list->items[i], &scheme));
    return SH_OK;
}

/* Every codec must parse with its parameters ("topk:1%"), for the same reason as schemes. */
static sh_status check_codecs(const entries *list) {
    sh_codec codec;
    for (size_t i = 0; i < list->count; i++) SH_TRY(sh_codec_parse(list->items[i], &codec));
    return SH_OK;
}

/* Whole numbers within the bounds of the setting `workers`. */
static sh_status check_workers(const entries *list) {
    for (size_t i = 0; i < list->count; i++) {
        const char *text = list->items[i];
        // Digits alone: strtol would take a sign, blanks and what follows the number.
        long workers = text[strspn(text, "0123456789")] == '\0' ? strtol(text, NULL, 10) : 0;
        if (workers >= 1 && workers <= 4096) continue;
        SH_FAIL(SH_E_USAGE, "--workers: '%s' is no number of workers", text);
        return sh_error_hint("give whole numbers from 1 to 4096, as in --workers 1,2,4");
    }
    return SH_OK;
}

/* Name of a variant: its scheme, its codec unless "none", and the workers if variants differ in
 * them. */
static void name_row(sh_variant *row, bool many_workers) {
    size_t length = (size_t)snprintf(row->name, sizeof row->name, "%s", row->sync);
    if (strcmp(row->compress, "none") != 0)
        length +=
            (size_t)snprintf(row->name + length, sizeof row->name - length, " %s", row->compress);
    if (many_workers)
        snprintf(row->name + length, sizeof row->name - length, ", %ld worker%s",
                 (long)row->seen.workers, row->seen.workers == 1 ? "" : "s");
}

/* Folder of a variant: its name without characters that a path or a shell would take amiss. */
static void name_folder(sh_variant *row) {
    size_t length = 0;
    for (const char *c = row->name; *c != '\0' && length + 1 < sizeof row->folder; c++) {
        // "bsp, 4 workers" becomes "bsp-4-workers".
        if (*c == ',') continue;
        row->folder[length++] = *c == ':' || *c == ' ' || *c == '/' ? '-' : *c;
    }
    row->folder[length] = '\0';
}

/* Row `index` of the product: codecs vary fastest, then workers, then schemes. */
static void fill_row(const entries *sync, const entries *compress, const entries *workers,
                     size_t index, sh_variant *row) {
    shoal_variant *seen = &row->seen;
    // Index in mixed radix: (scheme, team, codec).
    size_t codec = index % compress->count, team = index / compress->count % workers->count;
    size_t scheme = index / compress->count / workers->count;
    snprintf(row->sync, sizeof row->sync, "%s", sync->items[scheme]);
    snprintf(row->compress, sizeof row->compress, "%s", compress->items[codec]);
    seen->workers = strtol(workers->items[team], NULL, 10);
    name_row(row, workers->count > 1);
    name_folder(row);
    sh_compare_clear(row);
}

/* Allocates and fills all combinations; the comparison owns the rows. */
static sh_status make_rows(const entries *sync, const entries *compress, const entries *workers,
                           shoal_comparison *comparison) {
    size_t count = sync->count * compress->count * workers->count;
    if (count > ROWS_MOST)
        return SH_FAIL(SH_E_USAGE, "%zu combinations are too many (at most %d)", count, ROWS_MOST);
    comparison->rows = sh_alloc(count, sizeof *comparison->rows);
    if (comparison->rows == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu rows", count);
    comparison->count = count;
    for (size_t i = 0; i < count; i++) fill_row(sync, compress, workers, i, &comparison->rows[i]);
    return SH_OK;
}

/* Lists as given, or one entry from the config where a list is NULL. */
static sh_status fill(const sh_config *config, const shoal_compare_options *options,
                      entries lists[3]) {
    // The config's number as text, so that all three lists are cut alike.
    char workers[24];
    snprintf(workers, sizeof workers, "%ld", (long)config->workers);
    lists[0].flag = "sync";
    lists[1].flag = "compress";
    lists[2].flag = "workers";
    SH_TRY(cut(options->sync != NULL ? options->sync : config->scheme.name, &lists[0]));
    SH_TRY(cut(options->compress != NULL ? options->compress : config->codec.name, &lists[1]));
    SH_TRY(cut(options->workers != NULL ? options->workers : workers, &lists[2]));
    SH_TRY(check_schemes(&lists[0]));
    SH_TRY(check_codecs(&lists[1]));
    return check_workers(&lists[2]);
}

/* The lists are on the heap, as three of them are too large for a stack. */
sh_status sh_compare_list(const sh_config *config, const shoal_compare_options *options,
                          shoal_comparison *comparison) {
    entries *lists = sh_alloc(3, sizeof *lists);
    if (lists == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for lists");
    sh_status status = fill(config, options, lists);
    if (status == SH_OK) status = make_rows(&lists[0], &lists[1], &lists[2], comparison);
    sh_free(lists);
    return status;
}
