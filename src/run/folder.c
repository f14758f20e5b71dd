/* The run's folder: run file, metrics, log, trace and checkpoints; what is there already is never
 * overwritten without being told so. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "ckpt/folder.h"
#include "data/facts.h"
#include "obs/metrics_read.h"
#include "run/costs.h"
#include "run/run.h"

static sh_status no_memory(void) { return SH_FAIL(SH_E_MEMORY, "out of memory for names"); }

/* A folder holds a run as soon as it has a run file, which is written when the run is sure to
 * begin. */
static bool holds_run(const char *folder) {
    char *file = sh_path_join(folder, "run.yaml");
    bool holds = file != NULL && sh_file_exists(file);
    sh_free(file);
    return holds;
}

/* Locks the folder, so that no other run writes into it while this one lives; a lock ends with its
 * process. False: another run has it. Where the file system has no locks, nobody is kept out. */
static bool claim(const char *folder, int *file_out) {
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *file_out = file > 0 ? file : 0;
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
    close(file);
    *file_out = 0;
    return false;
}

/* runs/NAME, or the next free runs/NAME-2, -3, … from `first` on; with `existing` the last one that
 * is taken. */
static char *default_folder(const char *name, bool existing, int *first_inout) {
    char *before = NULL;
    for (int i = *first_inout;; i++) {
        char *folder = i == 1 ? sh_format("runs/%s", name) : sh_format("runs/%s-%d", name, i);
        if (folder == NULL || !holds_run(folder)) {
            *first_inout = i;
            bool take_before = existing && before != NULL;
            sh_free(take_before ? folder : before);
            return take_before ? before : folder;
        }
        sh_free(before);
        before = folder;
    }
}

/* --resume auto: from the newest checkpoint, or from the beginning where there is none yet. */
static bool resumes_if_any(const shoal_run *run) {
    return run->config.resume != NULL && strcmp(run->config.resume, "auto") == 0;
}

/* The checkpoint is looked for in the folder that the run has anyway: --resume without PATH, or
 * auto. */
static bool resumes_itself(const shoal_run *run) {
    return resumes_if_any(run) ||
           (run->config.resume != NULL && strcmp(run->config.resume, "newest") == 0);
}

/* Checkpoints may be there without a run file, and must not be taken for those of a new run. */
static bool has_snapshots(const shoal_run *run) {
    int64_t *steps = NULL;
    size_t count = 0;
    char *folder = sh_path_join(run->files.folder, "checkpoints");
    bool has = folder != NULL && sh_file_exists(folder) &&
               sh_snapshots_list(folder, &steps, &count) == SH_OK && count > 0;
    sh_free(steps);
    sh_free(folder);
    return has;
}

/* With --resume DIR and no --out, the run goes on in DIR. `first_inout`: see default_folder. */
static sh_status choose_folder(shoal_run *run, int *first_inout) {
    const sh_config *config = &run->config;
    bool resumes = config->resume != NULL;
    if (config->out != NULL)
        run->files.folder = sh_strdup(config->out);
    else if (resumes && !resumes_itself(run) && holds_run(config->resume))
        run->files.folder = sh_strdup(config->resume);
    else
        run->files.folder =
            default_folder(config->name != NULL ? config->name : "run", resumes, first_inout);
    if (run->files.folder == NULL) return no_memory();
    if (resumes || config->overwrite) return SH_OK;
    if (holds_run(run->files.folder))
        SH_FAIL(SH_E_USAGE, "'%s' already holds a run", run->files.folder);
    else if (has_snapshots(run))
        SH_FAIL(SH_E_USAGE, "'%s' already holds checkpoints", run->files.folder);
    else
        return SH_OK;
    return sh_error_hint(
        "--resume continues it, --overwrite starts afresh, --out DIR goes elsewhere");
}

static sh_status check_snapshots(const shoal_run *run) {
    const sh_config *config = &run->config;
    bool fresh = config->resume == NULL && !config->overwrite;
    int64_t every =
        config->checkpoint_every > 0 ? config->checkpoint_every : run->length.steps_per_epoch;
    char *folder = sh_path_join(run->files.folder, "checkpoints");
    if (folder == NULL) return no_memory();
    sh_status status = sh_snapshots_check(folder, every, run->length.steps, fresh);
    sh_free(folder);
    return status;
}

/* Visitor of metrics: of several runs in one file the last one's figure stays. */
static void find_peak(void *mib_out, const char *event, const json_t *object) {
    double peak = sh_metrics_number(object, "peak_rss_mib");
    if (strcmp(event, "end") == 0 && !isnan(peak)) *(double *)mib_out = peak;
}

/* The peak memory that the newest run in the folder this run would have reports at its end. */
bool sh_run_measured_mib(const shoal_run *run, double *mib_out) {
    const char *name = run->config.name != NULL ? run->config.name : "run";
    int first = 1;
    char *folder =
        run->config.out != NULL ? sh_strdup(run->config.out) : default_folder(name, true, &first);
    char *path = folder != NULL ? sh_path_join(folder, "metrics.jsonl") : NULL;
    double peak_mib = NAN;
    if (path != NULL && sh_file_exists(path)) sh_metrics_read(path, find_peak, &peak_mib);
    sh_free(path);
    sh_free(folder);
    if (!isnan(peak_mib)) *mib_out = peak_mib;
    return !isnan(peak_mib);
}

/* The path of a file in the run's folder; sh_free it. */
static sh_status in_folder(const shoal_run *run, const char *name, char **path_out) {
    *path_out = sh_path_join(run->files.folder, name);
    return *path_out != NULL ? SH_OK : no_memory();
}

/* Snapshots of an older run would be newer than those to come. */
static sh_status remove_snapshots(const shoal_run *run) {
    char *folder;
    SH_TRY(in_folder(run, "checkpoints", &folder));
    sh_status status = sh_file_exists(folder) ? sh_snapshots_remove_all(folder) : SH_OK;
    sh_free(folder);
    return status;
}

/* The run file of this very run, without what was meant for its start alone: whoever trains from it
 * again must say so again. */
static sh_status write_run_file(const shoal_run *run) {
    sh_config written = run->config;
    written.resume = NULL;
    written.overwrite = false;
    char *path, *text = sh_options_print(sh_config_table(), &written);
    if (text == NULL) return no_memory();
    sh_status status = in_folder(run, "run.yaml", &path);
    if (status == SH_OK) status = sh_file_write(path, text, strlen(text));
    sh_free(path);
    sh_free(text);
    return status;
}

static void pass_line(void *self, sh_log_level level, const char *text) {
    const shoal_run *run = self;
    if (run->hooks.line != NULL) run->hooks.line(run->hooks.user, (shoal_log_level)level, text);
}

/* A log is never cut, so that it can begin before the run is sure to. */
static sh_status open_log(shoal_run *run) {
    char *path = NULL;
    SH_TRY(in_folder(run, "log.txt", &path));
    sh_run_log_options log = {
        .path = path,
        .clock = &sh_clock_real,
        .unix_ns = run->hooks.unix_ns + (sh_run_now(run) - run->stats.start_ns),
        .next = {.line = pass_line, .self = run}};
    sh_status status = sh_run_log_open(&log, &run->files.run_log);
    sh_free(path);
    SH_TRY(status);
    run->log = sh_run_log_sink(run->files.run_log);
    return SH_OK;
}

/* `kept_step`: of the metrics those up to it stay; SH_METRICS_FRESH: none. */
static sh_status open_metrics(shoal_run *run, int64_t kept_step) {
    char *path = NULL;
    SH_TRY(in_folder(run, "metrics.jsonl", &path));
    sh_status status = sh_metrics_open(path, kept_step, &run->files.metrics);
    sh_free(path);
    SH_TRY(status);
    if (!run->config.tensorboard) return SH_OK;
    int64_t unix_ns = run->hooks.unix_ns + (sh_run_now(run) - run->stats.start_ns);
    SH_TRY(sh_tensorboard_open(run->files.folder, run->clock, unix_ns, &run->files.tensorboard));
    sh_metrics_share(run->files.metrics, run->files.tensorboard);
    return SH_OK;
}

static sh_status open_trace(shoal_run *run) {
    char *path = NULL;
    if (!run->config.trace) return SH_OK;
    SH_TRY(in_folder(run, "trace.json", &path));
    sh_status status = sh_chrome_trace_open(path, 0, run->clock, &run->files.trace_file);
    sh_free(path);
    SH_TRY(status);
    run->files.trace = sh_chrome_trace_sink(run->files.trace_file);
    return SH_OK;
}

/* The blocks of the run's learner, borrowed. `slots` must live as long as the result. */
static sh_checkpoint blocks_of(const shoal_run *run, sh_checkpoint_slot slots[SH_LEARNER_SLOTS]) {
    return run->learner.kind->blocks(&run->learner, slots);
}

/* Which data a checkpoint belongs to. Data in parts belongs to as many workers. */
static void data_text(const shoal_run *run, char text_out[48]) {
    int length = snprintf(text_out, 48, "%016lx", (unsigned long)run->data.fingerprint);
    int parts = run->data.train->parts.ranks;
    if (parts > 0) snprintf(text_out + length, 48 - (size_t)length, " in %d parts", parts);
}

/* How many parts the text above tells of; 0: none. */
static int parts_in(const char *text) {
    const char *parts = strstr(text, " in ");
    return parts != NULL ? atoi(parts + 4) : 0;
}

static sh_status fail_parts(const char *source, int theirs, int mine) {
    const char *these[] = {"not in parts", "in parts, one for each worker"};
    if (theirs > 0 && mine > 0)
        SH_FAIL(SH_E_USAGE, "'%s' was trained on %d parts, one for each worker; this run has %d",
                source, theirs, mine);
    else
        SH_FAIL(SH_E_USAGE, "'%s' was trained on data %s, this run's data is %s", source,
                these[theirs > 0], these[mine > 0]);
    if (theirs > 0)
        return sh_error_hint("go on with %d workers (-n %d), or start anew with --load %s", theirs,
                             theirs, source);
    return sh_error_hint("--load %s starts a new run from its parameters", source);
}

/* A resumed run must go on with the very sequence of batches, which data, seed and batch size
 * fix. */
static sh_status check_same_data(const shoal_run *run, const sh_checkpoint_info *info,
                                 const char *source) {
    char mine[48];
    data_text(run, mine);
    if (info->data != NULL && parts_in(info->data) != parts_in(mine))
        return fail_parts(source, parts_in(info->data), parts_in(mine));
    if (info->data != NULL && strcmp(info->data, mine) != 0) {
        SH_FAIL(SH_E_USAGE, "'%s' was trained on other data", source);
        return sh_error_hint("--load %s starts a new run from its parameters", source);
    }
    const char *what = NULL;
    int64_t theirs = 0, own = 0;
    if ((int64_t)info->seed != run->config.seed) {
        what = "seed";
        theirs = (int64_t)info->seed;
        own = run->config.seed;
    } else if (info->of_batch > 0 && info->of_batch != run->config.batch) {
        what = "batch";
        theirs = info->of_batch;
        own = run->config.batch;
    }
    if (what == NULL) return SH_OK;
    SH_FAIL(SH_E_USAGE, "'%s' was trained with %s %ld, this run has %ld", source, what,
            (long)theirs, (long)own);
    return sh_error_hint("go on with --%s %ld, or start a new run from its parameters: --load %s",
                         what, (long)theirs, source);
}

/* The kernel choices of the first part of the run come first, then everything else. */
sh_status sh_run_resume(shoal_run *run) {
    if (run->config.resume == NULL) return SH_OK;
    if (resumes_if_any(run) && !has_snapshots(run)) {
        // So that a batch job can be launched again whenever it ended.
        SH_INFO(&run->log, "'%s' has no checkpoint yet: from the beginning", run->files.folder);
        return SH_OK;
    }
    const char *source = resumes_itself(run) ? run->files.folder : run->config.resume;
    sh_checkpoint_slot slots[SH_LEARNER_SLOTS];
    sh_checkpoint checkpoint = blocks_of(run, slots);
    SH_TRY(sh_checkpoint_load(source, &run->log, &checkpoint));
    sh_checkpoint_info *info = &checkpoint.info;
    sh_status status = check_same_data(run, info, source);
    if (status == SH_OK && info->kernels != NULL)
        status =
            sh_tuner_load(run->model.tuner, source, info->kernels, strlen(info->kernels), false);
    if (run->learner.kind->adopt != NULL) run->learner.kind->adopt(&run->learner, info->workers);
    run->at.step = info->step;
    run->at.epoch = info->epoch;
    run->at.batch = info->batch;
    run->at.samples = info->samples;
    run->results.best = info->best;
    sh_checkpoint_info_fini(info);
    return status;
}

static sh_status refuse_claimed(const shoal_run *run) {
    SH_FAIL(SH_E_USAGE, "another run writes into '%s' now", run->files.folder);
    return sh_error_hint("wait for it, or give this one another folder: --out DIR");
}

static sh_status take_folder(shoal_run *run) {
    bool named = run->config.out != NULL || run->config.resume != NULL;
    for (int first = 1;; first++) {
        SH_TRY(choose_folder(run, &first));
        SH_TRY(check_snapshots(run));
        SH_TRY(sh_run_resume(run));  // what cannot be resumed leaves no folder behind
        SH_TRY(sh_make_folders(run->files.folder));
        if (claim(run->files.folder, &run->files.folder_claim)) return SH_OK;
        if (named) return refuse_claimed(run);
        sh_free(run->files.folder);  // one that began at the same time was quicker: the next name
        run->files.folder = NULL;
    }
}

sh_status sh_run_open_folder(shoal_run *run) {
    SH_TRY(take_folder(run));
    SH_TRY(open_log(run));
    if (run->hooks.folder != NULL) run->hooks.folder(run->hooks.user, run->files.folder);
    if (run->config.trace) run->model.trace = &run->files.trace;  // silent until its file is there
    return SH_OK;
}

sh_status sh_run_begin_files(shoal_run *run) {
    bool resumes = run->config.resume != NULL;
    if (run->config.overwrite && !resumes) SH_TRY(remove_snapshots(run));
    // Lines after the resumed step are dropped: those steps are done, and written, again.
    SH_TRY(open_metrics(run, resumes ? run->at.step : SH_METRICS_FRESH));
    SH_TRY(open_trace(run));
    return write_run_file(run);
}

/* A trace ends with the process that wrote it. */
sh_status sh_run_take_over_folder(shoal_run *run) {
    if (!claim(run->files.folder, &run->files.folder_claim)) return refuse_claimed(run);
    SH_TRY(open_log(run));
    return open_metrics(run, run->at.step);
}

/* Beside the learner's blocks goes all that a resumed run needs to go on with the same bits:
 * position, seed, data and kernel choices. */
static sh_status write_snapshot(shoal_run *run) {
    char fingerprint[48], *folder;
    data_text(run, fingerprint);
    SH_TRY(in_folder(run, "checkpoints", &folder));
    sh_checkpoint_slot slots[SH_LEARNER_SLOTS];
    sh_checkpoint checkpoint = blocks_of(run, slots);
    char *facts = NULL;
    sh_status status = sh_facts_print(&run->data, &facts);
    checkpoint.info = (sh_checkpoint_info){
        .step = run->at.step,
        .epoch = run->at.epoch,
        .batch = run->at.batch,
        .samples = run->at.samples,
        .of_batch = run->config.batch,
        .seed = (uint64_t)run->config.seed,
        .best = run->results.best,
        .workers = checkpoint.info.workers,
        .data = fingerprint,
        .model = checkpoint.info.model,
        .kernels = sh_tuner_print(run->model.tuner, true),
        .facts = facts,
    };
    if (status == SH_OK) status = sh_make_folders(folder);
    if (status == SH_OK)
        status = sh_checkpoint_save(folder, &checkpoint, (int)run->config.checkpoint_keep);
    sh_free(checkpoint.info.kernels);
    sh_free(facts);
    sh_free(folder);
    return status;
}

/* Somebody removed or renamed the folder under the run: what is needed to go on is written anew. */
static sh_status restore_folder(const shoal_run *run) {
    SH_WARN(&run->log,
            "'%s' is gone and is made anew: run file and checkpoints from here on; its log and "
            "metrics are lost",
            run->files.folder);
    SH_TRY(sh_make_folders(run->files.folder));
    return write_run_file(run);
}

/* The error of the failed write stays, and gets a hint; looking for older checkpoints must not
 * replace it. */
static sh_status tell_how_to_go_on(const shoal_run *run) {
    const sh_error error = *sh_error_last();
    bool has = has_snapshots(run);
    (void)sh_error_adopt(&error);
    if (!has) return sh_error_hint("make room, or choose another folder with --out");
    return sh_error_hint(
        "make room, then 'shoal train %s --resume': the checkpoints before are whole",
        run->files.folder);
}

sh_status sh_run_save(shoal_run *run) {
    if (!holds_run(run->files.folder)) SH_TRY(restore_folder(run));
    sh_status status = write_snapshot(run);
    if (status != SH_OK && !holds_run(run->files.folder)) {  // it went meanwhile
        SH_TRY(restore_folder(run));
        status = write_snapshot(run);
    }
    return status == SH_E_IO ? tell_how_to_go_on(run) : status;
}

sh_status sh_run_save_together(shoal_run *run) {
    sh_team *team = &run->team;
    sh_team_writing(team, run->at.step);
    if (sh_team_leads(team)) {
        SH_TRY(sh_run_save(run));
        sh_team_saved(team, run->at.step);
    }
    return sh_team_wrote(team, run->at.step);
}

/* A damaged cache costs time and not the run: its kernels are measured anew. */
void sh_run_load_kernels(shoal_run *run) {
    char *path = sh_choices_path(run->folders.cache);
    sh_mapped file;
    if (path != NULL && sh_file_exists(path) && sh_file_map(path, &file) == SH_OK) {
        if (sh_tuner_load(run->model.tuner, path, (const char *)file.data, file.bytes, true) !=
            SH_OK)
            SH_WARN(&run->log, "%s; measuring anew", sh_error_last()->text);
        sh_file_unmap(&file);
    }
    sh_free(path);
}

/* A cache that cannot be written is a warning only, as the run needs none of it. */
void sh_run_save_kernels(shoal_run *run) {
    char *path = sh_tuner_changed(run->model.tuner) ? sh_choices_path(run->folders.cache) : NULL;
    char *text = path != NULL ? sh_tuner_print(run->model.tuner, false) : NULL;
    if (text != NULL && (sh_make_folders(run->folders.cache) != SH_OK ||
                         sh_file_write(path, text, strlen(text)) != SH_OK))
        SH_WARN(&run->log, "kernel choices are not remembered: %s", sh_error_last()->text);
    sh_free(text);
    sh_free(path);
}
