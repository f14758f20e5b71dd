/* What the commands share: arguments, options of a run, folders, words and errors. Commands use the
 * library through its public header, as any program would; only they read the environment.
 *
 * Results go to stdout and words to stderr. Exit 0 done, 1 failed, 2 misused, 128 + signal when
 * asked to stop. */
#ifndef SH_CLI_COMMON_H
#define SH_CLI_COMMON_H

#include "base/option.h"
#include "obs/progress.h"
#include "shoal/shoal.h"
#include "shoal/tools.h"

typedef struct sh_command sh_command;

enum { SH_OPERANDS_MOST = 16 };

typedef struct sh_args {
    const sh_command *command;
    int argc;
    char **argv;  // behind the command's name
    const char *operands[SH_OPERANDS_MOST];
    int operand_count;
    const char *resume;  // value of --resume, "newest" without one; NULL: not given
    bool quiet;
    void *options;          // of the command's own table
    bool *set;              // one per row of it: given by the user
    shoal_config *config;   // after sh_args_config
    sh_progress *progress;  // cleared before words are written; NULL: none
    char *data_folder, *cache_folder;
    int signal;  // that stopped the command, 0: none
} sh_args;

struct sh_command {
    const char *name, *help;  // one line
    const char *usage;        // what follows "shoal NAME", and examples
    sh_option_table options;  // its own
    size_t options_bytes;
    bool takes_run_options;  // any --key of a run file
    bool joins_ranks;        // under mpirun or srun all ranks take part; otherwise rank 0 alone
    int operands_least, operands_most;
    shoal_status (*run)(sh_args *args);
    /* The command that these arguments ask for under the same name; NULL: this one. May be NULL. */
    const sh_command *(*instead)(int argc, char **argv);
};

/* Which of the processes this one is that mpirun or srun started. */
typedef struct sh_launched {
    int rank, ranks;  // ranks 0: it does not say; 1: there is no launcher, or no other rank
} sh_launched;
sh_launched sh_launched_as(void);

const sh_command *sh_command_at(size_t index);  // NULL behind the last
const sh_command *sh_command_find(const char *name);

/* Reads flags and operands. Finish with fini in any case. */
shoal_status sh_args_init(sh_args *args, const sh_command *command, int argc, char **argv);
void sh_args_fini(sh_args *args);

/* Makes args->config: the run file `base` (or that of the folder `base`; NULL: none), then the
 * flags, which win. Faults in a run file are the user's: SHOAL_E_USAGE. */
shoal_status sh_args_config(sh_args *args, const char *base);
/* What the library may use. Borrows the args. */
shoal_hooks sh_args_hooks(sh_args *args);

/* The text of one setting of a config ("data.batch"), "" when it has none; sh_free it. A model
 * gives its name, or "layers" for a list. NULL: out of memory. */
char *sh_config_text(const shoal_config *config, const char *key);
/* The run.yaml of the run that a checkpoint belongs to: a run's folder, its checkpoints folder or a
 * file of either. sh_free it; NULL: there is none. */
char *sh_run_file_of(const char *checkpoint);

/* Starts the program anew, unless that was done before, with OpenMP's threads spinning for some
 * microseconds only; OMP_WAIT_POLICY and GOMP_SPINCOUNT of the user's hold as they are. */
void sh_bound_spinning(char **argv);

/* From now on Ctrl-C and its like ask to stop, once: a second one ends the program. They are taken
 * by a thread of their own; the calling thread, and those that it starts, take none. */
void sh_catch_signals(void);
/* Whether one has come: shoal_hooks.stop. */
bool sh_wants_stop(void *user);
/* Which; 0: none. */
int sh_caught_signal(void);
/* Whether stderr is a terminal that can redraw a line. */
bool sh_is_terminal(void);

/* How far training is, on stderr, unless --quiet. */
typedef struct sh_view {
    sh_args *args;
    const char *label;      // before the line; NULL: none
    int64_t first_samples;  // where the line began
    int64_t last_samples;
} sh_view;

/* A line of the library, as sh_args_hooks would show it. `user` is a sh_view, or a struct that
 * begins with one. */
void sh_view_line(void *user, shoal_log_level level, const char *text);
/* `stays`: the line is kept, and a new one begun. */
void sh_view_show(sh_view *view, const shoal_progress *now, bool stays);
/* From now on signals ask to stop; what the library tells goes to `user`. */
shoal_hooks sh_args_watch(sh_args *args, void *user,
                          void (*line)(void *, shoal_log_level, const char *),
                          void (*progress)(void *, const shoal_progress *));
/* After the last call of the hooks: clears the line and notes the signal that came, if any. */
void sh_args_unwatch(sh_args *args);

/* A line of words to stderr, unless --quiet. */
void sh_say(const sh_args *args, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The library's last failure, to stderr. `command` NULL: the program itself. */
void sh_complain(const char *command);
void sh_print_help(const sh_command *command);

/* Text of the library to stdout; whether it got there main asks at the end. */
extern const shoal_sink sh_stdout;
/* A JSON string, or a number; null for NaN and infinities. */
void sh_json_text(FILE *file, const char *text);
void sh_json_number(FILE *file, double number);

#define CLI_FAIL(code, ...) ((shoal_status)SH_FAIL((sh_status)(code), __VA_ARGS__))
#define CLI_HINT(...)       ((shoal_status)sh_error_hint(__VA_ARGS__))
#define CLI_TRY(expression)                      \
    do {                                         \
        shoal_status status_ = (expression);     \
        if (status_ != SHOAL_OK) return status_; \
    } while (0)

#endif
