/* Commands that use a trained model: eval and predict. */
#ifndef SH_CLI_SAVED_H
#define SH_CLI_SAVED_H

#include "cli/common.h"

typedef struct sh_saved_options {
    char *data, *part;
} sh_saved_options;

/* The rows of --data and --part, for the table of a command whose options start with
 * sh_saved_options. */
#define SH_SAVED_ROWS                                                                          \
    {.key = "data",                                                                            \
     .type = SH_OPTION_STRING,                                                                 \
     .at = offsetof(sh_saved_options, data),                                                   \
     .value = "DATA",                                                                          \
     .help = "a name or a file; default what the run has. Scaled as the run's training data"}, \
    {                                                                                          \
        .key = "part", .type = SH_OPTION_STRING, .at = offsetof(sh_saved_options, part),       \
        .initial = "test", .choices = sh_part_choice, .help = "which samples"                  \
    }

const char *sh_part_choice(size_t index);

/* Opens the run of the checkpoint in operand 0 and loads its parameters. Caller closes. */
shoal_status sh_saved_open(sh_args *args, const sh_saved_options *options, shoal_run **run_out);

#endif
