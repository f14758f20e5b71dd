/* shoal_report: a page about one or several runs. obs/report.h reads what a run's folder tells and
 * writes the page; this file adds, for classifiers, what the newest checkpoint says to the test
 * part: a confusion matrix and the surest mistakes. */
#include <math.h>
#include <string.h>

#include "api/picture.h"
#include "base/memory.h"
#include "base/text.h"
#include "obs/report.h"
#include "run/need.h"
#include "run/run.h"
#include "shoal/tools.h"

/* Most classes of a confusion matrix that a page can show; mistakes that are kept. */
enum { CLASSES_MOST = 50, MISTAKES_MOST = 16 };

/* A sample that the model took for another class. */
typedef struct mistake {
    int64_t index;        // of the sample in the test part
    int32_t truth, said;  // classes
    double probability;   // of what was said
} mistake;

/* Answers of a classifier to the samples of a dataset, counted as they come. */
typedef struct judge {
    const sh_dataset *dataset;
    int64_t *counts;                  // (classes, classes): [truth][said]
    mistake mistakes[MISTAKES_MOST];  // the surest first
    size_t mistake_count;
} judge;

/* Probability of the largest output under softmax: 1 / sum exp(output - largest). No exponent is
 * above 0, so nothing overflows. */
static double probability_of(const float *output, int64_t width, int64_t largest) {
    double sum = 0;
    for (int64_t i = 0; i < width; i++) sum += exp((double)output[i] - (double)output[largest]);
    return 1 / sum;
}

/* Inserts a mistake into the list of the surest, which stays sorted and bounded; the least sure
 * falls out. */
static void keep_mistake(judge *j, mistake made) {
    size_t at = j->mistake_count;
    while (at > 0 && j->mistakes[at - 1].probability < made.probability) at--;
    if (at == MISTAKES_MOST) return;
    if (j->mistake_count < MISTAKES_MOST) j->mistake_count++;
    memmove(&j->mistakes[at + 1], &j->mistakes[at],
            (j->mistake_count - 1 - at) * sizeof *j->mistakes);
    j->mistakes[at] = made;
}

/* Callback of shoal_run_predict. Samples without a class that counts are skipped. */
static void judge_row(void *user, int64_t index, const float *output, int64_t width) {
    judge *j = user;
    int32_t truth = -1;
    j->dataset->get(j->dataset, (size_t)index, NULL, &truth);
    if (truth < 0 || truth >= width || width != j->dataset->info.classes) return;
    int64_t said = 0;
    for (int64_t i = 1; i < width; i++)
        if (output[i] > output[said]) said = i;
    j->counts[truth * width + said]++;
    if (said != truth)
        keep_mistake(j,
                     (mistake){index, truth, (int32_t)said, probability_of(output, width, said)});
}

/* Names of classes for the page: their numbers, as data sets tell no others. */
static json_t *names_json(int64_t classes) {
    json_t *names = json_array();
    for (int64_t i = 0; i < classes; i++)
        json_array_append_new(names, json_sprintf("%lld", (long long)i));
    return names;
}

/* Confusion matrix: a row per true class, a column per answer. */
static json_t *counts_json(const judge *j, int64_t classes) {
    json_t *rows = json_array();
    for (int64_t truth = 0; truth < classes; truth++) {
        json_t *row = json_array();
        for (int64_t said = 0; said < classes; said++)
            json_array_append_new(row, json_integer(j->counts[truth * classes + said]));
        json_array_append_new(rows, row);
    }
    return rows;
}

/* The surest mistakes, with a picture where the sample is an image. */
static json_t *mistakes_json(const judge *j) {
    json_t *list = json_array();
    for (size_t i = 0; i < j->mistake_count; i++) {
        const mistake *m = &j->mistakes[i];
        char *image = sh_picture_of_sample(j->dataset, (size_t)m->index);
        json_t *one =
            json_pack("{s:I, s:o, s:o, s:f, s:s?}", "index", (json_int_t)m->index, "truth",
                      json_sprintf("%d", m->truth), "said", json_sprintf("%d", m->said),
                      "probability", m->probability, "image", image);
        sh_free(image);
        if (one != NULL) json_array_append_new(list, one);
    }
    return list;
}

/* Whether a confusion matrix makes sense: one class per sample, and few enough to be shown. */
static bool is_shown(const sh_data_info *info) {
    return info->target == SH_TARGET_CLASS && info->classes > 1 && info->classes <= CLASSES_MOST;
}

/* Adds "confusion" and "mistakes" to the run's object, if it is such a classifier. */
static sh_status judge_run(shoal_run *run, json_t *report) {
    judge j = {0};
    SH_TRY(sh_run_part(run, "test", &j.dataset));
    if (!is_shown(&j.dataset->info)) return SH_OK;
    int64_t classes = j.dataset->info.classes;
    j.counts = sh_alloc((size_t)(classes * classes), sizeof *j.counts);
    if (j.counts == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a report");
    sh_status status = (sh_status)shoal_run_predict(run, "test", judge_row, &j);
    if (status == SH_OK) {
        json_object_set_new(report, "confusion",
                            json_pack("{s:o, s:o}", "names", names_json(classes), "counts",
                                      counts_json(&j, classes)));
        json_object_set_new(report, "mistakes", mistakes_json(&j));
    }
    sh_free(j.counts);
    return status;
}

/* Settings of a run from its folder, without those that named where its training started. */
static shoal_status read_config(shoal_config *config, const char *folder) {
    char *path = sh_format("%s/run.yaml", folder);
    if (path == NULL) return (shoal_status)SH_FAIL(SH_E_MEMORY, "out of memory for a path");
    shoal_status status = shoal_config_read(config, path);
    sh_free(path);
    SHOAL_TRY(status);
    SHOAL_TRY(shoal_config_set(config, "resume", NULL));
    return shoal_config_set(config, "load", NULL);
}

/* Opens the newest checkpoint of a folder and judges it. Its messages are dropped: they concern a
 * run that the user did not start. */
static shoal_status judge_folder(const char *folder, const shoal_hooks *hooks, json_t *report) {
    shoal_config *config = NULL;
    shoal_run *run = NULL;
    SHOAL_TRY(shoal_config_create(&config));
    shoal_status status = read_config(config, folder);
    shoal_hooks quiet = *hooks;
    quiet.line = NULL;
    if (status == SHOAL_OK) status = shoal_run_open_saved(config, folder, &quiet, &run);
    if (status == SHOAL_OK) status = (shoal_status)judge_run(run, report);
    shoal_run_close(run);
    shoal_config_destroy(config);
    return status;
}

/* Adds the checkpoint's answers, or says why there are none: a report without them is still a
 * report, and the data may be gone by now. */
static void add_answers(const char *folder, const shoal_hooks *hooks, json_t *report) {
    if (judge_folder(folder, hooks, report) == SHOAL_OK || hooks->line == NULL) return;
    char *line =
        sh_format("%s: the test part was not measured again: %s", folder, sh_error_last()->text);
    if (line != NULL) hooks->line(hooks->user, SHOAL_LOG_INFO, line);
    sh_free(line);
}

/* Writes the page to `path`; NULL: report.html in `folder`. */
static sh_status write_report(const json_t *runs, const char *folder, const char *path) {
    char *inside = path == NULL ? sh_format("%s/report.html", folder) : NULL;
    if (path == NULL && inside == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a path");
    sh_status status = sh_report_write(runs, path != NULL ? path : inside);
    sh_free(inside);
    return status;
}

/* Every folder must be readable: a page that silently lacks a run would mislead. */
shoal_status shoal_report(const char *const *folders, size_t count, bool measures,
                          const shoal_hooks *hooks, const char *path) {
    SHOAL_NEED(folders);
    if (count == 0) return (shoal_status)SH_FAIL(SH_E_USAGE, "a report needs a run's folder");
    for (size_t i = 0; i < count; i++) SHOAL_NEED(folders[i]);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    json_t *runs = json_array();
    sh_status status = SH_OK;
    for (size_t i = 0; i < count && status == SH_OK; i++) {
        json_t *run = NULL;
        status = sh_report_read(folders[i], &run);
        if (status != SH_OK) break;
        if (measures) add_answers(folders[i], &whole, run);
        json_array_append_new(runs, run);
    }
    if (status == SH_OK) status = write_report(runs, folders[0], path);
    json_decref(runs);
    return (shoal_status)status;
}
