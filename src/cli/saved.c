/* Opens a checkpoint for `shoal eval` and `shoal predict`: which run file belongs to it, which
 * settings of that run still apply, and where other data goes. */
#include "cli/saved.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

/* test comes first and is the default: it is the part that the model has not seen. */
const char *sh_part_choice(size_t index) {
    static const char *const names[] = {"test", "validation", "train"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

/* Puts the data of --data in the place of the test data: its values are scaled and its characters
 * numbered as the model learned them, which the training data or the checkpoint tells. A model
 * file without a run file leaves the training data unknown; then the same data is named for it as
 * well, and describes itself if the checkpoint does not. */
static shoal_status use_data(const sh_args *args, const char *data, bool has_run_file) {
    if (data == NULL) return SHOAL_OK;
    if (!has_run_file) CLI_TRY(shoal_config_set(args->config, "data.train", data));
    return shoal_config_set(args->config, "data.test", data);
}

/* access is asked first for its message: sh_run_file_of and the library would each report a
 * missing path as something else. */
shoal_status sh_saved_open(sh_args *args, const sh_saved_options *options, shoal_run **run_out) {
    const char *checkpoint = args->operands[0];
    if (access(checkpoint, R_OK) != 0) {
        CLI_FAIL(SHOAL_E_IO, "cannot open the checkpoint '%s': %s", checkpoint, strerror(errno));
        return CLI_HINT("name a run's folder, such as runs/NAME, or a model file");
    }
    char *file = sh_run_file_of(checkpoint);
    shoal_status status = sh_args_config(args, file);
    if (status == SHOAL_OK) status = use_data(args, options->data, file != NULL);
    // These two named where the training started from; the checkpoint to load is the operand.
    if (status == SHOAL_OK) status = shoal_config_set(args->config, "resume", NULL);
    if (status == SHOAL_OK) status = shoal_config_set(args->config, "load", NULL);
    sh_free(file);
    if (status != SHOAL_OK) return status;

    shoal_hooks hooks = sh_args_hooks(args);
    return shoal_run_open_saved(args->config, checkpoint, &hooks, run_out);
}
