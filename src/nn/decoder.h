/* A net of text that reads one token at a time. What attention computed of earlier tokens, their
 * keys and values, is kept, so that a token costs one row of every layer instead of the whole text:
 *
 *   O(parameters + tokens so far x width) per token, instead of that times the tokens so far.
 *
 * The outputs are those of an executor on the whole text at the same place, to rounding: a causal
 * net's output at a token depends on that token and earlier ones alone. */
#ifndef SH_NN_DECODER_H
#define SH_NN_DECODER_H

#include "nn/net.h"

typedef struct sh_decoder sh_decoder;

/* Fails, naming the layer, where the net reads no tokens, attention is not causal, or a layer
 * mixes tokens otherwise. Borrows both; `weights` may change only before a restart. */
sh_status sh_decoder_create(const sh_net *net, const float *weights, sh_decoder **decoder_out);
void sh_decoder_destroy(sh_decoder *decoder);

/* Tokens that it can still read before it is full: the net has positions for so many. */
int64_t sh_decoder_room(const sh_decoder *decoder);
/* Forgets all tokens. */
void sh_decoder_restart(sh_decoder *decoder);

/* Reads the next token. `*scores_out` is the net's output behind it, one number for each token of
 * the vocabulary; it holds until the next call. There must be room; the token must be one. */
void sh_decoder_read(sh_decoder *decoder, int32_t token, const float **scores_out);

#endif
