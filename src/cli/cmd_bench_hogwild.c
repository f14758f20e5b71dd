/* shoal bench hogwild: threads that update one block of weights, with and without a lock. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

typedef struct hogwild_options {
    int64_t workers, rows, features, nonzeros, epochs, repeat, seed;
    double zipf, lr;
    bool json;
} hogwild_options;

static const sh_option rows[] = {
    {.key = "workers",
     .letter = 'n',
     .type = SH_OPTION_INT,
     .at = offsetof(hogwild_options, workers),
     .initial = "2",
     .least = 2,
     .most = 64,
     .value = "N",
     .help = "threads that share the weights"},
    {.key = "features",
     .type = SH_OPTION_INT,
     .at = offsetof(hogwild_options, features),
     .initial = "47236",
     .least = 4,
     .most = 1 << 28,
     .help = "weights; the default is that of RCV1"},
    {.key = "nonzeros",
     .type = SH_OPTION_INT,
     .at = offsetof(hogwild_options, nonzeros),
     .initial = "73",
     .least = 1,
     .most = 1024,
     .help = "of each row"},
    {.key = "rows",
     .type = SH_OPTION_INT,
     .at = offsetof(hogwild_options, rows),
     .initial = "20000",
     .least = 1,
     .most = 1e9,
     .help = "samples"},
    {.key = "zipf",
     .type = SH_OPTION_REAL,
     .at = offsetof(hogwild_options, zipf),
     .initial = "1.1",
     .least = 0.01,
     .most = 2,
     .help = "exponent of the second data set, whose features are not equally frequent"},
    {.key = "epochs",
     .type = SH_OPTION_INT,
     .at = offsetof(hogwild_options, epochs),
     .initial = "10",
     .least = 1,
     .most = 1e6,
     .help = "passes over the rows in each measurement"},
    {.key = "repeat",
     .type = SH_OPTION_INT,
     .at = offsetof(hogwild_options, repeat),
     .initial = "7",
     .least = 1,
     .most = 101,
     .help = "measurements, of which the median counts"},
    {.key = "lr",
     .type = SH_OPTION_REAL,
     .at = offsetof(hogwild_options, lr),
     .initial = "1",
     .least = 1e-9,
     .most = 1e9,
     .help = "learning rate"},
    {.key = "seed",
     .type = SH_OPTION_INT,
     .at = offsetof(hogwild_options, seed),
     .initial = "1",
     .least = 0,
     .most = 1e15,
     .help = "of the data"},
    {.key = "json",
     .type = SH_OPTION_BOOL,
     .at = offsetof(hogwild_options, json),
     .initial = "false",
     .help = "a line of JSON per row"},
};

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

/* Of all workers together. */
static double speed_of(const shoal_hogwild_timing *timings, const char *scheme) {
    double speed = NAN;
    for (size_t i = 0; i < SHOAL_HOGWILD_CASES; i++)
        if (timings[i].workers > 1 && strcmp(timings[i].scheme, scheme) == 0)
            speed = timings[i].updates_per_s;
    return speed;
}

/* What docs/hogwild.md asks for: two workers on uniform features. */
static const double GOAL = 2;

static void print_factor(const hogwild_options *o, double zipf,
                         const shoal_hogwild_timing *timings) {
    printf("%s features: %.2f times the updates of hogwild-locked", zipf > 0 ? "zipf" : "uniform",
           speed_of(timings, "hogwild") / speed_of(timings, "hogwild-locked"));
    if (zipf <= 0 && o->workers == 2) printf(" (goal %.2f)", GOAL);
    printf("\n");
}

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
    double alone = timings[0].updates_per_s;  // one worker without a lock: plain SGD
    for (size_t i = 0; i < SHOAL_HOGWILD_CASES; i++)
        (o->json ? print_json : print_text)(zipf, &timings[i], alone);
    if (!o->json) print_factor(o, zipf, timings);
    return SHOAL_OK;
}

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
