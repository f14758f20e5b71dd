/* What a command that trains shows meanwhile, and how it is asked to stop: the library's progress
 * hook feeds a live line on stderr (obs/progress.h), and a signal answers its stop hook. */
#include "base/clock.h"
#include "cli/common.h"

/* Begins the progress line with the first step, because the length of the run is known only then
 * (the data decides the steps of an epoch). A failure to create it is ignored: training goes on
 * without a line. */
static void start(sh_view *view, const shoal_progress *now) {
    sh_progress_options options = {.file = stderr,
                                   .label = view->label,
                                   .live = sh_is_terminal(),
                                   .clock = &sh_clock_real,
                                   .epochs = now->epochs,
                                   .steps = now->steps,
                                   .first_step = now->step};
    sh_progress_create(&options, &view->args->progress);
    view->first_samples = now->samples;
}

void sh_view_line(void *user, shoal_log_level level, const char *text) {
    const sh_view *view = user;
    shoal_hooks hooks = sh_args_hooks(view->args);
    hooks.line(hooks.user, level, text);
}

void sh_view_show(sh_view *view, const shoal_progress *now, bool stays) {
    sh_args *args = view->args;
    if (now->stops) return;  // reported once more before the checkpoint; the step has been shown
    // Workers that were started anew after a death count samples from 0: a new line begins, or its
    // speed would be negative.
    if (now->samples < view->last_samples) {  // workers started again count from the beginning
        sh_progress_destroy(args->progress);
        args->progress = NULL;
    }
    if (args->progress == NULL && !args->quiet) start(view, now);
    view->last_samples = now->samples;
    // Samples count from where this line began, so that the speed of a resumed run is not that of
    // its past.
    sh_progress_point point = {.epoch = now->epoch,
                               .step = now->step,
                               .samples = now->samples - view->first_samples,
                               .loss = now->train_loss,
                               .test_loss = now->test_loss,
                               .accuracy = now->test_accuracy,
                               .samples_per_s = now->samples_per_s};
    if (stays)
        sh_progress_epoch(args->progress, &point);
    else
        sh_progress_step(args->progress, &point);
}

/* Signals are caught from here on and not from the start of the program: while arguments are read
 * there is nothing to save, and Ctrl-C ends the program at once. */
shoal_hooks sh_args_watch(sh_args *args, void *user,
                          void (*line)(void *, shoal_log_level, const char *),
                          void (*progress)(void *, const shoal_progress *)) {
    shoal_hooks hooks = sh_args_hooks(args);
    hooks.user = user;
    hooks.line = line;
    hooks.progress = progress;
    hooks.stop = sh_wants_stop;
    sh_catch_signals();
    return hooks;
}

void sh_args_unwatch(sh_args *args) {
    sh_progress_clear(args->progress);
    args->signal = sh_caught_signal();
}
