#include "obs/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static int64_t read_now(void *self) { return *(int64_t *)self; }

static sh_progress_line full_line(void) {
    return (sh_progress_line){
        .point = {.epoch = 2, .step = 1234, .loss = 0.12344, .test_loss = NAN, .accuracy = 0.98765},
        .epochs = 10,
        .steps = 4690,
        .samples_per_s = 12345.6,
        .left_s = 83,
        .passed_s = NAN,
    };
}

static void check_format(const sh_progress_line *line, int columns, const char *expected) {
    char text[300];
    sh_progress_format(line, columns, text);
    assert_string_equal(text, expected);
}

TEST(progress, shows_all_where_there_is_room) {
    sh_progress_line line = full_line();
    check_format(&line, 100,
                 "epoch 2/10  step 1234/4690  loss 0.1234  accuracy 98.77 %  12346 samples/s  "
                 "ETA 1:23");
}

/* A terminal of 80 columns, of which the last stays empty, and a test loss that has to go. */
TEST(progress, shortens_words_before_it_drops_numbers) {
    sh_progress_line line = full_line();
    line.point.test_loss = 0.25;
    check_format(&line, 79,
                 "epoch 2/10  step 1234/4690  loss 0.1234  acc 98.77%  12346 samples/s  ETA 1:23");
    line.point.step = 12345;
    line.steps = 46900;
    check_format(&line, 79,
                 "epoch 2/10  step 12345/46900  loss 0.1234  accuracy 98.77 %  12346/s  ETA 1:23");
    line.left_s = 7 * 3600;
    check_format(&line, 79,
                 "epoch 2/10  step 12345/46900  loss 0.1234  acc 98.77%  12346/s  ETA 7:00:00");
}

TEST(progress, drops_the_least_important_first) {
    sh_progress_line line = full_line();
    check_format(&line, 69, "epoch 2/10  step 1234/4690  loss 0.1234  accuracy 98.77 %  ETA 1:23");
    check_format(&line, 62, "epoch 2/10  step 1234/4690  loss 0.1234  acc 98.77%  ETA 1:23");
    check_format(&line, 58, "epoch 2/10  step 1234/4690  loss 0.1234  accuracy 98.77 %");
    check_format(&line, 40, "epoch 2/10  step 1234/4690  loss 0.1234");
    check_format(&line, 12, "loss 0.1234");
    check_format(&line, 3, "");
}

TEST(progress, never_exceeds_the_columns) {
    sh_progress_line line = full_line();
    line.point.test_loss = 1e-9;
    line.passed_s = 1e9;
    line.point.epoch = line.epochs = line.point.step = line.steps = INT64_MAX;
    for (int columns = 0; columns < 250; columns++) {
        char *text = malloc((size_t)columns + 1);  // exact, so that a sanitizer sees overruns
        sh_progress_format(&line, columns, text);
        assert_true((int)strlen(text) <= columns);
        free(text);
    }
}

TEST(progress, leaves_out_what_is_unknown) {
    sh_progress_line line = {.point = {.step = 5, .loss = 1e-7, .test_loss = NAN, .accuracy = NAN},
                             .samples_per_s = NAN,
                             .left_s = NAN,
                             .passed_s = NAN};
    check_format(&line, 80, "step 5  loss 1.000e-07");
}

TEST(progress, formats_times_from_seconds_to_days) {
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0:00"},        {7.4, "0:07"},      {59.6, "1:00"},      {754, "12:34"},
                 {11265, "3:07:45"}, {183600, "2d 03h"}, {1e300, "999d 00h"}, {-5, "0:00"}};
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        char text[24];
        sh_progress_format_time(cases[i].seconds, text);
        assert_string_equal(text, cases[i].text);
    }
}

typedef struct screen {
    int64_t now_ns;
    sh_clock clock;
    char *text;
    size_t bytes;
    FILE *file;
    sh_progress *progress;
} screen;

static void screen_open(screen *s, bool live) {
    *s = (screen){.now_ns = 5000000000};
    s->clock = (sh_clock){read_now, &s->now_ns};
    s->file = open_memstream(&s->text, &s->bytes);
    sh_progress_options options = {.file = s->file,
                                   .live = live,
                                   .columns = 100,
                                   .clock = &s->clock,
                                   .epochs = 2,
                                   .steps = 1000,
                                   .first_step = 500};
    CHECK_OK(sh_progress_create(&options, &s->progress));
}

static void screen_close(screen *s) {
    sh_progress_destroy(s->progress);
    fclose(s->file);
    free(s->text);
}

/* `count` steps of 10 samples, 10 ms apart. */
static void run_steps(screen *s, int first, int count) {
    for (int i = 0; i < count; i++) {
        s->now_ns += 10000000;
        sh_progress_point point = {.epoch = 1,
                                   .step = 501 + first + i,
                                   .samples = 10 * (first + i + 1),
                                   .loss = 0.5,
                                   .test_loss = NAN,
                                   .accuracy = NAN};
        sh_progress_step(s->progress, &point);
    }
    fflush(s->file);
}

static int count_of(const char *text, char c) {
    int count = 0;
    for (; *text != '\0'; text++) count += *text == c;
    return count;
}

TEST(progress, redraws_a_live_line_ten_times_a_second) {
    screen s;
    screen_open(&s, true);
    run_steps(&s, 0, 100);
    assert_int_equal(count_of(s.text, '\r'), 10);
    assert_int_equal(count_of(s.text, '\n'), 0);
    const char *last = strrchr(s.text, '\r');
    assert_string_equal(last,
                        "\repoch 1/2  step 600/1000  loss 0.5000  1000 samples/s  ETA 0:04\033[K");
    sh_progress_clear(s.progress);
    fflush(s.file);
    assert_string_equal(strrchr(s.text, '\r'), "\r\033[K");
    size_t bytes = s.bytes;
    sh_progress_clear(s.progress);  // nothing is drawn, so nothing is cleared
    fflush(s.file);
    assert_int_equal(s.bytes, bytes);
    screen_close(&s);
}

TEST(progress, writes_plain_lines_every_two_seconds_elsewhere) {
    screen s;
    screen_open(&s, false);
    run_steps(&s, 0, 450);
    assert_int_equal(count_of(s.text, '\n'), 2);
    assert_int_equal(count_of(s.text, '\r'), 0);
    assert_int_equal(count_of(s.text, '\033'), 0);
    screen_close(&s);
}

TEST(progress, keeps_the_end_of_an_epoch_on_the_screen) {
    for (int live = 0; live < 2; live++) {
        screen s;
        screen_open(&s, live);
        run_steps(&s, 0, 100);
        s.now_ns += 1000000000;  // the evaluation
        sh_progress_point point = {.epoch = 1,
                                   .step = 600,
                                   .samples = 1000,
                                   .loss = 0.25,
                                   .test_loss = 0.5,
                                   .accuracy = 0.9,
                                   .samples_per_s = 1000};
        sh_progress_epoch(s.progress, &point);
        fflush(s.file);
        const char *line = strstr(s.text, "epoch 1/2  step 600/1000  loss 0.2500");
        assert_non_null(line);
        assert_string_equal(line,
                            "epoch 1/2  step 600/1000  loss 0.2500  test loss 0.5000  "
                            "accuracy 90.00 %  1000 samples/s  in 0:02\n");
        if (live) assert_memory_equal(line - 4, "\r\033[K", 4);
        screen_close(&s);
    }
}

/* Two steps, much closer together than looks at the speed. */
TEST(progress, knows_the_speed_of_a_short_epoch) {
    screen s;
    screen_open(&s, false);
    run_steps(&s, 0, 1);
    sh_progress_point point = {.epoch = 1,
                               .step = 502,
                               .samples = 20,
                               .loss = 0.25,
                               .test_loss = NAN,
                               .accuracy = NAN,
                               .samples_per_s = 800};
    sh_progress_epoch(s.progress, &point);
    fflush(s.file);
    assert_string_equal(s.text, "epoch 1/2  step 502/1000  loss 0.2500  800 samples/s  in 0:00\n");
    screen_close(&s);
}

/* Neither the evaluation nor the step before it is in the speed of the next epoch. */
TEST(progress, measures_anew_after_an_epoch) {
    screen s;
    screen_open(&s, false);
    run_steps(&s, 0, 100);
    s.now_ns += 1000000000;
    sh_progress_point point = {.epoch = 1, .step = 601, .samples = 1010, .samples_per_s = 1000};
    sh_progress_epoch(s.progress, &point);
    run_steps(&s, 101, 200);
    assert_non_null(strstr(s.text, "step 801/1000  loss 0.5000  1000 samples/s"));
    screen_close(&s);
}

/* Ten epochs a second: one line a second, but for tests and the last epoch. */
TEST(progress, does_not_tell_of_every_short_epoch) {
    static const struct {
        int tested;       // after this epoch; 0: never
        const char *one;  // of the lines
    } cases[] = {{0, "step 511/1000  loss 0.2500  100"}, {8, "step 508/1000  loss 0.2500  test"}};
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        screen s;
        screen_open(&s, false);
        for (int e = 1; e <= 25; e++) {
            s.now_ns += 100000000;
            bool tested = cases[i].tested > 0 && e >= cases[i].tested;
            sh_progress_point point = {.epoch = e < 25 ? 1 : 2,
                                       .step = 500 + e,
                                       .samples = 10 * e,
                                       .loss = 0.25,
                                       .test_loss = tested ? 0.5 : NAN,
                                       .accuracy = NAN,
                                       .samples_per_s = 100};
            sh_progress_epoch(s.progress, &point);
        }
        fflush(s.file);
        assert_int_equal(count_of(s.text, '\n'), 4);
        assert_non_null(strstr(s.text, "epoch 2/2  step 525"));
        assert_non_null(strstr(s.text, cases[i].one));
        screen_close(&s);
    }
}

TEST(progress, null_shows_nothing) {
    sh_progress_point point = {0};
    sh_progress_step(NULL, &point);
    sh_progress_epoch(NULL, &point);
    sh_progress_clear(NULL);
    sh_progress_destroy(NULL);
}
