/* shoal fed: federated training. The first word chooses the command: serve, simulate, and status,
 * clients, invite and revoke for a server's folder. Each has its own options and help (cli/fed.h);
 * this row only dispatches, and reports a word that is none of them. */
#include <string.h>

#include "cli/fed.h"

/* Parallel to words[]: the row behind each word. */
static const sh_command *const actions[] = {&sh_command_fed_serve,  &sh_command_fed_simulate,
                                            &sh_command_fed_status, &sh_command_fed_clients,
                                            &sh_command_fed_invite, &sh_command_fed_revoke};
/* First words, in the order of actions[]. */
static const char *const words[] = {"serve", "simulate", "status", "clients", "invite", "revoke"};

/* sh_command.instead: the word must come first, before any flag. */
static const sh_command *choose(int argc, char **argv) {
    for (size_t i = 0; i < SH_COUNT(words) && argc > 0; i++)
        if (strcmp(argv[0], words[i]) == 0) return actions[i];
    return NULL;
}

/* First words, for the spelling hint that sh_nearest gives. */
static const char *word_at(const void *names, size_t index) {
    (void)names;
    return index < SH_COUNT(words) ? words[index] : NULL;
}

/* Reached only when choose() found no word: always misuse, exit 2. */
static shoal_status run_fed(sh_args *args) {
    if (args->operand_count == 0)
        CLI_FAIL(SHOAL_E_USAGE,
                 "say what to do: serve, simulate, status, clients, invite or revoke");
    else
        CLI_FAIL(SHOAL_E_USAGE, "there is no 'shoal fed %.40s'", args->operands[0]);
    const char *near =
        args->operand_count > 0 ? sh_nearest(args->operands[0], word_at, NULL) : NULL;
    if (near != NULL) return CLI_HINT("did you mean 'shoal fed %s'?", near);
    return CLI_HINT("shoal fed --help");
}

const sh_command sh_command_fed = {
    .name = "fed",
    .help = "train one model with clients that keep their data",
    .usage =
        "  shoal fed serve RUN.yaml --listen :8443 --min-clients 3   (see: shoal fed serve "
        "--help)\n"
        "  shoal fed status|clients|invite DIR\n"
        "  shoal fed revoke DIR NUMBER\n"
        "  shoal fed simulate RUN.yaml --clients 100 --rounds 50    (see: shoal fed simulate "
        "--help)\n",
    .operands_most = 2,
    .run = run_fed,
    .instead = choose,
};
