/* Protocol-buffer messages, written field by field: enough for the formats of others that Shoal
 * writes (TensorBoard's events, ONNX). Fields may come in any order; a message inside another one
 * is made first and then put in whole. */
#ifndef SH_BASE_PROTOBUF_H
#define SH_BASE_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sh_proto {
    unsigned char *bytes;
    size_t count, room;
    bool failed;  // out of memory: the message is not whole
} sh_proto;

void sh_proto_fini(sh_proto *message);
/* Empties it; its memory stays for the next message. */
void sh_proto_clear(sh_proto *message);

void sh_proto_int(sh_proto *message, int field, int64_t value);
void sh_proto_double(sh_proto *message, int field, double value);
void sh_proto_float(sh_proto *message, int field, float value);
void sh_proto_bytes(sh_proto *message, int field, const void *data, size_t bytes);
void sh_proto_text(sh_proto *message, int field, const char *text);
/* A failed `inner` fails `message`. */
void sh_proto_message(sh_proto *message, int field, const sh_proto *inner);

/* `bytes` bytes of a number, the lowest first, without a field: for formats around messages. */
void sh_proto_raw(sh_proto *message, uint64_t value, size_t bytes);
void sh_proto_append(sh_proto *message, const void *data, size_t bytes);

#endif
