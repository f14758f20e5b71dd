/* shoal fed simulate: federated training with simulated clients in one process. The training data
 * is dealt to the clients, which train one after the other; rule, selection and privacy are the
 * code that `shoal fed serve` runs. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/fed.h"

/* Flags of the simulation. `fed` holds the numbers of SH_FED_ROWS and of the rows below. */
typedef struct simulate_options {
    shoal_fed_options fed;
    char *rule, *partition, *privacy, *personalise;  // texts, owned by the option table
    bool json;
} simulate_options;

/* Where a row's value goes. */
#define AT(field) .at = offsetof(simulate_options, field)

static const sh_option rows[] = {
    // Options shared with the server, then those of simulated clients. One option is one
    // paragraph, which clang-format would break up.
    // clang-format off
    SH_FED_ROWS(simulate_options),
    {.key = "clients", .type = SH_OPTION_INT, AT(fed.clients), .initial = "10", .least = 1,
     .most = 262144, .value = "N", .help = "simulated clients"},
    {.key = "partition", .type = SH_OPTION_STRING, AT(partition), .initial = "iid",
     .value = "HOW", .help = "how the data is dealt: iid, shards:S (S shards of sorted classes "
     "each), dirichlet:A"},
    {.key = "min-clients", .type = SH_OPTION_INT, AT(fed.clients_min), .initial = "1", .least = 1,
     .most = 262144, .value = "N", .help = "clients in a round, at least"},
    {.key = "dropout", .type = SH_OPTION_REAL, AT(fed.dropout), .initial = "0", .least = 0,
     .most = 0.99, .value = "PART", .help = "part of the asked clients that never answer"},
    {.key = "held-out", .type = SH_OPTION_REAL, AT(fed.held_out), .initial = "0", .most = 0.9,
     .value = "PART", .help = "part of a client's data that tests the model it receives"},
    {.key = "personalise", .type = SH_OPTION_STRING, AT(personalise), .value = "HOW",
     .help = "each client's own model at the end, measured on what it holds out: finetune or head"},
    {.key = "secure", .type = SH_OPTION_BOOL, AT(fed.secure), .initial = "false",
     .help = "secure aggregation: the server learns sums alone"},
    {.key = "secure-clip", .type = SH_OPTION_REAL, AT(fed.secure_clip), .initial = "1",
     .least = 1e-6, .most = 1024, .help = "values of an update are cut to it, then rounded to 20 bits"},
    {.key = "json", .type = SH_OPTION_BOOL, AT(json), .initial = "false",
     .help = "print the result as JSON"},
    // clang-format on
};

/* State of the hooks during the rounds. */
typedef struct view {
    sh_view shown;        // first member, as sh_view_line wants it
    shoal_progress last;  // last round reported; measures are NaN before the first
} view;

/* A round that was evaluated stays on the screen; the others are redrawn. */
static void show_progress(void *user, const shoal_progress *now) {
    view *v = user;
    bool tested = !isnan(now->test_loss) && now->test_loss != v->last.test_loss;
    sh_view_show(&v->shown, now, tested);
    v->last = *now;
}

/* One line with stable keys. "epsilon" is null without a privacy budget, where it is 0 in the
 * result; "target_round" is 0 when the target was not reached. */
static void print_json(const char *folder, const shoal_fed_result *done) {
    printf("{\"folder\":");
    sh_json_text(stdout, folder);
    printf(",\"rounds\":%lld,\"restarted\":%lld,\"updates\":%lld,\"sent_bytes\":%lld",
           (long long)done->rounds, (long long)done->restarted, (long long)done->updates,
           (long long)done->sent_bytes);
    printf(",\"test_loss\":");
    sh_json_number(stdout, done->test_loss);
    printf(",\"test_accuracy\":");
    sh_json_number(stdout, done->test_accuracy);
    printf(",\"shared_accuracy\":");
    sh_json_number(stdout, done->shared_accuracy);
    printf(",\"personal_accuracy\":");
    sh_json_number(stdout, done->personal_accuracy);
    printf(",\"epsilon\":");
    sh_json_number(stdout, done->epsilon > 0 ? done->epsilon : NAN);
    printf(",\"target_round\":%lld}\n", (long long)done->target_round);
}

/* Lines of features that were not used (personal models, privacy, target) are left out. */
static void print_summary(const char *folder, const shoal_fed_result *done) {
    char shown[SH_ESCAPED];
    printf("run            %s\n", sh_escaped(folder, shown));
    printf("rounds         %lld", (long long)done->rounds);
    if (done->restarted > 0) printf(", %lld begun again", (long long)done->restarted);
    printf("\nupdates        %lld\n", (long long)done->updates);
    printf("sent           %.1f MB\n", (double)done->sent_bytes / 1e6);
    if (!isnan(done->test_loss)) printf("test loss      %.4f\n", done->test_loss);
    if (!isnan(done->test_accuracy)) printf("test accuracy  %.4f\n", done->test_accuracy);
    if (!isnan(done->personal_accuracy))
        printf("own data       %.4f with the shared model, %.4f with personal ones\n",
               done->shared_accuracy, done->personal_accuracy);
    if (done->epsilon > 0) printf("privacy        epsilon %.4f spent\n", done->epsilon);
    if (done->target_round > 0)
        printf("target         round %lld\n", (long long)done->target_round);
}

static shoal_status run_simulate(sh_args *args) {
    simulate_options *options = args->options;
    const char *base = args->operand_count > 1 ? args->operands[1] : NULL;
    CLI_TRY(sh_args_config(args, base));
    // Texts are copied after sh_args_config, which has parsed them anew.
    options->fed.rule = options->rule;
    options->fed.privacy = options->privacy;
    options->fed.personalise = options->personalise;
    options->fed.partition = options->partition;
    view v = {.shown = {.args = args}};
    v.last.train_loss = v.last.test_loss = v.last.test_accuracy = NAN;
    shoal_hooks hooks = sh_args_watch(args, &v, sh_view_line, show_progress);
    char *folder = NULL;
    shoal_fed_result done;
    shoal_status status = shoal_fed_simulate(args->config, &hooks, &options->fed, &folder, &done);
    sh_args_unwatch(args);
    if (status == SHOAL_OK) (options->json ? print_json : print_summary)(folder, &done);
    shoal_free(folder);
    return status;
}

const sh_command sh_command_fed_simulate = {
    .name = "fed simulate",
    .help = "federated training with simulated clients in one process",
    .usage =
        "  shoal fed simulate RUN.yaml --clients 100 --rounds 50 --out DIR\n"
        "  shoal fed simulate --model mlp --data digits --clients 20 --partition dirichlet:0.5\n\n"
        "The training data is dealt to the clients, which train one after the other with the\n"
        "run's optimizer and batch. Steps of the run's files are rounds: docs/federated.md.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(simulate_options),
    .takes_run_options = true,
    .operands_least = 1,
    .operands_most = 2,
    .run = run_simulate,
};
