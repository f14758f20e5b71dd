/* libshoal: neural networks trained from C and C++. This header is the promise: what stands in it
 * keeps working in later versions. shoal/tools.h has what the `shoal` program needs besides.
 *
 *   shoal_config   the options of a run, from a run file and from single settings
 *   shoal_run      data, model and optimizer of such a run: train, evaluate, predict, save
 *   shoal_model    a model alone, fed with arrays of your own
 *
 * Functions return SHOAL_OK or another code; shoal_error_text() then says what went wrong and
 * shoal_error_hint() what to do next, both for the calling thread until its next failure. The
 * library never prints, never exits and reads no environment: words, text and variables go through
 * functions that you give it. Objects are used by one thread at a time; different objects by
 * different threads, except that kernels of all of them share one OpenMP team.
 *
 * Structs of yours begin with their size, `.size = sizeof options`. It tells the library which
 * members your program was compiled with: those that a later version adds count as 0, and a member
 * that the library is too old to know is refused unless it is 0. Structs that the library hands to
 * you (shoal_progress) only ever grow at their end.
 *
 * Strings returned as `char *` are yours: shoal_free() them. NULL is welcome in every destroy, for
 * all `hooks`, and where it is said to be; elsewhere it is SHOAL_E_USAGE, or NULL, 0 or false from
 * functions that return no status. */
#ifndef SHOAL_SHOAL_H
#define SHOAL_SHOAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHOAL_API __attribute__((visibility("default")))

/* The version that a program is compiled with. */
#define SHOAL_VERSION_MAJOR 0
#define SHOAL_VERSION_MINOR 1
#define SHOAL_VERSION_PATCH 0
#define SHOAL_VERSION_NUMBER \
    (SHOAL_VERSION_MAJOR * 1000000 + SHOAL_VERSION_MINOR * 1000 + SHOAL_VERSION_PATCH)

/* The version of the library that it runs with, as text and as a number like the one above. */
SHOAL_API const char *shoal_version(void);
SHOAL_API int shoal_version_number(void);

typedef enum shoal_status {
    SHOAL_OK = 0,
    SHOAL_E_USAGE,       /* you asked for something that cannot be */
    SHOAL_E_IO,          /* the operating system said no */
    SHOAL_E_FORMAT,      /* a file is malformed */
    SHOAL_E_SHAPE,       /* sizes that do not fit together */
    SHOAL_E_MEMORY,      /* not enough memory */
    SHOAL_E_NUMERIC,     /* the numbers failed: NaN, infinity */
    SHOAL_E_UNSUPPORTED, /* valid, but this build or machine cannot */
    SHOAL_E_INTERRUPTED, /* stopped on request, after a checkpoint */
    SHOAL_E_PEER,        /* another worker left */
} shoal_status;

/* "SHOAL_E_IO"; "SHOAL_E_UNKNOWN" for a number that is no status of this library. */
SHOAL_API const char *shoal_status_name(shoal_status status);
SHOAL_API const char *shoal_error_text(void);
SHOAL_API const char *shoal_error_hint(void); /* "" when there is none */
SHOAL_API void shoal_free(void *memory);

/* Where a function writes text to. `write` gets it in pieces that do not end in a zero byte, and
 * returns whether it took all of a piece; after a false the function fails with SHOAL_E_IO. */
typedef struct shoal_sink {
    void *user;
    bool (*write)(void *user, const char *text, size_t bytes);
} shoal_sink;

/* ---- Options of a run ---- */

typedef struct shoal_config shoal_config;

SHOAL_API shoal_status shoal_config_create(shoal_config **config_out);
SHOAL_API void shoal_config_destroy(shoal_config *config);
/* Adds what a run file says; later settings win over earlier ones. */
SHOAL_API shoal_status shoal_config_read(shoal_config *config, const char *path);
/* One setting by its key: ("optimizer.lr", "0.1"), ("model", "lenet"), ("epochs", "3"). A NULL
 * value sets it back to its default. */
SHOAL_API shoal_status shoal_config_set(shoal_config *config, const char *key, const char *value);
/* Takes `argv[*index]` if it is a flag (--lr 0.1) and moves the index past it; leaves it otherwise.
 */
SHOAL_API shoal_status shoal_config_flag(shoal_config *config, int argc, char **argv, int *index);
/* The whole as a run file that gives the same run. */
SHOAL_API char *shoal_config_print(const shoal_config *config);

/* ---- A run ---- */

typedef struct shoal_run shoal_run;

typedef enum shoal_log_level {
    SHOAL_LOG_DEBUG = 0,
    SHOAL_LOG_INFO,
    SHOAL_LOG_WARNING,
    SHOAL_LOG_ERROR,
} shoal_log_level;

typedef struct shoal_progress {
    int64_t step, steps;             /* finished, and in the whole run */
    int64_t epoch, epochs;           /* from 1 */
    int64_t samples;                 /* of this process */
    double train_loss;               /* of the last step */
    double test_loss, test_accuracy; /* of the last evaluation; NaN: none yet */
    double lr, samples_per_s;
    bool epoch_end;
    bool stops; /* on request: told before the checkpoint is written, last of all and once */
} shoal_progress;

/* What the caller lends to a run. Every member but `size` may be NULL or 0. */
typedef struct shoal_hooks {
    size_t size;
    void *user; /* the first argument of every function below */
    void (*line)(void *user, shoal_log_level level, const char *text);
    void (*progress)(void *user, const shoal_progress *progress); /* after each step */
    void (*folder)(void *user, const char *folder);               /* the run's folder is open */
    bool (*stop)(void *user); /* asked after each step: true ends with a checkpoint */
    /* The value of an environment variable, NULL: unset. Asked for those that mpirun and srun set,
     * and for SHOAL_MPI (an MPI module or a folder of them; unset: beside the library). Without
     * this hook a process trains as if no launcher had started it. */
    const char *(*environment)(void *user, const char *name);
    const char *data_folder;  /* where `mnist` and its like are kept */
    const char *cache_folder; /* where kernel choices are remembered */
    int64_t unix_ns;          /* the time of day, for the log */
} shoal_hooks;

/* Opens the data, builds the model, takes all memory. With `resume` set, continues from there. Test
 * data may come without labels, and then serves shoal_run_predict alone. */
SHOAL_API shoal_status shoal_run_open(const shoal_config *config, const shoal_hooks *hooks,
                                      shoal_run **run_out);
/* A run that evaluates and predicts with the checkpoint at `path`, as shoal_run_load takes it. What
 * it has to know of the training data (normalisation, classes, characters) is in the checkpoint, so
 * that data need not be there: a part that has a file of its own ("data.test") is opened alone, and
 * only when it is asked for. A model file also tells its model, unless the config does. Older
 * checkpoints know nothing of it: their training data is read. */
SHOAL_API shoal_status shoal_run_open_saved(const shoal_config *config, const char *path,
                                            const shoal_hooks *hooks, shoal_run **run_out);
SHOAL_API void shoal_run_close(shoal_run *run);
/* Trains to the end, with evaluation, metrics and checkpoints in the run's folder. */
SHOAL_API shoal_status shoal_run_train(shoal_run *run);
SHOAL_API const char *shoal_run_folder(const shoal_run *run);

typedef struct shoal_result {
    size_t size;
    double loss;     /* mean over samples, or tokens */
    double accuracy; /* NaN where the target is not a class */
    int64_t samples;
} shoal_result;

/* `part`: "train", "validation" or "test". */
SHOAL_API shoal_status shoal_run_evaluate(shoal_run *run, const char *part,
                                          shoal_result *result_out);
/* Loads parameters from a checkpoint (a run folder, a snapshot, or a bare model file). */
SHOAL_API shoal_status shoal_run_load(shoal_run *run, const char *path);
/* Parameters and running statistics as one safetensors file; shoal_run_load reads it. */
SHOAL_API shoal_status shoal_run_save(const shoal_run *run, const char *path);
/* Outputs for every sample of a part, row by row; `row` gets `width` floats. */
SHOAL_API shoal_status shoal_run_predict(shoal_run *run, const char *part,
                                         void (*row)(void *user, int64_t index, const float *output,
                                                     int64_t width),
                                         void *user);
/* How many classes the target has; 0 where it is values. */
SHOAL_API int64_t shoal_run_classes(const shoal_run *run);
/* Table of layers, to read: shapes, parameters, work, memory, kernels. Sizes are those of one
 * worker. */
SHOAL_API shoal_status shoal_run_explain(shoal_run *run, const shoal_sink *sink);

/* ---- Several workers ---- */

/* Opens, trains and closes a run on as many workers as the config says. Several workers are
 * processes forked from this one, which only watches over them: call it before anything of this
 * process has computed (a process that has used OpenMP cannot be forked). Hooks are called in this
 * process. The run's folder goes to folder_out unless NULL, also after a failure (NULL: there is
 * none); shoal_free it.
 *
 * Under mpirun or srun (hooks->environment tells) this process is one worker itself, and MPI is
 * started and ended in it, once. Rank 0 calls the hooks and has the folder; the others only warn.
 * After a failure report it, then call shoal_abort. */
SHOAL_API shoal_status shoal_train(const shoal_config *config, const shoal_hooks *hooks,
                                   char **folder_out);
/* The last act of a program whose run under MPI failed: ends all ranks and does not return. Does
 * nothing where MPI does not run. */
SHOAL_API void shoal_abort(int exit_code);

/* A run on simulated workers: what their world is like. Texts as the flags of `shoal simulate` take
 * them; every member but `size` may be NULL or 0. */
typedef struct shoal_simulation {
    size_t size;
    const char *link;      /* "1Gbit,100us": of every worker; NULL: links are free */
    const char *pairs;     /* "0-3:100Mbit,5ms/1-2:1Gbit,1ms": another link between two */
    const char *racks;     /* "8,10Gbit,20us": workers in a rack, and the link that they share */
    const char *sites;     /* "4,100Mbit,30ms": racks on a site, and the link that they share */
    const char *compute;   /* "20ms", "exp:20ms", "lognormal:20ms,0.5"; NULL: measured here */
    const char *straggler; /* "3:4x,*:2x@10s-20s": who takes longer, how much, and when */
    const char *jitter;    /* "50us": messages are late by an exponential time of this mean */
    const char *cut;       /* "0-1@5s-9s": links that lose what is sent */
    const char *pause;     /* "3@5s-7s": workers that stand still */
    const char *die;       /* "3@12s,1@4s+2s": ranks that die, and come back later */
    bool timing_only;      /* nothing is computed, only time passes */
} shoal_simulation;

typedef struct shoal_simulation_result {
    size_t size;
    double seconds;          /* of virtual time */
    double compute_s;        /* mean time of a worker's forward and backward */
    int64_t steps;           /* that were done, as the run's batch counts */
    int64_t messages, bytes; /* over all links */
    int64_t events;
} shoal_simulation_result;

/* As shoal_train, with the config's workers as coroutines of this process on a virtual clock. The
 * same config and simulation (NULL: nothing is set) give the same bits, if the compute time is
 * given. What it took goes to result_out unless NULL. */
SHOAL_API shoal_status shoal_simulate(const shoal_config *config, const shoal_hooks *hooks,
                                      const shoal_simulation *simulation, char **folder_out,
                                      shoal_simulation_result *result_out);

/* ---- A model of your own data ---- */

typedef struct shoal_model shoal_model;

typedef struct shoal_model_options {
    size_t size;
    const char *model; /* as in a run file: "mlp", "{name: mlp, hidden: [64]}", "[{dense: 10}]" */
    const int64_t *sample; /* shape of one sample: {784}, {3, 32, 32}, {T} for tokens */
    int sample_rank;
    bool tokens;           /* samples are int32 tokens below `outputs` */
    int64_t outputs;       /* classes, or target values */
    const char *loss;      /* NULL: cross-entropy */
    const char *optimizer; /* NULL: "{name: sgd, lr: 0.01}"; a map as in a run file */
    uint64_t seed;
    int threads; /* 0: all cores */
} shoal_model_options;

SHOAL_API shoal_status shoal_model_create(const shoal_model_options *options,
                                          shoal_model **model_out);
/* The model of a checkpoint: a model file, a snapshot or a run's folder. It takes samples as they
 * lie in the data, and scales them as its training did. Of the options (NULL: defaults) `loss`,
 * `optimizer`, `seed` and `threads` count. Fails on files that do not tell model and data: those of
 * other programs, and older ones. */
SHOAL_API shoal_status shoal_model_open(const char *path, const shoal_model_options *options,
                                        shoal_model **model_out);
SHOAL_API void shoal_model_destroy(shoal_model *model);
/* The shape of a sample: its dimensions go to sample_out unless NULL, how many there are is
 * returned. */
SHOAL_API int shoal_model_sample(const shoal_model *model, int64_t sample_out[3]);
/* Floats that shoal_model_predict writes for each sample. */
SHOAL_API int64_t shoal_model_outputs(const shoal_model *model);
/* Text: the characters in the order of their tokens, as UTF-8; NULL for bytes and numbers. */
SHOAL_API const char *shoal_model_vocabulary(const shoal_model *model);
SHOAL_API int64_t shoal_model_param_count(const shoal_model *model);
/* One training step on `count` samples: x (count, sample...), y int32 classes (count) or float
 * values (count, outputs). The mean loss goes to loss_out unless NULL. */
SHOAL_API shoal_status shoal_model_step(shoal_model *model, const void *x, const void *y,
                                        int64_t count, double *loss_out);
/* Loss and accuracy on `count` samples, as a step takes them; nothing is learnt. */
SHOAL_API shoal_status shoal_model_evaluate(shoal_model *model, const void *x, const void *y,
                                            int64_t count, shoal_result *result_out);
/* output_out (count, outputs). */
SHOAL_API shoal_status shoal_model_predict(shoal_model *model, const void *x, int64_t count,
                                           float *output_out);
/* One safetensors file; any model of the same layers loads it. Loading takes parameters alone. */
SHOAL_API shoal_status shoal_model_save(shoal_model *model, const char *path);
SHOAL_API shoal_status shoal_model_load(shoal_model *model, const char *path);

/* ---- Data sets by name ---- */

/* Fetches a set that `shoal list data` names into hooks->data_folder. */
SHOAL_API shoal_status shoal_data_get(const char *name, const shoal_hooks *hooks);

#ifdef __cplusplus
}
#endif

#endif
