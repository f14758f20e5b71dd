/* All commands, in the order in which the help shows them. X(name) stands for sh_command_name, the
 * row at the end of cmd_name.c; main.c makes the declarations and the table from this list, and a
 * command that is not in it does not exist for the program. */
#ifndef SH_CLI_LIST_H
#define SH_CLI_LIST_H

#include "cli/common.h"

#define SH_COMMAND_LIST(X) \
    X(train)               \
    X(eval)                \
    X(predict)             \
    X(generate)            \
    X(simulate)            \
    X(fed)                 \
    X(join)                \
    X(explain)             \
    X(bench)               \
    X(compare)             \
    X(report)              \
    X(runs)                \
    X(export)              \
    X(list)                \
    X(data)                \
    X(doctor)

/* Commands without a name of their own: `shoal bench` and `shoal explain` hand over to them when
 * the first word asks for something else than a run (sh_command.instead). */
extern const sh_command sh_command_bench_allreduce, sh_command_bench_hogwild;
extern const sh_command sh_command_explain_collective, sh_command_explain_gossip,
    sh_command_explain_pipeline, sh_command_explain_cost;

#endif
