/* What all codecs share: finding a row, sizes, and encoding and decoding a tensor. Tensors for
 * which a codec would not save bytes (biases, scales) travel dense, as plain floats: both sides
 * decide that from the shape alone. */
#include "codec/codec.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "codec/feedback.h"
#include "codec/list.h"
#include "tensor/kernels/vector.h"

#define X(name) &sh_codec_##name,
static const sh_codec_kind *const kinds[] = {SH_CODEC_LIST(X)};
#undef X

const sh_codec_kind *sh_codec_at(size_t index) {
    if (index < SH_COUNT(kinds)) return kinds[index];
    if (sh_codec_more == NULL) return NULL;
    for (size_t i = 0;; i++)
        if (sh_codec_more[i] == NULL || i == index - SH_COUNT(kinds)) return sh_codec_more[i];
}

/* NULL: no codec has this name. */
const sh_codec_kind *sh_codec_find(const char *name) {
    const sh_codec_kind *kind;
    for (size_t i = 0; (kind = sh_codec_at(i)) != NULL; i++)
        if (strcmp(kind->name, name) == 0) return kind;
    return NULL;
}

enum { NAMES_MOST = 32 };  // a checkpoint notes them as bits

/* Written once, before anybody reads it. */
static struct {
    pthread_once_t once;
    const char *items[NAMES_MOST + 1];
} names = {.once = PTHREAD_ONCE_INIT, .items = {"momentum"}};

static void add_name(const char *name) {
    size_t i = 0;
    for (; names.items[i] != NULL; i++)
        if (strcmp(names.items[i], name) == 0) return;
    SH_ASSERT(i < NAMES_MOST);
    names.items[i] = name;
}

static void collect_names(void) {
    const sh_codec_kind *kind;
    for (size_t i = 0; (kind = sh_codec_at(i)) != NULL; i++) {
        for (int k = 0; k < kind->states; k++) add_name(kind->state_names[k]);
        if (kind->factors != NULL) add_name("factors");
    }
}

const char *const *sh_codec_state_names(bool momentum) {
    pthread_once(&names.once, collect_names);
    return names.items + (momentum ? 0 : 1);
}

int sh_codec_states(const sh_codec *codec) {
    if (codec->kind == NULL) return 0;
    return codec->options.error_feedback || codec->kind->keeps_states ? codec->kind->states : 0;
}

void sh_codec_matrix(const sh_shape *shape, size_t *rows_out, size_t *columns_out) {
    size_t count = sh_shape_count(shape);
    *rows_out = shape->rank >= 2 && count > 0 ? (size_t)shape->dim[0] : 1;
    *columns_out = count / *rows_out;
}

/* Of a tensor that travels as plain floats. */
static size_t dense_bytes(const sh_codec_tensor *tensor) { return tensor->count * sizeof(float); }

bool sh_codec_is_dense(const sh_codec *codec, const sh_codec_tensor *tensor) {
    if (codec->kind == NULL || tensor->count < codec->options.dense_below) return true;
    size_t bytes = 0;
    for (int round = 0; round < codec->kind->rounds; round++)
        bytes += codec->kind->bytes(codec, tensor, round);
    return bytes >= dense_bytes(tensor);
}

size_t sh_codec_bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    if (!sh_codec_is_dense(codec, tensor)) return codec->kind->bytes(codec, tensor, round);
    return round == 0 ? dense_bytes(tensor) : 0;
}

/* Sizes change with the warm-up only, and fall. */
size_t sh_codec_bytes_most(const sh_codec *codec, const sh_codec_tensor *tensor, int round) {
    sh_codec first = *codec;
    first.step = 0;
    return sh_codec_bytes(&first, tensor, round);
}

size_t sh_codec_work_bytes(const sh_codec *codec, const sh_codec_tensor *tensor) {
    if (codec->kind == NULL || codec->kind->work_bytes == NULL) return 0;
    return codec->kind->work_bytes(codec, tensor);
}

size_t sh_codec_between(const sh_codec *codec, const sh_codec_tensor *tensor) {
    if (sh_codec_is_dense(codec, tensor) || codec->kind->between == NULL) return 0;
    return codec->kind->between(codec, tensor);
}

size_t sh_codec_factors(const sh_codec *codec, size_t rows, size_t columns) {
    sh_codec_tensor tensor = {.rows = rows, .columns = columns, .count = rows * columns};
    if (sh_codec_is_dense(codec, &tensor) || codec->kind->factors == NULL) return 0;
    return codec->kind->factors(codec, rows, columns);
}

static const float *take(const sh_codec *codec, sh_codec_tensor *tensor, const float *x) {
    if (codec->kind == NULL) return x;
    if (codec->kind->take != NULL) return codec->kind->take(codec, tensor, x);
    return sh_feedback_take(codec, tensor, x);
}

void sh_codec_encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *x,
                     void *message) {
    bool dense = sh_codec_is_dense(codec, tensor);
    if (round > 0) {
        const float *y = sh_codec_states(codec) > 0 ? tensor->state[0] : x;
        if (!dense) codec->kind->encode(codec, tensor, round, y, message);
        return;
    }
    const float *y = take(codec, tensor, x);
    if (dense) {
        sh_vector()->copy(y, message, tensor->count);
        sh_feedback_clear(codec, tensor);
    } else {
        codec->kind->encode(codec, tensor, round, y, message);
    }
}

/* Names the parameter: messages come from other ranks and are not trusted. */
sh_status sh_codec_refuse(const sh_codec_tensor *tensor, sh_status code, const char *what) {
    return SH_FAIL(code, "'%s' from rank %d: %s", tensor->name, tensor->from, what);
}

static void decode_dense(const sh_codec *codec, const sh_codec_tensor *tensor, const float *message,
                         float scale, float *x) {
    if (codec->kind == NULL || !codec->kind->gathers) sh_vector()->fill(x, 0, tensor->count);
    sh_vector()->axpy(scale, message, x, tensor->count);
}

sh_status sh_codec_decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                          const void *message, size_t bytes, float scale, float *x) {
    size_t wanted = sh_codec_bytes(codec, tensor, round);
    if (bytes != wanted)
        return SH_FAIL(SH_E_FORMAT, "'%s' from rank %d: a message has %zu bytes instead of %zu",
                       tensor->name, tensor->from, bytes, wanted);
    if (!sh_codec_is_dense(codec, tensor))
        return codec->kind->decode(codec, tensor, round, message, scale, x);
    if (round == 0) decode_dense(codec, tensor, message, scale, x);
    return SH_OK;
}
