/* shoal doctor: what this machine offers. */
#include "cli/common.h"

static shoal_status run_doctor(sh_args *args) {
    shoal_hooks hooks = sh_args_hooks(args);
    shoal_doctor(&hooks, stdout);
    return SHOAL_OK;
}

const sh_command sh_command_doctor = {
    .name = "doctor",
    .help = "report what this machine offers, and what is missing",
    .usage = "  shoal doctor\n",
    .run = run_doctor,
};
