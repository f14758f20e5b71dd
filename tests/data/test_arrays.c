#include <math.h>
#include <stdlib.h>
#include <zlib.h>

#include "data/array.h"
#include "data/dataset.h"
#include "data/reader.h"
#include "files.h"

typedef struct buffer {
    uint8_t data[1 << 14];
    size_t used;
} buffer;

static void add(buffer *b, const void *data, size_t bytes) {
    assert_true(b->used + bytes <= sizeof b->data);
    memcpy(b->data + b->used, data, bytes);
    b->used += bytes;
}

static void add_number(buffer *b, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++, number >>= 8) add(b, &(uint8_t){(uint8_t)number}, 1);
}

/* An NPY file as numpy writes it: the header padded so that the elements start at 64. */
static buffer npy(int version, const char *dictionary, const void *data, size_t bytes) {
    buffer b = {.used = 0};
    size_t start = version == 1 ? 10 : 12;
    size_t length = (start + strlen(dictionary) + 1 + 63) / 64 * 64 - start;
    add(&b, "\x93NUMPY", 6);
    add_number(&b, (uint64_t)version, 1);
    add_number(&b, 0, 1);
    add_number(&b, length, version == 1 ? 2 : 4);
    add(&b, dictionary, strlen(dictionary));
    while (b.used < start + length - 1) add(&b, " ", 1);
    add(&b, "\n", 1);
    add(&b, data, bytes);
    return b;
}

static sh_status parse(const buffer *b, sh_array *array) {
    return sh_npy_parse("a.npy", b->data, b->used, array);
}

/* Of a file that ends after `bytes`: a sanitizer sees what is read behind them. */
static sh_status parse_exactly(const buffer *b, size_t bytes, sh_array *array) {
    uint8_t *cut = malloc(bytes != 0 ? bytes : 1);
    assert_non_null(cut);
    memcpy(cut, b->data, bytes);
    sh_status status = sh_npy_parse("a.npy", cut, bytes, array);
    free(cut);
    return status;
}

TEST(npy, reads_every_type_in_both_byte_orders) {
    static const struct {
        const char *code;
        uint8_t bytes[16];
        size_t size;
    } cases[] = {
        {"|u1", {3, 200}, 2},
        {"|i1", {3, 200}, 2},
        {"<i2", {3, 0, 0xc8, 0xff}, 4},
        {">i2", {0, 3, 0xff, 0xc8}, 4},
        {"<i4", {3, 0, 0, 0, 0xc8, 0xff, 0xff, 0xff}, 8},
        {">i4", {0, 0, 0, 3, 0xff, 0xff, 0xff, 0xc8}, 8},
        {"<i8", {3, 0, 0, 0, 0, 0, 0, 0, 0xc8, 255, 255, 255, 255, 255, 255, 255}, 16},
        {">i8", {0, 0, 0, 0, 0, 0, 0, 3, 255, 255, 255, 255, 255, 255, 255, 0xc8}, 16},
        {"<f4", {0, 0, 0x40, 0x40, 0, 0, 0x60, 0xc2}, 8},
        {">f4", {0x40, 0x40, 0, 0, 0xc2, 0x60, 0, 0}, 8},
        {"<f8", {0, 0, 0, 0, 0, 0, 8, 0x40, 0, 0, 0, 0, 0, 0, 0x4c, 0xc0}, 16},
        {">f8", {0x40, 8, 0, 0, 0, 0, 0, 0, 0xc0, 0x4c, 0, 0, 0, 0, 0, 0}, 16},
    };
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        char text[128];
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }",
                 cases[i].code);
        buffer b = npy(1 + (int)i % 3, text, cases[i].bytes, cases[i].size);
        sh_array array;
        CHECK_OK(parse(&b, &array));
        assert_int_equal(array.shape.rank, 1);
        assert_true(sh_array_at(&array, 0) == 3);
        assert_true(sh_array_at(&array, 1) == (i == 0 ? 200 : -56));
    }
}

TEST(npy, refuses_what_it_cannot_read_and_says_so) {
    float values[4] = {0};
    static const struct {
        const char *text, *part;
        sh_status code;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", "Fortran order",
         SH_E_UNSUPPORTED},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "type '|O'", SH_E_UNSUPPORTED},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "records",
         SH_E_UNSUPPORTED},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }", "type '<c8'",
         SH_E_UNSUPPORTED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", "ends after 4 of 5",
         SH_E_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "too many", SH_E_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "absurd",
         SH_E_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "absurd",
         SH_E_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "not a number", SH_E_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, ", "not a number", SH_E_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, }", "no shape", SH_E_FORMAT},
        {"{'descr': '<f4', 'shape': (4,), }", "order", SH_E_FORMAT},
        {"{}", "descr", SH_E_FORMAT},
    };
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        buffer b = npy(1, cases[i].text, values, sizeof values);
        sh_array array;
        CHECK_FAILS(cases[i].code, cases[i].part, parse(&b, &array));
    }
}

TEST(npy, survives_every_truncation) {
    float values[4] = {1, 2, 3, 4};
    buffer b = npy(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", values,
                   sizeof values);
    for (size_t bytes = 0; bytes < b.used; bytes++) {
        sh_array array;
        assert_int_not_equal(parse_exactly(&b, bytes, &array), SH_OK);
    }
}

/* The dictionary ends with the file at every one of its characters, so that no key, value or
 * number may be read beyond the end. */
TEST(npy, reads_no_header_beyond_its_length) {
    static const char *const texts[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }",
        "{\"shape\": (2L,), \"fortran_order\": True, \"descr\": '>i8'}",
        "{'shape': (), 'descr': [('a', '<f4')], 'fortran_order': False}",
    };
    for (size_t t = 0; t < SH_COUNT(texts); t++)
        for (int version = 1; version <= 2; version++)
            for (size_t length = 0; length < strlen(texts[t]); length++)
                for (size_t missing = 0; missing <= 12; missing += 4) {
                    buffer b = {.used = 0};
                    sh_array array;
                    add(&b, "\x93NUMPY", 6);
                    add_number(&b, (uint64_t)version, 2);
                    add_number(&b, length + missing, version == 1 ? 2 : 4);
                    add(&b, texts[t], length);
                    sh_status status = parse_exactly(&b, b.used, &array);
                    assert_int_not_equal(status, SH_OK);
                    if (missing > 0 && b.used >= 10)
                        CHECK_FAILS(SH_E_FORMAT, "within its header", status);
                }
}

TEST(npy, pairs_x_with_y) {
    use_folder("npy_pair");
    float x[6] = {1, 2, 3, 4, 5, 6};
    int32_t y[3] = {2, 0, 1};
    buffer bx = npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", x, sizeof x);
    buffer by = npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }", y, sizeof y);
    char *path = put_file("x_train.npy", bx.data, bx.used);
    put_file("y_train.npy", by.data, by.used);
    sh_dataset *dataset = NULL;
    CHECK_OK(sh_dataset_open(path, &(sh_data_options){0}, NULL, NULL, &dataset));
    assert_int_equal(dataset->info.classes, 3);
    float sample[2];
    int32_t label;
    dataset->get(dataset, 2, sample, &label);
    assert_int_equal(label, 1);
    assert_true(sample[0] == 5 && sample[1] == 6);
    sh_dataset_destroy(dataset);
    // Another file of labels by option; floats are values, not classes.
    buffer values =
        npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", x, sizeof x);
    sh_data_options options = {.train = path,
                               .labels = put_file("v.npy", values.data, values.used)};
    sh_data data;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    assert_int_equal(data.train->info.target, SH_TARGET_VALUES);
    assert_int_equal(data.train->info.values, 2);
    float pair[2];
    data.train->get(data.train, 1, sample, pair);
    assert_true(pair[0] == 3 && pair[1] == 4);
    assert_true(data.normal.count == 2 && data.normal.mean[0] == 3 && data.normal.mean[1] == 4);
    sh_data_close(&data);
}

TEST(npy, refuses_channels_last_and_nan) {
    use_folder("npy_bad");
    static uint8_t zeros[1 * 8 * 8 * 3];
    buffer b = npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 8, 8, 3), }", zeros,
                   sizeof zeros);
    sh_dataset *dataset = NULL;
    CHECK_FAILS(SH_E_SHAPE, "channels last",
                sh_dataset_open(put_file("i.npy", b.data, b.used), &(sh_data_options){0}, NULL,
                                NULL, &dataset));
    float x[4] = {0, 1, 2, 0.0f / zeros[0]};
    b = npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", x, sizeof x);
    CHECK_FAILS(SH_E_NUMERIC, "value 1 of sample 1",
                sh_dataset_open(put_file("n.npy", b.data, b.used), &(sh_data_options){0}, NULL,
                                NULL, &dataset));
    b = npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2), }", x, 0);
    CHECK_FAILS(SH_E_FORMAT, "holds no samples",
                sh_dataset_open(put_file("e.npy", b.data, b.used), &(sh_data_options){0}, NULL,
                                NULL, &dataset));
}

typedef struct archive {
    buffer file, directory;
    int count;
} archive;

static void archive_add(archive *a, const char *name, const buffer *content, bool deflated) {
    static uint8_t packed[1 << 15];
    size_t packed_bytes = content->used, offset = a->file.used;
    memcpy(packed, content->data, content->used);
    if (deflated) {
        z_stream z = {.next_in = (Bytef *)(uintptr_t)content->data,
                      .avail_in = (uInt)content->used,
                      .next_out = packed,
                      .avail_out = sizeof packed};
        assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        packed_bytes = z.total_out;
        deflateEnd(&z);
    }
    uint32_t checksum = (uint32_t)crc32(0, content->data, (uInt)content->used);
    for (int which = 0; which < 2; which++) {  // the local header, then the directory's entry
        buffer *b = which == 0 ? &a->file : &a->directory;
        add(b, which == 0 ? "PK\3\4" : "PK\1\2\24\0", which == 0 ? 4 : 6);
        add_number(b, 20, 2);
        add_number(b, 0, 2);
        add_number(b, deflated ? 8 : 0, 2);
        add_number(b, 0, 4);
        add_number(b, checksum, 4);
        add_number(b, packed_bytes, 4);
        add_number(b, content->used, 4);
        add_number(b, strlen(name), 2);
        add_number(b, 0, 2);
        if (which == 1) {
            add_number(b, 0, 10);
            add_number(b, offset, 4);
        }
        add(b, name, strlen(name));
    }
    add(&a->file, packed, packed_bytes);
    a->count++;
}

/* With the first bytes of the directory alone. */
static buffer archive_end_at(archive *a, size_t directory_bytes) {
    size_t start = a->file.used;
    add(&a->file, a->directory.data, directory_bytes);
    add(&a->file, "PK\5\6\0\0\0\0", 8);
    add_number(&a->file, (uint64_t)a->count, 2);
    add_number(&a->file, (uint64_t)a->count, 2);
    add_number(&a->file, directory_bytes, 4);
    add_number(&a->file, start, 4);
    add_number(&a->file, 0, 2);
    return a->file;
}

static buffer archive_end(archive *a) { return archive_end_at(a, a->directory.used); }

/* From an exact block. SH_OK without an array x gives `*found_out` false. */
static sh_status parse_npz(const buffer *b, bool *found_out) {
    sh_read read = {.path = "d.npz"};
    sh_source *source = NULL;
    uint8_t *exact = malloc(b->used);
    assert_non_null(exact);
    memcpy(exact, b->data, b->used);
    sh_status status = sh_npz_parse(&read, exact, b->used, &source);
    *found_out = source != NULL;
    sh_source_release(source);
    free(exact);
    return status;
}

/* An array x of one sample. */
static void archive_add_x(archive *a, const char *name) {
    float x[2] = {1, 2};
    buffer bx = npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }", x, sizeof x);
    archive_add(a, name, &bx, false);
}

static buffer make_npz(bool deflated, bool parts) {
    static archive a;
    a = (archive){.count = 0};
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint8_t y[4] = {0, 1, 2, 1};
    buffer bx = npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }", x, sizeof x);
    buffer by = npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }", y, sizeof y);
    archive_add(&a, parts ? "x_train.npy" : "x.npy", &bx, deflated);
    archive_add(&a, parts ? "y_train.npy" : "y.npy", &by, deflated);
    if (parts) {
        archive_add(&a, "x_test.npy", &bx, deflated);
        archive_add(&a, "y_test.npy", &by, deflated);
    }
    return archive_end(&a);
}

TEST(npz, reads_stored_and_deflated_members) {
    use_folder("npz_good");
    for (int which = 0; which < 4; which++) {
        buffer b = make_npz(which & 1, which & 2);
        sh_data_options options = {.train = put_file("d.npz", b.data, b.used), .normalise = "none"};
        sh_data data;
        CHECK_OK(sh_data_open(&options, NULL, &data));
        assert_int_equal(data.train->info.count, 4);
        assert_int_equal(data.train->info.classes, 3);
        assert_true((data.test != NULL) == (which >= 2));
        float x[2];
        int32_t y;
        data.train->get(data.train, 3, x, &y);
        assert_true(x[0] == 7 && x[1] == 8 && y == 1);
        sh_data_close(&data);
        sh_dataset *dataset = NULL;
        CHECK_OK(sh_dataset_open(options.train, &options, NULL, NULL, &dataset));
        sh_dataset_destroy(dataset);
        options.test = options.train;  // named as test data, x and y are that
        char train[] = "digits";
        options.train = train;
        CHECK_FAILS(SH_E_SHAPE, "samples of shape 2 against 1x8x8",
                    sh_data_open(&options, NULL, &data));
    }
}

TEST(npz, survives_truncation_and_flipped_bytes) {
    sh_read read = {.path = "d.npz"};
    for (int deflated = 0; deflated < 2; deflated++) {
        buffer whole = make_npz(deflated, false);
        for (size_t bytes = 0; bytes < whole.used; bytes++) {
            sh_source *source = NULL;
            uint8_t *cut = malloc(bytes ? bytes : 1);
            memcpy(cut, whole.data, bytes);
            assert_int_not_equal(sh_npz_parse(&read, cut, bytes, &source), SH_OK);
            free(cut);
        }
        size_t refused = 0;
        for (size_t at = 0; at < whole.used; at++) {  // most fail, none may crash
            uint8_t *bad = malloc(whole.used);
            assert_non_null(bad);
            memcpy(bad, whole.data, whole.used);
            bad[at] ^= 0x55;
            sh_source *source = NULL;
            if (sh_npz_parse(&read, bad, whole.used, &source) == SH_OK)
                sh_source_release(source);
            else
                refused++;
            free(bad);
        }
        assert_true(refused > whole.used / 3);
    }
}

TEST(npz, unpacks_no_member_whose_two_sizes_differ) {
    static archive a;
    a = (archive){.count = 0};
    static uint8_t zeros[8000];
    buffer bx =
        npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 2), }", zeros, sizeof zeros);
    archive_add(&a, "x.npy", &bx, true);
    buffer b = archive_end(&a);
    sh_read read = {.path = "d.npz"};
    sh_source *source = NULL;
    CHECK_FAILS(SH_E_FORMAT, "'d.npz:x' has 136 bytes by its NPY header, and 8128 by the zip",
                sh_npz_parse(&read, b.data, b.used, &source));
}

TEST(npz, refuses_a_directory_that_ends_within_an_entry) {
    static archive a;
    bool found = false;
    size_t entry = 46 + strlen("x.npy");
    for (size_t bytes = 0; bytes <= 2 * entry; bytes++) {
        a = (archive){.count = 0};
        archive_add_x(&a, "w.npy");
        archive_add_x(&a, "x.npy");
        assert_int_equal(a.directory.used, 2 * entry);
        buffer b = archive_end_at(&a, bytes);
        if (bytes % entry == 0) {
            CHECK_OK(parse_npz(&b, &found));
            assert_true(found == (bytes == 2 * entry));
        } else {
            CHECK_FAILS(SH_E_FORMAT, "directory entry", parse_npz(&b, &found));
        }
    }
}

TEST(npz, takes_no_name_that_only_begins_alike) {
    static const char *const names[] = {"x.npyz", "x.np", "x", "xx.npy"};
    static archive a;
    bool found = true;
    for (size_t i = 0; i < SH_COUNT(names); i++) {
        a = (archive){.count = 0};
        archive_add_x(&a, names[i]);
        buffer b = archive_end(&a);
        CHECK_OK(parse_npz(&b, &found));
        assert_false(found);
    }
}

TEST(npz, refuses_a_member_longer_than_the_file) {
    static archive a;
    bool found = false;
    for (uint32_t more = 1; more < 1 << 20; more *= 2) {
        a = (archive){.count = 0};
        archive_add_x(&a, "x.npy");
        uint32_t bytes = (uint32_t)(a.file.used - 30 - 5) + more;
        memcpy(a.directory.data + 20, &bytes, 4);  // packed and unpacked
        memcpy(a.directory.data + 24, &bytes, 4);
        buffer b = archive_end(&a);
        CHECK_FAILS(SH_E_FORMAT, "a member that ends too late", parse_npz(&b, &found));
    }
}

/* Sizes of 2^32 - 1 stand for those in the extra field, which ends at every one of its bytes. */
TEST(npz, reads_no_zip64_sizes_beyond_their_field) {
    static archive a;
    const size_t whole = 4 + 3 * 8;
    bool found = false;
    for (size_t bytes = 0; bytes <= whole; bytes++)
        for (size_t told = 0; told <= whole - 4; told += 8) {
            buffer extra = {.used = 0};
            a = (archive){.count = 0};
            archive_add_x(&a, "x.npy");
            uint64_t size = a.file.used - 30 - 5;
            add_number(&extra, 1, 2);
            add_number(&extra, told, 2);
            add_number(&extra, size, 8);
            add_number(&extra, size, 8);
            add_number(&extra, 0, 8);
            memset(a.directory.data + 20, 0xFF, 8);
            memset(a.directory.data + 42, 0xFF, 4);
            a.directory.data[30] = (uint8_t)bytes;
            add(&a.directory, extra.data, bytes);
            buffer b = archive_end(&a);
            if (bytes == whole && told == whole - 4) {
                CHECK_OK(parse_npz(&b, &found));
                assert_true(found);
            } else {
                CHECK_FAILS(SH_E_FORMAT, "sizes that are missing", parse_npz(&b, &found));
            }
        }
}

TEST(npz, names_missing_arrays_and_bad_checksums) {
    static archive a;
    a = (archive){.count = 0};
    float x[2] = {1, 2};
    buffer bx = npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }", x, sizeof x);
    archive_add(&a, "z.npy", &bx, false);
    buffer b = archive_end(&a);
    use_folder("npz_bad");
    sh_data_options options = {.train = put_file("d.npz", b.data, b.used)};
    sh_data data;
    sh_dataset_parts parts;
    CHECK_FAILS(SH_E_FORMAT, "neither an array x nor x_train", sh_data_open(&options, NULL, &data));
    CHECK_FAILS(SH_E_FORMAT, "no array x, x_train or x_test",
                sh_dataset_open_parts(options.train, &options, &parts));
    sh_read read = {.path = "d.npz"};
    sh_source *source = NULL;
    x[1] = NAN;
    bx = npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }", x, sizeof x);
    a = (archive){.count = 0};
    archive_add(&a, "x_train.npy", &bx, false);
    b = archive_end(&a);
    CHECK_FAILS(SH_E_NUMERIC, "bad.npz:x_train': value 1 of sample 0 is nan",
                sh_dataset_open_parts(put_file("bad.npz", b.data, b.used), &options, &parts));
    b = make_npz(false, false);
    b.data[30 + 5 + 128] ^= 1;  // the first element of x
    CHECK_FAILS(SH_E_FORMAT, "wrong checksum", sh_npz_parse(&read, b.data, b.used, &source));
}
