/* The commands behind `shoal fed`. */
#ifndef SH_CLI_FED_H
#define SH_CLI_FED_H

#include "cli/common.h"

extern const sh_command sh_command_fed_simulate;

#endif
