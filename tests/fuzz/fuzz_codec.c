/* Any bytes as a codec's name and message: "NAME\n", rows, columns, round, then the message. What
 * decodes must leave every element of the gradient written within bounds, which a sanitizer sees,
 * and what parses must print and parse the same again. */
#include "codec/codec.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { TEXT_MOST = 63, SIDE_MOST = 255 };

static void *zeroed(size_t bytes) {
    void *memory = calloc(1, bytes != 0 ? bytes : 1);
    SH_ASSERT(memory != NULL);
    return memory;
}

static void check_text(const sh_codec *codec) {
    char text[SH_CODEC_TEXT], again[SH_CODEC_TEXT];
    sh_codec other;
    SH_ASSERT(sh_codec_check(codec) == SH_OK);
    SH_ASSERT(sh_codec_parse(sh_codec_text(codec, text), &other) == SH_OK);
    SH_ASSERT(strcmp(sh_codec_text(&other, again), text) == 0);
}

/* The message is given as it came, and cut or filled up to the right size. */
static void decode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const uint8_t *data,
                   size_t bytes) {
    size_t right = sh_codec_bytes(codec, tensor, round);
    float *x = zeroed(tensor->count * sizeof *x);
    void *given = zeroed(bytes), *fitted = zeroed(right);
    if (bytes != 0) memcpy(given, data, bytes);
    memcpy(fitted, given, bytes < right ? bytes : right);
    sh_status status = sh_codec_decode(codec, tensor, round, given, bytes, 1, x);
    SH_ASSERT(status != SH_OK || bytes == right);
    (void)sh_codec_decode(codec, tensor, round, fitted, right, 1, x);
    free(x);
    free(given);
    free(fitted);
}

static void receive(const sh_codec *codec, const uint8_t *data, size_t bytes) {
    if (codec->kind == NULL || bytes < 3) return;
    size_t rows = data[0] % SIDE_MOST + 1u, columns = data[1];
    int round = data[2] % codec->kind->rounds;
    sh_codec_tensor tensor = {
        .name = "input", .rows = rows, .columns = columns, .count = rows * columns};
    tensor.common = tensor.own = sh_rng_stream(1, SH_RNG_CODEC, 0, 0);
    for (int i = 0; i < sh_codec_states(codec); i++)
        tensor.state[i] = zeroed(tensor.count * sizeof(float));
    tensor.factors = zeroed(sh_codec_factors(codec, rows, columns) * sizeof(float));
    tensor.between = zeroed(sh_codec_between(codec, &tensor) * sizeof(float));
    decode(codec, &tensor, round, data + 3, bytes - 3);
    for (int i = 0; i < 2; i++) free(tensor.state[i]);
    free(tensor.factors);
    free(tensor.between);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const uint8_t *end = bytes != 0 ? memchr(data, '\n', bytes) : NULL;
    size_t length = end != NULL ? (size_t)(end - data) : bytes;
    char text[TEXT_MOST + 1] = {0};
    sh_codec codec;
    memcpy(text, data, length < TEXT_MOST ? length : TEXT_MOST);
    if (sh_codec_parse(text, &codec) != SH_OK) return 0;
    check_text(&codec);
    if (end != NULL) receive(&codec, end + 1, bytes - length - 1);
    return 0;
}
