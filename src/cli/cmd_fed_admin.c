/* shoal fed status, clients, invite and revoke: for whoever owns a federated server's folder. They
 * work on the folder's database, so also while the server runs, which looks for revoked clients
 * now and then. Operand 0 is the word, operand 1 the folder. */
#include <stdlib.h>
#include <string.h>

#include "cli/fed.h"

/* One struct for all four; a command's table sets the members that it has flags for. */
typedef struct admin_options {
    bool json;
    int64_t count;  // invite: tokens to make
    double hours;   // invite: how long a token is valid
} admin_options;

static const sh_option show_rows[] = {
    SH_BOOL_ROW(admin_options, json, "json", "false", "one JSON object a line"),
};

static const sh_option invite_rows[] = {
    SH_INT_ROW(admin_options, count, "count", "1", 1, 100000, "clients to invite", .value = "N"),
    SH_REAL_ROW(admin_options, hours, "token-hours", "24", 1e-4, 8760,
                "how long an invitation holds", .value = "HOURS"),
};

static shoal_status run_status(sh_args *args) {
    const admin_options *o = args->options;
    return shoal_fed_status(args->operands[1], o->json, &sh_stdout);
}

static shoal_status run_clients(sh_args *args) {
    const admin_options *o = args->options;
    return shoal_fed_clients(args->operands[1], o->json, &sh_stdout);
}

/* A join line to stdout: the user sends it to a client as it is. */
static void print_line(void *user, const char *line) {
    (void)user;
    printf("%s\n", line);
}

static shoal_status run_invite(sh_args *args) {
    const admin_options *o = args->options;
    return shoal_fed_invite(args->operands[1], o->count, o->hours, print_line, NULL);
}

/* The number is checked here, as operands are text; 'fed clients' shows the numbers. */
static shoal_status run_revoke(sh_args *args) {
    char *end;
    long long number = strtoll(args->operands[2], &end, 10);
    if (end == args->operands[2] || *end != '\0' || number < 1) {
        CLI_FAIL(SHOAL_E_USAGE, "'%.40s' is no number of a client", args->operands[2]);
        return CLI_HINT("shoal fed clients DIR");
    }
    return shoal_fed_revoke(args->operands[1], number);
}

const sh_command sh_command_fed_status = {
    .name = "fed status",
    .help = "how far a federated training is",
    .usage = "  shoal fed status DIR [--json]\n",
    .options = {show_rows, SH_COUNT(show_rows)},
    .options_bytes = sizeof(admin_options),
    .operands_least = 2,
    .operands_most = 2,
    .run = run_status,
};

const sh_command sh_command_fed_clients = {
    .name = "fed clients",
    .help = "who takes part in a federated training",
    .usage = "  shoal fed clients DIR [--json]\n",
    .options = {show_rows, SH_COUNT(show_rows)},
    .options_bytes = sizeof(admin_options),
    .operands_least = 2,
    .operands_most = 2,
    .run = run_clients,
};

const sh_command sh_command_fed_invite = {
    .name = "fed invite",
    .help = "print join lines for more clients",
    .usage = "  shoal fed invite DIR [--count N] [--token-hours HOURS]\n",
    .options = {invite_rows, SH_COUNT(invite_rows)},
    .options_bytes = sizeof(admin_options),
    .operands_least = 2,
    .operands_most = 2,
    .run = run_invite,
};

const sh_command sh_command_fed_revoke = {
    .name = "fed revoke",
    .help = "let a client take part no longer",
    .usage = "  shoal fed revoke DIR NUMBER\n",
    .options = {show_rows, 0},
    .options_bytes = sizeof(admin_options),
    .operands_least = 3,
    .operands_most = 3,
    .run = run_revoke,
};
