/* shoal fed serve: the server of a federated training. It prints a join line for each invited
 * client, closes rounds with their updates, and evaluates each new model on its own test part.
 * Started again with the same --out it goes on where it was; Ctrl-C stops it where it can go on
 * (exit 130). */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "cli/fed.h"

/* Flags of the server. `fed` holds the numbers of SH_FED_ROWS. */
typedef struct serve_options {
    shoal_fed_options fed;
    char *rule, *privacy, *listen, *host;       // texts, owned by the option table
    int64_t invitations, poll_ms, late_rounds;  // invitations -1: as many as --min-clients
    double token_hours, deadline_s;             // validity of a token; longest time of a round
} serve_options;

static const sh_option rows[] = {
    // Options of the server itself, then those that it shares with simulated rounds.
    SH_TEXT_ROW(serve_options, listen, "listen", ":8443", "where to listen",
                .value = "[HOST]:PORT"),
    SH_TEXT_ROW(serve_options, host, "host", NULL,
                "the name or address by which clients reach this machine; default its own name",
                .value = "NAME"),
    SH_INT_ROW(serve_options, fed.clients_min, "min-clients", "2", 1, 262144,
               "clients in a round, at least", .value = "N"),
    SH_INT_ROW(serve_options, invitations, "invite", "-1", -1, 262144,
               "clients to invite at the start, less those who are there; -1: --min-clients",
               .value = "N"),
    SH_REAL_ROW(serve_options, token_hours, "token-hours", "24", 1e-4, 8760,
                "how long an invitation holds", .value = "HOURS"),
    SH_REAL_ROW(serve_options, deadline_s, "deadline", "600", 0.1, 1e7, "of a round",
                .value = "SECONDS"),
    SH_INT_ROW(serve_options, poll_ms, "poll-ms", "1000", 10, 3600000,
               "waiting clients ask again after this", .value = "MS"),
    SH_INT_ROW(serve_options, late_rounds, "late-rounds", "0", 0, 63,
               "updates of so many closed rounds are still taken, with less weight", .value = "N"),
    SH_FED_ROWS(serve_options),
};

/* Every line stays, as a step is a round here. */
static void show_progress(void *user, const shoal_progress *now) { sh_view_show(user, now, true); }

/* shoal_fed_serve_options.invited: join lines are results and go to stdout. They are flushed at
 * once, because the server then runs for hours and somebody is waiting for the line in a pipe. */
static void show_invitation(void *user, const char *line) {
    const sh_view *v = user;
    sh_progress_clear(v->args->progress);
    printf("%s\n", line);
    fflush(stdout);
}

static shoal_status run_serve(sh_args *args) {
    serve_options *o = args->options;
    CLI_TRY(sh_args_config(args, args->operand_count > 1 ? args->operands[1] : NULL));
    // Texts are copied after sh_args_config, which has parsed them anew.
    o->fed.rule = o->rule;
    o->fed.privacy = o->privacy;
    o->fed.clients = o->fed.clients_min;
    shoal_fed_serve_options options = {
        .fed = o->fed,
        .listen = o->listen,
        .host = o->host,
        .invitations = o->invitations < 0 ? o->fed.clients_min : o->invitations,
        .token_hours = o->token_hours,
        .deadline_s = o->deadline_s,
        .poll_ms = o->poll_ms,
        .late_rounds = o->late_rounds,
        .invited = show_invitation};
    sh_view v = {.args = args};
    shoal_hooks hooks = sh_args_watch(args, &v, sh_view_line, show_progress);
    char *folder = NULL, shown[SH_ESCAPED];
    shoal_status status = shoal_fed_serve(args->config, &hooks, &options, &folder);
    sh_args_unwatch(args);
    if (status == SHOAL_OK) printf("run            %s\n", sh_escaped(folder, shown));
    // The state is in the folder's database, not in a checkpoint that --resume would read.
    if (status == SHOAL_E_INTERRUPTED && folder != NULL)
        sh_say(args, "stopped; the same command with --out %s goes on", folder);
    shoal_free(folder);
    return status;
}

const sh_command sh_command_fed_serve = {
    .name = "fed serve",
    .help = "the server of a federated training",
    .usage =
        "  shoal fed serve RUN.yaml --listen :8443 --host hub.example.org --min-clients 3\n\n"
        "Prints a join line for each invited client, and goes on where it was when it is started\n"
        "again with the same --out. Its own data gives the shape of samples, the normalisation\n"
        "and the test part that every round is evaluated on: docs/federated.md.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(serve_options),
    .takes_run_options = true,
    .operands_least = 1,
    .operands_most = 2,
    .run = run_serve,
};
