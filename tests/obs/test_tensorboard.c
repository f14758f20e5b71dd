#include "obs/tensorboard.h"

#include <dirent.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "harness.h"

static int64_t no_time(void *self) {
    (void)self;
    return 5;
}

static const sh_clock stopped = {.now_ns = no_time};

/* Begins a file at 1 s after the epoch; its path. */
static char *open_board(sh_tensorboard **board) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s", sh_test_folder("tensorboard"));
    CHECK_OK(sh_make_folders(folder));
    CHECK_OK(sh_tensorboard_open(folder, &stopped, 1000000000, board));
    return sh_format("%s/events.out.tfevents.1.shoal", folder);
}

/* Bytes that google.protobuf 3.21 and crc32c 2.3 make of Event(wall_time=1, file_version=...) and
 * Event(wall_time=1, step=300, summary=[Value(tag="loss", simple_value=0.5)]). */
static const unsigned char expected[] = {
    0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xa3, 0x7f, 0x4b, 0x22, 0x09, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0xf0, 0x3f, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e,
    0x2e, 0x45, 0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32, 0x86, 0xbf, 0x57, 0x7a, 0x1b, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1a, 0x0d, 0x9e, 0x13, 0x09, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0xf0, 0x3f, 0x10, 0xac, 0x02, 0x2a, 0x0d, 0x0a, 0x0b, 0x0a, 0x04,
    0x6c, 0x6f, 0x73, 0x73, 0x15, 0x00, 0x00, 0x00, 0x3f, 0x4e, 0x5c, 0x1f, 0xd1,
};

TEST(tensorboard, writes_what_the_protocol_buffers_of_others_write) {
    sh_tensorboard *board = NULL;
    char *path = open_board(&board);
    CHECK_OK(sh_tensorboard_scalar(board, "loss", 300, 0.5));
    sh_tensorboard_close(board);
    sh_mapped file;
    CHECK_OK(sh_file_map(path, &file));
    assert_int_equal(file.bytes, sizeof expected);
    assert_memory_equal(file.data, expected, sizeof expected);
    sh_file_unmap(&file);
    sh_free(path);
}

TEST(tensorboard, records_are_whole_whatever_they_hold) {
    sh_tensorboard *board = NULL;
    char *path = open_board(&board), tag[1000];
    memset(tag, 'x', sizeof tag - 1);
    tag[sizeof tag - 1] = '\0';
    for (int i = 0; i < 3; i++) CHECK_OK(sh_tensorboard_scalar(board, tag, INT64_MAX, INFINITY));
    sh_tensorboard_close(board);
    sh_mapped file;
    CHECK_OK(sh_file_map(path, &file));
    size_t at = 0, records = 0;
    for (; at + 16 <= file.bytes; records++) {
        uint64_t length = 0;
        memcpy(&length, file.data + at, 8);
        at += 8 + 4 + length + 4;
    }
    assert_int_equal(at, file.bytes);
    assert_int_equal(records, 1 + 3);
    sh_file_unmap(&file);
    sh_free(path);
}

TEST(tensorboard, a_folder_that_is_not_there_is_named) {
    sh_tensorboard *board = NULL;
    CHECK_FAILS(SH_E_IO, "/no/such/folder/events",
                sh_tensorboard_open("/no/such/folder", &stopped, 0, &board));
}
