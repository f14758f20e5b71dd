/* shoal fed serve: the server of a federated training. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "cli/fed.h"

typedef struct serve_options {
    shoal_fed_options fed;
    char *rule, *privacy, *listen, *host;
    int64_t invitations, poll_ms, late_rounds;
    double token_hours, deadline_s;
} serve_options;

#define AT(field) .at = offsetof(serve_options, field)

static const sh_option rows[] = {
    // One option, one paragraph.
    // clang-format off
    {.key = "listen", .type = SH_OPTION_STRING, AT(listen), .initial = ":8443",
     .value = "[HOST]:PORT", .help = "where to listen"},
    {.key = "host", .type = SH_OPTION_STRING, AT(host), .value = "NAME",
     .help = "the name or address by which clients reach this machine; default its own name"},
    {.key = "min-clients", .type = SH_OPTION_INT, AT(fed.clients_min), .initial = "2", .least = 1,
     .most = 262144, .value = "N", .help = "clients in a round, at least"},
    {.key = "invite", .type = SH_OPTION_INT, AT(invitations), .initial = "-1", .least = -1,
     .most = 262144, .value = "N",
     .help = "clients to invite at the start, less those who are there; -1: --min-clients"},
    {.key = "token-hours", .type = SH_OPTION_REAL, AT(token_hours), .initial = "24",
     .least = 1e-4, .most = 8760, .value = "HOURS", .help = "how long an invitation holds"},
    {.key = "deadline", .type = SH_OPTION_REAL, AT(deadline_s), .initial = "600", .least = 0.1,
     .most = 1e7, .value = "SECONDS", .help = "of a round"},
    {.key = "poll-ms", .type = SH_OPTION_INT, AT(poll_ms), .initial = "1000", .least = 10,
     .most = 3600000, .value = "MS", .help = "waiting clients ask again after this"},
    {.key = "late-rounds", .type = SH_OPTION_INT, AT(late_rounds), .initial = "0", .most = 63,
     .value = "N", .help = "updates of so many closed rounds are still taken, with less weight"},
    SH_FED_ROWS(serve_options),
    // clang-format on
};

typedef struct view {
    sh_args *args;
    sh_view shown;
} view;

static void show_line(void *user, shoal_log_level level, const char *text) {
    view *v = user;
    shoal_hooks hooks = sh_args_hooks(v->args);
    hooks.line(hooks.user, level, text);
}

static void show_progress(void *user, const shoal_progress *now) {
    view *v = user;
    sh_view_show(&v->shown, now, true);
}

/* Join lines are what the command gives: they go to standard output at once. */
static void show_invitation(void *user, const char *line) {
    view *v = user;
    sh_progress_clear(v->args->progress);
    printf("%s\n", line);
    fflush(stdout);
}

static shoal_status run_serve(sh_args *args) {
    serve_options *o = args->options;
    CLI_TRY(sh_args_config(args, args->operand_count > 1 ? args->operands[1] : NULL));
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
    view v = {.args = args, .shown = {.args = args}};
    shoal_hooks hooks = sh_args_watch(args, &v, show_line, show_progress);
    char *folder = NULL, shown[SH_ESCAPED];
    shoal_status status = shoal_fed_serve(args->config, &hooks, &options, &folder);
    sh_args_unwatch(args);
    if (status == SHOAL_OK) printf("run            %s\n", sh_escaped(folder, shown));
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
