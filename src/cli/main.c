/* The program `shoal`: finds the command, prints help, turns statuses into messages and exit
 * codes.
 *
 * Commands return a shoal_status and leave the error in the library's record; this file alone
 * prints it and exits. Exit 0 done, 1 failed, 2 misused, 128 + signal stopped on request. Output
 * that could not be written is a failure too, even if the command succeeded. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "cli/common.h"
#include "cli/list.h"

/* One list gives the declarations and the table, so a command that is in SH_COMMAND_LIST cannot be
 * missing from help, `shoal list` or dispatch. */
#define DECLARE(name) extern const sh_command sh_command_##name;
SH_COMMAND_LIST(DECLARE)

#define ROW(name) &sh_command_##name,
static const sh_command *const commands[] = {SH_COMMAND_LIST(ROW)};

const sh_command *sh_command_at(size_t index) {
    return index < SH_COUNT(commands) ? commands[index] : NULL;
}

const sh_command *sh_command_find(const char *name) {
    for (size_t i = 0; i < SH_COUNT(commands); i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

/* Names of all commands, for the spelling hint that sh_nearest gives. */
static const char *command_name(const void *names, size_t index) {
    (void)names;
    const sh_command *command = sh_command_at(index);
    return command != NULL ? command->name : NULL;
}

/* `shoal` and `shoal --help`: one line per command, straight from the rows. */
static void print_overview(void) {
    printf("Shoal trains neural networks.\n\n");
    printf("  shoal COMMAND [ARGUMENT]... [--key value]...\n\nCommands\n");
    for (size_t i = 0; i < SH_COUNT(commands); i++)
        printf("  %-8s  %s\n", commands[i]->name, commands[i]->help);
    printf("\n'shoal COMMAND --help' shows its arguments, 'shoal --version' the version.\n");
    printf("A first run:  shoal train --model mlp --data digits --epochs 10\n");
}

/* Exit code of a command's status. `caught` is the signal that this process got; it is 0 when
 * another rank was asked to stop and all ranks did, which counts as Ctrl-C. */
static int exit_code(shoal_status status, int caught) {
    if (status == SHOAL_OK) return 0;
    if (status == SHOAL_E_INTERRUPTED) return 128 + (caught != 0 ? caught : SIGINT);
    return status == SHOAL_E_USAGE ? 2 : 1;
}

/* Flushes stdout before the exit and turns a write error into exit 1: a result on a full disk or a
 * closed pipe must not look like success to a script. A failure's own code is kept. */
static int finish(const char *command, int code) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    CLI_FAIL(SHOAL_E_IO, "cannot write to standard output: %s", strerror(errno));
    sh_complain(command);
    return code == 0 ? 1 : code;
}

/* --help anywhere before `--` wins over all other arguments, so that it also helps with a line
 * that would be refused. */
static bool asks_for_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

/* Unknown command or flag in first place: exit 2, with the nearest command as a hint. */
static int refuse(const char *name) {
    bool is_flag = name[0] == '-';
    CLI_FAIL(SHOAL_E_USAGE, "there is no %s '%s'", is_flag ? "flag" : "command", name);
    const char *near = is_flag ? NULL : sh_nearest(name, command_name, NULL);
    if (near != NULL)
        CLI_HINT("did you mean 'shoal %s'?", near);
    else
        CLI_HINT("shoal --help");
    sh_complain(NULL);
    return 2;
}

/* `shoal help [NAME]`; NULL: the overview. */
static int help(const char *name) {
    const sh_command *command = name != NULL ? sh_command_find(name) : NULL;
    if (name != NULL && command == NULL) return refuse(name);
    if (command != NULL)
        sh_print_help(command);
    else
        print_overview();
    return finish("help", 0);
}

/* The row of a name, or the one that takes over for its arguments (`bench allreduce`, `fed
 * serve`); NULL: unknown. */
static const sh_command *find_command(const char *name, int argc, char **argv) {
    const sh_command *command = sh_command_find(name), *other = NULL;
    if (command != NULL && command->instead != NULL) other = command->instead(argc, argv);
    return other != NULL ? other : command;
}

/* Whether this process of mpirun or srun has nothing to do: a command that does not train on ranks
 * together is done once, by rank 0, whose exit code the launcher returns. Otherwise N ranks would
 * print, download or write the same thing N times. */
static bool is_spare(const sh_command *command, const sh_launched *as) {
    return as->rank > 0 && (command == NULL || !command->joins_ranks);
}

/* Tells a user who started several ranks that this command runs on rank 0 alone. */
static void tell_alone(const sh_args *args, const sh_launched *as) {
    if (as->ranks > 1 && !args->command->joins_ranks)
        sh_say(args, "%d ranks were started: rank 0 does this alone", as->ranks);
}

/* One command from its arguments to its exit code. The order matters at the end: the message needs
 * `args` for the progress line, and the exit code needs the signal that `args` has noted. */
static int run(const sh_command *command, const sh_launched *as, int argc, char **argv) {
    if (asks_for_help(argc, argv)) {
        sh_print_help(command);
        return finish("help", 0);
    }
    sh_args args;
    shoal_status status = sh_args_init(&args, command, argc, argv);
    if (status == SHOAL_OK) tell_alone(&args, as);
    if (status == SHOAL_OK) status = command->run(&args);
    sh_progress_clear(args.progress);
    // A stop on request is no failure: the command has said how to go on.
    if (status != SHOAL_OK && status != SHOAL_E_INTERRUPTED) sh_complain(command->name);
    int code = exit_code(status, args.signal);
    sh_args_fini(&args);
    // shoal_abort comes last and returns only where MPI does not run: ranks that wait for this one
    // in a collective would hang until their time limit.
    code = finish(command->name, code);
    if (code != 0) shoal_abort(code);  // under MPI nobody must wait for this rank
    return code;
}

/* Opens /dev/null for a standard stream that was closed by the caller. Otherwise the next file
 * that is opened gets number 1 or 2, and messages would be written into a checkpoint. It is opened
 * for the wrong direction, so that use of the stream still fails and is noticed. */
static void keep_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;
}

/* Order: streams before any file is opened; spare ranks leave before they print anything; the new
 * start with bounded spinning comes before the library has made a thread. */
int main(int argc, char **argv) {
    keep_standard_streams();
    signal(SIGXFSZ, SIG_IGN);  // writes beyond 'ulimit -f' fail, and say so
    // Without arguments the overview is shown; as no command has that name, nobody sees argc - 2.
    const char *first = argc > 1 ? argv[1] : "--help";
    const sh_command *command = find_command(first, argc - 2, argv + 2);
    const sh_launched as = sh_launched_as();
    if (is_spare(command, &as)) return 0;
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) return help(NULL);
    if (strcmp(first, "help") == 0) return help(argc > 2 ? argv[2] : NULL);
    if (strcmp(first, "--version") == 0) {
        printf("shoal %s\n", shoal_version());
        return finish("version", 0);
    }
    if (command != NULL && command->takes_run_options) sh_bound_spinning(argv);
    return command != NULL ? run(command, &as, argc - 2, argv + 2) : refuse(first);
}
