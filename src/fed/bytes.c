/* Little-endian numbers in a growing buffer, and a reader that checks every length. Both remember
 * the first failure, so that callers check once at the end. */
#include "fed/bytes.h"

#include <string.h>

#include "base/memory.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "floats are copied as they lie in memory");

/* After a failure nothing is appended: a message is whole or not sent. */
void sh_fed_put(sh_fed_writer *writer, const void *data, size_t bytes) {
    void *memory = writer->data;
    if (writer->failed || bytes == 0) return;
    if (sh_grow(&memory, &writer->capacity, writer->bytes + bytes, 1) != SH_OK) {
        writer->failed = true;
        return;
    }
    writer->data = memory;
    memcpy(writer->data + writer->bytes, data, bytes);
    writer->bytes += bytes;
}

/* The lowest `bytes` bytes of the value, lowest first, on any machine. */
void sh_fed_put_number(sh_fed_writer *writer, uint64_t value, int bytes) {
    unsigned char digits[8];
    for (int i = 0; i < bytes; i++) digits[i] = (unsigned char)(value >> (8 * i));
    sh_fed_put(writer, digits, (size_t)bytes);
}

/* The bits of the double, so that NaN and infinity arrive as they were sent. */
void sh_fed_put_real(sh_fed_writer *writer, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    sh_fed_put_number(writer, bits, 8);
}

/* Length (4), then the bytes without a zero at the end. */
void sh_fed_put_text(sh_fed_writer *writer, const char *text) {
    size_t length = strlen(text);
    sh_fed_put_number(writer, length, 4);
    sh_fed_put(writer, text, length);
}

/* Little-endian floats as they lie in memory. */
void sh_fed_put_floats(sh_fed_writer *writer, const float *values, size_t count) {
    sh_fed_put(writer, values, count * sizeof *values);
}

void sh_fed_writer_fini(sh_fed_writer *writer) {
    sh_free(writer->data);
    *writer = (sh_fed_writer){0};
}

/* The only place that moves a reader: a length beyond the end fails here, whoever asked. */
const void *sh_fed_take(sh_fed_reader *reader, size_t bytes) {
    if (reader->failed || bytes > reader->left) {
        reader->failed = true;
        return NULL;
    }
    const unsigned char *at = reader->at;
    reader->at += bytes;
    reader->left -= bytes;
    return at;
}

/* After a failure 0; the caller looks at `failed` before it uses the value. */
uint64_t sh_fed_take_number(sh_fed_reader *reader, int bytes) {
    const unsigned char *digits = sh_fed_take(reader, (size_t)bytes);
    uint64_t value = 0;
    for (int i = 0; i < bytes && digits != NULL; i++) value |= (uint64_t)digits[i] << (8 * i);
    return value;
}

/* Any bits are taken: NaN and infinity are the caller's to refuse. */
double sh_fed_take_real(sh_fed_reader *reader) {
    uint64_t bits = sh_fed_take_number(reader, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A zero inside the text would hide what follows it from every C function. */
void sh_fed_take_text(sh_fed_reader *reader, char *text_out, size_t size) {
    size_t length = (size_t)sh_fed_take_number(reader, 4);
    // A length beyond `size` is refused, not cut off.
    const char *text = length < size ? sh_fed_take(reader, length) : NULL;
    text_out[0] = '\0';
    if (text == NULL || memchr(text, '\0', length) != NULL) {
        reader->failed = true;
        return;
    }
    memcpy(text_out, text, length);
    text_out[length] = '\0';
}

/* A count whose bytes overflow size_t asks for more than there can be, and fails as too short. */
void sh_fed_take_floats(sh_fed_reader *reader, float *values_out, size_t count) {
    const void *values = count <= SIZE_MAX / sizeof(float)
                             ? sh_fed_take(reader, count * sizeof(float))
                             : sh_fed_take(reader, SIZE_MAX);
    if (values != NULL) memcpy(values_out, values, count * sizeof(float));
}

/* A message with bytes left over is not the message that was meant. */
bool sh_fed_reader_ends(const sh_fed_reader *reader) {
    return !reader->failed && reader->left == 0;
}
