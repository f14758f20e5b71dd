/* Shared by the commands behind `shoal fed`: the option rows of a round, and the command rows that
 * cmd_fed.c chooses from. */
#ifndef SH_CLI_FED_H
#define SH_CLI_FED_H

#include "cli/common.h"

/* Option rows that simulated and served rounds share, so that both name and bound them alike. `s`
 * is the command's options struct: it has a shoal_fed_options `fed` and the texts `rule` and
 * `privacy`. The texts are fields of their own because the option table owns its strings, while
 * shoal_fed_options borrows them: a command copies the pointers over before the call. NaN in a
 * server rate means that the rule's own default applies. */
#define SH_FED_ROWS(s)                                                                         \
    {.key = "rounds",                                                                          \
     .type = SH_OPTION_INT,                                                                    \
     .at = offsetof(s, fed.rounds),                                                            \
     .initial = "10",                                                                          \
     .least = 1,                                                                               \
     .most = 1e9,                                                                              \
     .value = "N",                                                                             \
     .help = "rounds to close"},                                                               \
        {.key = "rule",                                                                        \
         .type = SH_OPTION_STRING,                                                             \
         .at = offsetof(s, rule),                                                              \
         .initial = "fedavg",                                                                  \
         .value = "RULE",                                                                      \
         .help = "aggregation rule: a name from 'shoal list rules'"},                          \
        {.key = "fraction",                                                                    \
         .type = SH_OPTION_REAL,                                                               \
         .at = offsetof(s, fed.fraction),                                                      \
         .initial = "1",                                                                       \
         .least = 1e-6,                                                                        \
         .most = 1,                                                                            \
         .value = "PART",                                                                      \
         .help = "part of the clients in a round"},                                            \
        {.key = "over",                                                                        \
         .type = SH_OPTION_REAL,                                                               \
         .at = offsetof(s, fed.over),                                                          \
         .initial = "1",                                                                       \
         .least = 1,                                                                           \
         .most = 100,                                                                          \
         .value = "X",                                                                         \
         .help = "clients asked, as a multiple of those wanted"},                              \
        {.key = "quorum",                                                                      \
         .type = SH_OPTION_REAL,                                                               \
         .at = offsetof(s, fed.quorum),                                                        \
         .initial = "0.5",                                                                     \
         .least = 0.01,                                                                        \
         .most = 1,                                                                            \
         .value = "PART",                                                                      \
         .help = "part of those wanted that closes a round in the end"},                       \
        {.key = "local-epochs",                                                                \
         .type = SH_OPTION_INT,                                                                \
         .at = offsetof(s, fed.local_epochs),                                                  \
         .initial = "1",                                                                       \
         .least = 1,                                                                           \
         .most = 1e6,                                                                          \
         .value = "N",                                                                         \
         .help = "epochs of a client in a round"},                                             \
        {.key = "local-steps",                                                                 \
         .type = SH_OPTION_INT,                                                                \
         .at = offsetof(s, fed.local_steps),                                                   \
         .initial = "0",                                                                       \
         .most = 1e9,                                                                          \
         .value = "N",                                                                         \
         .help = "steps of a client in a round, instead of epochs; 0: epochs"},                \
        {.key = "server-lr",                                                                   \
         .type = SH_OPTION_REAL,                                                               \
         .at = offsetof(s, fed.server_lr),                                                     \
         .initial = "nan",                                                                     \
         .least = 1e-9,                                                                        \
         .most = 1e6,                                                                          \
         .help = "learning rate of the server; default the rule's own"},                       \
        {.key = "server-momentum",                                                             \
         .type = SH_OPTION_REAL,                                                               \
         .at = offsetof(s, fed.server_momentum),                                               \
         .initial = "nan",                                                                     \
         .most = 0.9999,                                                                       \
         .help = "momentum, or beta 1, of the server; default 0.9"},                           \
        {.key = "server-beta2",                                                                \
         .type = SH_OPTION_REAL,                                                               \
         .at = offsetof(s, fed.server_beta2),                                                  \
         .initial = "nan",                                                                     \
         .most = 0.999999,                                                                     \
         .help = "beta 2 of the server; default 0.99"},                                        \
        {.key = "server-tau",                                                                  \
         .type = SH_OPTION_REAL,                                                               \
         .at = offsetof(s, fed.server_tau),                                                    \
         .initial = "nan",                                                                     \
         .least = 1e-12,                                                                       \
         .most = 1e3,                                                                          \
         .help = "adaptivity of the server's optimizer; default 0.001"},                       \
        {.key = "private",                                                                     \
         .type = SH_OPTION_STRING,                                                             \
         .at = offsetof(s, privacy),                                                           \
         .value = "BUDGET",                                                                    \
         .help =                                                                               \
             "differential privacy of clients: epsilon=8,delta=1e-5,clip=1; noise=Z sets the " \
             "noise"},                                                                         \
    {                                                                                          \
        .key = "equal-weights", .type = SH_OPTION_BOOL, .at = offsetof(s, fed.equal_weights),  \
        .initial = "false", .help = "every client counts alike, whatever its samples"          \
    }

/* Rows of the second word. They are not in SH_COMMAND_LIST: `shoal fed` chooses one by its
 * arguments. */
extern const sh_command sh_command_fed_simulate, sh_command_fed_serve, sh_command_fed_status,
    sh_command_fed_clients, sh_command_fed_invite, sh_command_fed_revoke;

#endif
