/* shoal join: one client of a federated training. It trains on data of its own whenever the server
 * asks, and sends updates, never data. The same command, started again, continues with the
 * certificate in its folder and needs no token. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "cli/common.h"

/* Flags of this command; the server decides the settings of training. */
typedef struct join_options {
    char *ca, *personalise;  // fingerprint of the server's authority; "finetune", "head" or NULL
    double patience;         // minutes without an answer after which the client gives up
} join_options;

static const sh_option rows[] = {
    {.key = "ca",
     .type = SH_OPTION_STRING,
     .at = offsetof(join_options, ca),
     .value = "sha256:HEX",
     .help = "fingerprint of the server's authority, as the join line has it"},
    {.key = "personalise",
     .type = SH_OPTION_STRING,
     .at = offsetof(join_options, personalise),
     .value = "HOW",
     .help = "a model of your own beside the shared one at the end: finetune or head"},
    {.key = "patience",
     .type = SH_OPTION_REAL,
     .at = offsetof(join_options, patience),
     .initial = "60",
     .least = 0.01,
     .most = 1e6,
     .value = "MINUTES",
     .help = "gives up when the server does not answer for so long"},
};

/* One line per round, as rounds may be minutes apart and nothing is redrawn between them. The
 * accuracy is that of the model as the round began, before local training; NaN where the client
 * holds no data out to test on. */
static void show_progress(void *user, const shoal_progress *now) {
    const sh_view *v = user;
    char accuracy[40] = "";
    if (!isnan(now->test_accuracy))
        sh_snprintf(accuracy, sizeof accuracy, "  accuracy before %.2f %%",
                    100 * now->test_accuracy);
    char loss[40];
    sh_snprintf(loss, sizeof loss, "%.4f", now->train_loss);
    sh_say(v->args, "round %lld trained  loss %s%s", (long long)now->step, loss, accuracy);
}

/* Operands: URL, and the token of the join line at the first start. The base of the config is
 * flags alone, as there is no run file: `sh_args_config(args, NULL)`. */
static shoal_status run_join(sh_args *args) {
    const join_options *o = args->options;
    CLI_TRY(sh_args_config(args, NULL));
    shoal_fed_join_options options = {.url = args->operands[0],
                                      .token = args->operand_count > 1 ? args->operands[1] : NULL,
                                      .ca = o->ca,
                                      .personalise = o->personalise,
                                      .patience_minutes = o->patience};
    sh_view v = {.args = args};
    shoal_hooks hooks = sh_args_watch(args, &v, sh_view_line, show_progress);
    shoal_fed_joined joined;
    shoal_status status = shoal_fed_join(args->config, &hooks, &options, &joined);
    sh_args_unwatch(args);
    // "dropped" are updates that this client sent and that became part of no round.
    if (status == SHOAL_OK)
        printf("counted        %lld updates\ndropped        %lld\nsent           %.1f MB\n",
               (long long)joined.counted, (long long)joined.dropped,
               (double)joined.sent_bytes / 1e6);
    if (status == SHOAL_OK && !isnan(joined.personal_accuracy))
        sh_fprintf(stdout,
                   "own data       %.4f with the shared model, %.4f with the personal one\n",
                   joined.shared_accuracy, joined.personal_accuracy);
    if (status == SHOAL_E_INTERRUPTED)
        sh_say(args, "stopped; the same command goes on, and needs no token any more");
    return status;
}

const sh_command sh_command_join = {
    .name = "join",
    .help = "take part in a federated training with data of your own",
    .usage =
        "  shoal join https://host:8443 TOKEN --ca sha256:HEX --data mine.csv --out DIR\n\n"
        "The server prints this line without data and folder. The key is made here and stays in\n"
        "DIR (default federated), with the certificate and at the end the model. Model, optimizer\n"
        "and batch are the server's; data, threads and --hold-out are yours: docs/federated.md.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(join_options),
    .takes_run_options = true,
    .operands_least = 1,
    .operands_most = 2,
    .run = run_join,
};
