/* Bytes of federated messages: little-endian numbers, written to a growing buffer and read with
 * every length checked. A reader that ran past its end stays failed and gives zeros, so that a
 * message is read field by field and judged once, by sh_fed_reader_ends. */
#ifndef SH_FED_BYTES_H
#define SH_FED_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sh_fed_writer {
    unsigned char *data;
    size_t bytes, capacity;
    bool failed;  // out of memory
} sh_fed_writer;

void sh_fed_put(sh_fed_writer *writer, const void *data, size_t bytes);
void sh_fed_put_number(sh_fed_writer *writer, uint64_t value, int bytes);
void sh_fed_put_real(sh_fed_writer *writer, double value);
/* u32 length, then the bytes. */
void sh_fed_put_text(sh_fed_writer *writer, const char *text);
void sh_fed_put_floats(sh_fed_writer *writer, const float *values, size_t count);
void sh_fed_writer_fini(sh_fed_writer *writer);

typedef struct sh_fed_reader {
    const unsigned char *at;
    size_t left;
    bool failed;
} sh_fed_reader;

/* `bytes` of the message, where they stand; NULL once the message is too short. */
const void *sh_fed_take(sh_fed_reader *reader, size_t bytes);
uint64_t sh_fed_take_number(sh_fed_reader *reader, int bytes);
double sh_fed_take_real(sh_fed_reader *reader);
/* At most size - 1 characters and a final zero; a longer text fails, and so does a zero in it. */
void sh_fed_take_text(sh_fed_reader *reader, char *text_out, size_t size);
void sh_fed_take_floats(sh_fed_reader *reader, float *values_out, size_t count);
/* Nothing failed and nothing is left. */
bool sh_fed_reader_ends(const sh_fed_reader *reader);

#endif
