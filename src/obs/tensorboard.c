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

enum {
    TAG_BYTES_MOST = 200,
    RECORD_BYTES_MOST = TAG_BYTES_MOST + 100,
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5,
};

struct sh_tensorboard {
    int fd;
    char *path;
    const sh_clock *clock;
    int64_t unix_ns_less_clock;  // turns the clock's time into time of day
};

/* ---- messages ---- */

typedef struct message {
    unsigned char bytes[RECORD_BYTES_MOST];
    size_t count;
} message;

static void put(message *m, const void *data, size_t bytes) {
    SH_ASSERT(m->count + bytes <= sizeof m->bytes);
    memcpy(m->bytes + m->count, data, bytes);
    m->count += bytes;
}

static void put_little(message *m, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) put(m, &(unsigned char){(unsigned char)(value >> 8 * i)}, 1);
}

/* Seven bits a byte, the lowest first; the top bit says that more follow. */
static void put_varint(message *m, uint64_t value) {
    for (; value >= 0x80; value >>= 7) put_little(m, (value & 0x7f) | 0x80, 1);
    put_little(m, value, 1);
}

static void put_key(message *m, int field, int wire) {
    put_varint(m, (uint64_t)(field << 3 | wire));
}

static void put_bytes(message *m, int field, const void *data, size_t bytes) {
    put_key(m, field, WIRE_BYTES);
    put_varint(m, bytes);
    put(m, data, bytes);
}

static void put_double(message *m, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(m, field, WIRE_64);
    put_little(m, bits, 8);
}

static void put_float(message *m, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(m, field, WIRE_32);
    put_little(m, bits, 4);
}

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

static sh_status write_record(const sh_tensorboard *board, const message *event) {
    message record = {0};
    put_little(&record, event->count, 8);
    put_little(&record, masked(crc32c(record.bytes, 8)), 4);
    put(&record, event->bytes, event->count);
    put_little(&record, masked(crc32c(event->bytes, event->count)), 4);
    return write_all(board, record.bytes, record.count);
}

static void begin_event(const sh_tensorboard *board, message *event) {
    int64_t now_ns = board->unix_ns_less_clock + sh_clock_now_ns(board->clock);
    put_double(event, 1, (double)now_ns * 1e-9);
}

/* ---- the file ---- */

static sh_status write_version(const sh_tensorboard *board) {
    static const char version[] = "brain.Event:2";
    message event = {0};
    begin_event(board, &event);
    put_bytes(&event, 3, version, strlen(version));
    return write_record(board, &event);
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
    sh_free(board->path);
    sh_free(board);
}

sh_status sh_tensorboard_scalar(sh_tensorboard *board, const char *tag, int64_t step,
                                double value) {
    message scalar = {0}, summary = {0}, event = {0};
    size_t length = strlen(tag);
    put_bytes(&scalar, 1, tag, length < TAG_BYTES_MOST ? length : TAG_BYTES_MOST);
    put_float(&scalar, 2, (float)value);
    put_bytes(&summary, 1, scalar.bytes, scalar.count);
    begin_event(board, &event);
    put_key(&event, 2, WIRE_VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, 5, summary.bytes, summary.count);
    return write_record(board, &event);
}
