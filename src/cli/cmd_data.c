/* shoal data: three actions on data sets and files. `get` downloads a set into the data folder;
 * `info` describes every part; `check` reads all samples and reports the first fault. The action
 * is the first operand; the second is a name or a path. */
#include <string.h>

#include "cli/common.h"

typedef struct data_options {
    bool json;  // --json of `info`
} data_options;

static const sh_option rows[] = {
    SH_BOOL_ROW(data_options, json, "json", "false", "info as one JSON object per part"),
};

/* The library downloads into hooks->data_folder ($SHOAL_DATA or the cache folder). */
static shoal_status get(sh_args *args, const char *name, const shoal_hooks *hooks) {
    CLI_TRY(shoal_data_get(name, hooks));
    sh_say(args, "%s is in %s", name, hooks->data_folder != NULL ? hooks->data_folder : ".");
    return SHOAL_OK;
}

/* Settings such as --data.format or --seed apply, since how a file is read depends on them. */
static shoal_status info(sh_args *args, const char *path, const shoal_hooks *hooks) {
    const data_options *options = args->options;
    return shoal_data_info(args->config, path, hooks, options->json, &sh_stdout);
}

/* Exit 1 with the place of the first fault; a line per part when there is none. */
static shoal_status check(sh_args *args, const char *path, const shoal_hooks *hooks) {
    return shoal_data_check(args->config, path, hooks, &sh_stdout);
}

/* A word and what it does; all actions share one signature. */
typedef struct action {
    const char *name;
    shoal_status (*run)(sh_args *args, const char *path, const shoal_hooks *hooks);
} action;

static const action actions[] = {{"get", get}, {"info", info}, {"check", check}};

/* Names of the actions, for the spelling hint that sh_nearest gives. */
static const char *action_name(const void *names, size_t index) {
    (void)names;
    return index < SH_COUNT(actions) ? actions[index].name : NULL;
}

/* The word is checked before the settings, as it is the likelier mistake. */
static shoal_status run_data(sh_args *args) {
    const char *name = args->operands[0];
    for (size_t i = 0; i < SH_COUNT(actions); i++) {
        if (strcmp(actions[i].name, name) != 0) continue;
        CLI_TRY(sh_args_config(args, NULL));
        shoal_hooks hooks = sh_args_hooks(args);
        return actions[i].run(args, args->operands[1], &hooks);
    }
    CLI_FAIL(SHOAL_E_USAGE, "there is no 'data %s'", name);
    const char *near = sh_nearest(name, action_name, NULL);
    if (near != NULL) return CLI_HINT("did you mean 'shoal data %s'?", near);
    return CLI_HINT("shoal data get, info or check");
}

const sh_command sh_command_data = {
    .name = "data",
    .help = "fetch a data set, describe or check a file",
    .usage =
        "  shoal data get NAME          fetch it into the data folder ($SHOAL_DATA)\n"
        "  shoal data info PATH         the samples, shapes, ranges and classes of every part\n"
        "  shoal data check PATH        read all of every part and report the first fault\n"
        "\nPATH is a file or a name of 'shoal list data'.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(data_options),
    .takes_run_options = true,
    .operands_least = 2,
    .operands_most = 2,
    .run = run_data,
};
