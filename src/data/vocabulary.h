/* Text to tokens and back, by a model's vocabulary: its characters in token order, as UTF-8, or
 * NULL where tokens are bytes. */
#ifndef SH_DATA_VOCABULARY_H
#define SH_DATA_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Tokens of `text`; sh_free the list. Fails, naming the character and its place, where the
 * vocabulary lacks one. */
sh_status sh_vocabulary_encode(const char *vocabulary, const char *text, int32_t **tokens_out,
                               size_t *count_out);

/* The bytes of a token: their number; 0 for a token that there is not. */
size_t sh_vocabulary_decode(const char *vocabulary, int32_t token, char bytes_out[4]);

#endif
