/* shoal_model_generate: a language model continues a prompt, token by token. The decoder keeps
 * keys and values of the tokens so far, so a token costs one row of every layer. Draws follow from
 * the seed alone: the same model, prompt and options give the same text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/memory.h"
#include "base/rng.h"
#include "data/vocabulary.h"
#include "nn/decoder.h"
#include "api/sink.h"

/* State of one text. Owns its arrays and the decoder; model and options are borrowed. */
typedef struct generator {
    const shoal_model *model;
    const shoal_generate_options *options;
    sh_decoder *decoder;
    sh_rng rng;       // one uniform number per drawn token
    int32_t *tokens;  // prompt and what followed
    size_t count;     // tokens so far, the prompt's included
    double *weight;   // (vocabulary), exp of the scaled scores of candidates
    int32_t *order;   // (vocabulary), the likeliest first
    int64_t vocabulary;
} generator;

/* ---- the next token ---- */

static __thread const float *sorted_scores;  // qsort's comparison takes no argument of its own

/* qsort's order: higher scores first, the lower token first among equals, so that the order does
 * not depend on the C library. */
static int by_score(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sorted_scores[i] != sorted_scores[j]) return sorted_scores[i] > sorted_scores[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

/* Token of temperature 0; the first of equals. */
static int32_t likeliest(const float *scores, int64_t count) {
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++)
        if (scores[i] > scores[best]) best = i;
    return best;
}

/* Draws a token by softmax(scores / temperature) over the top_k likeliest. The largest score is
 * subtracted before exp, which then cannot overflow. Rounding may leave a rest of the uniform
 * number: the last candidate takes it. */
static int32_t draw(generator *g, const float *scores) {
    int64_t kept = g->options->top_k;
    if (kept <= 0 || kept > g->vocabulary) kept = g->vocabulary;
    for (int32_t i = 0; i < g->vocabulary; i++) g->order[i] = i;
    sorted_scores = scores;
    qsort(g->order, (size_t)g->vocabulary, sizeof *g->order, by_score);
    double sum = 0, most = scores[g->order[0]];
    for (int64_t i = 0; i < kept; i++)
        sum += g->weight[i] = exp(((double)scores[g->order[i]] - most) / g->options->temperature);
    double left = (double)sh_rng_uniform(&g->rng) * sum;
    for (int64_t i = 0; i + 1 < kept; i++) {
        left -= g->weight[i];
        if (left < 0) return g->order[i];
    }
    return g->order[kept - 1];
}

/* At temperature 0 nothing is drawn: dividing by it has a limit, but no value. */
static int32_t choose(generator *g, const float *scores) {
    return g->options->temperature > 0 ? draw(g, scores) : likeliest(scores, g->vocabulary);
}

/* ---- the text ---- */

/* The net has positions for a limited number of tokens. When they are used up, the later half of
 * the text is read again from the start, so that the next half can follow before that happens
 * again. */
static const float *read_again(generator *g) {
    const float *scores = NULL;
    sh_decoder_restart(g->decoder);
    size_t kept = (size_t)sh_decoder_room(g->decoder) / 2;
    if (kept == 0) kept = 1;
    for (size_t i = g->count - kept; i < g->count; i++)
        sh_decoder_read(g->decoder, g->tokens[i], &scores);
    return scores;
}

/* Scores behind the text so far, of which all but the last token has been read. */
static const float *read_last(generator *g) {
    const float *scores = NULL;
    if (sh_decoder_room(g->decoder) == 0) return read_again(g);
    sh_decoder_read(g->decoder, g->tokens[g->count - 1], &scores);
    return scores;
}

/* Hands a token's bytes to the sink: UTF-8 of one character, or one byte. */
static sh_status put(const generator *g, int32_t token, const shoal_sink *sink) {
    char bytes[4];
    size_t count = sh_vocabulary_decode(g->model->data.vocabulary, token, bytes);
    if (sink->write(sink->user, bytes, count)) return SH_OK;
    return SH_FAIL(SH_E_IO, "the text could not be written");
}

/* Asked before each token, which may take long in a large model. */
static bool stops(const generator *g) {
    return g->options->stop != NULL && g->options->stop(g->options->user);
}

/* Reads the prompt but for its last token, then chooses token after token. */
static sh_status run(generator *g, const shoal_sink *sink) {
    const float *scores = NULL;
    size_t prompt = g->count, room = (size_t)sh_decoder_room(g->decoder);
    // Of a prompt that is longer than the net's positions only the end is read.
    size_t first = prompt > room ? prompt - room : 0;
    for (size_t i = first; i + 1 < prompt; i++) sh_decoder_read(g->decoder, g->tokens[i], &scores);
    for (int64_t i = 0; i < g->options->tokens; i++) {
        if (stops(g)) return SH_FAIL(SH_E_INTERRUPTED, "stopped after %ld tokens", (long)i);
        int32_t token = choose(g, read_last(g));
        SH_TRY(put(g, token, sink));
        g->tokens[g->count++] = token;
    }
    return SH_OK;
}

/* ---- options ---- */

/* Bounds of the options. The negated comparison also refuses NaN. */
static sh_status check(const shoal_generate_options *options) {
    if (options->tokens < 0 || options->tokens > 100000000)
        return SH_FAIL(SH_E_USAGE, "a text has 0 to 100000000 tokens, not %ld",
                       (long)options->tokens);
    if (!(options->temperature >= 0 && options->temperature <= 100))
        return SH_FAIL(SH_E_USAGE, "the temperature is a number from 0 to 100, not %g",
                       options->temperature);
    return SH_OK;
}

/* Encodes the prompt into memory for the whole text. Without a prompt the text begins behind the
 * first token of the vocabulary, which in most is a newline. */
static sh_status take_prompt(generator *g) {
    const char *prompt = g->options->prompt;
    const char *vocabulary = g->model->data.vocabulary;
    int32_t *tokens = NULL;
    if (prompt != NULL && *prompt != '\0')
        SH_TRY(sh_vocabulary_encode(vocabulary, prompt, &tokens, &g->count));
    g->tokens = sh_alloc(g->count + (size_t)g->options->tokens + 1, sizeof *g->tokens);
    if (g->tokens != NULL && tokens != NULL) memcpy(g->tokens, tokens, g->count * sizeof *tokens);
    sh_free(tokens);
    if (g->tokens == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a text");
    if (g->count == 0) g->tokens[g->count++] = vocabulary == NULL ? '\n' : 0;
    return SH_OK;
}

/* Everything that generation needs; what a failure leaves the caller frees. The decoder fails for
 * nets that are no causal language model. */
static sh_status make(generator *g) {
    SH_TRY(check(g->options));
    SH_TRY(sh_decoder_create(g->model->model.net, g->model->model.blocks.weights, &g->decoder));
    g->vocabulary = g->model->model.net->input.outputs;
    g->weight = sh_alloc((size_t)g->vocabulary, sizeof *g->weight);
    g->order = sh_alloc((size_t)g->vocabulary, sizeof *g->order);
    if (g->weight == NULL || g->order == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a vocabulary");
    g->rng = sh_rng_stream((uint64_t)g->options->seed, SH_RNG_GENERATE, 0, 0);
    return take_prompt(g);
}

shoal_status shoal_model_generate(const shoal_model *model, const shoal_generate_options *options,
                                  const shoal_sink *sink) {
    SHOAL_NEED(model);
    SHOAL_NEED(options);
    SHOAL_NEED_SINK(sink);
    generator g = {.model = model, .options = options};
    sh_status status = make(&g);
    if (status == SH_OK) status = run(&g, sink);
    sh_decoder_destroy(g.decoder);
    sh_free(g.weight);
    sh_free(g.order);
    sh_free(g.tokens);
    return (shoal_status)status;
}
