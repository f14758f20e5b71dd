/* One file as three parts: train, validation, test. */
#include <math.h>

#include "data/dataset.h"
#include "data/view.h"
#include "files.h"

enum { SAMPLES = 200 };

/* Sample i has the features (i, 1) and the label i % 3, so that it can be told from the others. */
static char *put_csv(void) {
    static char text[1 << 14];
    size_t used = 0;
    for (int i = 0; i < SAMPLES; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%d,1,%d\n", i, i % 3);
    return put_text("t.csv", text);
}

static char *put_libsvm(void) {
    static char text[1 << 14];
    size_t used = 0;
    for (int i = 0; i < SAMPLES; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%d 1:%d 2:1\n", i % 3, i);
    return put_text("t.libsvm", text);
}

static char *put_npy(void) {
    static struct {
        char head[128];
        float cells[SAMPLES][2];
    } x;
    static struct {
        char head[128];
        uint8_t labels[SAMPLES];
    } y;
    memset(x.head, ' ', sizeof x.head);
    memset(y.head, ' ', sizeof y.head);
    const char begin[] = "\x93NUMPY\x01\0\x76";
    memcpy(x.head, begin, sizeof begin);
    memcpy(y.head, begin, sizeof begin);
    const char *of_x = "{'descr': '<f4', 'fortran_order': False, 'shape': (200, 2), }";
    const char *of_y = "{'descr': '|u1', 'fortran_order': False, 'shape': (200,), }";
    memcpy(x.head + 10, of_x, strlen(of_x));
    memcpy(y.head + 10, of_y, strlen(of_y));
    x.head[127] = y.head[127] = '\n';
    for (int i = 0; i < SAMPLES; i++) {
        x.cells[i][0] = (float)i;
        x.cells[i][1] = 1;
        y.labels[i] = (uint8_t)(i % 3);
    }
    put_file("y.npy", &y, sizeof y);
    return put_file("x.npy", &x, sizeof x);
}

/* Marks every sample of a part and expects that none had a mark yet. */
static void mark(const sh_dataset *dataset, char where, char marks[SAMPLES]) {
    for (size_t i = 0; i < dataset->info.count; i++) {
        float x[2];
        int32_t label;
        dataset->get(dataset, i, x, &label);
        int at = (int)lrintf(x[0]);
        assert_true(at >= 0 && at < SAMPLES);
        assert_int_equal(label, at % 3);
        assert_int_equal(marks[at], 0);
        marks[at] = where;
    }
}

static void open_marked(const sh_data_options *options, char marks[SAMPLES]) {
    sh_data data;
    CHECK_OK(sh_data_open(options, NULL, &data));
    memset(marks, 0, SAMPLES);
    mark(data.train, 'a', marks);
    if (data.validation != NULL) mark(data.validation, 'v', marks);
    if (data.test != NULL && data.test != data.validation) mark(data.test, 't', marks);
    for (int i = 0; i < SAMPLES; i++) assert_true(marks[i] != 0);
    sh_data_close(&data);
}

static int count(const char marks[SAMPLES], char what) {
    int found = 0;
    for (int i = 0; i < SAMPLES; i++) found += marks[i] == what;
    return found;
}

TEST(split, of_every_format_is_disjoint_and_whole) {
    use_folder("split_formats");
    char *paths[] = {put_csv(), put_libsvm(), put_npy()};
    char first[SAMPLES], marks[SAMPLES];
    for (size_t i = 0; i < SH_COUNT(paths); i++) {
        sh_data_options options = {.train = paths[i],
                                   .normalise = "none",
                                   .hold_out = 0.1,
                                   .hold_out_test = 0.2,
                                   .seed = 7};
        open_marked(&options, marks);
        assert_int_equal(count(marks, 'a'), 140);
        assert_int_equal(count(marks, 'v'), 20);
        assert_int_equal(count(marks, 't'), 40);
        if (i == 0) memcpy(first, marks, sizeof first);
        assert_memory_equal(marks, first, sizeof first);  // by the seed alone
    }
}

TEST(split, moves_with_the_seed_and_not_with_the_other_part) {
    use_folder("split_seed");
    sh_data_options options = {
        .train = put_csv(), .normalise = "none", .hold_out = 0.1, .hold_out_test = 0.2, .seed = 7};
    char both[SAMPLES], marks[SAMPLES];
    open_marked(&options, both);
    options.hold_out_test = 0;  // as it was before there was such a thing
    open_marked(&options, marks);
    for (int i = 0; i < SAMPLES; i++) assert_int_equal(marks[i] == 'v', both[i] == 'v');
    options.hold_out = NAN;
    options.hold_out_test = 0.2;
    open_marked(&options, marks);
    assert_int_equal(count(marks, 'v'), 0);
    for (int i = 0; i < SAMPLES; i++) assert_int_equal(marks[i] == 't', both[i] == 't');
    options.seed = 8;
    open_marked(&options, marks);
    int same = 0;
    for (int i = 0; i < SAMPLES; i++) same += marks[i] == 't' && both[i] == 't';
    assert_true(same < 30);
}

TEST(split, of_parts_splits_each_of_them) {
    use_folder("split_parts");
    put_text("0.csv", "0,1,0\n1,1,1\n2,1,2\n3,1,0\n4,1,1\n5,1,2\n6,1,0\n7,1,1\n8,1,2\n9,1,0\n");
    put_text("1.csv", "10,1,1\n11,1,2\n12,1,0\n13,1,1\n14,1,2\n");
    sh_data_options options = {.train = test_path("%r.csv"),
                               .normalise = "none",
                               .hold_out = 0.2,
                               .hold_out_test = 0.4,
                               .parts = 2};
    sh_data data;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    assert_int_equal(data.train->info.count, 4 + 2);
    assert_int_equal(data.validation->info.count, 2 + 1);
    assert_int_equal(data.test->info.count, 4 + 2);
    char marks[SAMPLES] = {0};
    mark(data.train, 'a', marks);
    mark(data.validation, 'v', marks);
    mark(data.test, 't', marks);
    int in_second = 0;
    for (int i = 10; i < 15; i++) in_second += marks[i] == 't';
    assert_int_equal(in_second, 2);
    sh_data_close(&data);
}

TEST(split, of_text_is_by_position_with_the_test_part_last) {
    use_folder("split_text");
    char text[400];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i % 26);
    sh_data_options options = {.train = put_file("t.txt", text, sizeof text),
                               .context = 8,
                               .hold_out = 0.1,
                               .hold_out_test = 0.2};
    sh_data data;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    assert_int_equal(data.train->info.count, 280 - 8);
    assert_int_equal(data.validation->info.count, 40 - 8);
    assert_int_equal(data.test->info.count, 80 - 8);
    int32_t x[8], y[8];
    data.validation->get(data.validation, 0, x, y);
    assert_int_equal(x[0], 280 % 26);
    data.validation->get(data.validation, 31, x, y);
    assert_int_equal(y[7], 319 % 26);
    data.test->get(data.test, 0, x, y);
    assert_int_equal(x[0], 320 % 26);
    data.test->get(data.test, 71, x, y);
    assert_int_equal(y[7], 399 % 26);
    sh_data_close(&data);

    options.hold_out = NAN;  // not set: the test part is enough
    CHECK_OK(sh_data_open(&options, NULL, &data));
    assert_null(data.validation);
    assert_int_equal(data.test->info.count, 80 - 8);
    sh_data_close(&data);
    options.hold_out_test = 0.01;
    CHECK_FAILS(SH_E_SHAPE, "less than a context of 8", sh_data_open(&options, NULL, &data));
}

TEST(split, refuses_what_leaves_nothing_or_has_a_test_part_already) {
    use_folder("split_bad");
    sh_data data;
    sh_data_options options = {.train = put_csv(), .hold_out = 0.5, .hold_out_test = 0.5};
    CHECK_FAILS(SH_E_USAGE, "leave nothing to train on", sh_data_open(&options, NULL, &data));
    options.hold_out_test = 0.001;
    CHECK_FAILS(SH_E_USAGE, "cannot hold out 0.001", sh_data_open(&options, NULL, &data));
    options.hold_out_test = 0.4999;  // rounds to all the others
    CHECK_FAILS(SH_E_USAGE, "cannot hold out", sh_data_open(&options, NULL, &data));
    options.hold_out_test = 0.1;
    options.test = options.train;
    CHECK_FAILS(SH_E_USAGE, "and hold_out_test are given", sh_data_open(&options, NULL, &data));
    options.test = NULL;
    options.train = "digits";
    CHECK_FAILS(SH_E_USAGE, "'digits' brings a test part", sh_data_open(&options, NULL, &data));
}
