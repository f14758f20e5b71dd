/* What `shoal bench` becomes when it is asked for something else instead of a run. */
#ifndef SH_CLI_BENCH_H
#define SH_CLI_BENCH_H

#include "cli/common.h"

extern const sh_command sh_command_bench_allreduce;
extern const sh_command sh_command_bench_hogwild;

#endif
