#include <stdlib.h>
#include <sys/resource.h>
#include <zlib.h>

#include "base/addresses.h"
#include "base/memory.h"
#include "data/blob.h"
#include "data/dataset.h"
#include "data/reader.h"
#include "data/room.h"
#include "files.h"

/* Packs `head` and then `zeros` bytes of zero. */
static char *put_packed(const char *name, const void *head, size_t head_bytes, size_t zeros) {
    static const uint8_t nothing[1 << 20];
    char *path = test_path(name);
    gzFile file = gzopen(path, "wb9");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, head, (unsigned)head_bytes), head_bytes);
    while (zeros > 0) {
        size_t bytes = zeros < sizeof nothing ? zeros : sizeof nothing;
        assert_int_equal(gzwrite(file, nothing, (unsigned)bytes), bytes);
        zeros -= bytes;
    }
    assert_int_equal(gzclose(file), Z_OK);
    return path;
}

/* An IDX header of bytes. */
static void idx_header(uint8_t header[8], uint32_t count) {
    const uint8_t bytes[8] = {0,
                              0,
                              8,
                              1,
                              (uint8_t)(count >> 24),
                              (uint8_t)(count >> 16),
                              (uint8_t)(count >> 8),
                              (uint8_t)count};
    memcpy(header, bytes, sizeof bytes);
}

static sh_status open_file(const char *path) {
    sh_dataset *dataset = NULL;
    sh_status status = sh_dataset_open(path, &(sh_data_options){0}, NULL, NULL, &dataset);
    sh_dataset_destroy(dataset);
    return status;
}

static size_t peak_kib(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (size_t)usage.ru_maxrss;
}

/* What the packed bytes hold beyond the header's size is never unpacked. */
TEST(room, of_a_packed_file_is_what_its_header_tells_of) {
    enum { PROMISED = 100000, HELD = 256 << 20 };
    use_folder("room_header");
    uint8_t header[8];
    idx_header(header, PROMISED);
    const char *npy =
        "\x93NUMPY\1\0\x3a\0{'descr': '|u1', 'fortran_order': False, 'shape': (9,), }\n";
    char *idx = put_packed("long.idx.gz", header, sizeof header, HELD);
    char *array = put_packed("long.npy.gz", npy, 10 + 58, HELD);
    size_t before = peak_kib();
    CHECK_FAILS(SH_E_FORMAT, "more than the 100008 bytes that its header tells of", open_file(idx));
    CHECK_FAILS(SH_E_FORMAT, "bytes that its header tells of", open_file(array));
    assert_true(peak_kib() - before < 64 << 10);
    CHECK_OK(open_file(put_packed("right.idx.gz", header, sizeof header, PROMISED)));
    CHECK_FAILS(SH_E_FORMAT, "more than the 100008 bytes",
                open_file(put_packed("one.idx.gz", header, sizeof header, PROMISED + 1)));
    CHECK_FAILS(SH_E_FORMAT, "ends after 99999 of 100000",
                open_file(put_packed("cut.idx.gz", header, sizeof header, PROMISED - 1)));
}

TEST(room, is_not_taken_for_a_size_that_the_packed_bytes_cannot_have) {
    use_folder("room_ratio");
    uint8_t header[8];
    idx_header(header, 4000000000u);
    CHECK_FAILS(SH_E_FORMAT, "its header tells of 4000000008 bytes, which",
                open_file(put_packed("lie.idx.gz", header, sizeof header, 1000)));
}

/* Leaves so many bytes of addresses; sanitizers have taken terabytes already. */
static struct rlimit limit_to(size_t left) {
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    now = before;
    now.rlim_cur = (rlim_t)1 << 44;
    if (now.rlim_cur > now.rlim_max || setrlimit(RLIMIT_AS, &now) != 0) skip();
    size_t used = ((size_t)1 << 44) - sh_addresses_left();
    now.rlim_cur = used + left;
    if (used > (size_t)1 << 40 || setrlimit(RLIMIT_AS, &now) != 0) {
        setrlimit(RLIMIT_AS, &before);
        print_message("addresses cannot be limited here\n");
        skip();
    }
    return before;
}

/* Half of 256 MiB is less than what each of these would take. */
TEST(room, that_is_lacking_is_told_with_size_limit_and_next_step) {
    enum { TAKEN = 160 << 20 };
    use_folder("room_limit");
    uint8_t header[8];
    idx_header(header, TAKEN);
    const char *paths[] = {
        put_packed("big.idx.gz", header, sizeof header, TAKEN),
        put_packed("big.txt.gz", "text", 4, TAKEN),
        "synthetic:features=100000,nonzeros=100,count=2000000",
        "synthetic:shape=1024x16384,count=128",
    };
    const char *sizes[] = {"takes 160.0 MiB of memory", "takes more than 12", "takes 195.9 MiB",
                           "takes 272.0"};
    for (size_t i = 0; i < SH_COUNT(paths); i++) {
        struct rlimit before = limit_to((size_t)256 << 20);
        sh_status status = open_file(paths[i]);
        setrlimit(RLIMIT_AS, &before);
        CHECK_FAILS(SH_E_MEMORY, sizes[i], status);
        CHECK_FAILS(SH_E_MEMORY, paths[i], status);
        CHECK_FAILS(SH_E_MEMORY, "half of the addresses that 'ulimit -v' leaves", status);
        assert_non_null(strstr(sh_error_last()->hint, i < 2 ? "part%r" : "ask for less"));
    }
}

/* Numbers of text take room beside the text: a row of 9 characters becomes 20 bytes. */
TEST(room, counts_the_numbers_made_of_a_table) {
    enum { ROWS = 400000 };
    use_folder("room_table");
    char *rows = malloc(ROWS * 8 + 1);
    for (size_t i = 0; i < ROWS; i++) memcpy(rows + i * 8, "1,2,3,4\n", 8);
    char *path = put_file("t.csv", rows, ROWS * 8);
    CHECK_OK(open_file(path));
    free(rows);
    struct rlimit before = limit_to((size_t)16 << 20);
    sh_status status = open_file(path);
    setrlimit(RLIMIT_AS, &before);
    CHECK_FAILS(SH_E_MEMORY, "half of the addresses", status);
}
