/* Arguments: a command's own flags, those all commands have, and the options of a run. */
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/common.h"

static const sh_option common_rows[] = {
    SH_BOOL_ROW(sh_args, quiet, "quiet", "false", "no words on stderr but warnings and errors",
                .letter = 'q'),
};
static const sh_option_table common_table = {common_rows, SH_COUNT(common_rows)};

/* Names for sh_nearest: the command's own flags, then the common ones. */
static const char *flag_at(const void *command_pointer, size_t index) {
    const sh_command *command = command_pointer;
    if (index < command->options.count) return sh_option_flag(&command->options.rows[index]);
    index -= command->options.count;
    return index < common_table.count ? sh_option_flag(&common_rows[index]) : NULL;
}

/* The library's table cannot know the flags of a command. */
static shoal_status add_hint(const sh_command *command, const char *argument, shoal_status status) {
    if (status != SHOAL_E_USAGE || *shoal_error_hint() != '\0' || argument[1] != '-') return status;
    if (strncmp(shoal_error_text(), "unknown flag", 12) != 0) return status;
    const char *near = sh_nearest(argument + 2, flag_at, command);
    if (near != NULL) return CLI_HINT("did you mean '--%s'?", near);
    return CLI_HINT("shoal %s --help", command->name);
}

/* `--resume` takes a value only if the next argument cannot be something else. */
static bool is_bare_resume(const sh_args *args, int index) {
    if (strcmp(args->argv[index], "--resume") != 0) return false;
    if (index + 1 == args->argc) return true;
    const char *next = args->argv[index + 1];
    return next[0] == '-' || sh_name_ends_in(next, ".yaml") || sh_name_ends_in(next, ".yml");
}

static shoal_status take_run_flag(sh_args *args, shoal_config *config, int *index_inout) {
    int index = *index_inout;
    const char *argument = args->argv[index];
    if (is_bare_resume(args, index)) {
        args->resume = "newest";
        (*index_inout)++;
        return shoal_config_set(config, "resume", "newest");
    }
    CLI_TRY(shoal_config_flag(config, args->argc, args->argv, index_inout));
    if (strcmp(argument, "--resume") == 0) args->resume = args->argv[index + 1];
    if (strncmp(argument, "--resume=", 9) == 0) args->resume = argument + 9;
    return SHOAL_OK;
}

/* Takes a flag and moves the index past it; leaves it at an operand. `config` NULL: the command
 * has no options of a run. */
static shoal_status take_flag(sh_args *args, shoal_config *config, int *index_inout) {
    const sh_command *command = args->command;
    const char *argument = args->argv[*index_inout];
    shoal_status status;
    if (sh_options_knows(common_table, argument))
        status = (shoal_status)sh_options_flag(common_table, args->argc, args->argv, index_inout,
                                               args, NULL);
    else if (config == NULL || sh_options_knows(command->options, argument))
        status = (shoal_status)sh_options_flag(command->options, args->argc, args->argv,
                                               index_inout, args->options, args->set);
    else
        status = take_run_flag(args, config, index_inout);
    return add_hint(command, argument, status);
}

static shoal_status add_operand(sh_args *args, const char *operand) {
    int most = args->command->operands_most;
    if (args->operand_count < most) {
        args->operands[args->operand_count++] = operand;
        return SHOAL_OK;
    }
    CLI_FAIL(SHOAL_E_USAGE, "'%s' is one argument too many", operand);
    return CLI_HINT("shoal %s --help", args->command->name);
}

static shoal_status walk(sh_args *args, shoal_config *config) {
    bool flags_end = false;
    args->operand_count = 0;
    for (int i = 0; i < args->argc;) {
        int before = i;
        if (!flags_end) CLI_TRY(take_flag(args, config, &i));
        if (i != before) continue;
        if (!flags_end && strcmp(args->argv[i], "--") == 0)
            flags_end = true;
        else
            CLI_TRY(add_operand(args, args->argv[i]));
        i++;
    }
    return SHOAL_OK;
}

/* A run file comes before the flags, but which argument it is shows only when the flags are known:
 * so the flags are read twice, here into a config that is thrown away. */
static shoal_status read_arguments(sh_args *args) {
    shoal_config *scratch = NULL;
    if (args->command->takes_run_options) CLI_TRY(shoal_config_create(&scratch));
    shoal_status status = walk(args, scratch);
    shoal_config_destroy(scratch);
    if (status != SHOAL_OK) return status;
    if (args->operand_count >= args->command->operands_least) return SHOAL_OK;
    CLI_FAIL(SHOAL_E_USAGE, "an argument is missing");
    return CLI_HINT("shoal %s --help", args->command->name);
}

shoal_status sh_args_init(sh_args *args, const sh_command *command, int argc, char **argv) {
    *args = (sh_args){.command = command, .argc = argc, .argv = argv};
    args->options = sh_alloc(1, command->options_bytes + 1);
    args->set = sh_alloc(command->options.count + 1, sizeof *args->set);
    if (args->options == NULL || args->set == NULL)
        return CLI_FAIL(SHOAL_E_MEMORY, "out of memory for arguments");
    CLI_TRY((shoal_status)sh_options_init(command->options, args->options));
    return read_arguments(args);
}

void sh_args_fini(sh_args *args) {
    if (args->options != NULL) sh_options_fini(args->command->options, args->options);
    sh_free(args->options);
    sh_free(args->set);
    shoal_config_destroy(args->config);
    sh_progress_destroy(args->progress);
    sh_free(args->data_folder);
    sh_free(args->cache_folder);
}

static shoal_status read_run_file(shoal_config *config, const char *path) {
    shoal_status status = shoal_config_read(config, path);
    if (status == SHOAL_E_IO)
        return CLI_HINT("name a run file, or leave it out: --model mlp --data digits");
    return status == SHOAL_E_FORMAT ? SHOAL_E_USAGE : status;
}

/* The resolved run file of a folder, without what was meant for that one start. */
static shoal_status read_run_folder(shoal_config *config, const char *folder) {
    char *path = sh_path_join(folder, "run.yaml");
    if (path == NULL) return CLI_FAIL(SHOAL_E_MEMORY, "out of memory for a path");
    shoal_status status = SHOAL_OK;
    if (!sh_file_exists(path)) {
        CLI_FAIL(SHOAL_E_USAGE, "the folder '%s' holds no run: there is no run.yaml", folder);
        status = CLI_HINT("name a run file, or the folder that a training wrote");
    }
    if (status == SHOAL_OK) status = read_run_file(config, path);
    sh_free(path);
    static const char *const once[] = {"overwrite", "resume", "load"};
    for (size_t i = 0; i < SH_COUNT(once) && status == SHOAL_OK; i++)
        status = shoal_config_set(config, once[i], NULL);
    return status == SHOAL_OK ? shoal_config_set(config, "out", folder) : status;
}

/* A run that has no name takes that of its run file, or of its model. */
static shoal_status name_run(shoal_config *config, const char *base) {
    char *name = sh_config_text(config, "name");
    bool has_name = name != NULL && *name != '\0';
    sh_free(name);
    if (has_name) return SHOAL_OK;
    if (base != NULL && !sh_is_folder(base)) {
        const char *slash = strrchr(base, '/'), *file = slash != NULL ? slash + 1 : base;
        const char *dot = strrchr(file, '.');
        int length = dot != NULL && dot != file ? (int)(dot - file) : (int)strlen(file);
        name = sh_format("%.*s", length, file);
    } else {
        name = sh_config_text(config, "model");
    }
    if (name == NULL) return CLI_FAIL(SHOAL_E_MEMORY, "out of memory for a name");
    bool usable = *name != '\0' && strchr(name, '/') == NULL;
    shoal_status status = usable ? shoal_config_set(config, "name", name) : SHOAL_OK;
    sh_free(name);
    return status;
}

shoal_status sh_args_config(sh_args *args, const char *base) {
    CLI_TRY(shoal_config_create(&args->config));
    if (base != NULL)
        CLI_TRY(sh_is_folder(base) ? read_run_folder(args->config, base)
                                   : read_run_file(args->config, base));
    CLI_TRY(walk(args, args->config));
    return name_run(args->config, base);
}

void sh_print_help(const sh_command *command) {
    printf("%s\n\n%s\n", command->help, command->usage);
    if (command->options.count > 0) {
        sh_options_help(command->options, stdout, false);
        putchar('\n');
    }
    sh_options_help(common_table, stdout, false);
    if (!command->takes_run_options) return;
    printf("\nOptions of a run, as in a run file:\n\n");
    shoal_config_help(false, &sh_stdout);
}
