/* Arguments of a command: its own flags, those that all commands have, and the settings of a run.
 *
 * Three tables may know a flag, and the first that does wins: common flags, the command's own,
 * then the library's table of run settings (shoal_config_flag). Reading takes two passes, because
 * a run file must be applied before the flags that override it, while only parsing the flags tells
 * which argument is the run file. */
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/common.h"

/* Flags that every command has. They land in sh_args itself, not in the command's options. */
static const sh_option common_rows[] = {
    SH_BOOL_ROW(sh_args, quiet, "quiet", "false", "no words on stderr but warnings and errors",
                .letter = 'q'),
};
static const sh_option_table common_table = {common_rows, SH_COUNT(common_rows)};

/* Candidate `index` for a spelling hint: the command's own flags, then the common ones; NULL past
 * the end. Has the signature that sh_nearest wants. */
static const char *flag_at(const void *command_pointer, size_t index) {
    const sh_command *command = command_pointer;
    if (index < command->options.count) return sh_option_flag(&command->options.rows[index]);
    index -= command->options.count;
    return index < common_table.count ? sh_option_flag(&common_rows[index]) : NULL;
}

/* Completes an "unknown flag" error. The library's table has already looked for a near match among
 * the settings of a run; it cannot know the flags of a command, so those are tried here. Other
 * errors, and those that have a hint, stay as they are. */
static shoal_status add_hint(const sh_command *command, const char *argument, shoal_status status) {
    if (status != SHOAL_E_USAGE || *shoal_error_hint() != '\0' || argument[1] != '-') return status;
    if (strncmp(shoal_error_text(), "unknown flag", 12) != 0) return status;
    const char *near = sh_nearest(argument + 2, flag_at, command);
    if (near != NULL) return CLI_HINT("did you mean '--%s'?", near);
    return CLI_HINT("shoal %s --help", command->name);
}

/* Whether --resume at `index` stands without a value, and means the newest run. It takes the next
 * argument as its value unless that is a flag or a run file: `--resume RUN.yaml` resumes
 * RUN.yaml's run instead of opening RUN.yaml as a checkpoint. */
static bool is_bare_resume(const sh_args *args, int index) {
    if (strcmp(args->argv[index], "--resume") != 0) return false;
    if (index + 1 == args->argc) return true;
    const char *next = args->argv[index + 1];
    return next[0] == '-' || sh_name_ends_in(next, ".yaml") || sh_name_ends_in(next, ".yml");
}

/* Takes a setting of a run. --resume is noted in `args` as well, since `shoal train` chooses its
 * run file by it before the config can be asked. */
static shoal_status take_run_flag(sh_args *args, shoal_config *config, int *index_inout) {
    int index = *index_inout;
    const char *argument = args->argv[index];
    if (is_bare_resume(args, index)) {
        args->resume = "newest";
        (*index_inout)++;
        return shoal_config_set(config, "resume", "newest");
    }
    CLI_TRY(shoal_config_flag(config, args->argc, args->argv, index_inout));
    // The call above has checked that --resume is followed by a value.
    if (strcmp(argument, "--resume") == 0) args->resume = args->argv[index + 1];
    if (strncmp(argument, "--resume=", 9) == 0) args->resume = argument + 9;
    return SHOAL_OK;
}

/* Takes one flag and moves the index past it and its value; leaves the index where it is at an
 * operand. `config` NULL: the command takes no settings of a run, so its own table reports what is
 * unknown. */
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

/* The bound also protects args->operands: no row has operands_most above SH_OPERANDS_MOST. */
static shoal_status add_operand(sh_args *args, const char *operand) {
    int most = args->command->operands_most;
    if (args->operand_count < most) {
        args->operands[args->operand_count++] = operand;
        return SHOAL_OK;
    }
    CLI_FAIL(SHOAL_E_USAGE, "'%s' is one argument too many", operand);
    return CLI_HINT("shoal %s --help", args->command->name);
}

/* Reads all arguments in order. Behind `--` everything is an operand, so that a file may be called
 * "-x". Runs twice for a command with a config, and gives the same operands both times. */
static shoal_status walk(sh_args *args, shoal_config *config) {
    bool flags_end = false;
    args->operand_count = 0;
    for (int i = 0; i < args->argc;) {
        int before = i;
        if (!flags_end) CLI_TRY(take_flag(args, config, &i));
        if (i != before) continue;  // it was a flag
        if (!flags_end && strcmp(args->argv[i], "--") == 0)
            flags_end = true;
        else
            CLI_TRY(add_operand(args, args->argv[i]));
        i++;
    }
    return SHOAL_OK;
}

/* First pass: finds the operands and checks every flag, settings of a run into a scratch config
 * that is thrown away. The second pass is sh_args_config's, over the run file's settings. Misuse
 * is reported here, before any file is opened. */
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

/* On failure `args` holds what has been made so far, which sh_args_fini frees. */
shoal_status sh_args_init(sh_args *args, const sh_command *command, int argc, char **argv) {
    *args = (sh_args){.command = command, .argc = argc, .argv = argv};
    args->options = sh_alloc(1, command->options_bytes);
    args->set = sh_alloc(command->options.count, sizeof *args->set);
    if (args->options == NULL || args->set == NULL)
        return CLI_FAIL(SHOAL_E_MEMORY, "out of memory for arguments");
    CLI_TRY((shoal_status)sh_options_init(command->options, args->options));
    return read_arguments(args);
}

/* Options own texts and lists; their table knows which fields, so it frees them. */
void sh_args_fini(sh_args *args) {
    if (args->options != NULL) sh_options_fini(args->command->options, args->options);
    sh_free(args->options);
    sh_free(args->set);
    shoal_config_destroy(args->config);
    sh_progress_destroy(args->progress);
    sh_free(args->data_folder);
    sh_free(args->cache_folder);
}

/* A malformed run file is misuse (exit 2), where a malformed data file is a failure (exit 1); one
 * that cannot be opened stays SHOAL_E_IO. */
static shoal_status read_run_file(shoal_config *config, const char *path) {
    shoal_status status = shoal_config_read(config, path);
    if (status == SHOAL_E_IO)
        return CLI_HINT("name a run file, or leave it out: --model mlp --data digits");
    return status == SHOAL_E_FORMAT ? SHOAL_E_USAGE : status;
}

/* Reads the resolved run.yaml of a run's folder, and makes the folder the run's own. Settings that
 * were meant for that one start are unset: a training that overwrote or resumed something must not
 * do so again. */
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
    // Settings of a single start, not of the run.
    static const char *const once[] = {"overwrite", "resume", "load"};
    for (size_t i = 0; i < SH_COUNT(once) && status == SHOAL_OK; i++)
        status = shoal_config_set(config, once[i], NULL);
    return status == SHOAL_OK ? shoal_config_set(config, "out", folder) : status;
}

/* Names a run that has no name after its run file (without the extension) or its model; runs/NAME
 * is the default folder. A name with a slash would leave that folder, so the library's own default
 * is used instead. */
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
    // An empty name, or one that is a path, stays unset.
    bool usable = *name != '\0' && strchr(name, '/') == NULL;
    shoal_status status = usable ? shoal_config_set(config, "name", name) : SHOAL_OK;
    sh_free(name);
    return status;
}

/* Second pass over the arguments: applied after `base`, flags win over the run file. */
shoal_status sh_args_config(sh_args *args, const char *base) {
    CLI_TRY(shoal_config_create(&args->config));
    if (base != NULL)
        CLI_TRY(sh_is_folder(base) ? read_run_folder(args->config, base)
                                   : read_run_file(args->config, base));
    CLI_TRY(walk(args, args->config));
    return name_run(args->config, base);
}

/* Settings of a run come last, as they are many and alike in all commands. */
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
