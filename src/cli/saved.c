#include "cli/saved.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

const char *sh_part_choice(size_t index) {
    static const char *const names[] = {"test", "validation", "train"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

/* Other data takes the place of the test data: its scale and its vocabulary are those the model
 * learned with. Where neither the checkpoint nor a run file tells these, the data has to speak for
 * itself. */
static shoal_status use_data(const sh_args *args, const char *data, bool has_run_file) {
    if (data == NULL) return SHOAL_OK;
    if (!has_run_file) CLI_TRY(shoal_config_set(args->config, "data.train", data));
    return shoal_config_set(args->config, "data.test", data);
}

shoal_status sh_saved_open(sh_args *args, const sh_saved_options *options, shoal_run **run_out) {
    const char *checkpoint = args->operands[0];
    if (access(checkpoint, R_OK) != 0) {
        CLI_FAIL(SHOAL_E_IO, "cannot open the checkpoint '%s': %s", checkpoint, strerror(errno));
        return CLI_HINT("name a run's folder, such as runs/NAME, or a model file");
    }
    char *file = sh_run_file_of(checkpoint);
    shoal_status status = sh_args_config(args, file);
    if (status == SHOAL_OK) status = use_data(args, options->data, file != NULL);
    // What concerned the training that wrote the file does not concern its checkpoint.
    if (status == SHOAL_OK) status = shoal_config_set(args->config, "resume", NULL);
    if (status == SHOAL_OK) status = shoal_config_set(args->config, "load", NULL);
    sh_free(file);
    if (status != SHOAL_OK) return status;

    shoal_hooks hooks = sh_args_hooks(args);
    return shoal_run_open_saved(args->config, checkpoint, &hooks, run_out);
}
