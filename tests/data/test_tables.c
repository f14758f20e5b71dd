#include <math.h>
#include <stdlib.h>

#include "data/dataset.h"
#include "data/number.h"
#include "data/reader.h"
#include "data/view.h"
#include "files.h"

static sh_status csv(const char *text, const char *column, sh_source **source_out) {
    sh_data_options options = {.label_column = (char *)(uintptr_t)column};
    sh_read read = {.path = "t.csv", .options = &options};
    return sh_csv_parse(&read, (const uint8_t *)text, strlen(text), source_out);
}

static void check_csv(const char *text, const char *column, size_t rows, int64_t width,
                      const float *cells, const int32_t *labels) {
    sh_source *source = NULL;
    CHECK_OK(csv(text, column, &source));
    assert_int_equal(source->info.count, rows);
    assert_int_equal(source->info.sample.dim[0], width);
    assert_memory_equal(source->cells, cells, rows * (size_t)width * sizeof *cells);
    assert_int_equal(source->info.target, SH_TARGET_CLASS);
    assert_memory_equal(source->labels, labels, rows * sizeof *labels);
    sh_source_release(source);
}

TEST(csv, finds_header_separator_and_label) {
    const float cells[] = {1, 2.5f, -3, 4e2f};
    const int32_t labels[] = {0, 2};
    check_csv("1,2.5,0\n-3,4e2,2\n", NULL, 2, 2, cells, labels);
    check_csv("a,b,class\r\n1,2.5,0\r\n\r\n-3,4e2,2", NULL, 2, 2, cells, labels);
    check_csv("a;y;b\n1;0;2.5\n-3;2;4e2\n", "y", 2, 2, cells, labels);
    check_csv("0\t1\t2.5\n2\t-3\t4e2\n", "0", 2, 2, cells, labels);
    check_csv("0\t1\t2.5\n2\t-3\t4e2\n", "-3", 2, 2, cells, labels);
    check_csv("\"a, \"\"b\"\"\",c,\"the label\"\n\"1\",2.5,\"0\"\n-3, 4e2 ,2\n", "the label", 2, 2,
              cells, labels);
    check_csv(
        "\xef\xbb\xbf"
        "1,2.5,0\n-3,4e2,2\n",
        NULL, 2, 2, cells, labels);
}

TEST(csv, takes_fractions_for_values) {
    sh_source *source = NULL;
    CHECK_OK(csv("1,0.5\n2,1\n", NULL, &source));
    assert_int_equal(source->info.target, SH_TARGET_VALUES);
    assert_true(source->values[0] == 0.5f && source->values[1] == 1.0f);
    sh_source_release(source);
    CHECK_OK(csv("1,0\n2,1\n", "none", &source));
    assert_int_equal(source->info.target, SH_TARGET_NONE);
    assert_int_equal(source->info.sample.dim[0], 2);
    sh_source_release(source);
}

TEST(csv, names_line_and_column_of_faults) {
    static const struct {
        const char *text, *part;
        sh_status code;
    } cases[] = {
        {"1,2\n3,x\n", "line 2, column 2: 'x' is not a number", SH_E_FORMAT},
        {"1,x,0\n1,2,0\n", "line 1, column 2: 'x' is not a number", SH_E_FORMAT},
        {"\n,x,0\n1,2,0\n", "line 2, column 1: the field is empty", SH_E_FORMAT},
        {"1,2\n\n3,\n", "line 3, column 2: the field is empty", SH_E_FORMAT},
        {"a,b\n1,2\n3,nan\n", "line 3, column 2: nan is not a finite", SH_E_NUMERIC},
        {"1,2\n1e99,2\n", "line 2, column 1: 1e99 is not a finite", SH_E_NUMERIC},
        {"1,2\n3\n", "line 2: 1 columns where 2", SH_E_FORMAT},
        {"1,2\n3,4,5\n", "line 2: more than 2 columns", SH_E_FORMAT},
        {"1,2\n\"3,4\n", "line 2: a quoted field does not end", SH_E_FORMAT},
        {"1,2\n\"3\"4,4\n", "line 2: text behind a quoted field", SH_E_FORMAT},
        {"a,b\n", "a header and no rows", SH_E_FORMAT},
        {"\n \n", "no lines", SH_E_FORMAT},
        {"1\n2\n", "one column", SH_E_FORMAT},
    };
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        sh_source *source = NULL;
        CHECK_FAILS(cases[i].code, cases[i].part, csv(cases[i].text, NULL, &source));
    }
    sh_source *source = NULL;
    CHECK_FAILS(SH_E_USAGE, "no column 'size'", csv("a,b\n1,2\n", "size", &source));
    CHECK_FAILS(SH_E_USAGE, "no column '2'", csv("a,b\n1,2\n", "2", &source));
}

TEST(csv, is_known_by_its_lines) {
    use_folder("csv_detect");
    const sh_reader *reader = NULL;
    CHECK_OK(sh_reader_find(put_text("iris.data", "5.1,3.5,0\n4.9,3.0,1\n"), &reader));
    assert_string_equal(reader->name, "csv");
    CHECK_OK(sh_reader_find(put_text("h.data", "a,b\n4.9,3.0\n"), &reader));
    assert_string_equal(reader->name, "csv");
    CHECK_OK(sh_reader_find(put_text("t", "Well, then\nwe go, he said\n"), &reader));
    assert_string_equal(reader->name, "text");
    CHECK_OK(sh_reader_find(put_text("a9a", "-1 3:1 11:1\n"), &reader));
    assert_string_equal(reader->name, "libsvm");
}

TEST(csv, evaluates_rows_without_labels) {
    use_folder("csv_predict");
    sh_data_options options = {.train = put_text("t.csv", "1,2,0\n3,4,1\n5,6,1\n")};
    sh_data data;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    sh_dataset *rows = NULL;
    CHECK_OK(sh_dataset_open(put_text("p.csv", "3,4\n"), &(sh_data_options){0}, &data.normal, NULL,
                             &rows));
    assert_int_equal(rows->info.target, SH_TARGET_NONE);
    float x[2];
    rows->get(rows, 0, x, NULL);
    assert_true(fabsf(x[0]) < 1e-6f && fabsf(x[1]) < 1e-6f);
    sh_dataset_destroy(rows);
    sh_data_close(&data);
}

/* Whether the label column of training is missing, or only the file another one. */
TEST(csv, has_no_label_where_it_has_the_features_of_training) {
    use_folder("csv_no_label");
    char *columns[] = {"kind", "0", "-3"};
    for (size_t i = 0; i < SH_COUNT(columns); i++) {
        sh_data_options options = {.train = put_text("t.csv", "kind,a,b\n0,1,2\n1,3,4\n1,5,6\n"),
                                   .test = put_text("p.csv", "a,b\n3,4\n"),
                                   .label_column = columns[i]};
        sh_data data;
        CHECK_OK(sh_data_open(&options, NULL, &data));
        assert_int_equal(data.test->info.target, SH_TARGET_NONE);
        float x[2];
        data.test->get(data.test, 0, x, NULL);
        assert_true(fabsf(x[0]) < 1e-6f && fabsf(x[1]) < 1e-6f);
        sh_data_close(&data);
        options.test = put_text("p.csv", "a,kind\n3,1\n");
        if (i == 0)
            CHECK_FAILS(SH_E_SHAPE, "samples of shape 1 against 2",
                        sh_data_open(&options, NULL, &data));
    }
}

TEST(csv, leaves_the_label_to_ignore_out_of_the_classes) {
    static const struct {
        const char *text;
        int64_t ignore, classes;
        int32_t labels[4];
        bool ignores;
    } cases[] = {
        {"1,0\n1,-100\n1,2\n1,1\n", -100, 3, {0, -100, 2, 1}, true},
        {"1,0\n1,255\n1,2\n1,1\n", 255, 3, {0, 255, 2, 1}, true},
        {"1,-1\n1,1\n1,-100\n1,1\n", -100, 2, {0, 1, -100, 1}, true},
        {"1,-1\n1,1\n1,2\n1,0\n", -1, 3, {-1, 1, 2, 0}, true},
        {"1,0\n1,1\n1,1\n1,0\n", -100, 2, {0, 1, 1, 0}, false},
    };
    use_folder("csv_ignore");
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        sh_data_options options = {.train = put_text("i.csv", cases[i].text),
                                   .test = put_text("t.csv", cases[i].text),
                                   .ignore = &cases[i].ignore};
        sh_data data;
        CHECK_OK(sh_data_open(&options, NULL, &data));
        assert_int_equal(data.train->info.classes, cases[i].classes);
        assert_int_equal(data.train->info.ignores, cases[i].ignores);
        for (size_t k = 0; k < 4; k++) {
            float x;
            int32_t y;
            data.test->get(data.test, k, &x, &y);
            assert_int_equal(y, cases[i].labels[k]);
        }
        sh_data_close(&data);
    }
    int64_t zero = 0;
    sh_data_options options = {
        .train = put_text("i.csv", "1,-1\n2,1\n"), .targets = (char[]){"classes"}, .ignore = &zero};
    sh_data data;  // -1 would become the class that does not count
    CHECK_FAILS(SH_E_FORMAT, "label -1", sh_data_open(&options, NULL, &data));
    options.train = put_text("i.csv", "1,0\n2,0\n");
    CHECK_FAILS(SH_E_FORMAT, "every label of", sh_data_open(&options, NULL, &data));
}

static sh_status libsvm(const char *text, int64_t width, sh_source **source_out) {
    sh_read read = {.path = "t.svm", .width = width};
    return sh_libsvm_parse(&read, (const uint8_t *)text, strlen(text), source_out);
}

TEST(libsvm, expands_to_dense_rows) {
    sh_source *source = NULL;
    CHECK_OK(libsvm("+1 1:0.5 3:2 # note\n\n# all comment\n-1 qid:4 2:-1e1\r\n+1\n", 0, &source));
    const float want[] = {0.5f, 0, 2, 0, -10, 0, 0, 0, 0};
    assert_int_equal(source->info.count, 3);
    assert_memory_equal(source->cells, want, sizeof want);
    assert_int_equal(source->info.classes, 2);
    assert_memory_equal(source->labels, ((int32_t[]){1, 0, 1}), 12);
    sh_source_release(source);
    CHECK_OK(libsvm("1.5 1:1\n", 4, &source));
    assert_int_equal(source->info.target, SH_TARGET_VALUES);
    assert_int_equal(source->info.sample.dim[0], 4);
    sh_source_release(source);
}

TEST(libsvm, names_the_line_of_faults) {
    static const struct {
        const char *text, *part;
        sh_status code;
    } cases[] = {
        {"1 1:1\n1 0:1\n", "line 2: index 0", SH_E_FORMAT},
        {"1 1:1\n1 1:1 x\n", "line 2: no index:value pair at 'x'", SH_E_FORMAT},
        {"1 1:1\n1 1:\n", "line 2: no value", SH_E_FORMAT},
        {"one 1:1\n", "line 1: no label at 'one'", SH_E_FORMAT},
        {"1:1 2:1\n", "line 1: no space behind the label", SH_E_FORMAT},
        {"1 1:inf\n", "line 1: inf is not a finite", SH_E_NUMERIC},
        {"1 99999999999999999999:1\n", "an index too large", SH_E_FORMAT},
        {"# nothing\n", "no samples", SH_E_FORMAT},
        {"1\n2\n", "labels without features", SH_E_FORMAT},
    };
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        sh_source *source = NULL;
        CHECK_FAILS(cases[i].code, cases[i].part, libsvm(cases[i].text, 0, &source));
    }
    sh_source *source = NULL;
    CHECK_FAILS(SH_E_SHAPE, "has 3 features, training has 2", libsvm("1 3:1\n", 2, &source));
}

TEST(libsvm, keeps_rows_of_zeros_sparse) {
    sh_source *source = NULL;
    CHECK_OK(libsvm("+1 1:0.5 300:2\n-1\n-1 7:-3\n", 0, &source));
    assert_int_equal(source->sparse.rows, 3);
    assert_int_equal(source->sparse.width, 300);
    assert_null(source->cells);
    assert_memory_equal(source->sparse.start, ((size_t[]){0, 2, 2, 3}), 4 * sizeof(size_t));
    assert_memory_equal(source->sparse.index, ((uint32_t[]){0, 299, 6}), 12);
    assert_memory_equal(source->labels, ((int32_t[]){1, 0, 0}), 12);
    sh_dataset *dataset = NULL;
    CHECK_OK(sh_view_create(source, 0, 3, NULL, &dataset));
    sh_normal normal = {0};
    CHECK_OK(sh_view_measure(dataset, "auto", NULL, &normal));
    assert_int_equal(normal.count, 0);
    CHECK_FAILS(SH_E_UNSUPPORTED, "sparse", sh_view_measure(dataset, "unit", NULL, &normal));
    float x[300];
    int32_t y = -1;
    dataset->get(dataset, 0, x, &y);
    assert_int_equal(y, 1);
    for (size_t i = 0; i < 300; i++) assert_true(x[i] == (i == 0 ? 0.5f : i == 299 ? 2 : 0));
    uint64_t fingerprint = sh_view_fingerprint(dataset);
    sh_dataset_destroy(dataset);
    sh_source_release(source);
    CHECK_OK(libsvm("+1 1:0.5 300:2.5\n-1\n-1 7:-3\n", 0, &source));
    CHECK_OK(sh_view_create(source, 0, 3, NULL, &dataset));
    assert_true(fingerprint != sh_view_fingerprint(dataset));
    sh_dataset_destroy(dataset);
    sh_source_release(source);
    CHECK_FAILS(SH_E_FORMAT, "line 1: index 7 comes after 300",
                libsvm("1 300:1 7:1\n", 0, &source));
    CHECK_FAILS(SH_E_FORMAT, "index 300 comes after 300", libsvm("1 300:1 300:1\n", 0, &source));
}

TEST(libsvm, huge_indices_cost_no_memory) {
    char text[1024] = "";
    for (int i = 0; i < 40; i++) strcat(text, "1 4000000:1\n");
    sh_source *source = NULL;
    CHECK_OK(libsvm(text, 0, &source));
    assert_int_equal(source->sparse.start[40], 40);
    sh_source_release(source);
}

TEST(libsvm, fits_narrow_tests_to_training) {
    use_folder("libsvm_width");
    sh_data_options options = {.train = put_text("a.svm", "-1 1:1 5:2\n+1 2:1\n"),
                               .test = put_text("b.svm", "-1 2:1\n")};
    sh_data data;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    assert_int_equal(data.test->info.sample.dim[0], 5);
    assert_int_equal(data.test->info.classes, 2);
    sh_data_close(&data);
}

TEST(numbers, round_like_strtod) {
    const char *texts[] = {"0",
                           "-0",
                           "1",
                           "0.1",
                           "3.14159265358979323846",
                           "1e22",
                           "1e23",
                           "1e-22",
                           "1e-30",
                           "123456789012345678",
                           "4.35",
                           "1e308",
                           "-2.5e-3",
                           ".5",
                           "5.",
                           "0x1p-3",
                           "1e400",
                           "2.2250738585072011e-308",
                           "9007199254740993",
                           "0.000001234567890123"};
    for (size_t i = 0; i < SH_COUNT(texts); i++) {
        double number;
        const uint8_t *at = (const uint8_t *)texts[i];
        assert_true(sh_number_is(at, at + strlen(texts[i]), &number));
        assert_true(number == strtod(texts[i], NULL));
    }
    const char *not_numbers[] = {"", " ", "-", ".", "e5", "1e", "1 2", "1x", "--1", "1e+"};
    for (size_t i = 0; i < SH_COUNT(not_numbers); i++) {
        double number;
        const uint8_t *at = (const uint8_t *)not_numbers[i];
        assert_false(sh_number_is(at, at + strlen(not_numbers[i]), &number));
    }
}
