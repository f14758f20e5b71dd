/* Text as tokens: its bytes (a vocabulary of 256), or its characters, numbered in code-point order
 * as they occur in the training text. Sample i is the window of T tokens from token i, its target
 * the same window moved by one. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/reader.h"
#include "data/room.h"

/* Number of Unicode code points, the default context in tokens, and the largest vocabulary: tokens
 * are stored in at most 16 bits. */
enum { CODE_POINTS = 0x110000, CONTEXT_DEFAULT = 64, TOKENS_MOST = 65536 };

/* Decodes one UTF-8 character strictly: overlong forms, surrogates and points above U+10FFFF are
 * refused, so that each text has one encoding. Returns its length in bytes; 0 for bad UTF-8. */
static size_t decode(const uint8_t *at, size_t left, uint32_t *point_out) {
    uint8_t first = at[0];
    if (first < 0x80) {
        *point_out = first;
        return 1;
    }
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || left < length) return 0;
    // A lead byte of length n has n ones and a zero on top.
    uint32_t point = first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        point = point << 6 | (at[i] & 0x3fu);
    }
    // Smallest code point of each length; a smaller one would be an overlong form.
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < least[length] || point >= CODE_POINTS || (point >= 0xd800 && point < 0xe000))
        return 0;
    *point_out = point;
    return length;
}

/* Encodes a code point as UTF-8 without a terminating zero; returns its length in bytes. `point`
 * must be valid. */
static size_t encode(uint32_t point, char out[4]) {
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, point >>= 6) out[i] = (char)(0x80 | (point & 0x3f));
    out[0] = (char)((0xf00 >> length & 0xff) | point);
    return length;
}

/* Line number (from 1) of byte `at`, for error messages. */
static size_t line_of(const uint8_t *data, size_t at) {
    size_t line = 1;
    for (size_t i = 0; i < at; i++) line += data[i] == '\n';
    return line;
}

/* Reports a fault at byte `at`. The line is counted only here, so that good texts pay nothing for
 * it. */
static sh_status fail_at(const char *name, const uint8_t *data, size_t at, const char *what) {
    SH_FAIL(SH_E_FORMAT, "'%s': %s at byte %zu (line %zu)", name, what, at, line_of(data, at));
    return sh_error_hint("'tokens: bytes' accepts any file");
}

/* Map from code point to token + 1; 0: the character is not in the vocabulary. The table reaches
 * only as far as the largest code point in use, so that plain English takes no 4 MiB table for all
 * of Unicode. */
typedef struct alphabet {
    uint32_t *token;  // (room)
    size_t room;      // code points below this have an entry
} alphabet;

/* Token + 1 of a code point; 0 if the vocabulary lacks it. */
static uint32_t token_of(const alphabet *a, uint32_t point) {
    return point < a->room ? a->token[point] : 0;
}

/* Extends the table so that `point` has an entry; new entries are 0. */
static sh_status reach(alphabet *a, uint32_t point) {
    size_t before = a->room;
    if (point < before) return SH_OK;
    void *token = a->token;
    SH_TRY(sh_grow(&token, &a->room, (size_t)point + 1, sizeof *a->token));
    a->token = token;
    memset(a->token + before, 0, (a->room - before) * sizeof *a->token);
    return SH_OK;
}

/* Validates the whole text and counts its characters. With `marks` also marks the characters that
 * occur, for number_characters. A zero byte is refused: the vocabulary is kept as a C string. */
static sh_status scan(const char *name, const uint8_t *data, size_t bytes, bool marks, alphabet *a,
                      size_t *count_out) {
    size_t count = 0;
    for (size_t at = 0, length; at < bytes; at += length, count++) {
        uint32_t point;
        length = decode(data + at, bytes - at, &point);
        if (length == 0) return fail_at(name, data, at, "not valid UTF-8");
        if (point == 0) return fail_at(name, data, at, "a zero byte");
        if (!marks) continue;
        SH_TRY(reach(a, point));
        a->token[point] = 1;
    }
    *count_out = count;
    return SH_OK;
}

/* Numbers the marked characters in code-point order, which makes the vocabulary independent of
 * where characters occur in the text, and stores it as UTF-8 in the source. */
static sh_status number_characters(sh_source *source, alphabet *a) {
    uint32_t count = 0;
    size_t bytes = 0;
    char out[4];
    for (uint32_t point = 0; point < a->room; point++)
        if (a->token[point] != 0) {
            a->token[point] = ++count;
            bytes += encode(point, out);
        }
    if (count > TOKENS_MOST) {
        SH_FAIL(SH_E_FORMAT, "'%s' uses %u different characters", source->name, count);
        return sh_error_hint("use 'tokens: bytes'");
    }
    char *vocabulary = sh_alloc(bytes + 1, 1);
    if (vocabulary == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", source->name);
    bytes = 0;
    for (uint32_t point = 0; point < a->room; point++)
        if (a->token[point] != 0) bytes += encode(point, vocabulary + bytes);
    source->vocabulary = vocabulary;
    source->info.classes = count;
    return SH_OK;
}

/* Uses the vocabulary of training, in its numbering: a trained model's tokens must keep their
 * meaning. Each character may occur only once. */
static sh_status take_vocabulary(sh_source *source, const char *vocabulary, alphabet *a) {
    const uint8_t *data = (const uint8_t *)vocabulary;
    size_t bytes = strlen(vocabulary);
    uint32_t count = 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        uint32_t point;
        length = decode(data + at, bytes - at, &point);
        if (length == 0 || count >= TOKENS_MOST || token_of(a, point) != 0)
            return fail_at("vocabulary", data, at, "not a list of different characters");
        SH_TRY(reach(a, point));
        a->token[point] = ++count;
    }
    source->vocabulary = sh_strdup(vocabulary);
    if (source->vocabulary == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory");
    source->info.classes = count;
    return SH_OK;
}

/* Writes one token per character, as bytes where the vocabulary allows it (up to 256 characters),
 * else as 16 bits. A character outside the vocabulary is an error: a model has no embedding for
 * it. */
static sh_status translate(sh_source *source, const uint8_t *data, size_t bytes, size_t count,
                           const alphabet *a) {
    void *cells = sh_alloc(count, sh_cell_bytes(source->cell));
    if (cells == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu tokens of '%s'", count, source->name);
    source->memory[0] = cells;
    source->cells = cells;
    for (size_t at = 0, i = 0, length; at < bytes; at += length, i++) {
        uint32_t point = 0;
        length = decode(data + at, bytes - at, &point);
        uint32_t token = token_of(a, point);
        if (token == 0)
            return fail_at(source->name, data, at, "a character that training never saw");
        if (source->cell == SH_CELL_U8)
            ((uint8_t *)cells)[i] = (uint8_t)(token - 1);
        else
            ((uint16_t *)cells)[i] = (uint16_t)(token - 1);
    }
    return SH_OK;
}

/* Tokenises by characters in two passes: the first validates and counts, so that the second can
 * allocate exactly. With `read->vocabulary` (prediction or test) the tokens of training are used;
 * otherwise the vocabulary is built from this text. */
static sh_status read_characters(sh_source *source, const sh_read *read, const uint8_t *data,
                                 size_t bytes, size_t *count_out) {
    const char *vocabulary = read->vocabulary;
    alphabet a = {0};
    sh_status status = scan(source->name, data, bytes, vocabulary == NULL, &a, count_out);
    if (status == SH_OK)
        status = vocabulary != NULL ? take_vocabulary(source, vocabulary, &a)
                                    : number_characters(source, &a);
    source->cell = source->info.classes <= 256 ? SH_CELL_U8 : SH_CELL_U16;
    if (status == SH_OK)
        status =
            sh_room_check(source->name, read->unpacked, *count_out * sh_cell_bytes(source->cell));
    if (status == SH_OK) status = translate(source, data, bytes, *count_out, &a);
    sh_free(a.token);
    return status;
}

/* Fills the source by the options 'tokens' and 'context'. Byte tokens need no translation and stay
 * in the file's mapping. Sample i is the window at token i, hence count - context samples. */
static sh_status text_fill(const sh_read *read, sh_source *source, const uint8_t *data,
                           size_t bytes) {
    const sh_data_options *options = read->options;
    const char *kind = options != NULL && options->tokens != NULL ? options->tokens : "chars";
    int64_t context = options != NULL && options->context > 0 ? options->context : CONTEXT_DEFAULT;
    size_t count = bytes;
    if (strcmp(kind, "bytes") == 0) {
        source->cell = SH_CELL_U8;
        source->cells = data;
        source->info.classes = 256;
    } else if (strcmp(kind, "chars") == 0) {
        SH_TRY(read_characters(source, read, data, bytes, &count));
    } else {
        SH_FAIL(SH_E_USAGE, "unknown tokens '%s'", kind);
        return sh_error_hint("use chars or bytes");
    }
    if (count <= (size_t)context) {
        SH_FAIL(SH_E_FORMAT, "'%s' has %zu tokens, too few for a context of %lld", source->name,
                count, (long long)context);
        return sh_error_hint("use a longer text or a shorter context");
    }
    source->stored = count;
    source->info.tokens = true;
    source->info.target = SH_TARGET_TOKENS;
    source->info.sample = SH_SHAPE(context);
    // The last window needs its target one token later.
    source->info.count = count - (size_t)context;
    return sh_source_check(source);
}

/* Parses text from memory, for text_open, the tests and the fuzzer. With byte tokens the source
 * keeps pointers into `data`. */
sh_status sh_text_parse(const sh_read *read, const uint8_t *data, size_t bytes,
                        sh_source **source_out) {
    sh_source *source = NULL;
    SH_TRY(sh_source_create(read->path, &source));
    sh_status status = text_fill(read, source, data, bytes);
    if (status != SH_OK) {
        sh_source_release(source);
        return status;
    }
    *source_out = source;
    return SH_OK;
}

/* Opens a plain or gzip text. The source owns the file's bytes, which byte tokens point into. */
static sh_status text_open(const sh_read *read, sh_source **source_out) {
    sh_blob blob = {0};
    SH_TRY(sh_blob_open(read->path, NULL, &blob));
    sh_read unpacked = *read;
    unpacked.unpacked = sh_blob_memory(&blob);
    sh_status status = sh_text_parse(&unpacked, blob.data, blob.bytes, source_out);
    if (status == SH_OK)
        (*source_out)->blobs[0] = blob;
    else
        sh_blob_close(&blob);
    return status;
}

/* Accepts any file that is not empty: this reader is asked last. */
static bool text_detects(__attribute__((unused)) const char *path,
                         __attribute__((unused)) const uint8_t *head, size_t head_bytes) {
    return head_bytes > 0;
}

extern const sh_reader sh_reader_text;
const sh_reader sh_reader_text = {
    .name = "text",
    .help = "plain text as characters or bytes; the last 10 % are for validation",
    .detects = text_detects,
    .open = text_open,
};
