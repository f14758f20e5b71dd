#include <math.h>
#include <stdlib.h>

#include "data/dataset.h"
#include "data/reader.h"
#include "data/view.h"
#include "files.h"

static sh_status open_named(const char *train, const char *test, double hold_out, uint64_t seed,
                            sh_data *data) {
    sh_data_options options = {.train = (char *)(uintptr_t)train,
                               .test = (char *)(uintptr_t)test,
                               .hold_out = hold_out,
                               .seed = seed,
                               .folder = test_root};
    return sh_data_open(&options, NULL, data);
}

/* Sum and sum of squares of all cells. */
static void moments(const sh_dataset *dataset, double *mean, double *variance) {
    size_t cells = sh_shape_count(&dataset->info.sample);
    float x[4096];
    double sum = 0, square = 0;
    for (size_t i = 0; i < dataset->info.count; i++) {
        dataset->get(dataset, i, x, NULL);
        for (size_t k = 0; k < cells; k++) {
            sum += (double)x[k];
            square += (double)x[k] * (double)x[k];
        }
    }
    double n = (double)cells * (double)dataset->info.count;
    *mean = sum / n;
    *variance = square / n - *mean * *mean;
}

TEST(digits, come_with_the_library) {
    sh_data data;
    CHECK_OK(open_named("digits", NULL, 0, 0, &data));
    assert_int_equal(data.train->info.count, 1500);
    assert_int_equal(data.test->info.count, 297);
    assert_null(data.validation);
    assert_int_equal(data.train->info.classes, 10);
    assert_true(sh_shape_equal(&data.train->info.sample, &SH_SHAPE(1, 8, 8)));
    int32_t y;
    float x[64];
    for (size_t i = 0; i < 10; i++) {  // the set opens with 0 to 9
        data.train->get(data.train, i, x, &y);
        assert_int_equal(y, i);
    }
    double mean, variance;
    moments(data.train, &mean, &variance);
    assert_true(fabs(mean) < 1e-5 && fabs(variance - 1) < 1e-5);
    sh_data_close(&data);
}

TEST(digits, have_the_known_sums) {
    sh_dataset *train = NULL, *test = NULL;
    CHECK_OK(sh_dataset_open("digits:train", &(sh_data_options){0}, NULL, NULL, &train));
    CHECK_OK(sh_dataset_open("digits", &(sh_data_options){0}, NULL, NULL, &test));
    double sum = 0;
    int labels = 0;
    for (size_t i = 0; i < 1797; i++) {
        float x[64];
        int32_t y;
        const sh_dataset *part = i < 1500 ? train : test;
        part->get(part, i < 1500 ? i : i - 1500, x, &y);
        for (int k = 0; k < 64; k++) sum += (double)x[k];
        labels += y;
    }
    assert_true(sum == 561718);  // sklearn.datasets.load_digits().data.sum()
    assert_int_equal(labels, 8070);
    sh_dataset_destroy(train);
    sh_dataset_destroy(test);
}

TEST(data, splits_by_the_seed_without_overlap) {
    sh_data a, b, c;
    CHECK_OK(open_named("digits", NULL, 0.2, 1, &a));
    CHECK_OK(open_named("digits", NULL, 0.2, 1, &b));
    CHECK_OK(open_named("digits", NULL, 0.2, 2, &c));
    assert_int_equal(a.train->info.count, 1200);
    assert_int_equal(a.validation->info.count, 300);
    assert_int_equal(a.test->info.count, 297);
    assert_true(a.fingerprint == b.fingerprint);
    assert_true(a.fingerprint != c.fingerprint);
    size_t equal = 0;
    for (size_t i = 0; i < 300; i++) {
        float x[64], held[64];
        a.validation->get(a.validation, i, held, NULL);
        for (size_t k = 0; k < 1200; k += 40) {
            a.train->get(a.train, k, x, NULL);
            equal += memcmp(x, held, sizeof x) == 0;
        }
    }
    assert_int_equal(equal, 0);
    sh_data_close(&a);
    sh_data_close(&b);
    sh_data_close(&c);
}

TEST(data, normalises_all_parts_by_the_training_set) {
    use_folder("open_normal");
    put_idx("t-images-idx3-ubyte", 3, (uint32_t[]){50, 3, 3}, 13, 200);
    put_idx("t-labels-idx1-ubyte", 1, (uint32_t[]){50}, 1, 5);
    put_idx("u-images-idx3-ubyte", 3, (uint32_t[]){8, 3, 3}, 1, 256);
    put_idx("u-labels-idx1-ubyte", 1, (uint32_t[]){8}, 1, 5);
    sh_data data;
    CHECK_OK(open_named(test_path("t-images-idx3-ubyte"), test_path("u-images-idx3-ubyte"), 0, 0,
                        &data));
    double mean, variance;
    moments(data.train, &mean, &variance);
    assert_true(fabs(mean) < 1e-5 && fabs(variance - 1) < 1e-5);
    float x[9];
    data.test->get(data.test, 0, x, NULL);
    for (int i = 0; i < 9; i++)
        assert_true(x[i] == ((float)i - data.normal.mean[0]) * data.normal.scale[0]);
    sh_dataset *again = NULL;
    CHECK_OK(sh_dataset_open(test_path("u-images-idx3-ubyte"), &(sh_data_options){0}, &data.normal,
                             NULL, &again));
    float y[9];
    again->get(again, 0, y, NULL);
    assert_memory_equal(x, y, sizeof x);
    sh_dataset_destroy(again);
    sh_data_close(&data);
}

TEST(data, scales_bytes_to_the_unit_range) {
    use_folder("open_unit");
    put_idx("t-images-idx3-ubyte", 3, (uint32_t[]){2, 16, 16}, 1, 256);
    put_idx("t-labels-idx1-ubyte", 1, (uint32_t[]){2}, 1, 5);
    sh_data_options options = {.train = test_path("t-images-idx3-ubyte"), .normalise = "unit"};
    sh_data data;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    float x[256];
    data.train->get(data.train, 0, x, NULL);
    assert_true(x[0] == 0 && fabsf(x[255] - 1) < 1e-6f && fabsf(x[51] - 0.2f) < 1e-6f);
    sh_data_close(&data);
    options.normalise = "sometimes";
    CHECK_FAILS(SH_E_USAGE, "unknown normalisation", sh_data_open(&options, NULL, &data));
}

TEST(data, refuses_parts_that_do_not_fit) {
    use_folder("open_misfit");
    put_idx("a-images-idx3-ubyte", 3, (uint32_t[]){9, 3, 3}, 1, 256);
    put_idx("a-labels-idx1-ubyte", 1, (uint32_t[]){9}, 1, 4);
    put_idx("b-images-idx3-ubyte", 3, (uint32_t[]){9, 3, 4}, 1, 256);
    put_idx("b-labels-idx1-ubyte", 1, (uint32_t[]){9}, 1, 4);
    put_idx("c-images-idx3-ubyte", 3, (uint32_t[]){9, 3, 3}, 1, 256);
    put_idx("c-labels-idx1-ubyte", 1, (uint32_t[]){9}, 1, 6);
    put_idx("d-images-idx3-ubyte", 3, (uint32_t[]){9, 3, 3}, 1, 256);
    sh_data data;
    char *train = test_path("a-images-idx3-ubyte");
    CHECK_FAILS(SH_E_SHAPE, "1x3x4 against 1x3x3",
                open_named(train, test_path("b-images-idx3-ubyte"), 0, 0, &data));
    CHECK_FAILS(SH_E_FORMAT, "sample 4 has label 4",
                open_named(train, test_path("c-images-idx3-ubyte"), 0, 0, &data));
    CHECK_FAILS(SH_E_FORMAT, "no labels to train on",
                open_named(test_path("d-images-idx3-ubyte"), NULL, 0, 0, &data));
    CHECK_FAILS(SH_E_USAGE, "cannot hold out", open_named("digits", NULL, 0.0001, 0, &data));
    CHECK_FAILS(SH_E_USAGE, "hold_out", open_named("digits", NULL, 1.5, 0, &data));
    CHECK_FAILS(SH_E_USAGE, "no training data", open_named("", NULL, 0, 0, &data));
}

TEST(data, without_labels_serves_to_predict_and_not_to_evaluate) {
    use_folder("open_no_labels");
    put_idx("a-images-idx3-ubyte", 3, (uint32_t[]){9, 3, 3}, 1, 256);
    put_idx("a-labels-idx1-ubyte", 1, (uint32_t[]){9}, 1, 4);
    put_idx("d-images-idx3-ubyte", 3, (uint32_t[]){5, 3, 3}, 1, 256);
    sh_data data;
    CHECK_OK(open_named(test_path("a-images-idx3-ubyte"), test_path("d-images-idx3-ubyte"), 0, 0,
                        &data));
    assert_int_equal(data.test->info.target, SH_TARGET_NONE);
    assert_int_equal(data.test->info.count, 5);
    CHECK_OK(sh_data_need_targets(data.train, "training"));
    CHECK_OK(sh_data_need_targets(NULL, "validation"));
    CHECK_FAILS(SH_E_SHAPE, "d-images-idx3-ubyte' has no labels",
                sh_data_need_targets(data.test, "test"));
    sh_data_close(&data);
}

/* A fault of any part is found, whichever part it is in. */
TEST(data, opens_every_part_there_is) {
    use_folder("open_parts");
    sh_dataset_parts parts;
    sh_data_options options = {.folder = test_root};
    CHECK_OK(sh_dataset_open_parts("digits", &options, &parts));
    assert_false(parts.whole);
    assert_int_equal(parts.train->info.count, 1500);
    assert_int_equal(parts.test->info.count, 297);
    sh_dataset_close_parts(&parts);
    CHECK_OK(sh_dataset_open_parts("digits:test", &options, &parts));
    assert_true(parts.whole && parts.test == NULL);
    assert_int_equal(parts.train->info.count, 297);
    sh_dataset_close_parts(&parts);

    put_idx("t10k-images-idx3-ubyte", 3, (uint32_t[]){9, 3, 3}, 1, 256);
    put_idx("t10k-labels-idx1-ubyte", 1, (uint32_t[]){9}, 1, 4);
    put_idx("train-labels-idx1-ubyte", 1, (uint32_t[]){9}, 1, 4);
    put_file("train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x09\0\0\0\x03\0\0\0\x03cut", 19);
    CHECK_FAILS(SH_E_FORMAT, "train-images-idx3-ubyte' ends after 0 of 9",
                sh_dataset_open_parts("mnist", &options, &parts));
    put_idx("train-images-idx3-ubyte", 3, (uint32_t[]){9, 3, 3}, 1, 256);
    CHECK_OK(sh_dataset_open_parts("mnist", &options, &parts));
    sh_dataset_close_parts(&parts);
    put_idx("t10k-labels-idx1-ubyte", 1, (uint32_t[]){9}, 1, 5);
    CHECK_FAILS(SH_E_FORMAT, "sample 4 has label 4",
                sh_dataset_open_parts("mnist", &options, &parts));
}

TEST(data, takes_whole_numbers_for_values_where_told) {
    use_folder("open_values");
    put_idx("a-images-idx3-ubyte", 3, (uint32_t[]){9, 3, 3}, 1, 256);
    put_idx("a-labels-idx1-ubyte", 1, (uint32_t[]){9}, 1, 4);
    char *path = test_path("a-images-idx3-ubyte");
    sh_data_options options = {.train = path, .test = path, .targets = (char[]){"values"}};
    sh_data data;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    assert_int_equal(data.test->info.target, SH_TARGET_VALUES);
    assert_int_equal(data.train->info.values, 1);
    float x[9], y, whole;
    data.train->get(data.train, 6, x, &y);
    data.test->get(data.test, 6, x, &whole);
    assert_true(y == whole && y == floorf(y) && y > 0);
    sh_data_close(&data);
    options.targets = (char[]){"classes"};
    CHECK_OK(sh_data_open(&options, NULL, &data));
    assert_int_equal(data.train->info.target, SH_TARGET_CLASS);
    sh_data_close(&data);
    options = (sh_data_options){.train = (char[]){"digits"}, .targets = (char[]){"values"}};
    CHECK_FAILS(SH_E_USAGE, "has classes as its targets, not values",
                sh_data_open(&options, NULL, &data));
}

TEST(data, names_missing_and_empty_files) {
    use_folder("open_missing");
    sh_data data;
    CHECK_FAILS(SH_E_IO, "cannot open", open_named("no/such/file", NULL, 0, 0, &data));
    CHECK_FAILS(SH_E_IO, "not a regular file", open_named(test_root, NULL, 0, 0, &data));
    CHECK_FAILS(SH_E_FORMAT, "is empty", open_named(put_text("empty", ""), NULL, 0, 0, &data));
    CHECK_FAILS(SH_E_IO, "train-images-idx3-ubyte", open_named("mnist", NULL, 0, 0, &data));
    assert_non_null(strstr(sh_error_last()->hint, "shoal data get mnist"));
    CHECK_FAILS(SH_E_IO, "tinyshakespeare.txt", open_named("shakespeare", NULL, 0, 0, &data));
}

TEST(data, reads_mnist_from_the_folder) {
    use_folder("open_mnist");
    put_idx("train-images-idx3-ubyte", 3, (uint32_t[]){20, 4, 4}, 3, 256);
    put_idx("train-labels-idx1-ubyte", 1, (uint32_t[]){20}, 1, 10);
    put_idx("t10k-images-idx3-ubyte", 3, (uint32_t[]){5, 4, 4}, 3, 256);
    put_idx("t10k-labels-idx1-ubyte", 1, (uint32_t[]){5}, 1, 10);
    sh_data data;
    CHECK_OK(open_named("mnist", NULL, 0, 0, &data));
    assert_int_equal(data.train->info.count, 20);
    assert_int_equal(data.test->info.count, 5);
    assert_int_equal(data.test->info.classes, 10);
    sh_data_close(&data);
}

TEST(synthetic, repeats_from_the_seed) {
    sh_data a, b, c;
    CHECK_OK(open_named("synthetic:classes=7,shape=2x5x6,count=100", NULL, 0, 4, &a));
    CHECK_OK(open_named("synthetic:classes=7,shape=2x5x6,count=100", NULL, 0, 4, &b));
    CHECK_OK(open_named("synthetic:classes=7,shape=2x5x6,count=100", NULL, 0, 5, &c));
    assert_int_equal(a.train->info.classes, 7);
    assert_int_equal(a.train->info.count, 100);
    assert_int_equal(a.test->info.count, 13);
    float x[60], y[60], z[60];
    int32_t label;
    a.train->get(a.train, 30, x, &label);
    b.train->get(b.train, 30, y, NULL);
    c.train->get(c.train, 30, z, NULL);
    assert_int_equal(label, 30 % 7);
    assert_memory_equal(x, y, sizeof x);
    assert_memory_not_equal(x, z, sizeof x);
    sh_data_close(&a);
    sh_data_close(&b);
    sh_data_close(&c);
}

TEST(synthetic, keeps_only_a_pool) {
    sh_data data;
    CHECK_OK(open_named("synthetic:classes=10,shape=3x64x64,count=1000000", NULL, 0, 0, &data));
    assert_int_equal(data.train->info.count, 1000000);
    static float x[3 * 64 * 64];
    int32_t y;
    data.train->get(data.train, 999999, x, &y);
    assert_in_range(y, 0, 9);
    sh_data_close(&data);
}

TEST(synthetic, refuses_bad_descriptions) {
    sh_data data;
    const char *bad[] = {"synthetic:colour=3",      "synthetic:classes=0",
                         "synthetic:shape=3x",      "synthetic:shape=1x2x3x4",
                         "synthetic:count=-4",      "synthetic:count=99999999999999999999",
                         "synthetic:classes=10 or", "synthetic:shape=16777216x16777216"};
    for (size_t i = 0; i < SH_COUNT(bad); i++)
        CHECK_FAILS(SH_E_USAGE, bad[i], open_named(bad[i], NULL, 0, 0, &data));
}

TEST(readers, have_names_and_help) {
    size_t count = 0;
    for (const sh_reader *reader; (reader = sh_reader_at(count)) != NULL; count++) {
        assert_true(strlen(reader->name) > 0 && strlen(reader->help) > 0);
    }
    assert_true(count >= 3);
    assert_null(sh_reader_at(count));
    assert_string_equal(sh_data_name_at(0)->name, "mnist");
}

/* 300 samples of 5,000 cells: more than a fingerprint looks at. */
static uint64_t checksum(float cell, float value, size_t first) {
    enum { SAMPLES = 300, CELLS = 5000 };
    static float cells[SAMPLES * CELLS], values[SAMPLES];
    sh_source *source = NULL;
    sh_dataset *dataset = NULL;
    CHECK_OK(sh_source_create("made here", &source));
    source->info = (sh_data_info){
        .count = SAMPLES, .sample = SH_SHAPE(CELLS), .target = SH_TARGET_VALUES, .values = 1};
    source->cell = SH_CELL_F32;
    source->cells = cells;
    source->values = values;
    source->stored = SAMPLES;
    cells[SAMPLES * CELLS - 1] = cell;
    values[SAMPLES - 2] = value;
    CHECK_OK(sh_view_create(source, first, SAMPLES - first, NULL, &dataset));
    uint64_t hash = sh_view_checksum(dataset);
    sh_dataset_destroy(dataset);
    sh_source_release(source);
    return hash;
}

TEST(data, every_cell_and_value_changes_the_checksum) {
    uint64_t hash = checksum(0, 0, 0);
    assert_true(checksum(0, 0, 0) == hash);
    assert_true(checksum(1, 0, 0) != hash);
    assert_true(checksum(-0.0f, 0, 0) != hash);  // one bit, the highest of its word
    assert_true(checksum(0, 1, 0) != hash);
    assert_true(checksum(0, 0, 1) != hash);
}

TEST(data, splits_have_checksums_of_their_own) {
    sh_data a, b;
    CHECK_OK(open_named("digits", NULL, 0.2, 1, &a));
    CHECK_OK(open_named("digits", NULL, 0.2, 2, &b));
    assert_true(sh_view_checksum(a.train) != sh_view_checksum(b.train));
    assert_true(sh_view_checksum(a.validation) != sh_view_checksum(b.validation));
    assert_true(sh_view_checksum(a.test) == sh_view_checksum(b.test));
    sh_data_close(&a);
    sh_data_close(&b);
}
