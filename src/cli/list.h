/* One row per command, in the order of the help. X(name) declares sh_command_name, defined at the
 * end of its file. */
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

extern const sh_command sh_command_bench_allreduce, sh_command_bench_hogwild;
extern const sh_command sh_command_explain_collective, sh_command_explain_gossip,
    sh_command_explain_pipeline, sh_command_explain_cost;

#endif
