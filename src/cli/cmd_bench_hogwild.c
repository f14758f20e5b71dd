/* shoal bench hogwild: updates per second of threads that train a sparse logistic regression on
 * one shared block of weights, without locks (Hogwild), with one lock, with a lock per weight, and
 * on weights of their own. Measured twice: with features that are equally frequent, and with
 * Zipf's distribution, where many updates touch the same weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/list.h"

/* Size of the problem and of the measurement; defaults resemble the RCV1 text data set. */
typedef struct hogwild_options {
    int64_t workers, rows, features, nonzeros, epochs, repeat, seed;  // nonzeros: of each row
    double zipf, lr;  // exponent of the second data set; learning rate
    bool json;
} hogwild_options;

static const sh_option rows[] = {
    SH_INT_ROW(hogwild_options, workers, "workers", "2", 2, 64, "threads that share the weights",
               .letter = 'n', .value = "N"),
    SH_INT_ROW(hogwild_options, features, "features", "47236", 4, 1 << 28,
               "weights; the default is that of RCV1"),
    SH_INT_ROW(hogwild_options, nonzeros, "nonzeros", "73", 1, 1024, "of each row"),
    SH_INT_ROW(hogwild_options, rows, "rows", "20000", 1, 1e9, "samples"),
    SH_REAL_ROW(hogwild_options, zipf, "zipf", "1.1", 0.01, 2,
                "exponent of the second data set, whose features are not equally frequent"),
    SH_INT_ROW(hogwild_options, epochs, "epochs", "10", 1, 1e6,
               "passes over the rows in each measurement"),
    SH_INT_ROW(hogwild_options, repeat, "repeat", "7", 1, 101,
               "measurements, of which the median counts"),
    SH_REAL_ROW(hogwild_options, lr, "lr", "1", 1e-9, 1e9, "learning rate"),
    SH_INT_ROW(hogwild_options, seed, "seed", "1", 0, 1e15, "of the data"),
    SH_BOOL_ROW(hogwild_options, json, "json", "false", "a line of JSON per row"),
};

/* One line per case. "speed_up" is relative to one worker without a lock, plain SGD. */
static void print_json(double zipf, const shoal_hogwild_timing *t, double alone) {
    printf("{\"zipf\":");
    sh_json_number(stdout, zipf);
    printf(",\"scheme\":");
    sh_json_text(stdout, t->scheme);
    printf(",\"workers\":%lld", (long long)t->workers);
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"updates_s", t->updates_per_s},        {"least", t->least}, {"most", t->most},
        {"speed_up", t->updates_per_s / alone}, {"loss", t->loss},   {"accuracy", t->accuracy}};
    for (size_t i = 0; i < SH_COUNT(numbers); i++) {
        printf(",\"%s\":", numbers[i].key);
        sh_json_number(stdout, numbers[i].value);
    }
    printf("}\n");
}

/* Loss is NaN where each worker has weights of its own, as there is no common model to score. */
static void print_text(double zipf, const shoal_hogwild_timing *t, double alone) {
    char features[24];
    snprintf(features, sizeof features, zipf > 0 ? "zipf %g" : "uniform", zipf);
    printf("%-9s %-15s %7lld %10.0f %10.0f %10.0f %8.2f", features, t->scheme,
           (long long)t->workers, t->updates_per_s, t->least, t->most, t->updates_per_s / alone);
    if (isnan(t->loss))
        printf("\n");
    else
        printf(" %8.4f %8.4f\n", t->loss, t->accuracy);
}

/* Updates per second of all workers together in a scheme; NaN: it was not measured with several
 * workers. */
static double speed_of(const shoal_hogwild_timing *timings, const char *scheme) {
    double speed = NAN;
    for (size_t i = 0; i < SHOAL_HOGWILD_CASES; i++)
        if (timings[i].workers > 1 && strcmp(timings[i].scheme, scheme) == 0)
            speed = timings[i].updates_per_s;
    return speed;
}

/* Wanted factor of lock-free over locked updates, with two workers on uniform features
 * (docs/hogwild.md). */
static const double GOAL = 2;

/* The figure that the benchmark exists for: lock-free over one lock. The goal is named only under
 * the conditions it was set for. */
static void print_factor(const hogwild_options *o, double zipf,
                         const shoal_hogwild_timing *timings) {
    printf("%s features: %.2f times the updates of hogwild-locked", zipf > 0 ? "zipf" : "uniform",
           speed_of(timings, "hogwild") / speed_of(timings, "hogwild-locked"));
    if (zipf <= 0 && o->workers == 2) printf(" (goal %.2f)", GOAL);
    printf("\n");
}

/* All cases on one data set; `zipf` 0: features are equally frequent. */
static shoal_status measure(const hogwild_options *o, double zipf) {
    const shoal_hogwild_options options = {.workers = o->workers,
                                           .rows = o->rows,
                                           .features = o->features,
                                           .nonzeros = o->nonzeros,
                                           .zipf = zipf,
                                           .epochs = o->epochs,
                                           .repeat = o->repeat,
                                           .lr = o->lr,
                                           .seed = o->seed};
    shoal_hogwild_timing timings[SHOAL_HOGWILD_CASES];
    CLI_TRY(shoal_bench_hogwild(&options, timings));
    // Case 0 is one worker without a lock, the base of every speed-up.
    double alone = timings[0].updates_per_s;  // one worker without a lock: plain SGD
    for (size_t i = 0; i < SHOAL_HOGWILD_CASES; i++)
        (o->json ? print_json : print_text)(zipf, &timings[i], alone);
    if (!o->json) print_factor(o, zipf, timings);
    return SHOAL_OK;
}

/* The heading is printed before the first measurement, which takes seconds. */
static shoal_status run_hogwild(sh_args *args) {
    const hogwild_options *o = args->options;
    if (!o->json)
        printf("%-9s %-15s %7s %10s %10s %10s %8s %8s %8s\n", "features", "scheme", "workers",
               "updates/s", "least", "most", "speed-up", "loss", "accuracy");
    CLI_TRY(measure(o, 0));
    return measure(o, o->zipf);
}

const sh_command sh_command_bench_hogwild = {
    .name = "bench",
    .help = "measure threads that update one block of weights, with and without a lock",
    .usage =
        "  shoal bench hogwild [-n 2] [--rows 20000] [--zipf 1.1]\n"
        "  shoal bench hogwild --json\n\n"
        "Logistic regression on sparse rows made from the seed, with uniform and with Zipf\n"
        "features. 'weight-locks' takes a lock for each weight of an update; 'apart' is each "
        "worker on\n"
        "weights of its own: no cache line has two writers.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(hogwild_options),
    .operands_least = 1,
    .operands_most = 1,
    .run = run_hogwild,
};
