/* What a run shows while it goes on: one live line on a terminal, plain lines now and then
 * elsewhere (a file, a pipe, a batch system). Ends of epochs stay on the screen. Whether the file
 * is a terminal is the caller's knowledge; time comes from the clock that is passed in. One task at
 * a time. */
#ifndef SH_OBS_PROGRESS_H
#define SH_OBS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/status.h"

/* Where the run stands. Numbers that are NaN are unknown and left out. */
typedef struct sh_progress_point {
    int64_t epoch, step;  // finished or under way, from 1; step counts over the whole run
    int64_t samples;      // seen by this process since it started
    double loss;          // of training
    double test_loss;
    double accuracy;       // a part of 1
    double samples_per_s;  // of the last steps, as the run measured it; for ends of epochs
} sh_progress_point;

typedef struct sh_progress_options {
    FILE *file;             // kept
    const char *label;      // before every line, kept; NULL: none
    bool live;              // a terminal: one line, redrawn
    int columns;            // its width; 0: ask the terminal each time
    const sh_clock *clock;  // kept
    int64_t epochs, steps;  // of the whole run; 0: unknown
    int64_t first_step;     // steps that were done before this process started
} sh_progress_options;

typedef struct sh_progress sh_progress;

sh_status sh_progress_create(const sh_progress_options *options, sh_progress **progress_out);
/* Clears the live line. NULL is welcome here and below, and shows nothing. */
void sh_progress_destroy(sh_progress *progress);

/* After a step: shows at most ten updates a second live, one every two seconds elsewhere. */
void sh_progress_step(sh_progress *progress, const sh_progress_point *point);
/* After an epoch and its evaluation: a line that stays. Of epochs without a test that are shorter
 * than a second, one a second has it, and the last. */
void sh_progress_epoch(sh_progress *progress, const sh_progress_point *point);
/* Takes the live line away, so that other words can be written; the next step draws it again. */
void sh_progress_clear(sh_progress *progress);

/* A line of progress, for tests and other views. */
typedef struct sh_progress_line {
    const char *label;  // NULL: none
    sh_progress_point point;
    int64_t epochs, steps;    // 0: unknown
    double samples_per_s;     // NaN: unknown
    double left_s, passed_s;  // NaN: left out
} sh_progress_line;

/* Formats a line of at most `columns` characters (ASCII, no newline) into `text_out`, which holds
 * one more. Where the room is short, words are shortened first and then the least important parts
 * left out. Pure. */
void sh_progress_format(const sh_progress_line *line, int columns, char *text_out);

/* "0:07", "12:34", "3:07:45", "2d 03h". */
void sh_progress_format_time(double seconds, char text_out[24]);

#endif
