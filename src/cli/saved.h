/* Commands that use a trained model on data, `shoal eval` and `shoal predict`: their shared flags,
 * and how a checkpoint named on the command line becomes an open run. */
#ifndef SH_CLI_SAVED_H
#define SH_CLI_SAVED_H

#include "cli/common.h"

/* Must be the first member of such a command's options, since the rows below count offsets from
 * it. */
typedef struct sh_saved_options {
    char *data, *part;  // other data, NULL: the run's own; "test", "validation" or "train"
} sh_saved_options;

/* Option rows of --data and --part, for the table of a command whose options struct starts with a
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

/* Valid values of --part in order; NULL past the end. */
const char *sh_part_choice(size_t index);

/* Opens the checkpoint in operand 0 as a run that evaluates and predicts, its parameters loaded,
 * with data as --data says. Fails before anything is read if the path does not exist. The caller
 * closes the run. */
shoal_status sh_saved_open(sh_args *args, const sh_saved_options *options, shoal_run **run_out);

#endif
