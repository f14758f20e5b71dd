#include <stdlib.h>
#include <zlib.h>

#include "data/array.h"
#include "data/dataset.h"
#include "data/reader.h"
#include "files.h"

static void put_pair(const char *stem, uint32_t count) {
    char name[64];
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", stem);
    put_idx(name, 3, (uint32_t[]){count, 4, 5}, 7, 256);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", stem);
    put_idx(name, 1, (uint32_t[]){count}, 1, 10);
}

TEST(idx, finds_labels_beside_images) {
    use_folder("idx_pair");
    put_pair("train", 30);
    sh_dataset *dataset = NULL;
    CHECK_OK(sh_dataset_open(test_path("train-images-idx3-ubyte"), &(sh_data_options){0}, NULL,
                             NULL, &dataset));
    assert_int_equal(dataset->info.count, 30);
    assert_int_equal(dataset->info.classes, 10);
    assert_int_equal(dataset->info.target, SH_TARGET_CLASS);
    assert_true(sh_shape_equal(&dataset->info.sample, &SH_SHAPE(1, 4, 5)));
    float x[20];
    int32_t y;
    dataset->get(dataset, 13, x, &y);
    assert_int_equal(y, 3);
    for (int i = 0; i < 20; i++) assert_true(x[i] == (float)((13 * 20 + i) * 7 % 256));
    sh_dataset_destroy(dataset);
}

TEST(idx, reads_gzip_to_the_same_samples) {
    use_folder("idx_gzip");
    put_pair("t", 20);
    const char *names[] = {"t-images-idx3-ubyte", "t-labels-idx1-ubyte"};
    sh_dataset *plain = NULL, *packed = NULL;
    CHECK_OK(sh_dataset_open(test_path(names[0]), &(sh_data_options){0}, NULL, NULL, &plain));
    for (int i = 0; i < 2; i++) {
        char to[64];
        snprintf(to, sizeof to, "%s.gz", names[i]);
        sh_mapped map;
        CHECK_OK(sh_file_map(test_path(names[i]), &map));
        gzFile file = gzopen(test_path(to), "wb");
        assert_int_equal(gzwrite(file, map.data, (unsigned)map.bytes), map.bytes);
        gzclose(file);
        sh_file_unmap(&map);
        remove(test_path(names[i]));  // a mapped file outlives its name
    }
    CHECK_OK(sh_dataset_open(test_path("t-images-idx3-ubyte.gz"), &(sh_data_options){0}, NULL, NULL,
                             &packed));
    for (size_t i = 0; i < 20; i++) {
        float a[20], b[20];
        int32_t label_a, label_b;
        plain->get(plain, i, a, &label_a);
        packed->get(packed, i, b, &label_b);
        assert_memory_equal(a, b, sizeof a);
        assert_int_equal(label_a, label_b);
    }
    sh_dataset_destroy(plain);
    sh_dataset_destroy(packed);
}

TEST(idx, names_where_a_cut_file_ends) {
    use_folder("idx_cut");
    put_pair("train", 30);
    sh_mapped map;
    CHECK_OK(sh_file_map(test_path("train-images-idx3-ubyte"), &map));
    char *path = put_file("cut-images-idx3-ubyte", map.data, 16 + 12 * 20 + 3);
    sh_file_unmap(&map);
    sh_dataset *dataset = NULL;
    CHECK_FAILS(SH_E_FORMAT, "ends after 12 of 30 samples",
                sh_dataset_open(path, &(sh_data_options){0}, NULL, NULL, &dataset));
    assert_null(dataset);
}

TEST(idx, refuses_a_cut_gzip_file) {
    use_folder("idx_cut_gzip");
    uint8_t noise[3000];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)(i * i >> 3);
    memcpy(noise, "\0\0\10\1\0\0\13\244", 8);
    gzFile file = gzopen(test_path("whole.gz"), "wb");
    gzwrite(file, noise, sizeof noise);
    gzclose(file);
    sh_mapped map;
    CHECK_OK(sh_file_map(test_path("whole.gz"), &map));
    char *path = put_file("cut.gz", map.data, map.bytes / 2);
    sh_file_unmap(&map);
    sh_dataset *dataset = NULL;
    CHECK_FAILS(SH_E_FORMAT, "damaged",
                sh_dataset_open(path, &(sh_data_options){0}, NULL, NULL, &dataset));
}

TEST(idx, refuses_absurd_and_foreign_headers) {
    sh_array array;
    const uint8_t absurd[] = {0,   0,   8,   3,   255, 255, 255, 255,
                              255, 255, 255, 255, 255, 255, 255, 255};
    CHECK_FAILS(SH_E_FORMAT, "absurd", sh_idx_parse("a", absurd, sizeof absurd, &array));
    const uint8_t rank[] = {0, 0, 8, 9, 0, 0, 0, 1};
    CHECK_FAILS(SH_E_FORMAT, "9 dimensions", sh_idx_parse("a", rank, sizeof rank, &array));
    const uint8_t type[] = {0, 0, 7, 1, 0, 0, 0, 0};
    CHECK_FAILS(SH_E_FORMAT, "not an IDX file", sh_idx_parse("a", type, sizeof type, &array));
    CHECK_FAILS(SH_E_FORMAT, "within its header", sh_idx_parse("a", absurd, 9, &array));
    CHECK_FAILS(SH_E_FORMAT, "not an IDX file", sh_idx_parse("a", absurd, 3, &array));
    const uint8_t trailing[] = {0, 0, 8, 1, 0, 0, 0, 1, 5, 6};
    CHECK_FAILS(SH_E_FORMAT, "1 bytes too many",
                sh_idx_parse("a", trailing, sizeof trailing, &array));
}

TEST(idx, refuses_a_label_file_of_another_length) {
    use_folder("idx_lengths");
    put_pair("train", 30);
    put_idx("train-labels-idx1-ubyte", 1, (uint32_t[]){29}, 1, 10);
    sh_dataset *dataset = NULL;
    CHECK_FAILS(SH_E_SHAPE, "30 samples but 29 labels",
                sh_dataset_open(test_path("train-images-idx3-ubyte"), &(sh_data_options){0}, NULL,
                                NULL, &dataset));
}

TEST(idx, reads_big_endian_floats_and_refuses_nan) {
    use_folder("idx_float");
    uint8_t data[] = {0, 0, 13, 2, 0, 0, 0, 2, 0, 0, 0, 1, 0x3f, 0xc0, 0, 0, 0xc0, 0, 0, 0};
    char *path = put_file("floats.idx", data, sizeof data);
    sh_dataset *dataset = NULL;
    CHECK_OK(sh_dataset_open(path, &(sh_data_options){0}, NULL, NULL, &dataset));
    float x[2];
    dataset->get(dataset, 0, x, NULL);
    dataset->get(dataset, 1, x + 1, NULL);
    assert_true(x[0] == 1.5f && x[1] == -2.0f);
    assert_int_equal(dataset->info.target, SH_TARGET_NONE);
    sh_dataset_destroy(dataset);
    data[16] = 0x7f;
    data[17] = 0xc0;
    path = put_file("nan.idx", data, sizeof data);
    CHECK_FAILS(SH_E_NUMERIC, "value 0 of sample 1",
                sh_dataset_open(path, &(sh_data_options){0}, NULL, NULL, &dataset));
}
