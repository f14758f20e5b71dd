/* libshoal: neural networks trained from C. The `shoal` program trains through nothing else.
 *
 *   shoal_config   the options of a run, from a run file and from single settings
 *   shoal_run      data, model and optimizer of such a run: train, evaluate, predict, save
 *   shoal_model    a model alone, fed with arrays of your own
 *
 * Functions return SHOAL_OK or another code; shoal_error_text() then says what went wrong and
 * shoal_error_hint() what to do next, both for the calling thread until its next failure. The
 * library never prints and never exits. Objects are used by one thread at a time; different objects
 * by different threads, except that kernels of all of them share one OpenMP team.
 *
 * Strings returned as `char *` are yours: shoal_free() them. NULL is welcome in every destroy, for
 * all `hooks`, and where it is said to be; elsewhere it is SHOAL_E_USAGE, or NULL, 0 or false from
 * functions that return no status. */
#ifndef SHOAL_SHOAL_H
#define SHOAL_SHOAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHOAL_API __attribute__((visibility("default")))

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

SHOAL_API const char *shoal_version(void);
SHOAL_API const char *shoal_error_text(void);
SHOAL_API const char *shoal_error_hint(void); /* "" when there is none */
SHOAL_API void shoal_free(void *memory);

/* ---- Options of a run ------------------------------------------------------------------------ */

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
/* All options with their help, as text or as a Markdown table. */
SHOAL_API void shoal_config_help(FILE *file, bool markdown);

/* ---- A run ----------------------------------------------------------------------------------- */

typedef struct shoal_run shoal_run;

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

/* What mpirun and srun leave in the environment: the values of these variables, NULL where unset.
 * The library reads no environment itself. */
typedef struct shoal_launcher {
    const char *ompi_size;   /* OMPI_COMM_WORLD_SIZE */
    const char *pmi_size;    /* PMI_SIZE */
    const char *pmix_rank;   /* PMIX_RANK */
    const char *slurm_tasks; /* SLURM_STEP_NUM_TASKS */
    const char *module;      /* an MPI module or a folder of them; NULL: beside the library */
} shoal_launcher;

/* What the caller lends to a run. Every member may be NULL or 0. */
typedef struct shoal_hooks {
    void *user;
    void (*line)(void *user, int level, const char *text); /* words; 0 debug, 1 info, 2 warning */
    void (*progress)(void *user, const shoal_progress *progress); /* after each step */
    void (*folder)(void *user, const char *folder);               /* the run's folder is open */
    bool (*stop)(void *user);       /* asked after each step: true ends with a checkpoint */
    const char *data_folder;        /* where `mnist` and its like are kept */
    const char *cache_folder;       /* where kernel choices are remembered */
    const char *programs;           /* PATH, where shoal_doctor looks for npm */
    int64_t unix_ns;                /* the time of day, for the log */
    const shoal_launcher *launcher; /* how this process was started; NULL: alone */
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

/* Opens, trains and closes a run on as many workers as the config says. Several workers are
 * processes forked from this one, which only watches over them: call it before anything of this
 * process has computed (a process that has used OpenMP cannot be forked). Hooks are called in this
 * process. The run's folder goes to folder_out unless NULL, also after a failure (NULL: there is
 * none); shoal_free it.
 *
 * Under mpirun or srun (hooks->launcher) this process is one worker itself, and MPI is started and
 * ended in it, once. Rank 0 calls the hooks and has the folder; the others only warn. After a
 * failure report it, then call shoal_abort. */
SHOAL_API shoal_status shoal_train(const shoal_config *config, const shoal_hooks *hooks,
                                   char **folder_out);
/* A run on simulated workers: what their world is like. Texts as the flags of `shoal simulate` take
 * them; every member may be NULL or 0. */
typedef struct shoal_simulation {
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

typedef struct shoal_simulated {
    double seconds;          /* of virtual time */
    double compute_s;        /* mean time of a worker's forward and backward */
    int64_t steps;           /* that were done, as the run's batch counts */
    int64_t messages, bytes; /* over all links */
    int64_t events;
} shoal_simulated;

/* As shoal_train, with the config's workers as coroutines of this process on a virtual clock. The
 * same config and simulation (NULL: nothing is set) give the same bits, if the compute time is
 * given. What it took goes to simulated_out unless NULL. */
SHOAL_API shoal_status shoal_simulate(const shoal_config *config, const shoal_hooks *hooks,
                                      const shoal_simulation *simulation, char **folder_out,
                                      shoal_simulated *simulated_out);
/* The last act of a program whose run under MPI failed: ends all ranks and does not return. Does
 * nothing where MPI does not run. */
SHOAL_API void shoal_abort(int exit_code);

typedef struct shoal_result {
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
/* Table of layers: shapes, parameters, work, memory, kernels. Sizes are those of one worker. */
SHOAL_API shoal_status shoal_run_explain(shoal_run *run, FILE *file);
/* The same of a run that the config describes, with the threads that each of its workers would
 * have. `folder`: of a run that has been, NULL: none; then threads and kernels are those that its
 * newest checkpoint recorded, unless the config says otherwise. */
SHOAL_API shoal_status shoal_explain(const shoal_config *config, const char *folder,
                                     const shoal_hooks *hooks, FILE *file);

typedef struct shoal_timing {
    double median_ms, p10_ms, p90_ms; /* per step */
    double samples_per_s;             /* at the median; tokens for text */
    double exposed_ms;                /* mean: communication that computing did not hide */
    double rss_mib;                   /* peak memory of worker 0 */
    int64_t steps;                    /* 0: this process is not rank 0, which has the figures */
    int workers, threads;             /* threads of each */
} shoal_timing;

/* Steps on data already in memory, timed one by one after `warmup` of them. */
SHOAL_API shoal_status shoal_run_bench(shoal_run *run, int64_t warmup, int64_t steps,
                                       double seconds, shoal_timing *timing_out);
/* The same on as many workers as the config says; see shoal_train. */
SHOAL_API shoal_status shoal_bench(const shoal_config *config, const shoal_hooks *hooks,
                                   int64_t warmup, int64_t steps, double seconds,
                                   shoal_timing *timing_out);

/* ---- Comparing ---------------------------------------------------------------------------------
 */

/* One evaluation on the way. */
typedef struct shoal_point {
    int64_t step;
    double train_s; /* seconds of training so far, evaluation and checkpoints left out */
    double loss, accuracy;
} shoal_point;

/* How one variant went. Numbers that are NaN are unknown, or there is no such thing. */
typedef struct shoal_compared {
    char name[160];  /* what sets it apart: "ssp:3", "bsp topk:1%", "bsp, 4 workers" */
    char folder[96]; /* of its run, below the comparison's */
    char sync[64], compress[64];
    int64_t workers;
    char outcome[16]; /* done, stopped, refused, diverged, failed, or not run */
    shoal_status status;
    char reason[1024], hint[512]; /* unless done */
    double seconds;               /* of training; simulated: that the simulation took */
    double virtual_s;             /* simulated: of training, on the virtual clock */
    double steps, updates;        /* updates: of the model, or of all workers' models together */
    double sent_bytes;            /* by all workers */
    double staleness_mean, staleness_most;
    double loss, accuracy;     /* of the last evaluation */
    double target_s;           /* training until the first evaluation that reached the target */
    const shoal_point *points; /* the comparison's */
    size_t point_count;
} shoal_compared;

typedef struct shoal_compare_options {
    /* Comma lists, of which every combination is a variant; NULL: what the config says. */
    const char *sync, *compress, *workers;
    const shoal_simulation *simulation; /* on simulated workers; NULL: on processes */
    /* A variant begins, the index-th of count, from 0; a variant has ended. May be NULL; `user` is
     * the hooks'. */
    void (*begin)(void *user, size_t index, size_t count, const char *name);
    void (*end)(void *user, const shoal_compared *row);
} shoal_compare_options;

typedef struct shoal_comparison shoal_comparison;

/* Trains one variant after the other from the same config, seed and budget of samples, each in a
 * folder of its own below the comparison's (`out`, default runs/NAME-compare), and writes table and
 * picture there: compare.md, compare.json, compare.svg. The config's `target` does not stop a run
 * here: it is the accuracy that the variants are timed to. `eval.every` is a twentieth of the run
 * unless set. Forks as shoal_train does; not under MPI.
 *
 * A variant whose settings do not go together is refused, one whose numbers fail has diverged: both
 * are results, and the others go on. Otherwise the first failure is returned when all have had
 * their turn; SHOAL_E_INTERRUPTED after a stop; and where all were refused, the first refusal. The
 * comparison is there in all these cases, and NULL if none began. `options` NULL: the config's run
 * is the only variant. */
SHOAL_API shoal_status shoal_compare(const shoal_config *config, const shoal_hooks *hooks,
                                     const shoal_compare_options *options,
                                     shoal_comparison **comparison_out);
SHOAL_API void shoal_comparison_destroy(shoal_comparison *comparison);
SHOAL_API const char *shoal_comparison_folder(const shoal_comparison *comparison);
/* The rows in order; NULL behind the last. */
SHOAL_API const shoal_compared *shoal_comparison_at(const shoal_comparison *comparison,
                                                    size_t index);
/* The table as Markdown, or all of it as JSON. */
SHOAL_API shoal_status shoal_comparison_print(const shoal_comparison *comparison, bool json,
                                              FILE *file);

/* ---- A model of your own data ------------------------------------------------------------------
 */

typedef struct shoal_model shoal_model;

typedef struct shoal_model_options {
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

/* ---- Collectives -------------------------------------------------------------------------------
 */

/* How workers exchange data: every step of a collective, its cost, and which algorithm wins where.
 * Members that are NULL or 0 take their defaults. */
typedef struct shoal_collective_options {
    const char *collective; /* "allreduce", "reduce-scatter", "all-gather", "broadcast",
                               "all-to-all", "barrier" */
    const char *algorithm;  /* as in shoal_list("collectives"); NULL: the cheapest */
    int64_t ranks;          /* 0: as many as the values have, or 4 */
    int64_t per_node;       /* ranks on each node; 0: one */
    int64_t root;           /* of a broadcast */
    int64_t size_bytes;     /* 0: 1 MiB */
    const char *link;       /* between nodes, "1Gbit,50us" */
    const char *node_link;  /* inside a node, "5GB,1us" */
    const char *values;     /* file of numbers to work through, one line per rank; NULL: none */
    const char *svg;        /* file for a picture; NULL: none */
    bool json;
    const char *cache_folder; /* runs remember there what they measured: it is used where neither
                                 link is given; NULL: nothing is known */
} shoal_collective_options;

SHOAL_API bool shoal_is_collective(const char *name);
SHOAL_API shoal_status shoal_explain_collective(const shoal_collective_options *options,
                                                FILE *file);

/* Who gossips with whom: the mixing matrix of a graph, and how fast disagreement falls. */
typedef struct shoal_gossip_options {
    const char *graph; /* "ring", "torus", "exponential", "complete"; NULL: ring */
    int64_t ranks;     /* 0: 4 */
    bool json;
} shoal_gossip_options;

SHOAL_API shoal_status shoal_explain_gossip(const shoal_gossip_options *options, FILE *file);

/* When each rank of a pipeline computes which micro-batch: chart, idle time, live activations. */
typedef struct shoal_pipeline_options {
    const char *schedule;  /* "1f1b", "interleaved:2"; NULL: 1f1b */
    int64_t ranks;         /* 0: 4 */
    int64_t micro_batches; /* 0: 8 */
    const char *times; /* "F,B,W" of a rank and micro-batch, all with a unit or none; NULL: 1,1,1 */
    int64_t size_bytes; /* what a stage sends for a micro-batch; 0: 1 MiB */
    const char *link;   /* "1Gbit,50us"; NULL: messages take no time */
    const char *svg;    /* file for a picture; NULL: none */
    bool json;
} shoal_pipeline_options;

SHOAL_API shoal_status shoal_explain_pipeline(const shoal_pipeline_options *options, FILE *file);

/* What a step's communication costs by the alpha-beta formulas of batch, model and domain
 * parallelism, layer by layer; workers and batch are the config's. */
typedef struct shoal_cost_options {
    const char *layout; /* "data=64,tensor=8"; NULL: data parallel */
    const char *link;   /* "1Gbit,50us"; NULL: that */
    bool json;
} shoal_cost_options;

SHOAL_API shoal_status shoal_explain_cost(const shoal_config *config,
                                          const shoal_cost_options *options,
                                          const shoal_hooks *hooks, FILE *file);

/* All-reduces timed between workers of this machine, or between those that mpirun started. */
typedef struct shoal_allreduce_options {
    int64_t ranks;                  /* 0: 2 */
    const int64_t *sizes;           /* bytes of the whole buffer, multiples of 4 */
    size_t size_count;              /* at most 64 */
    const char *algorithm;          /* NULL: chosen by size */
    double seconds;                 /* measured time of each size; 0: 1 */
    bool private_memory;            /* the data lies outside shared memory */
    const shoal_launcher *launcher; /* how this process was started; NULL: alone */
} shoal_allreduce_options;

typedef struct shoal_allreduce_timing {
    int64_t size_bytes, ranks;
    char algorithm[24];
    double median_us, p10_us, p90_us; /* of the slowest worker */
    double gb_s;                      /* bytes of the buffer by the median */
    int64_t samples;
} shoal_allreduce_timing;

/* Sums of floats, in place, verified once and then timed; `timings_out` gets one row per size.
 * Forks the workers, at most 32 for each core: call it before anything has computed in this
 * process. Under mpirun this process is one of them; rank 0 has the timings, elsewhere `samples` is
 * 0, and after a failure shoal_abort is the last act. */
SHOAL_API shoal_status shoal_bench_allreduce(const shoal_allreduce_options *options,
                                             shoal_allreduce_timing *timings_out);

/* Hogwild: sparse logistic regression on made data, by threads that share one block of weights. */
typedef struct shoal_hogwild_options {
    int64_t workers;                  /* from 2 */
    int64_t rows, features, nonzeros; /* of the data; non-zeros of each row */
    double zipf;                      /* how features are distributed; 0: evenly */
    int64_t epochs, repeat;           /* passes of a measurement; measurements */
    double lr;
    int64_t seed;
} shoal_hogwild_options;

#define SHOAL_HOGWILD_CASES                                              \
    7 /* one worker and all: lock-free, locked, weight-locks; all: apart \
       */

typedef struct shoal_hogwild_timing {
    char scheme[16]; /* hogwild; hogwild-locked: one lock; weight-locks: one for each weight; apart:
                        each worker on weights of its own */
    int64_t workers;
    double updates_per_s, least, most; /* median and extremes */
    double loss, accuracy;             /* after the last measurement; apart: NaN */
} shoal_hogwild_timing;

SHOAL_API shoal_status shoal_bench_hogwild(const shoal_hogwild_options *options,
                                           shoal_hogwild_timing timings_out[SHOAL_HOGWILD_CASES]);

/* ---- What there is -----------------------------------------------------------------------------
 */

/* Rows of a registry: kind is one of shoal_list_kind(0), (1), … until NULL ("models", "layers",
 * "losses", "optimizers", "schedules", "readers", "collectives", "codecs", "sync", "graphs",
 * "data"). Calls `row` for each. */
SHOAL_API const char *shoal_list_kind(size_t index);
SHOAL_API shoal_status shoal_list(const char *kind,
                                  void (*row)(void *user, const char *name, const char *help),
                                  void *user);

/* Writes what runs did, as their folders tell, as one page of HTML with charts to `path`; NULL:
 * report.html in the first folder. With `measures`, the newest checkpoint of a classifier is asked
 * for its answers to the test part; where that cannot be, the hooks are told why, and the page does
 * without. */
SHOAL_API shoal_status shoal_report(const char *const *folders, size_t count, bool measures,
                                    const shoal_hooks *hooks, const char *path);

/* Data sets: fetches `name` into the folder, describes or checks every part of a file or name. With
 * `json` one object per part, each on a line, takes the place of the tables. */
SHOAL_API shoal_status shoal_data_get(const char *name, const shoal_hooks *hooks);
SHOAL_API shoal_status shoal_data_info(const shoal_config *config, const char *path,
                                       const shoal_hooks *hooks, bool json, FILE *file);
SHOAL_API shoal_status shoal_data_check(const shoal_config *config, const char *path,
                                        const shoal_hooks *hooks, FILE *file);
/* What this machine offers, and what is missing. */
SHOAL_API void shoal_doctor(const shoal_hooks *hooks, bool json, FILE *file);

/* ---- Federated learning ------------------------------------------------------------------------
 */

/* How clients are asked and their updates combined (docs/federated.md). Texts may be NULL, and
 * numbers 0 (server_lr, server_momentum, server_beta2, server_tau: NaN or 0): then they have the
 * defaults of `shoal fed simulate --help`. */
typedef struct shoal_fed_options {
    int64_t clients, rounds;
    const char *rule;      /* "fedavg", "fedprox:0.01", ... as `shoal list rules` shows */
    const char *partition; /* "iid", "shards:2", "dirichlet:0.5" */
    double fraction;       /* of the clients, in a round */
    int64_t clients_min;   /* in a round */
    double over;           /* clients asked, as a multiple of those wanted */
    double quorum;         /* part of those wanted that suffices when the others drop out */
    double dropout;        /* part of the asked clients that do not answer */
    int64_t local_epochs;  /* of a client, in a round */
    int64_t local_steps;   /* instead of epochs, unless 0 */
    double held_out;       /* part of a client's data on which it tests the model it received */
    double server_lr, server_momentum, server_beta2, server_tau;
    bool equal_weights; /* a client's samples do not matter */
} shoal_fed_options;

typedef struct shoal_fed_result {
    int64_t rounds, restarted;       /* closed; begun again for want of a quorum */
    int64_t updates, sent_bytes;     /* that were counted; models down and updates up */
    double test_loss, test_accuracy; /* of the last evaluation; NaN: there was none */
    int64_t target_round;            /* the first that reached the config's target; 0: none */
} shoal_fed_result;

/* Federated training with simulated clients in one process: the training data of the config is
 * dealt to them, and each round they train with the config's optimizer and batch. Metrics,
 * checkpoint and log are in the run's folder, as after shoal_train; steps are rounds there. The
 * config's schedule and eval.every count rounds, and `target` ends the run. */
SHOAL_API shoal_status shoal_fed_simulate(const shoal_config *config, const shoal_hooks *hooks,
                                          const shoal_fed_options *options, char **folder_out,
                                          shoal_fed_result *result_out);

#ifdef __cplusplus
}
#endif

#endif
