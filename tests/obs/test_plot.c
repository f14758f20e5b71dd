#include "obs/plot.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "harness.h"

static char *draw(const sh_plot *plot) {
    static char *text;  // the stream keeps their places
    static size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    sh_plot_svg(plot, file);
    fclose(file);
    return text;
}

static int times(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
    return count;
}

/* Every start has its end, and there is no number that is none. */
static void check_document(const char *text) {
    assert_int_equal(strncmp(text, "<svg ", 5), 0);
    static const char *const names[] = {"svg", "text", "title", "style"};
    for (size_t i = 0; i < SH_COUNT(names); i++) {
        char begin[16], end[16];
        snprintf(begin, sizeof begin, "<%s", names[i]);
        snprintf(end, sizeof end, "</%s>", names[i]);
        assert_int_equal(times(text, begin), times(text, end));
    }
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    assert_string_equal(text + strlen(text) - 7, "</svg>\n");
}

static const sh_plot_point rising[] = {{1, 0.5}, {2, 0.75}, {4, 0.95}};

static sh_plot plot_of(const sh_plot_line *lines, size_t count) {
    return (sh_plot){.title = "a title",
                     .x = {"time", SH_PLOT_SECONDS},
                     .y = {"accuracy", SH_PLOT_PERCENT},
                     .lines = lines,
                     .line_count = count,
                     .mark = NAN};
}

TEST(plot, puts_points_where_the_axes_say) {
    const sh_plot_line line = {"bsp", rising, 3};
    sh_plot plot = plot_of(&line, 1);
    char *text = draw(&plot);
    check_document(text);
    // The frame is 520 by 300 from (64, 48); 0 to 4 s and 50 to 100 % span it.
    assert_non_null(strstr(text, "M194.0 348.0L324.0 198.0L584.0 78.0"));
    assert_non_null(strstr(text, ">time (s)<"));
    assert_non_null(strstr(text, ">accuracy (%)<"));
    for (int percent = 50; percent <= 100; percent += 10) {
        char number[16];
        snprintf(number, sizeof number, ">%d</text>", percent);
        assert_non_null(strstr(text, number));
    }
    free(text);
}

TEST(plot, forty_lines_differ_in_colour_or_dash) {
    sh_plot_line lines[40];
    char names[40][8];
    for (int i = 0; i < 40; i++) {
        snprintf(names[i], sizeof names[i], "line%02d", i);
        lines[i] = (sh_plot_line){names[i], rising, 3};
    }
    sh_plot plot = plot_of(lines, 40);
    char *text = draw(&plot), looks[40][128];
    check_document(text);
    const char *at = strstr(text, "<path class=\"c");
    for (int i = 0; i < 40; i++, at = strstr(at + 1, "<path class=\"c")) {
        assert_non_null(at);
        snprintf(looks[i], sizeof looks[i], "%.*s", (int)(strstr(at, " d=") - at), at);
        for (int k = 0; k < i; k++) assert_string_not_equal(looks[i], looks[k]);
    }
    assert_int_equal(times(text, ">line39<"), 2);  // the line's own title, and the legend
    free(text);
}

TEST(plot, names_cannot_leave_their_place) {
    const sh_plot_line line = {"</text><script>&\x01", rising, 3};
    sh_plot plot = plot_of(&line, 1);
    plot.title = "a < b";
    char *text = draw(&plot);
    check_document(text);
    assert_null(strstr(text, "<script>"));
    assert_non_null(strstr(text, "&lt;/text&gt;&lt;script&gt;&amp;\\x01<"));
    assert_non_null(strstr(text, "a &lt; b"));
    free(text);
}

TEST(plot, points_that_are_no_numbers_break_the_line) {
    const sh_plot_point points[] = {{1, 0.5}, {2, 0.6},      {NAN, 0.7}, {3, INFINITY},
                                    {4, 0.8}, {5, -DBL_MAX}, {6, 0.9},   {7, 1}};
    const sh_plot_line line = {"gaps", points, SH_COUNT(points)};
    sh_plot plot = plot_of(&line, 1);
    char *text = draw(&plot);
    check_document(text);
    const char *path = strstr(text, "d=\"M0 0");
    assert_non_null(path);
    char data[256];
    snprintf(data, sizeof data, "%.*s", (int)strcspn(path + 3, "\""), path + 3);
    assert_int_equal(times(data, "L"), 2);        // 1 to 2 and 6 to 7
    assert_int_equal(times(data, "m-3 0h6"), 1);  // a lone point is a cross
    free(text);
}

TEST(plot, draws_whatever_it_is_given) {
    const sh_plot_point odd[][2] = {{{0, 0}, {0, 0}},
                                    {{1e99, 1e99}, {-1e99, -1e99}},
                                    {{1e15, 1e15}, {1e15, 1e15 + 0.25}},
                                    {{1e-310, 1e-310}, {2e-310, 2e-310}},
                                    {{NAN, NAN}, {NAN, NAN}},
                                    {{3600 * 5, 0.5}, {0.0001, 0.5}}};
    for (size_t i = 0; i < SH_COUNT(odd); i++) {
        const sh_plot_line line = {"odd", odd[i], 2};
        sh_plot plot = plot_of(&line, 1);
        for (int unit = SH_PLOT_PLAIN; unit <= SH_PLOT_PERCENT; unit++) {
            plot.x.unit = plot.y.unit = (sh_plot_unit)unit;
            char *text = draw(&plot);
            check_document(text);
            free(text);
        }
    }
    sh_plot nothing = plot_of(NULL, 0);
    char *text = draw(&nothing);
    check_document(text);
    free(text);
}

TEST(plot, the_mark_is_a_dotted_line_inside_the_frame) {
    const sh_plot_line line = {"bsp", rising, 3};
    sh_plot plot = plot_of(&line, 1);
    plot.mark = 0.99;
    plot.mark_name = "target 99 %";
    char *text = draw(&plot);
    check_document(text);
    assert_int_equal(times(text, "class=\"mark\""), 2);
    assert_non_null(strstr(text, "d=\"M64 54.0h520\""));
    assert_non_null(strstr(text, ">target 99 %<"));
    free(text);
}

TEST(plot, steps_are_round) {
    const struct {
        double low, high, step;
    } cases[] = {{0, 7, 1}, {0, 8, 2}, {0, 0.95, 0.2}, {0.90, 0.97, 0.01}, {0, 36, 10}, {-5, 5, 2}};
    for (size_t i = 0; i < SH_COUNT(cases); i++)
        assert_true(fabs(sh_plot_step(cases[i].low, cases[i].high, 7) - cases[i].step) < 1e-9);
}
