#include "data/vocabulary.h"

#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* Bytes of the character that begins at `at`, by its first byte; less if the text ends within
 * it. */
static size_t length_at(const char *at) {
    unsigned char first = (unsigned char)*at;
    size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4, there = 1;
    while (there < length && at[there] != '\0') there++;
    return there;
}

/* Token of a character; -1: the vocabulary lacks it. Linear search: prompts are short. */
static int32_t token_of(const char *vocabulary, const char *character, size_t bytes) {
    int32_t token = 0;
    for (const char *at = vocabulary; *at != '\0'; at += length_at(at), token++)
        if (length_at(at) == bytes && memcmp(at, character, bytes) == 0) return token;
    return -1;
}

/* Reports a character that the model never saw, with its place. */
static sh_status fail_unknown(const char *text, const char *at) {
    char character[5] = "", shown[SH_ESCAPED];
    memcpy(character, at, length_at(at));
    SH_FAIL(SH_E_USAGE, "the model's vocabulary has no '%s' (byte %zu of the text)",
            sh_escaped(character, shown), (size_t)(at - text));
    return sh_error_hint("it knows the characters of its training text alone");
}

/* At most one token per byte, so the list is allocated once. */
sh_status sh_vocabulary_encode(const char *vocabulary, const char *text, int32_t **tokens_out,
                               size_t *count_out) {
    size_t bytes = strlen(text), count = 0;
    int32_t *tokens = sh_alloc(bytes + 1, sizeof *tokens);
    if (tokens == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for tokens");
    for (const char *at = text; *at != '\0';) {
        size_t length = vocabulary == NULL ? 1 : length_at(at);
        int32_t token = vocabulary == NULL ? (unsigned char)*at : token_of(vocabulary, at, length);
        if (token < 0) {
            sh_free(tokens);
            return fail_unknown(text, at);
        }
        tokens[count++] = token;
        at += length;
    }
    *tokens_out = tokens;
    *count_out = count;
    return SH_OK;
}

/* Walks to the token's character: O(token). */
size_t sh_vocabulary_decode(const char *vocabulary, int32_t token, char bytes_out[4]) {
    if (token < 0) return 0;
    if (vocabulary == NULL) {
        bytes_out[0] = (char)token;
        return token < 256 ? 1 : 0;
    }
    const char *at = vocabulary;
    for (; *at != '\0' && token > 0; token--) at += length_at(at);
    if (*at == '\0') return 0;
    memcpy(bytes_out, at, length_at(at));
    return length_at(at);
}
