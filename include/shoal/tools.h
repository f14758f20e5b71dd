/* What the `shoal` program needs besides shoal.h: tables and pictures to read, benchmarks, lists.
 * Not promised: all of it may change with any version, so a program that uses it is built together
 * with its library. Structs have no size of their own here; members that are NULL or 0 take their
 * defaults. Text goes to a sink; errors, strings and NULL are as in shoal.h. */
#ifndef SHOAL_TOOLS_H
#define SHOAL_TOOLS_H

#include <shoal/shoal.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What there is ---- */

/* All options of a run with their help, as text or as a Markdown table. */
SHOAL_API shoal_status shoal_config_help(bool markdown, const shoal_sink *sink);

/* Rows of a registry: kind is one of shoal_list_kind(0), (1), … until NULL ("models", "layers",
 * "losses", "optimizers", "schedules", "readers", "collectives", "codecs", "sync", "graphs",
 * "data"). Calls `row` for each. */
SHOAL_API const char *shoal_list_kind(size_t index);
SHOAL_API shoal_status shoal_list(const char *kind,
                                  void (*row)(void *user, const char *name, const char *help),
                                  void *user);

/* Describes or checks every part of a data file or of a set by name. With `json` one object per
 * part, each on a line, takes the place of the tables. */
SHOAL_API shoal_status shoal_data_info(const shoal_config *config, const char *path,
                                       const shoal_hooks *hooks, bool json, const shoal_sink *sink);
SHOAL_API shoal_status shoal_data_check(const shoal_config *config, const char *path,
                                        const shoal_hooks *hooks, const shoal_sink *sink);

/* What this machine offers, and what is missing. Programs are looked for in the PATH that
 * hooks->environment tells. */
SHOAL_API shoal_status shoal_doctor(const shoal_hooks *hooks, bool json, const shoal_sink *sink);

/* ---- Explaining ---- */

/* As shoal_run_explain, of a run that the config describes, with the threads that each of its
 * workers would have. `folder`: of a run that has been, NULL: none; then threads and kernels are
 * those that its newest checkpoint recorded, unless the config says otherwise. */
SHOAL_API shoal_status shoal_explain(const shoal_config *config, const char *folder,
                                     const shoal_hooks *hooks, const shoal_sink *sink);

/* How workers exchange data: every step of a collective, its cost, and which algorithm wins where.
 */
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
                                                const shoal_sink *sink);

/* Who gossips with whom: the mixing matrix of a graph, and how fast disagreement falls. */
typedef struct shoal_gossip_options {
    const char *graph; /* "ring", "torus", "exponential", "complete"; NULL: ring */
    int64_t ranks;     /* 0: 4 */
    bool json;
} shoal_gossip_options;

SHOAL_API shoal_status shoal_explain_gossip(const shoal_gossip_options *options,
                                            const shoal_sink *sink);

/* What a step's communication costs by the alpha-beta formulas of batch, model and domain
 * parallelism, layer by layer; workers and batch are the config's. */
typedef struct shoal_cost_options {
    const char *layout; /* "data=64,tensor=8"; NULL: data parallel */
    const char *link;   /* "1Gbit,50us"; NULL: that */
    bool json;
} shoal_cost_options;

SHOAL_API shoal_status shoal_explain_cost(const shoal_config *config,
                                          const shoal_cost_options *options,
                                          const shoal_hooks *hooks, const shoal_sink *sink);

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

SHOAL_API shoal_status shoal_explain_pipeline(const shoal_pipeline_options *options,
                                              const shoal_sink *sink);

/* Writes what runs did, as their folders tell, as one page of HTML with charts to `path`; NULL:
 * report.html in the first folder. With `measures`, the newest checkpoint of a classifier is asked
 * for its answers to the test part; where that cannot be, the hooks are told why, and the page does
 * without. */
SHOAL_API shoal_status shoal_report(const char *const *folders, size_t count, bool measures,
                                    const shoal_hooks *hooks, const char *path);

/* The runs whose folders `folder` holds (NULL: "runs"), a line each: state, steps, accuracy, time.
 */
SHOAL_API shoal_status shoal_runs(const char *folder, bool json, const shoal_sink *sink);
/* The results of two runs, and the settings in which they differ. */
SHOAL_API shoal_status shoal_runs_diff(const char *one, const char *other, bool json,
                                       const shoal_sink *sink);

/* A trained model as C99 source without dependencies: `path` and NAME.h beside it, with the
 * function `int NAME_run(const float *in, float *out)`. Constants are the parameters to the bit.
 * `name` NULL: "model". */
SHOAL_API shoal_status shoal_model_export_c(const shoal_model *model, const char *name,
                                            const char *path);
/* The same as an ONNX file, operator set 17, with a free batch dimension. */
SHOAL_API shoal_status shoal_model_export_onnx(const shoal_model *model, const char *name,
                                               const char *path);

/* How a text goes on. */
typedef struct shoal_generate_options {
    const char *prompt; /* UTF-8; NULL: none */
    int64_t tokens;     /* to add */
    double temperature; /* 0: always the likeliest token; 1: as the model has learned */
    int64_t top_k;      /* only the likeliest so many may be drawn; 0: all */
    int64_t seed;
    bool (*stop)(void *user); /* asked before each token; NULL: never */
    void *user;
} shoal_generate_options;

/* Continues a text with a model of text; what it adds goes to the sink, token by token. */
SHOAL_API shoal_status shoal_model_generate(const shoal_model *model,
                                            const shoal_generate_options *options,
                                            const shoal_sink *sink);

/* ---- Benchmarks ---- */

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

/* All-reduces timed between workers of this machine, or between those that mpirun started. */
typedef struct shoal_allreduce_options {
    int64_t ranks;            /* 0: 2 */
    const int64_t *sizes;     /* bytes of the whole buffer, multiples of 4 */
    size_t size_count;        /* at most 64 */
    const char *algorithm;    /* NULL: chosen by size */
    double seconds;           /* measured time of each size; 0: 1 */
    bool private_memory;      /* the data lies outside shared memory */
    const shoal_hooks *hooks; /* its environment tells how this process was started */
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

/* Measured cases: one worker and all workers with each of three locks, and all of them apart. */
#define SHOAL_HOGWILD_CASES 7

typedef struct shoal_hogwild_timing {
    char scheme[16]; /* hogwild; hogwild-locked: one lock; weight-locks: one for each weight; apart:
                        each worker on weights of its own */
    int64_t workers;
    double updates_per_s, least, most; /* median and extremes */
    double loss, accuracy;             /* after the last measurement; apart: NaN */
} shoal_hogwild_timing;

SHOAL_API shoal_status shoal_bench_hogwild(const shoal_hogwild_options *options,
                                           shoal_hogwild_timing timings_out[SHOAL_HOGWILD_CASES]);

/* ---- Comparing ---- */

/* One evaluation on the way. */
typedef struct shoal_point {
    int64_t step;
    double train_s; /* seconds of training so far, evaluation and checkpoints left out */
    double loss, accuracy;
} shoal_point;

/* How one variant went. Numbers that are NaN are unknown, or there is no such thing. Its texts and
 * points belong to the comparison. */
typedef struct shoal_variant {
    const char *name;   /* what sets it apart: "ssp:3", "bsp topk:1%", "bsp, 4 workers" */
    const char *folder; /* of its run, below the comparison's */
    const char *sync, *compress;
    int64_t workers;
    const char *outcome; /* done, stopped, refused, diverged, failed, or not run */
    shoal_status status;
    const char *reason, *hint; /* "" when done */
    double seconds;            /* of training; simulated: that the simulation took */
    double virtual_s;          /* simulated: of training, on the virtual clock */
    double steps, updates;     /* updates: of the model, or of all workers' models together */
    double sent_bytes;         /* by all workers */
    double staleness_mean, staleness_most;
    double loss, accuracy; /* of the last evaluation */
    double target_s;       /* training until the first evaluation that reached the target */
    const shoal_point *points;
    size_t point_count;
} shoal_variant;

typedef struct shoal_compare_options {
    /* Comma lists, of which every combination is a variant; NULL: what the config says. */
    const char *sync, *compress, *workers;
    const shoal_simulation *simulation; /* on simulated workers; NULL: on processes */
    /* A variant begins, the index-th of count, from 0; a variant has ended. May be NULL; `user` is
     * the hooks'. */
    void (*begin)(void *user, size_t index, size_t count, const char *name);
    void (*end)(void *user, const shoal_variant *variant);
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
/* The variants in order; NULL behind the last. */
SHOAL_API const shoal_variant *shoal_comparison_at(const shoal_comparison *comparison,
                                                   size_t index);
/* The table as Markdown, or all of it as JSON. */
SHOAL_API shoal_status shoal_comparison_print(const shoal_comparison *comparison, bool json,
                                              const shoal_sink *sink);

/* ---- Federated learning ---- */

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
    const char
        *personalise;    /* "finetune" or "head": each client's own model at the end; NULL: none */
    const char *privacy; /* "epsilon=8,delta=1e-5,clip=1": a budget; NULL: none */
    bool secure;         /* sums by secure aggregation: simulated clients only */
    double secure_clip;  /* values are cut to it; 0: 1 */
    bool equal_weights;  /* a client's samples do not matter */
} shoal_fed_options;

typedef struct shoal_fed_result {
    int64_t rounds, restarted;       /* closed; begun again for want of a quorum */
    int64_t updates, sent_bytes;     /* that were counted; models down and updates up */
    double test_loss, test_accuracy; /* of the last evaluation; NaN: there was none */
    int64_t target_round;            /* the first that reached the config's target; 0: none */
    double shared_accuracy, personal_accuracy; /* on held-out data of clients; NaN: unknown */
    double epsilon;                            /* spent of the privacy budget; 0: there is none */
} shoal_fed_result;

/* Federated training with simulated clients in one process: the training data of the config is
 * dealt to them, and each round they train with the config's optimizer and batch. Metrics,
 * checkpoint and log are in the run's folder, as after shoal_train; steps are rounds there. The
 * config's schedule and eval.every count rounds, and `target` ends the run. */
SHOAL_API shoal_status shoal_fed_simulate(const shoal_config *config, const shoal_hooks *hooks,
                                          const shoal_fed_options *options, char **folder_out,
                                          shoal_fed_result *result_out);

/* A federated server (docs/federated.md). */
typedef struct shoal_fed_serve_options {
    shoal_fed_options fed; /* clients, partition, dropout and held_out have no meaning here */
    const char *listen;    /* "[HOST]:PORT", port 0: any */
    const char *host;      /* the name by which clients reach it; NULL: this machine's */
    int64_t invitations;   /* clients that are invited at the start */
    double token_hours;    /* how long an invitation holds */
    double deadline_s;     /* of a round */
    int64_t poll_ms;       /* waiting clients ask again after this */
    int64_t late_rounds;   /* updates of so many closed rounds are still taken */
    void (*invited)(void *user, const char *line); /* a join line, with the hooks' user */
} shoal_fed_serve_options;

/* Serves until the last round is closed or hooks->stop; the same call goes on where it was. State
 * is in the run's folder: metrics and model as after shoal_train, clients and rounds in
 * federated.db. */
SHOAL_API shoal_status shoal_fed_serve(const shoal_config *config, const shoal_hooks *hooks,
                                       const shoal_fed_serve_options *options, char **folder_out);

/* For who owns a server's folder, also while it runs. */
SHOAL_API shoal_status shoal_fed_invite(const char *folder, int64_t count, double hours,
                                        void (*line)(void *user, const char *line), void *user);
SHOAL_API shoal_status shoal_fed_revoke(const char *folder, int64_t client);
SHOAL_API shoal_status shoal_fed_clients(const char *folder, bool json, const shoal_sink *sink);
SHOAL_API shoal_status shoal_fed_status(const char *folder, bool json, const shoal_sink *sink);

typedef struct shoal_fed_join_options {
    const char *url;         /* "https://host:8443" */
    const char *token;       /* NULL: the folder holds a certificate already */
    const char *ca;          /* "sha256:HEX"; NULL: the folder holds the authority's certificate */
    const char *personalise; /* "finetune" or "head": personal.safetensors at the end; NULL: none */
    double patience_minutes; /* gives up when the server does not answer for so long; 0: 60 */
} shoal_fed_join_options;

typedef struct shoal_fed_joined {
    int64_t counted, dropped; /* updates that became part of a round, and that did not */
    int64_t sent_bytes, received_bytes;
    double shared_accuracy, personal_accuracy; /* on held-out data; NaN: unknown */
} shoal_fed_joined;

/* A client: trains on the config's data until the training is over. What the server decides (model,
 * loss, optimizer, batch) overrides the config; where data lies and what is written stays the
 * config's. The client's folder is `out`, default "federated": its key, certificates and last
 * model. */
SHOAL_API shoal_status shoal_fed_join(const shoal_config *config, const shoal_hooks *hooks,
                                      const shoal_fed_join_options *options,
                                      shoal_fed_joined *joined_out);

#ifdef __cplusplus
}
#endif

#endif
