/* What `shoal explain` becomes when it is asked about a collective, gossip or a pipeline instead of
 * a run. */
#ifndef SH_CLI_EXPLAIN_H
#define SH_CLI_EXPLAIN_H

#include "cli/common.h"

extern const sh_command sh_command_explain_collective, sh_command_explain_gossip,
    sh_command_explain_pipeline, sh_command_explain_cost;

#endif
