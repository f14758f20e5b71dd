/* Opening the data of a run: the training set first, as it decides what the others must be like;
 * then test and validation, from files of their own or held out of the training set; one
 * normalisation for all, measured on the training part alone. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/facts.h"
#include "data/fit.h"
#include "data/parts.h"
#include "data/split.h"

static const double TEXT_HOLD_OUT = 0.1;  // share of a text kept for validation by default

/* The files that are open; views share them. */
typedef struct opened {
    sh_source *train, *validation, *test;
    bool train_has_parts;
} opened;

/* Opens the training data, which decides what the other parts must be like, unless a model knows
 * that already. */
static sh_status open_train(const sh_data_options *options, opened *o) {
    sh_read read = {
        .path = options->train, .options = options, .target = sh_wanted_target(options)};
    sh_learned known = {0};
    if (options->known != NULL) {
        known = sh_learned_from(options->known);
        read = sh_read_beside(options, options->train, &known);
    }
    read.part = SH_PART_TRAIN;
    read.labels = options->labels;  // those of other parts lie beside them
    SH_TRY(sh_parts_open(&read, "data.train", &o->train_has_parts, &o->train));
    if (o->train == NULL) {
        SH_FAIL(SH_E_FORMAT, "'%s' has neither an array x nor x_train", options->train);
        return sh_error_hint("numpy.savez('data.npz', x=..., y=...)");
    }
    if (o->train->info.target == SH_TARGET_NONE) {
        SH_FAIL(SH_E_FORMAT, "'%s' has no labels to train on", options->train);
        return sh_error_hint("name the label file with 'data: {labels: FILE}'");
    }
    if (options->known != NULL) return sh_check_part(options, &known, o->train);
    SH_TRY(sh_check_target(o->train, read.target));
    if (o->train->info.target == SH_TARGET_CLASS && o->train->info.classes == 0) {
        SH_FAIL(SH_E_FORMAT, "every label of '%s' is %lld, which does not count", options->train,
                (long long)*options->ignore);
        return sh_error_hint("loss.ignore (--ignore) names another one");
    }
    return SH_OK;
}

/* Opens test and validation files where the run file names them. On failure the caller closes what
 * is open. */
static sh_status open_sources(const sh_data_options *options, opened *o) {
    SH_TRY(open_train(options, o));
    sh_learned train = sh_learned_of(o->train);
    if (options->test != NULL)
        SH_TRY(sh_open_part(options, "data.test", options->test, &train, &o->test));
    else if (o->train_has_parts)
        SH_TRY(sh_open_part(options, "data.train", options->train, &train, &o->test));
    if (options->validation != NULL)
        SH_TRY(
            sh_open_part(options, "data.validation", options->validation, &train, &o->validation));
    return SH_OK;
}

/* Refuses a held-out test part beside another one: it would be unclear which is meant. */
static sh_status check_hold_out_test(const sh_data_options *options, const opened *o) {
    if (!(options->hold_out_test >= 0 && options->hold_out_test < 1))
        return SH_FAIL(SH_E_USAGE, "hold_out_test %g is not in [0, 1)", options->hold_out_test);
    // A model's training set stays what it was, whatever else is to be tested on.
    if (options->hold_out_test == 0 || o->test == NULL || options->known != NULL) return SH_OK;
    if (options->test != NULL) {
        SH_FAIL(SH_E_USAGE, "both test data, '%s', and hold_out_test are given", options->test);
        return sh_error_hint("leave out one of them");
    }
    SH_FAIL(SH_E_USAGE, "'%s' brings a test part, and hold_out_test asks for another",
            options->train);
    return sh_error_hint("leave out hold_out_test (--hold-out-test)");
}

/* Decides which shares of the training data are held out. */
static sh_status choose_split(const sh_data_options *options, const opened *o, sh_split *split) {
    SH_TRY(check_hold_out_test(options, o));
    double part = options->hold_out, test = options->hold_out_test;
    // Unless told otherwise, a text without any other part keeps its end for validation.
    if (isnan(part))
        part = o->train->info.tokens && o->test == NULL && test == 0 ? TEXT_HOLD_OUT : 0;
    if (!(part >= 0 && part < 1)) return SH_FAIL(SH_E_USAGE, "hold_out %g is not in [0, 1)", part);
    if (o->validation != NULL) part = 0;
    if (part + test >= 1) {
        SH_FAIL(SH_E_USAGE, "hold_out %g and hold_out_test %g leave nothing to train on", part,
                test);
        return sh_error_hint("together they are below 1");
    }
    *split = (sh_split){.validation = part, .test = test, .seed = options->seed};
    return SH_OK;
}

/* Makes the three parts; those of one file share its bytes. Without a test part validation serves
 * as one. */
static sh_status make_views(const sh_data_options *options, opened *o, sh_data *data) {
    sh_split split;
    SH_TRY(choose_split(options, o, &split));
    SH_TRY(sh_split_make(o->train, &split, data));
    SH_TRY(sh_view_all(o->validation, &data->validation));
    if (o->test != NULL) {
        sh_dataset_destroy(data->test);
        data->test = NULL;
        SH_TRY(sh_view_all(o->test, &data->test));
    }
    // Shared, not copied; sh_data_close knows.
    if (data->test == NULL) data->test = data->validation;
    return SH_OK;
}

/* In a team, exchanges the sizes of parts; what is held out of a part is a part itself. */
static sh_status spread_parts(const sh_data_team *team, const opened *o, sh_data *data) {
    const sh_source *validation = o->validation != NULL ? o->validation : o->train;
    const sh_source *test = o->test != NULL || data->test == data->validation ? o->test : o->train;
    sh_dataset *sets[] = {
        sh_source_is_part(o->train, team) ? data->train : NULL,
        sh_source_is_part(validation, team) ? data->validation : NULL,
        sh_source_is_part(test, team) ? data->test : NULL,
    };
    if (sets[0] == NULL && sets[1] == NULL && sets[2] == NULL) return SH_OK;
    return sh_parts_exchange_sizes(team, sets, SH_COUNT(sets), &data->part_sizes);
}

/* Takes normalisation and vocabulary from the model that is used, or measures them on the training
 * part. */
static sh_status take_facts(const sh_data_options *options, const sh_source *train,
                            const sh_data_team *team, sh_data *data) {
    data->info = data->train->info;
    if (options->known != NULL) {
        sh_data facts;
        SH_TRY(sh_facts_copy(options->known, &facts));
        data->normal = facts.normal;
        data->vocabulary = facts.vocabulary;
        return SH_OK;
    }
    SH_TRY(sh_view_measure(data->train, options->normalise, team, &data->normal));
    if (train->vocabulary == NULL) return SH_OK;
    data->vocabulary = sh_strdup(train->vocabulary);
    return data->vocabulary != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory");
}

/* Normalises all parts alike and takes the fingerprint; both need the views. */
static sh_status finish(const sh_data_options *options, const sh_source *train, sh_data *data) {
    const sh_data_team *team = sh_source_is_part(train, options->team) ? options->team : NULL;
    SH_TRY(take_facts(options, train, team, data));
    SH_TRY(sh_view_normalise(data->train, &data->normal));
    if (data->validation != NULL) SH_TRY(sh_view_normalise(data->validation, &data->normal));
    if (data->test != NULL && data->test != data->validation)
        SH_TRY(sh_view_normalise(data->test, &data->normal));
    data->fingerprint = sh_view_fingerprint(data->train);
    return team != NULL ? sh_parts_fingerprint(team, &data->fingerprint) : SH_OK;
}

/* Logs one line per part, so that a wrong file or split is seen at the start. */
static void describe(const sh_log *log, const char *part, const sh_dataset *dataset) {
    if (dataset == NULL) return;
    char text[SH_SHAPE_TEXT];
    const sh_data_info *info = &dataset->info;
    const char *unit = info->tokens ? "windows" : "samples";
    SH_INFO(log, "%s: %zu %s of %s from '%s', %lld %s%s", part, info->count, unit,
            sh_shape_text(&info->sample, text), sh_view_source(dataset)->name,
            (long long)(info->target == SH_TARGET_VALUES ? info->values : info->classes),
            info->tokens                       ? "tokens"
            : info->target == SH_TARGET_VALUES ? "values"
                                               : "classes",
            info->target == SH_TARGET_NONE ? ", no labels" : "");
    const sh_parts *parts = &dataset->parts;
    size_t count = 0;
    for (int r = 0; r < parts->ranks; r++) count += parts->sizes[r];
    if (parts->ranks > 0)
        SH_INFO(log, "%s: that is the part of rank %d; %d parts have %zu samples", part,
                parts->rank, parts->ranks, count);
}

/* Opens all parts or none. */
sh_status sh_data_open(const sh_data_options *options, const sh_log *log, sh_data *data_out) {
    if (options->train == NULL || options->train[0] == '\0') {
        SH_FAIL(SH_E_USAGE, "no training data is named");
        return sh_error_hint("for example 'data: {train: digits}' or --data digits");
    }
    opened o = {0};
    sh_data data = {0};
    sh_status status;
    SH_TRY_OUT(open_sources(options, &o));
    SH_TRY_OUT(make_views(options, &o, &data));
    SH_TRY_OUT(spread_parts(options->team, &o, &data));
    SH_TRY_OUT(finish(options, o.train, &data));
    describe(log, "train", data.train);
    describe(log, "validation", data.validation);
    if (data.test != data.validation) describe(log, "test", data.test);
    *data_out = data;
    data = (sh_data){0};
out:
    sh_data_close(&data);
    sh_source_release(o.train);
    sh_source_release(o.validation);
    sh_source_release(o.test);
    return status;
}

/* Options with the model's own context and kind of tokens, whatever the user's say: other values
 * would not fit its weights. */
static sh_data_options options_for(const sh_data_options *options) {
    static char chars[] = "chars", bytes[] = "bytes";
    sh_data_options made = *options;
    if (!options->known->info.tokens) return made;
    made.context = options->known->info.sample.dim[0];
    made.tokens = options->known->vocabulary != NULL ? chars : bytes;
    return made;
}

/* Opens a part that has a file of its own, without the training data. */
static sh_status open_alone(const sh_data_options *options, const char *key, const char *path,
                            sh_dataset **dataset_out) {
    sh_learned known = sh_learned_from(options->known);
    sh_source *source = NULL;
    sh_dataset *dataset = NULL;
    SH_TRY(sh_open_part(options, key, path, &known, &source));
    if (source == NULL) return SH_FAIL(SH_E_FORMAT, "'%s' holds no samples", path);
    sh_status status = sh_view_all(source, &dataset);
    sh_source_release(source);
    if (status == SH_OK) status = sh_view_normalise(dataset, &options->known->normal);
    if (status == SH_OK)
        *dataset_out = dataset;
    else
        sh_dataset_destroy(dataset);
    return status;
}

/* Opens everything for a part that can only be found by splitting the training data. */
static sh_status open_all(const sh_data_options *options, const sh_log *log, sh_data *data) {
    sh_data whole;
    sh_status status = sh_data_open(options, log, &whole);
    if (status == SH_E_IO && options->train != NULL)
        return sh_error_hint(
            "the model does without its training data: name other data with --data");
    SH_TRY(status);
    sh_data_close(data);
    *data = whole;
    return SH_OK;
}

/* Opens one part, for `shoal eval` and `predict`. */
sh_status sh_data_open_part(const sh_data_options *options, const char *part, const sh_log *log,
                            sh_data *data) {
    bool is_test = strcmp(part, "test") == 0, is_validation = strcmp(part, "validation") == 0;
    const char *path = is_test ? options->test : is_validation ? options->validation : NULL;
    sh_dataset **set = is_test ? &data->test : &data->validation;
    if (data->train != NULL || (path != NULL && *set != NULL)) return SH_OK;
    sh_data_options made = options_for(options);
    if (path == NULL) return open_all(&made, log, data);
    SH_TRY(open_alone(&made, is_test ? "data.test" : "data.validation", path, set));
    describe(log, part, *set);
    return SH_OK;
}

/* Prediction alone can do without targets. */
sh_status sh_data_need_targets(const sh_dataset *dataset, const char *part) {
    if (dataset == NULL || dataset->info.target != SH_TARGET_NONE) return SH_OK;
    SH_FAIL(SH_E_SHAPE, "the %s data '%s' has no labels", part, sh_view_source(dataset)->name);
    return sh_error_hint("add them, as the training data has them; 'shoal predict' needs none");
}

/* The dataset if it is in parts; NULL for data that every worker has as a whole. */
static sh_dataset *if_part(sh_dataset *dataset) {
    return dataset != NULL && dataset->parts.ranks > 0 ? dataset : NULL;
}

/* Exchanges the sizes anew after workers died or joined: the parts that are left are the data
 * now. */
sh_status sh_data_regroup(sh_data *data, const sh_data_team *team) {
    sh_dataset *sets[] = {if_part(data->train), if_part(data->validation), if_part(data->test)};
    if (data->part_sizes == NULL) return SH_OK;
    sh_free(data->part_sizes);
    data->part_sizes = NULL;
    return sh_parts_exchange_sizes(team, sets, SH_COUNT(sets), &data->part_sizes);
}

/* Closes every part once: the test part may be the validation part. */
void sh_data_close(sh_data *data) {
    if (data->test != data->validation) sh_dataset_destroy(data->test);
    sh_dataset_destroy(data->validation);
    sh_dataset_destroy(data->train);
    sh_free(data->normal.mean);
    sh_free(data->normal.scale);
    sh_free(data->vocabulary);
    sh_free(data->part_sizes);
    *data = (sh_data){0};
}

/* Opens a single file or name, for evaluation and prediction. */
sh_status sh_dataset_open(const char *path_or_name, const sh_data_options *options,
                          const sh_normal *normal, const char *vocabulary,
                          sh_dataset **dataset_out) {
    sh_read read = {
        .path = path_or_name, .part = SH_PART_TEST, .options = options, .vocabulary = vocabulary};
    read.labels = options != NULL ? options->labels : NULL;
    read.target = sh_wanted_target(options);
    if (normal != NULL) read.width = (int64_t)normal->count;
    sh_source *source = NULL;
    sh_dataset *dataset = NULL;
    SH_TRY(sh_source_open(&read, NULL, &source));
    if (source == NULL) {  // a file of parts without a test part
        read.part = SH_PART_TRAIN;
        SH_TRY(sh_source_open(&read, NULL, &source));
        if (source == NULL) return SH_FAIL(SH_E_FORMAT, "'%s' holds no samples", path_or_name);
    }
    sh_status status = sh_check_target(source, read.target);
    if (status == SH_OK) status = sh_view_all(source, &dataset);
    if (status == SH_OK) status = sh_view_normalise(dataset, normal);
    sh_source_release(source);
    if (status != SH_OK) {
        sh_dataset_destroy(dataset);
        return status;
    }
    *dataset_out = dataset;
    return SH_OK;
}

/* Opens the training part first, since the test part has to fit it. */
static sh_status open_both(const char *path_or_name, const sh_data_options *options, opened *o) {
    sh_read read = {.path = path_or_name,
                    .part = SH_PART_TRAIN,
                    .options = options,
                    .labels = options->labels,
                    .target = sh_wanted_target(options)};
    SH_TRY(sh_source_open(&read, &o->train_has_parts, &o->train));
    if (o->train != NULL) SH_TRY(sh_check_target(o->train, read.target));
    if (!o->train_has_parts) return SH_OK;
    read.part = SH_PART_TEST;
    sh_learned train = {0};
    if (o->train != NULL) {
        train = sh_learned_of(o->train);
        read = sh_read_beside(options, path_or_name, &train);
    }
    SH_TRY(sh_source_open(&read, NULL, &o->test));
    if (o->train != NULL) return sh_check_part(options, &train, o->test);
    if (o->test != NULL) return sh_check_target(o->test, read.target);
    SH_FAIL(SH_E_FORMAT, "'%s' has no array x, x_train or x_test", path_or_name);
    return sh_error_hint("numpy.savez('data.npz', x=..., y=...)");
}

/* For `shoal data`, which shows what a file holds. */
sh_status sh_dataset_open_parts(const char *path_or_name, const sh_data_options *options,
                                sh_dataset_parts *parts_out) {
    opened o = {0};
    sh_dataset_parts parts = {0};
    sh_status status = open_both(path_or_name, options, &o);
    parts.whole = !o.train_has_parts;
    if (status == SH_OK) status = sh_view_all(o.train, &parts.train);
    if (status == SH_OK) status = sh_view_all(o.test, &parts.test);
    sh_source_release(o.train);
    sh_source_release(o.test);
    if (status != SH_OK)
        sh_dataset_close_parts(&parts);
    else
        *parts_out = parts;
    return status;
}

void sh_dataset_close_parts(sh_dataset_parts *parts) {
    sh_dataset_destroy(parts->train);
    sh_dataset_destroy(parts->test);
    *parts = (sh_dataset_parts){0};
}
