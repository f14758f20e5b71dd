/* shoal generate: a language model continues a prompt, token by token, on stdout. The same seed,
 * prompt and options give the same text. Ctrl-C ends the text after the token under way, with exit
 * 130. */
#include <string.h>

#include "base/clock.h"
#include "cli/common.h"

/* How the text is drawn; the library's shoal_generate_options has the same members. */
typedef struct generate_options {
    char *prompt;
    int64_t tokens, top_k, seed;  // tokens to add; candidates per token, 0: all
    double temperature;           // 0: always the likeliest token
} generate_options;

/* Where a row's value goes. */
#define AT(field) .at = offsetof(generate_options, field)

static const sh_option rows[] = {
    // clang-format off
    {.key = "prompt", .letter = 'p', .type = SH_OPTION_STRING, AT(prompt), .value = "TEXT",
     .help = "how the text begins"},
    {.key = "tokens", .type = SH_OPTION_INT, AT(tokens), .initial = "200", .least = 0, .most = 100000000,
     .help = "tokens to add"},
    {.key = "temperature", .type = SH_OPTION_REAL, AT(temperature), .initial = "0.8", .least = 0, .most = 100,
     .help = "0: always the likeliest token; 1: as the model has learned; more: bolder"},
    {.key = "top_k", .type = SH_OPTION_INT, AT(top_k), .initial = "0", .least = 0, .most = 1 << 24,
     .help = "draw from the likeliest so many alone; 0: from all"},
    {.key = "seed", .type = SH_OPTION_INT, AT(seed), .initial = "1", .least = 0, .most = 9007199254740992.0,
     .help = "the same seed gives the same text"},
    // clang-format on
};

/* Writes and flushes each piece, so that the text appears while it is generated. A false (a closed
 * pipe) ends the generation with SHOAL_E_IO instead of computing for nobody. */
static bool write_now(void *user, const char *text, size_t bytes) {
    (void)user;
    return fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
}

/* The prompt is printed here, as the library writes only what it adds. */
static shoal_status generate(sh_args *args, const shoal_model *model) {
    const generate_options *options = args->options;
    static const shoal_sink now = {.write = write_now};
    shoal_generate_options wanted = {.prompt = options->prompt,
                                     .tokens = options->tokens,
                                     .temperature = options->temperature,
                                     .top_k = options->top_k,
                                     .seed = options->seed,
                                     .stop = sh_wants_stop};
    sh_catch_signals();
    if (options->prompt != NULL) fputs(options->prompt, stdout);
    int64_t begin = sh_clock_now_ns(&sh_clock_real);
    shoal_status status = shoal_model_generate(model, &wanted, &now);
    double seconds = (double)(sh_clock_now_ns(&sh_clock_real) - begin) * 1e-9;
    args->signal = sh_caught_signal();
    // A text that was cut by Ctrl-C ends its line too, or the shell's prompt would follow on it.
    if (status == SHOAL_OK || status == SHOAL_E_INTERRUPTED) fputc('\n', stdout);
    if (status == SHOAL_OK && seconds > 0)
        sh_say(args, "%lld tokens, %.0f a second", (long long)options->tokens,
               (double)options->tokens / seconds);
    return status;
}

static shoal_status run_generate(sh_args *args) {
    shoal_model *model = NULL;
    CLI_TRY(shoal_model_open(args->operands[0], NULL, &model));
    shoal_status status = generate(args, model);
    shoal_model_destroy(model);
    return status;
}

const sh_command sh_command_generate = {
    .name = "generate",
    .help = "let a model of text continue a text",
    .usage =
        "  shoal generate runs/gpt --prompt \"To be\" [--tokens 200] [--temperature 0.8] [--top-k "
        "40]\n\n"
        "Writes the prompt and what follows to standard output as it comes. Keys and values of "
        "the\n"
        "tokens so far are kept, so a token costs no more than one row of each layer. When the "
        "text\n"
        "is longer than the model's context, its later half is read again.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(generate_options),
    .operands_least = 1,
    .operands_most = 1,
    .run = run_generate,
};
