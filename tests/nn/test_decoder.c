#include "nn/decoder.h"

#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "harness.h"
#include "nn/executor.h"
#include "nn/rig.h"

enum { TOKENS = 12, VOCABULARY = 19 };

static sh_net *net_of(const char *text) {
    return rig_net(
        text, (sh_net_input){.sample = SH_SHAPE(TOKENS), .tokens = true, .outputs = VOCABULARY});
}

static float *weights_of(const sh_net *net) {
    float *weights = sh_alloc(net->params.total, sizeof *weights);
    rig_weights(net, weights);
    return weights;
}

/* Scores behind every token of a text by one pass over the whole. */
static void whole_text(const sh_net *net, float *weights, const int32_t *tokens, float *out) {
    sh_executor *executor = NULL;
    sh_tuner *tuner = rig_tuner();
    const sh_executor_options options = {.batch = 1, .tuner = tuner};
    CHECK_OK(sh_executor_create(net, &options, &executor));
    sh_arena memory;
    CHECK_OK(sh_arena_init(&memory, "test", executor->memory_bytes + 1));
    const sh_blocks blocks = {.weights = weights};
    sh_executor_bind(executor, &blocks, sh_arena_take(&memory, executor->memory_bytes));
    CHECK_OK(sh_executor_forward(executor, &(sh_step_context){0}, tokens));
    memcpy(out, executor->output->data, TOKENS * VOCABULARY * sizeof *out);
    sh_executor_destroy(executor);
    sh_tuner_destroy(tuner);
    sh_arena_fini(&memory);
}

static void check_against_whole(const char *model) {
    sh_net *net = net_of(model);
    float *weights = weights_of(net), expected[TOKENS * VOCABULARY];
    int32_t tokens[TOKENS];
    sh_rng rng = sh_rng_stream(3, SH_RNG_TEST, 0, 0);
    for (int t = 0; t < TOKENS; t++) tokens[t] = (int32_t)(sh_rng_u32(&rng) % VOCABULARY);
    whole_text(net, weights, tokens, expected);
    sh_decoder *decoder = NULL;
    CHECK_OK(sh_decoder_create(net, weights, &decoder));
    for (int round = 0; round < 2; round++) {  // the second after a restart
        assert_int_equal(sh_decoder_room(decoder), TOKENS);
        for (int t = 0; t < TOKENS; t++) {
            const float *scores;
            sh_decoder_read(decoder, tokens[t], &scores);
            CHECK_CLOSE(scores, expected + t * VOCABULARY, VOCABULARY, 1e-5);
        }
        assert_int_equal(sh_decoder_room(decoder), 0);
        sh_decoder_restart(decoder);
    }
    sh_decoder_destroy(decoder);
    sh_free(weights);
    sh_net_destroy(net);
}

TEST(decoder, a_gpt_read_token_by_token_is_the_gpt) {
    check_against_whole("{name: gpt, layers: 3, width: 24, heads: 3}");
}

TEST(decoder, every_layer_that_reads_tokens_one_by_one_does) {
    check_against_whole(
        "[{embedding: 16, name: e}, {positions: , name: p}, {layernorm: , name: n},"
        " {dense: 8, name: a}, {silu: , name: s}, {dense: 8, from: n, name: b}, {tanh: , name: t},"
        " {concat: , from: [s, t], name: c}, {attention: 2, name: at}, {gelu: true, name: g},"
        " {dropout: 0.5, name: d}, {add: , from: [d, c, p], name: sum}, sigmoid,"
        " {dense: 6, name: last}, relu, dense]");
}

TEST(decoder, nets_that_look_ahead_or_read_no_text_are_refused) {
    sh_decoder *decoder = NULL;
    sh_net *ahead = net_of("[{embedding: 8}, {attention: 2, causal: false}, dense]");
    float *weights = weights_of(ahead);
    CHECK_FAILS(SH_E_USAGE, "looks at later tokens", sh_decoder_create(ahead, weights, &decoder));
    sh_free(weights);
    sh_net_destroy(ahead);
    sh_net *images = rig_net("mlp", (sh_net_input){.sample = SH_SHAPE(4), .outputs = 3});
    CHECK_FAILS(SH_E_USAGE, "reads no text", sh_decoder_create(images, NULL, &decoder));
    assert_null(decoder);
    sh_net_destroy(images);
}
