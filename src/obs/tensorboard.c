/* Event files. A record (TFRecord):
 *
 *   u64 length, u32 masked CRC-32C of the length, the message, u32 masked CRC-32C of the message
 *
 * little endian. A message is Event {1: double wall_time, 2: int64 step, 3: string file_version,
 * 5: Summary {1: Value {1: string tag, 2: float simple_value}}}, the first one with the version
 * "brain.Event:2" alone. */
#include "obs/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/protobuf.h"

struct sh_tensorboard {
    int fd;
    char *path;
    const sh_clock *clock;
    int64_t unix_ns_less_clock;               // turns the clock's time into time of day
    sh_proto scalar, summary, event, record;  // reused from value to value
};

/* ---- records ---- */

/* CRC-32C (Castagnoli), bit by bit: records are few and short. */
static uint32_t crc32c(const unsigned char *data, size_t bytes) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

/* Checksums of data that may hold checksums itself are masked. */
static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8; }

static sh_status write_all(const sh_tensorboard *board, const unsigned char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t written = write(board->fd, data, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0)
            return SH_FAIL(SH_E_IO, "cannot write '%s': %s", board->path, strerror(errno));
        data += written;
        bytes -= (size_t)written;
    }
    return SH_OK;
}

/* Writes the event that was made last as one record. */
static sh_status write_record(sh_tensorboard *board) {
    const sh_proto *event = &board->event;
    sh_proto *record = &board->record;
    sh_proto_clear(record);
    sh_proto_raw(record, event->count, 8);
    if (!record->failed) sh_proto_raw(record, masked(crc32c(record->bytes, 8)), 4);
    sh_proto_append(record, event->bytes, event->count);
    sh_proto_raw(record, masked(crc32c(event->bytes, event->count)), 4);
    if (event->failed || record->failed)
        return SH_FAIL(SH_E_MEMORY, "out of memory for TensorBoard's events");
    return write_all(board, record->bytes, record->count);
}

/* Begins an event with the time of day in seconds. */
static void begin_event(sh_tensorboard *board) {
    int64_t now_ns = board->unix_ns_less_clock + sh_clock_now_ns(board->clock);
    sh_proto_clear(&board->event);
    sh_proto_double(&board->event, 1, (double)now_ns * 1e-9);
}

/* ---- the file ---- */

static sh_status write_version(sh_tensorboard *board) {
    begin_event(board);
    sh_proto_text(&board->event, 3, "brain.Event:2");
    return write_record(board);
}

sh_status sh_tensorboard_open(const char *folder, const sh_clock *clock, int64_t unix_ns,
                              sh_tensorboard **board_out) {
    sh_tensorboard *board = sh_alloc(1, sizeof *board);
    if (board == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for TensorBoard's events");
    board->fd = -1;
    board->clock = clock;
    board->unix_ns_less_clock = unix_ns - sh_clock_now_ns(clock);
    board->path =
        sh_format("%s/events.out.tfevents.%lld.shoal", folder, (long long)(unix_ns / 1000000000));
    sh_status status = board->path != NULL
                           ? sh_file_open_own(board->path, O_APPEND, &board->fd)
                           : SH_FAIL(SH_E_MEMORY, "out of memory for TensorBoard's events");
    if (status == SH_OK) status = write_version(board);
    if (status == SH_OK)
        *board_out = board;
    else
        sh_tensorboard_close(board);
    return status;
}

void sh_tensorboard_close(sh_tensorboard *board) {
    if (board == NULL) return;
    if (board->fd >= 0) close(board->fd);
    sh_proto_fini(&board->scalar);
    sh_proto_fini(&board->summary);
    sh_proto_fini(&board->event);
    sh_proto_fini(&board->record);
    sh_free(board->path);
    sh_free(board);
}

/* Inner messages are made first, as protocol buffers put lengths before contents. */
sh_status sh_tensorboard_scalar(sh_tensorboard *board, const char *tag, int64_t step,
                                double value) {
    sh_proto_clear(&board->scalar);
    sh_proto_text(&board->scalar, 1, tag);
    sh_proto_float(&board->scalar, 2, (float)value);
    sh_proto_clear(&board->summary);
    sh_proto_message(&board->summary, 1, &board->scalar);
    begin_event(board);
    sh_proto_int(&board->event, 2, step);
    sh_proto_message(&board->event, 5, &board->summary);
    return write_record(board);
}
