#include "base/protobuf.h"

#include <string.h>

#include "base/memory.h"

/* How a field's value is written, in the low three bits of its key. */
typedef enum wire {
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5,
} wire;

void sh_proto_fini(sh_proto *message) {
    sh_free(message->bytes);
    *message = (sh_proto){0};
}

/* Empties the message and forgets a failure, so that it may be tried again. */
void sh_proto_clear(sh_proto *message) {
    message->count = 0;
    message->failed = false;
}

/* Failure is remembered and later appends do nothing, so that callers check once at the end. */
void sh_proto_append(sh_proto *message, const void *data, size_t bytes) {
    void *room = message->bytes;
    if (message->failed || bytes == 0) return;
    if (sh_grow(&room, &message->room, message->count + bytes, 1) != SH_OK) {
        message->failed = true;
        return;
    }
    message->bytes = room;
    memcpy(message->bytes + message->count, data, bytes);
    message->count += bytes;
}

/* Little-endian, as fixed-size fields are. */
void sh_proto_raw(sh_proto *message, uint64_t value, size_t bytes) {
    unsigned char little[8];
    for (size_t i = 0; i < bytes; i++) little[i] = (unsigned char)(value >> 8 * i);
    sh_proto_append(message, little, bytes);
}

/* Seven bits a byte, the lowest first; the top bit says that more follow. */
static void put_varint(sh_proto *message, uint64_t value) {
    for (; value >= 0x80; value >>= 7) sh_proto_raw(message, (value & 0x7f) | 0x80, 1);
    sh_proto_raw(message, value, 1);
}

/* Key of a field: its number and how the value is written. */
static void put_key(sh_proto *message, int field, wire kind) {
    put_varint(message, (uint64_t)field << 3 | (uint64_t)kind);
}

/* Negative numbers take ten bytes, as the format says for int64. */
void sh_proto_int(sh_proto *message, int field, int64_t value) {
    put_key(message, field, WIRE_VARINT);
    put_varint(message, (uint64_t)value);
}

void sh_proto_double(sh_proto *message, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(message, field, WIRE_64);
    sh_proto_raw(message, bits, 8);
}

void sh_proto_float(sh_proto *message, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(message, field, WIRE_32);
    sh_proto_raw(message, bits, 4);
}

void sh_proto_bytes(sh_proto *message, int field, const void *data, size_t bytes) {
    put_key(message, field, WIRE_BYTES);
    put_varint(message, bytes);
    sh_proto_append(message, data, bytes);
}

void sh_proto_text(sh_proto *message, int field, const char *text) {
    sh_proto_bytes(message, field, text, strlen(text));
}

void sh_proto_message(sh_proto *message, int field, const sh_proto *inner) {
    message->failed = message->failed || inner->failed;
    sh_proto_bytes(message, field, inner->bytes, inner->count);
}
