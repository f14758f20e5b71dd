/* What all commands share: parsed arguments, the config of a run, hooks for the library, progress
 * on stderr, messages and JSON values.
 *
 * Commands call the library through its public headers, as any program would, so that whatever
 * they need is there for others too. They alone read environment variables and the time of day:
 * the library gets both through shoal_hooks, which keeps runs reproducible.
 *
 * Results go to stdout and messages to stderr, so that output can be piped. Exit codes: 0 done; 1
 * failed; 2 misused (an argument or a run file is wrong); 128 + signal when the command was asked
 * to stop, as shells report it. */
#ifndef SH_CLI_COMMON_H
#define SH_CLI_COMMON_H

#include "base/option.h"
#include "obs/progress.h"
#include "shoal/shoal.h"
#include "shoal/tools.h"

/* One row of the program: name, help, options and the function that runs it. Rows are constants at
 * the end of each cmd_*.c. */
typedef struct sh_command sh_command;

/* Upper bound of every operands_most: `shoal report` takes as many folders. */
enum { SH_OPERANDS_MOST = 16 };

/* The arguments of one command, parsed. Lives in main's run() from sh_args_init to sh_args_fini;
 * pointers into argv stay valid as long as the process. */
typedef struct sh_args {
    const sh_command *command;  // whose option table and operand counts apply
    int argc;
    char **argv;                             // arguments behind the command's name; borrowed
    const char *operands[SH_OPERANDS_MOST];  // no flags, in order; in argv
    int operand_count;
    const char *resume;  // value of --resume, "newest" when it has none; NULL: not given
    bool quiet;          // --quiet: only warnings, errors and results are shown
    void *options;  // struct of the command's own table, zeroed, then set to initial values; owned
    bool *set;      // per row of that table: the user gave the flag; owned
    shoal_config *config;   // settings of a run; NULL before sh_args_config; owned
    sh_progress *progress;  // live progress line, cleared before messages; NULL: none; owned
    char *data_folder, *cache_folder;  // texts that shoal_hooks borrows; NULL: unknown; owned
    int signal;  // signal that stopped the command, for the exit code; 0: none
} sh_args;

/* A command as main and `shoal list` see it. Members that are NULL, 0 or false may be left out of
 * a row. */
struct sh_command {
    const char *name, *help;  // as typed behind "shoal"; help in one line
    const char *usage;        // body of `shoal NAME --help`: how to call it, examples, remarks
    sh_option_table options;  // the command's own flags, without those of a run
    size_t options_bytes;     // size of the struct that the table's offsets refer to
    bool takes_run_options;   // every setting of a run file is also a flag: --lr, --data.batch
    bool joins_ranks;         // under mpirun or srun all ranks run it; otherwise rank 0 alone does
    int operands_least, operands_most;   // fewer or more operands are SHOAL_E_USAGE, so exit 2
    shoal_status (*run)(sh_args *args);  // the work; main reports a failure and makes the exit code
    /* Another command that takes over for these arguments, such as `bench allreduce` for `bench`;
     * NULL: none does. It sees raw arguments, because which table parses them depends on the
     * answer. May be NULL. */
    const sh_command *(*instead)(int argc, char **argv);
};

/* Which process of a launcher's job this is: rank and number of ranks as mpirun or srun announce
 * them in environment variables. MPI itself is not asked, since most commands never start it. */
typedef struct sh_launched {
    int rank, ranks;  // ranks 0: launched, but the number is unknown; 1: no launcher, or one rank
} sh_launched;
sh_launched sh_launched_as(void);

const sh_command *sh_command_at(size_t index);        // row of SH_COMMAND_LIST; NULL past the end
const sh_command *sh_command_find(const char *name);  // exact match; NULL: there is no such command

/* Parses flags and operands into `args`. Unknown flags, bad values and a wrong number of operands
 * are SHOAL_E_USAGE, with a hint. Call sh_args_fini afterwards even if it failed. */
shoal_status sh_args_init(sh_args *args, const sh_command *command, int argc, char **argv);
/* Frees all that `args` owns; the command's options and its config with it. */
void sh_args_fini(sh_args *args);

/* Creates args->config from a run file and then from the flags, which win over it. `base` is the
 * run file, or a run's folder, whose run.yaml is read; NULL: flags alone. A fault in a run file is
 * the user's, so it becomes SHOAL_E_USAGE (exit 2). Parses the arguments again: texts in
 * args->options are new afterwards, and pointers to old ones dangle. */
shoal_status sh_args_config(sh_args *args, const char *base);
/* Hooks that show messages on stderr and lend folders, environment and time of day to the library.
 * They borrow `args`, which must outlive every call that gets them. */
shoal_hooks sh_args_hooks(sh_args *args);

/* One setting of a config as text, by its key ("data.batch"); "" where it is unset. A model given
 * as a map yields its name, one given as a list of layers yields "layers". Caller frees with
 * sh_free; NULL: out of memory. */
char *sh_config_text(const shoal_config *config, const char *key);
/* Path of the run.yaml of the run that a checkpoint belongs to. `checkpoint` is a run's folder,
 * its checkpoints folder, or a file in either. Caller frees with sh_free; NULL: there is no
 * run.yaml, as for a model file that was copied elsewhere. */
char *sh_run_file_of(const char *checkpoint);

/* Executes the program anew with OpenMP's threads spinning for microseconds instead of
 * milliseconds before they sleep. Returns without effect if that has been done, if the user's own
 * OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, or if it cannot be done. Call it before anything else
 * has happened in the process, which exec replaces. */
void sh_bound_spinning(char **argv);

/* From now on the first SIGINT, SIGTERM, SIGUSR1 or SIGHUP asks the command to stop, and a second
 * one of the same kind ends the process. A thread of its own takes them; the calling thread, and
 * those that it starts, have them blocked. */
void sh_catch_signals(void);
/* Whether such a signal has come. Has the type of shoal_hooks.stop; `user` is ignored. */
bool sh_wants_stop(void *user);
/* Number of the signal that asked to stop; 0: none came. */
int sh_caught_signal(void);
/* Whether stderr is a terminal that can redraw a line: not a file, a pipe or TERM=dumb. */
bool sh_is_terminal(void);

/* Progress of one training on stderr: created with the first step, silent under --quiet. */
typedef struct sh_view {
    sh_args *args;          // owns the progress line; borrowed
    const char *label;      // text before the line, for several runs in a row; borrowed; NULL: none
    int64_t first_samples;  // samples counted when the line began: its speed leaves them out
    int64_t last_samples;   // samples of the last step shown; a smaller count means a restart
} sh_view;

/* shoal_hooks.line of a command that shows progress: prints the message as sh_args_hooks would.
 * `user` is a sh_view, or a struct whose first member is one. */
void sh_view_line(void *user, shoal_log_level level, const char *text);
/* Shows one step. With `stays` the line is kept on the screen and the next step begins a new one.
 */
void sh_view_show(sh_view *view, const shoal_progress *now, bool stays);
/* Hooks of a command that trains: messages and progress go to the functions given, with `user`,
 * and signals ask to stop from now on. Pair with sh_args_unwatch. */
shoal_hooks sh_args_watch(sh_args *args, void *user,
                          void (*line)(void *, shoal_log_level, const char *),
                          void (*progress)(void *, const shoal_progress *));
/* After the last call of these hooks: clears the live line, and notes the signal that came, from
 * which main makes the exit code. */
void sh_args_unwatch(sh_args *args);

/* One message to stderr, unless --quiet. Control characters in it are escaped, as names of files
 * may hold some. */
void sh_say(const sh_args *args, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The library's last error and its hint, to stderr: "shoal: COMMAND: what went wrong", then " try:
 * what to do". `command` NULL: the program itself is at fault. */
void sh_complain(const char *command);
/* `shoal NAME --help` on stdout: usage, own flags, common flags, settings of a run. */
void sh_print_help(const sh_command *command);

/* Sink that writes to stdout. It accepts every piece, because main asks the stream for errors once
 * at the end, where a full disk becomes exit code 1. */
extern const shoal_sink sh_stdout;
/* A value of a JSON object. Texts are escaped to ASCII, so that output is valid whatever bytes a
 * file name has. Numbers that are NaN or infinite become null, which JSON has no digits for. */
void sh_json_text(FILE *file, const char *text);
void sh_json_number(FILE *file, double number);

/* The library's error macros with public codes: CLI_FAIL records an error and is its code;
 * CLI_HINT adds the next step to the last error and is its code; CLI_TRY returns from the function
 * on failure, with the error left as it is. */
#define CLI_FAIL(code, ...) ((shoal_status)SH_FAIL((sh_status)(code), __VA_ARGS__))
#define CLI_HINT(...)       ((shoal_status)sh_error_hint(__VA_ARGS__))
#define CLI_TRY(expression)                      \
    do {                                         \
        shoal_status status_ = (expression);     \
        if (status_ != SHOAL_OK) return status_; \
    } while (0)

#endif
