/* The progress line: when it is shown and what speed it tells. The speed is smoothed over some
 * seconds; the time that is left assumes that steps take as long as they did in this process. A
 * terminal gets one line, redrawn; a file gets a line now and then. */
#include "obs/progress.h"

#include <math.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/memory.h"

enum { COLUMNS_MAX = 256 };  // longest line

/* Between two updates, on a terminal and elsewhere. */
static const int64_t live_gap_ns = 100000000, plain_gap_ns = 2000000000;
static const int64_t epoch_gap_ns = 1000000000;  // between two lines that stay
static const double smooth_s = 3;                // time constant of the shown speed

struct sh_progress {
    sh_progress_options options;
    bool drawn;  // a live line is on the screen
    int64_t start_ns, shown_ns, epoch_ns;
    int64_t kept_ns;                  // when the last line that stays was written
    double kept_loss;                 // and its test
    int64_t rated_ns, rated_samples;  // where the speed was last taken
    double samples_per_s;
};

sh_status sh_progress_create(const sh_progress_options *options, sh_progress **progress_out) {
    sh_progress *progress = sh_alloc(1, sizeof *progress);
    if (progress == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for the progress line");
    progress->options = *options;
    progress->start_ns = sh_clock_now_ns(options->clock);
    progress->shown_ns = progress->epoch_ns = progress->start_ns;
    progress->rated_ns = progress->start_ns;
    progress->kept_ns = progress->start_ns - epoch_gap_ns;
    progress->samples_per_s = progress->kept_loss = NAN;
    *progress_out = progress;
    return SH_OK;
}

void sh_progress_destroy(sh_progress *progress) {
    sh_progress_clear(progress);
    sh_free(progress);
}

void sh_progress_clear(sh_progress *progress) {
    if (progress == NULL || !progress->drawn) return;
    fputs("\r\033[K", progress->options.file);
    fflush(progress->options.file);
    progress->drawn = false;
}

/* Columns of a line: one less than the terminal has, as a line that fills the last column would
 * wrap on some terminals. */
static int columns_of(const sh_progress *progress) {
    int columns = progress->options.columns;
    if (columns <= 0 && progress->options.live) {
        struct winsize size;
        if (ioctl(fileno(progress->options.file), TIOCGWINSZ, &size) == 0) columns = size.ws_col;
    }
    if (columns <= 0) columns = progress->options.live ? 80 : COLUMNS_MAX;
    return columns > COLUMNS_MAX ? COLUMNS_MAX - 1 : columns - 1;
}

/* Starts the speed's measurement anew, after an evaluation, whose time is no training time. */
static void rate_from_here(sh_progress *progress, int64_t now_ns, int64_t samples) {
    progress->rated_ns = now_ns;
    progress->rated_samples = samples;
}

/* Folds the speed since the last look into the shown one: exponential smoothing whose weight grows
 * with the time passed. */
static void update_speed(sh_progress *progress, int64_t now_ns, int64_t samples) {
    double passed_s = (double)(now_ns - progress->rated_ns) / 1e9;
    if (passed_s <= 0) return;
    double speed = (double)(samples - progress->rated_samples) / passed_s;
    double weight = isnan(progress->samples_per_s) ? 1 : 1 - exp(-passed_s / smooth_s);
    double before = isnan(progress->samples_per_s) ? 0 : progress->samples_per_s;
    progress->samples_per_s = before + weight * (speed - before);
    rate_from_here(progress, now_ns, samples);
}

/* Time left, if the steps to come take as long as those of this process so far; NaN: unknown. */
static double seconds_left(const sh_progress *progress, int64_t now_ns, int64_t step) {
    int64_t done = step - progress->options.first_step;
    int64_t left = progress->options.steps - step;
    if (progress->options.steps <= 0 || done <= 0) return NAN;
    double per_step_s = (double)(now_ns - progress->start_ns) / 1e9 / (double)done;
    return left > 0 ? per_step_s * (double)left : 0;
}

/* What both kinds of line have in common. */
static sh_progress_line line_at(const sh_progress *progress, const sh_progress_point *point) {
    return (sh_progress_line){.label = progress->options.label,
                              .point = *point,
                              .epochs = progress->options.epochs,
                              .steps = progress->options.steps,
                              .samples_per_s = progress->samples_per_s,
                              .left_s = NAN,
                              .passed_s = NAN};
}

/* Called after every step; costs one look at the clock when nothing is due. */
void sh_progress_step(sh_progress *progress, const sh_progress_point *point) {
    if (progress == NULL) return;
    int64_t now_ns = sh_clock_now_ns(progress->options.clock);
    bool live = progress->options.live;
    if (now_ns - progress->shown_ns < (live ? live_gap_ns : plain_gap_ns)) return;
    progress->shown_ns = now_ns;
    update_speed(progress, now_ns, point->samples);
    sh_progress_line line = line_at(progress, point);
    line.left_s = seconds_left(progress, now_ns, point->step);
    char text[COLUMNS_MAX + 1];
    sh_progress_format(&line, columns_of(progress), text);
    // Overwrite first and erase the rest after: erasing first would flicker.
    fprintf(progress->options.file, live ? "\r%s\033[K" : "%s\n", text);
    fflush(progress->options.file);
    progress->drawn = live;
}

/* Tells whether an epoch gets a line that stays. Small sets have a hundred epochs a second: a log
 * wants no line of each, and a launcher that does not read for a while would stop the run with a
 * full pipe. */
static bool is_kept(const sh_progress *progress, const sh_progress_point *point, int64_t now_ns) {
    bool last = progress->options.epochs > 0 && point->epoch >= progress->options.epochs;
    bool tested = !isnan(point->test_loss) && point->test_loss != progress->kept_loss;
    return last || tested || now_ns - progress->kept_ns >= epoch_gap_ns;
}

/* Takes the speed from the run: the line's own looks may be further apart than an epoch is long,
 * and an evaluation lies behind the last step. */
void sh_progress_epoch(sh_progress *progress, const sh_progress_point *point) {
    if (progress == NULL) return;
    int64_t now_ns = sh_clock_now_ns(progress->options.clock);
    int64_t begin_ns = progress->epoch_ns;
    progress->epoch_ns = now_ns;
    if (!is_kept(progress, point, now_ns)) {
        sh_progress_step(progress, point);
        return;
    }
    sh_progress_clear(progress);
    rate_from_here(progress, now_ns, point->samples);
    sh_progress_line line = line_at(progress, point);
    line.samples_per_s = point->samples_per_s;
    line.passed_s = (double)(now_ns - begin_ns) / 1e9;
    char text[COLUMNS_MAX + 1];
    sh_progress_format(&line, columns_of(progress), text);
    fprintf(progress->options.file, "%s\n", text);
    fflush(progress->options.file);
    progress->kept_ns = progress->shown_ns = now_ns;
    progress->kept_loss = point->test_loss;
}
