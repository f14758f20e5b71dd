/* What a command that trains shows while it does, and how it is asked to stop. */
#include "base/clock.h"
#include "cli/common.h"

/* The length of a run is known only once it goes: the line starts after the first step. A failure
 * is no matter, as it is only a view. */
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
    if (now->stops) return;                   // the step was shown
    if (now->samples < view->last_samples) {  // workers started again count from the beginning
        sh_progress_destroy(args->progress);
        args->progress = NULL;
    }
    if (args->progress == NULL && !args->quiet) start(view, now);
    view->last_samples = now->samples;
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
