/* Holding out samples for validation and testing. Samples are dealt by a shuffle of the seed, the
 * same for every worker count; text is cut instead of dealt, because windows that overlap would
 * leak from one part to the other. */
#include "data/split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"

/* Everything, in file order. */
sh_status sh_view_all(sh_source *source, sh_dataset **dataset_out) {
    if (source == NULL) return SH_OK;
    size_t count = source->info.tokens ? source->stored : source->info.count;
    return sh_view_create(source, 0, count, NULL, dataset_out);
}

/* A part that is wanted needs more than a context, or it has no window. */
static sh_status check_text(const sh_source *source, size_t train, size_t held, size_t held_least) {
    size_t context = (size_t)source->info.sample.dim[0];
    if (train > context && held_least > context) return SH_OK;
    SH_FAIL(SH_E_SHAPE, "'%s' has %zu tokens; holding out %zu leaves less than a context of %zu",
            source->name, source->stored, held, context);
    return sh_error_hint("use a longer text, a shorter context, or files of their own");
}

/* Cuts a text: training first, then what is held out, as texts are read forward. */
static sh_status split_text(sh_source *source, const sh_split *split, sh_data *data) {
    size_t count = source->stored;
    size_t validation = (size_t)(split->validation * (double)count);
    size_t test = (size_t)(split->test * (double)count), train = count - validation - test;
    size_t least = count;
    if (split->validation > 0 && validation < least) least = validation;
    if (split->test > 0 && test < least) least = test;
    SH_TRY(check_text(source, train, validation + test, least));
    SH_TRY(sh_view_create(source, 0, train, NULL, &data->train));
    if (validation > 0) SH_TRY(sh_view_create(source, train, validation, NULL, &data->validation));
    if (test == 0) return SH_OK;
    return sh_view_create(source, train + validation, test, NULL, &data->test);
}

/* Order for qsort: ascending positions. */
static int compare_u32(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Parts of a source; one that is not in parts counts as one. */
static size_t part_count(const sh_source *source) {
    return source->part_count > 0 ? (size_t)source->part_count : 1;
}

static size_t part_size(const sh_source *source, size_t i) {
    return source->part_count > 0 ? source->part_sizes[i] : source->info.count;
}

/* Samples to hold out, rounded to the nearest. */
static size_t held_of(size_t count, double part) { return (size_t)llround(part * (double)count); }

/* The samples of the three views, as positions in the source. */
typedef struct lists {
    uint32_t *train, *validation, *test;
    size_t train_count, validation_count, test_count;
} lists;

static void lists_fini(lists *l) {
    sh_free(l->train);
    sh_free(l->validation);
    sh_free(l->test);
}

/* Checks that a part which is wanted is not empty and does not take everything. */
static sh_status check_counts(const sh_source *source, double part, size_t count, size_t held,
                              size_t all_held) {
    bool fits = (part == 0 || held > 0) && all_held < count && source->info.count <= UINT32_MAX;
    if (fits) return SH_OK;
    SH_FAIL(SH_E_USAGE, "cannot hold out %g of the %zu samples of '%s'", part, count, source->name);
    return sh_error_hint("every part needs at least one sample");
}

/* Allocates the three lists of positions. */
static sh_status take_lists(const sh_source *source, const sh_split *split, lists *l) {
    for (size_t i = 0; i < part_count(source); i++) {
        size_t count = part_size(source, i);
        size_t validation = held_of(count, split->validation), test = held_of(count, split->test);
        SH_TRY(check_counts(source, split->validation, count, validation, validation + test));
        SH_TRY(check_counts(source, split->test, count, test, validation + test));
        l->validation_count += validation;
        l->test_count += test;
        l->train_count += count - validation - test;
    }
    l->train = sh_alloc(source->info.count, sizeof *l->train);  // where all are drawn
    l->validation = sh_alloc(l->validation_count + 1, sizeof *l->validation);
    l->test = sh_alloc(l->test_count + 1, sizeof *l->test);
    if (l->train != NULL && l->validation != NULL && l->test != NULL) return SH_OK;
    return SH_FAIL(SH_E_MEMORY, "out of memory for splitting '%s'", source->name);
}

/* Draws the order of one part behind what `train` has so far, and leaves its middle there. */
static void deal_part(const sh_source *source, const sh_split *split, size_t part, size_t first,
                      lists *l) {
    size_t size = part_size(source, part);
    size_t validation = held_of(size, split->validation), test = held_of(size, split->test);
    size_t keep = size - validation - test;
    uint32_t *drawn = l->train + l->train_count;
    sh_rng rng =
        sh_rng_stream(split->seed, SH_RNG_SPLIT, (uint32_t)source->first_part + (uint32_t)part, 0);
    sh_rng_shuffle(&rng, drawn, size);
    for (size_t k = 0; k < size; k++) drawn[k] += (uint32_t)first;
    memcpy(l->test + l->test_count, drawn, test * sizeof *drawn);
    memcpy(l->validation + l->validation_count, drawn + test + keep, validation * sizeof *drawn);
    memmove(drawn, drawn + test, keep * sizeof *drawn);
    l->train_count += keep;
    l->validation_count += validation;
    l->test_count += test;
}

/* Lists in file order are kind to mapped files. The view keeps the list, also on failure. */
static sh_status view_list(sh_source *source, uint32_t **list, size_t count,
                           sh_dataset **dataset_out) {
    if (count == 0) return SH_OK;
    qsort(*list, count, sizeof **list, compare_u32);
    uint32_t *kept = *list;
    *list = NULL;
    return sh_view_create(source, 0, count, kept, dataset_out);
}

/* Deals each part of the data for itself, so that a worker's hold-out is its own and does not
 * change with the others. */
static sh_status split_samples(sh_source *source, const sh_split *split, sh_data *data) {
    lists l = {0};
    sh_status status;
    SH_TRY_OUT(take_lists(source, split, &l));
    l.train_count = l.validation_count = l.test_count = 0;
    for (size_t i = 0, first = 0; i < part_count(source); first += part_size(source, i++))
        deal_part(source, split, i, first, &l);
    SH_TRY_OUT(view_list(source, &l.train, l.train_count, &data->train));
    SH_TRY_OUT(view_list(source, &l.validation, l.validation_count, &data->validation));
    SH_TRY_OUT(view_list(source, &l.test, l.test_count, &data->test));
out:
    lists_fini(&l);
    return status;
}

sh_status sh_split_make(sh_source *source, const sh_split *split, sh_data *data) {
    if (split->validation == 0 && split->test == 0) return sh_view_all(source, &data->train);
    return source->info.tokens ? split_text(source, split, data)
                               : split_samples(source, split, data);
}
