/* Pictures of collectives and pipelines: well-formed, inside their frame, and true to the schedule.
 */
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain/collective.h"
#include "explain/pipeline.h"
#include "harness.h"

/* ---- A reader of SVG, as much as is needed ---- */

enum { DEPTH_MOST = 32, TAG_MOST = 32 };

typedef struct picture {
    char open[DEPTH_MOST][TAG_MOST];
    int depth,
        depth_of_defs;  // 0: not inside of <defs> or <marker>, which have frames of their own
    double width, height;
    double least, most_x, most_y;  // of the coordinates that were seen
    int coordinates, tags;
} picture;

/* The value of an attribute in the tag [at, end); false: it has none. */
static bool attribute(const char *at, const char *end, const char *name, double *value_out) {
    char text[64];
    snprintf(text, sizeof text, " %s=\"", name);
    // Not strstr, which under the address sanitizer measures the rest of the picture each time.
    const char *found = memmem(at, (size_t)(end - at), text, strlen(text));
    if (found == NULL) return false;
    char *stop;
    *value_out = strtod(found + strlen(text), &stop);
    if (stop == found + strlen(text)) return false;  // no number, as in orient="auto"
    if (!isfinite(*value_out)) fail_msg("%s of '%.60s'", name, at);
    return true;
}

static void look_at(picture *p, const char *at, const char *end) {
    static const char *const across[] = {"x", "x1", "x2", "cx"}, *const down[] = {"y", "y1", "y2",
                                                                                  "cy"};
    double value, size = 0;
    for (size_t i = 0; i < SH_COUNT(across); i++) {
        if (attribute(at, end, across[i], &value)) {
            if (i == 0) attribute(at, end, "width", &size);
            p->least = fmin(p->least, value);
            p->most_x = fmax(p->most_x, value + size);
            p->coordinates++;
        }
        size = 0;
        if (attribute(at, end, down[i], &value)) {
            if (i == 0) attribute(at, end, "height", &size);
            p->least = fmin(p->least, value);
            p->most_y = fmax(p->most_y, value + size);
            p->coordinates++;
        }
        size = 0;
    }
}

static void close_tag(picture *p, const char *name) {
    if (p->depth == 0 || strcmp(p->open[p->depth - 1], name) != 0)
        fail_msg("</%s> closes <%s>", name, p->depth > 0 ? p->open[p->depth - 1] : "");
    if (--p->depth < p->depth_of_defs) p->depth_of_defs = 0;
}

static void open_tag(picture *p, const char *name) {
    assert_true(p->depth < DEPTH_MOST);
    snprintf(p->open[p->depth++], TAG_MOST, "%s", name);
    bool own = strcmp(name, "defs") == 0 || strcmp(name, "marker") == 0;
    if (own && p->depth_of_defs == 0) p->depth_of_defs = p->depth;
}

/* Every tag is closed in its order, and no text holds a bare '<' or '&'. */
static picture read_picture(const char *svg) {
    picture p = {0};
    for (const char *at = svg; *at != '\0'; at++) {
        if (*at == '&') {
            const char *end = strchr(at, ';');
            if (end == NULL || end - at > 8) fail_msg("a bare '&' in '%.40s'", at);
        }
        if (*at != '<') continue;
        const char *end = strchr(at, '>');
        assert_non_null(end);
        char name[TAG_MOST] = "";
        const char *word = at[1] == '/' ? at + 2 : at + 1;
        if (!isalpha((unsigned char)*word)) fail_msg("no tag: '%.40s'", at);
        for (size_t i = 0; i + 1 < sizeof name && (isalnum((unsigned char)word[i])); i++)
            name[i] = word[i];
        p.tags++;
        if (at[1] == '/') {
            close_tag(&p, name);
        } else {
            if (p.tags == 1) {
                assert_string_equal(name, "svg");
                attribute(at, end, "width", &p.width);
                attribute(at, end, "height", &p.height);
            } else if (p.depth_of_defs == 0) {
                look_at(&p, at, end);
            }
            if (end[-1] != '/') open_tag(&p, name);
        }
        at = end;
    }
    assert_int_equal(p.depth, 0);
    assert_true(p.width > 0 && p.height > 0);
    return p;
}

static void check_frame(const char *svg, const char *what) {
    picture p = read_picture(svg);
    assert_true(p.coordinates > 4);
    if (p.least < 0 || p.most_x > p.width + 0.5 || p.most_y > p.height + 0.5)
        fail_msg("%s: from %g to (%g, %g) in a frame of %g x %g", what, p.least, p.most_x, p.most_y,
                 p.width, p.height);
}

/* ---- Collectives ---- */

static char *draw(const sh_shown *shown) {
    static char *text;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    CHECK_OK(sh_collective_svg(shown, file));
    fclose(file);
    return text;
}

static sh_shown show(const sh_algorithm *algorithm, int ranks) {
    sh_shown shown = {.algorithm = algorithm,
                      .topology = {.ranks = ranks},
                      .links = {.between = {50e-6, 8e-9, 1e-10}, .inside = {1e-6, 2e-10, 1e-10}},
                      .elements = (size_t)ranks * 64};
    return shown;
}

TEST(pictures, of_every_collective_stay_inside_their_frame) {
    const sh_algorithm *row;
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++)
        for (int ranks = 1; ranks <= 12 && !row->native; ranks++) {
            char what[80];
            snprintf(what, sizeof what, "%s on %d ranks", row->name, ranks);
            sh_shown shown = show(row, ranks);
            char *svg = draw(&shown);
            check_frame(svg, what);
            free(svg);
        }
}

TEST(pictures, hold_names_of_ranks_and_their_values) {
    double x[] = {1, 2, 3, 4.5, 10, 20, 30, 40};
    char names[2][SH_VALUES_NAME] = {"first", "second"};
    sh_values values = {.ranks = 2, .count = 4, .x = x, .names = names};
    sh_shown shown = show(sh_algorithm_find(SH_ALLREDUCE, "ring"), 2);
    shown.values = &values;
    shown.elements = 4;
    char *svg = draw(&shown);
    check_frame(svg, "values");
    assert_non_null(strstr(svg, ">first<"));
    assert_non_null(strstr(svg, ">second<"));
    static const char *const sums[] = {"11", "22", "33", "44.5"};
    for (size_t i = 0; i < SH_COUNT(sums); i++)
        if (strstr(svg, sums[i]) == NULL) fail_msg("the sum %s is not shown", sums[i]);
    free(svg);
}

/* ---- Pipelines ---- */

TEST(pictures, of_every_pipeline_stay_inside_their_frame) {
    static const char *const schedules[] = {"naive", "gpipe", "1f1b", "interleaved:2", "zb-h1"};
    for (size_t i = 0; i < SH_COUNT(schedules); i++)
        for (int ranks = 1; ranks <= 6; ranks++) {
            sh_pipe_question question = {.times = {1, 1, 0.5}, .value_bytes = 1024};
            int micros = 2 * ranks;
            CHECK_OK(sh_pipeline_init(&question.pipeline, schedules[i], ranks, micros));
            static char *svg;
            size_t bytes = 0;
            FILE *file = open_memstream(&svg, &bytes);
            CHECK_OK(sh_pipeline_svg(&question, file));
            fclose(file);
            check_frame(svg, schedules[i]);
            free(svg);
        }
}

/* ---- JSON beside the picture ---- */

TEST(pictures, and_json_count_the_same_messages) {
    const sh_algorithm *row;
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++) {
        if (row->native) continue;
        for (int ranks = 2; ranks <= 9; ranks++) {
            sh_shown shown = show(row, ranks);
            static char *text;
            size_t bytes = 0;
            FILE *file = open_memstream(&text, &bytes);
            CHECK_OK(sh_collective_json(&shown, file));
            fclose(file);
            json_t *root = json_loads(text, 0, NULL);
            assert_non_null(root);
            size_t step, message, messages = 0;
            const json_t *moves, *one;
            json_array_foreach(json_object_get(root, "steps"), step, moves) {
                const json_t *list =
                    json_is_array(moves) ? moves : json_object_get(moves, "messages");
                json_array_foreach(list, message, one) messages++;
            }
            char *svg = draw(&shown);
            size_t arrows = 0;
            for (const char *at = svg; (at = strstr(at, "marker-end")) != NULL; at++) arrows++;
            if (messages != arrows)
                fail_msg("%s on %d ranks: %zu in JSON, %zu drawn", row->name, ranks, messages,
                         arrows);
            free(svg);
            json_decref(root);
            free(text);
        }
    }
}
