/* Whether test and validation data fit the training data: shape of the samples, kind of target,
 * number of classes or values. A misfit is found when the data is opened, with both files named,
 * not as a crash in a layer. */
#include "data/fit.h"

#include <string.h>

#include "data/parts.h"

/* The training data as others must fit it. */
sh_learned sh_learned_of(const sh_source *train) {
    return (sh_learned){&train->info, train->name, train->vocabulary};
}

/* The same where a model knows it and no training data is open. */
sh_learned sh_learned_from(const sh_data *known) {
    return (sh_learned){&known->info, NULL, known->vocabulary};
}

/* Names both sides. */
static sh_status fail_parts(const sh_learned *a, const sh_source *b, const char *what) {
    if (a->name != NULL)
        SH_FAIL(SH_E_SHAPE, "'%s' does not fit the training data '%s': %s", b->name, a->name, what);
    else
        SH_FAIL(SH_E_SHAPE, "'%s' does not fit what the model was trained on: %s", b->name, what);
    return sh_error_hint("'shoal data info' shows what a file holds");
}

/* Labels above the classes of training would index past the last output. */
static sh_status check_labels(const sh_learned *train, const sh_source *part,
                              const int64_t *ignore) {
    for (size_t i = 0; i < part->stored; i++)
        if (part->labels[i] >= train->info->classes &&
            (ignore == NULL || part->labels[i] != *ignore)) {
            SH_FAIL(SH_E_FORMAT,
                    "'%s': sample %zu has label %d, but training has classes 0 to %lld", part->name,
                    i, part->labels[i], (long long)train->info->classes - 1);
            return sh_error_hint("check that both files belong together");
        }
    return SH_OK;
}

/* A part may have fewer classes than training, never more. */
sh_status sh_check_part(const sh_data_options *options, const sh_learned *train, sh_source *part) {
    if (part == NULL) return SH_OK;
    const sh_data_info *info = train->info;
    if (!sh_shape_equal(&info->sample, &part->info.sample)) {
        char a[SH_SHAPE_TEXT], b[SH_SHAPE_TEXT], what[2 * SH_SHAPE_TEXT + 32];
        snprintf(what, sizeof what, "samples of shape %s against %s",
                 sh_shape_text(&part->info.sample, b), sh_shape_text(&info->sample, a));
        return fail_parts(train, part, what);
    }
    if (info->tokens != part->info.tokens) return fail_parts(train, part, "text and numbers");
    if (info->tokens && part->info.classes > info->classes)
        return fail_parts(train, part, "more different tokens");
    part->info.classes = info->classes;
    if (part->info.target == SH_TARGET_NONE) return SH_OK;  // enough to predict
    if (info->target != part->info.target) return fail_parts(train, part, "another kind of target");
    if (info->values != part->info.values)
        return fail_parts(train, part, "another number of targets per sample");
    if (info->target == SH_TARGET_CLASS) SH_TRY(check_labels(train, part, options->ignore));
    return SH_OK;
}

/* The run file's `targets`. */
sh_target sh_wanted_target(const sh_data_options *options) {
    const char *name = options != NULL ? options->targets : NULL;
    if (name == NULL || strcmp(name, "auto") == 0) return SH_TARGET_NONE;
    return strcmp(name, "values") == 0 ? SH_TARGET_VALUES : SH_TARGET_CLASS;
}

sh_status sh_check_target(const sh_source *source, sh_target wanted) {
    static const char *const names[] = {"no targets", "classes", "values", "tokens"};
    sh_target found = source->info.target;
    if (wanted == SH_TARGET_NONE || found == SH_TARGET_NONE || found == wanted) return SH_OK;
    SH_FAIL(SH_E_USAGE, "'%s' has %s as its targets, not %s", source->name, names[found],
            names[wanted]);
    return sh_error_hint("leave out data.targets (--targets)");
}

/* With the width, target and vocabulary of training: sparse files and texts need them to be read
 * alike. */
sh_read sh_read_beside(const sh_data_options *options, const char *path, const sh_learned *train) {
    const sh_data_info *info = train->info;
    sh_read read = {.path = path, .part = SH_PART_TEST, .options = options};
    read.vocabulary = train->vocabulary;
    read.target = info->target == SH_TARGET_TOKENS ? SH_TARGET_NONE : info->target;
    if (info->sample.rank == 1 && !info->tokens) read.width = info->sample.dim[0];
    return read;
}

sh_status sh_open_part(const sh_data_options *options, const char *key, const char *path,
                       const sh_learned *train, sh_source **source_out) {
    sh_read read = sh_read_beside(options, path, train);
    SH_TRY(sh_parts_open(&read, key, NULL, source_out));
    // A file of its own need not be in parts: the arrays x and y of an NPZ file.
    if (*source_out == NULL && strcmp(key, "data.train") != 0) {
        read.part = SH_PART_TRAIN;
        SH_TRY(sh_parts_open(&read, key, NULL, source_out));
    }
    sh_status status = sh_check_part(options, train, *source_out);
    if (status != SH_OK) {
        sh_source_release(*source_out);
        *source_out = NULL;
    }
    return status;
}
