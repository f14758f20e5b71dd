/* A source: all samples of a file in memory or mapped, with targets. Views (view.c) share it, so
 * it counts its users. Readers fill it; what they have in common is here: targets as classes or
 * values, and the checks that no reader may forget. */
#include "data/source.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/reader.h"
#include "data/room.h"

/* A source of no samples yet; the reader fills it. */
sh_status sh_source_create(const char *name, sh_source **source_out) {
    sh_source *source = sh_alloc(1, sizeof *source);
    if (source != NULL) source->name = sh_strdup(name);
    if (source == NULL || source->name == NULL) {
        sh_free(source);
        return SH_FAIL(SH_E_MEMORY, "out of memory for opening '%s'", name);
    }
    *source_out = source;
    return SH_OK;
}

/* Counts one more view. Main task only, hence no atomic. */
sh_source *sh_source_acquire(sh_source *source) {
    source->view_count++;
    return source;
}

/* Gives up one hold; the last one frees everything. NULL is welcome. */
void sh_source_release(sh_source *source) {
    if (source == NULL) return;
    if (source->view_count > 0) {
        source->view_count--;
        return;
    }
    for (size_t i = 0; i < SH_COUNT(source->blobs); i++) sh_blob_close(&source->blobs[i]);
    for (size_t i = 0; i < SH_COUNT(source->memory); i++) sh_free(source->memory[i]);
    sh_sparse_fini(&source->sparse);
    sh_free(source->part_sizes);
    sh_free(source->vocabulary);
    sh_free(source->name);
    sh_free(source);
}

/* Bytes of one element of a sample. */
size_t sh_cell_bytes(sh_cell cell) {
    static const size_t bytes[] = {[SH_CELL_U8] = 1, [SH_CELL_U16] = 2, [SH_CELL_F32] = 4};
    return bytes[cell];
}

/* Checks the memory limit; what the source's files hold already counts. */
sh_status sh_source_room(const sh_source *source, size_t bytes) {
    size_t taken = 0;
    for (size_t i = 0; i < SH_COUNT(source->blobs); i++) taken += sh_blob_memory(&source->blobs[i]);
    return sh_room_check(source->name, taken, bytes);
}

sh_status sh_hint_not_finite(void) {
    return sh_error_hint("remove or replace values that are not finite floats");
}

sh_status sh_hint_damaged(void) {
    return sh_error_hint("the file is damaged: fetch or write it again");
}

/* Position of the first NaN or infinity; `count`: there is none. Blocks are tested by their
 * exponent bits, which compilers turn into vector code. */
size_t sh_find_not_finite(const float *values, size_t count) {
    const uint32_t exponent = 0x7f800000;
    enum { BLOCK = 4096 };
    for (size_t start = 0; start < count; start += BLOCK) {
        size_t end = count - start < BLOCK ? count : start + BLOCK;
        uint32_t bad = 0;
        for (size_t i = start; i < end; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof bits);
            bad |= (uint32_t)((bits & exponent) == exponent);
        }
        if (bad == 0) continue;
        for (size_t i = start; i < end; i++)
            if (!isfinite(values[i])) return i;
    }
    return count;
}

/* Range of the targets that count. */
typedef struct target_range {
    double least, most;   // most -1: none does
    size_t not_integral;  // position of the first, or the count
    bool has_zero;
} target_range;

/* Tells whether a target is the label that marks samples which do not count. */
static bool is_ignored(double target, const int64_t *ignore) {
    return ignore != NULL && target == (double)*ignore;
}

/* Finds the least and the largest target, and whether all are whole numbers. */
static target_range range_of(const double *targets, size_t count, const int64_t *ignore) {
    target_range range = {.least = INFINITY, .most = -INFINITY, .not_integral = count};
    for (size_t i = 0; i < count; i++) {
        if (is_ignored(targets[i], ignore)) continue;
        if (targets[i] < range.least) range.least = targets[i];
        if (targets[i] > range.most) range.most = targets[i];
        if (targets[i] == 0) range.has_zero = true;
        if (range.not_integral == count && targets[i] != floor(targets[i])) range.not_integral = i;
    }
    // No target counts: there are no classes.
    if (range.most < range.least) range.most = -1;
    return range;
}

/* Stores targets as class labels from 0 on; labels -1 and +1 become 0 and 1. The label to ignore
 * stays as it is. */
static sh_status set_classes(sh_source *source, const double *targets, const int64_t *ignore,
                             double most) {
    size_t count = source->stored;
    int32_t *labels = sh_alloc(count, sizeof *labels);
    if (labels == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu labels of '%s'", count, source->name);
    for (size_t i = 0; i < count; i++) {
        bool is_minus = targets[i] < 0 && !is_ignored(targets[i], ignore);
        labels[i] = is_minus ? 0 : (int32_t)targets[i];
    }
    sh_free(source->memory[1]);
    source->memory[1] = labels;
    source->labels = labels;
    source->info.target = SH_TARGET_CLASS;
    source->info.classes = (int64_t)most + 1;
    return SH_OK;
}

/* Stores targets as one float per sample. */
static sh_status set_values(sh_source *source, const double *targets) {
    size_t count = source->stored;
    float *values = sh_alloc(count, sizeof *values);
    if (values == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu targets of '%s'", count, source->name);
    for (size_t i = 0; i < count; i++) values[i] = (float)targets[i];
    size_t bad = sh_find_not_finite(values, count);
    sh_free(source->memory[1]);
    source->memory[1] = values;
    if (bad < count) {
        SH_FAIL(SH_E_NUMERIC, "'%s': the target of sample %zu is %g", source->name, bad,
                targets[bad]);
        return sh_hint_not_finite();
    }
    source->values = values;
    source->info.target = SH_TARGET_VALUES;
    source->info.values = 1;
    return SH_OK;
}

/* Reports a label that is no class, with the sample's position. */
static sh_status fail_label(const sh_source *source, size_t at, double label) {
    SH_FAIL(SH_E_FORMAT, "'%s': sample %zu has label %.9g, which is not a class", source->name, at,
            label);
    return sh_error_hint(
        "classes are whole numbers from 0 to %d, or -1 and +1; --ignore names a "
        "label that does not count",
        SH_CLASSES_MOST - 1);
}

/* Whole numbers from 0 (or only -1 and +1) become classes unless the user or the training set says
 * otherwise. */
sh_status sh_source_set_targets(sh_source *source, const double *targets, const sh_read *read) {
    const int64_t *ignore = read->options != NULL ? read->options->ignore : NULL;
    size_t count = source->stored;
    target_range range = range_of(targets, count, ignore);
    bool integral = range.not_integral == count;
    // As classes, -1 and +1 would be taken for a 0 or 1 to ignore.
    bool may_be_sign = ignore == NULL || (*ignore != 0 && *ignore != 1);
    bool is_sign = may_be_sign && range.least == -1 && range.most <= 1 && !range.has_zero;
    bool fits = integral && (range.least >= 0 || is_sign) && range.most < SH_CLASSES_MOST;
    if (read->target == SH_TARGET_VALUES || (read->target != SH_TARGET_CLASS && !fits))
        return set_values(source, targets);
    if (fits) {
        source->signs = is_sign;
        return set_classes(source, targets, ignore, is_sign ? 1 : range.most);
    }
    size_t at = range.not_integral;
    for (size_t i = 0; integral && i < count; i++)
        if (!is_ignored(targets[i], ignore) &&
            (targets[i] < 0 || !(targets[i] < SH_CLASSES_MOST))) {
            at = i;
            break;
        }
    return fail_label(source, at, targets[at]);
}

/* Checks that every reader's result has samples of a sensible shape; later code relies on it. */
sh_status sh_source_check(const sh_source *source) {
    size_t cells;
    if (!sh_shape_count_checked(&source->info.sample, &cells) || cells == 0 ||
        cells > (size_t)1 << 31) {
        char text[SH_SHAPE_TEXT];
        return SH_FAIL(SH_E_SHAPE, "'%s': samples of shape %s make no sense", source->name,
                       sh_shape_text(&source->info.sample, text));
    }
    if (source->info.count == 0 || source->stored == 0)
        return SH_FAIL(SH_E_FORMAT, "'%s' holds no samples", source->name);
    return SH_OK;
}
