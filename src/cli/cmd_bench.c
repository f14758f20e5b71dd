/* shoal bench train: how fast a run trains on this machine, by timing its steps one by one. Two
 * other words hand over to commands of their own: allreduce (cmd_bench_allreduce.c) and hogwild
 * (cmd_bench_hogwild.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "cli/list.h"

/* How long to measure: until one of the two limits is reached, but at least ten steps if
 * --bench-steps allows. */
typedef struct bench_options {
    int64_t warmup, steps;  // steps that are not timed; most steps that are
    double seconds;         // most seconds of timed steps
    bool json;
} bench_options;

static const sh_option rows[] = {
    SH_INT_ROW(bench_options, warmup, "warmup", "5", 0, 1e9, "steps before the measured ones"),
    SH_INT_ROW(bench_options, steps, "bench-steps", "100000", 1, 1e9, "measured steps, at most"),
    SH_REAL_ROW(bench_options, seconds, "seconds", "5", 0.001, 1e6, "measured time, at most"),
    SH_BOOL_ROW(bench_options, json, "json", "false", "the result as one line of JSON"),
};

/* One measurement with what its lines name. */
typedef struct measured {
    char *net, *batch;  // settings of the run, as text; owned
    double cold_s;      // from the start of the process to the end of the first step; NaN: unknown
    shoal_timing timing;
} measured;

/* Seconds since the kernel started this process, which includes loading libraries and opening
 * data. Reads /proc/self/stat: field 22 is the start in clock ticks since boot. Fields are counted
 * from the last ')' on, because field 2, the program's name, may itself hold blanks and
 * parentheses. NaN: unknown. */
static double process_age_s(void) {
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "r");
    if (file == NULL) return NAN;
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
    struct timespec now;
    if (at == NULL || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return NAN;
    double start_s = strtod(at, NULL) / (double)sysconf(_SC_CLK_TCK);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9 - start_s;
}

/* shoal_hooks.progress: the first step ends the cold start, warm-up or not. */
static void after_step(void *user, const shoal_progress *progress) {
    measured *m = user;
    if (progress->step == 1) m->cold_s = process_age_s();
}

/* Messages are switched off, as printing between steps would be timed with them. */
static shoal_status measure(sh_args *args, measured *m) {
    const bench_options *options = args->options;
    shoal_hooks hooks = sh_args_hooks(args);
    hooks.line = NULL;
    hooks.user = m;
    hooks.progress = after_step;
    return shoal_bench(args->config, &hooks, options->warmup, options->steps, options->seconds,
                       &m->timing);
}

/* One line; the scripts of bench/ read these keys, and bench/torch_train.py prints the same. */
static void print_json(const measured *m) {
    printf("{\"net\":");
    sh_json_text(stdout, m->net);
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"ms", m->timing.median_ms},         {"p10", m->timing.p10_ms},
                   {"p90", m->timing.p90_ms},           {"samples_s", m->timing.samples_per_s},
                   {"rss_mib", m->timing.rss_mib},      {"cold_s", m->cold_s},
                   {"exposed_ms", m->timing.exposed_ms}};
    for (size_t i = 0; i < SH_COUNT(numbers); i++) {
        printf(",\"%s\":", numbers[i].key);
        sh_json_number(stdout, numbers[i].value);
    }
    printf(",\"workers\":%d,\"threads\":%d,\"batch\":%s,\"steps\":%lld}\n", m->timing.workers,
           m->timing.threads, m->batch, (long long)m->timing.steps);
}

/* Ending of a counted noun: "1 worker", "2 workers". */
static const char *plural(int count) { return count == 1 ? "" : "s"; }

/* Exposed communication has a line only with several workers, as one has none. */
static void print_text(const measured *m) {
    char net[SH_ESCAPED];
    printf("net           %s, batch %s, %d worker%s of %d thread%s\n", sh_escaped(m->net, net),
           m->batch, m->timing.workers, plural(m->timing.workers), m->timing.threads,
           plural(m->timing.threads));
    printf("step          %.3f ms (p10 %.3f, p90 %.3f; %lld steps)\n", m->timing.median_ms,
           m->timing.p10_ms, m->timing.p90_ms, (long long)m->timing.steps);
    printf("samples/s     %.0f\n", m->timing.samples_per_s);
    if (m->timing.workers > 1)
        printf("exposed       %.3f ms of communication a step\n", m->timing.exposed_ms);
    printf("peak memory   %.1f MiB\n", m->timing.rss_mib);
    printf("first step    %.2f s after the start of the process\n", m->cold_s);
}

/* Operands: the word "train", then a run file or nothing. */
static shoal_status run_bench(sh_args *args) {
    const bench_options *options = args->options;
    if (strcmp(args->operands[0], "train") != 0) {
        CLI_FAIL(SHOAL_E_USAGE, "there is no benchmark '%s'", args->operands[0]);
        return CLI_HINT("shoal bench train, shoal bench allreduce, or shoal bench hogwild");
    }
    CLI_TRY(sh_args_config(args, args->operand_count > 1 ? args->operands[1] : NULL));
    measured m = {.cold_s = NAN,
                  .net = sh_config_text(args->config, "model"),
                  .batch = sh_config_text(args->config, "data.batch")};
    shoal_status status = SHOAL_OK;
    if (m.net == NULL || m.batch == NULL)
        status = CLI_FAIL(SHOAL_E_MEMORY, "out of memory for settings");
    if (status == SHOAL_OK) status = measure(args, &m);
    bool has_figures = status == SHOAL_OK && m.timing.steps > 0;  // under MPI rank 0 has them
    if (has_figures) options->json ? print_json(&m) : print_text(&m);
    sh_free(m.net);
    sh_free(m.batch);
    return status;
}

/* sh_command.instead: looks through all arguments, as flags may come before the word. */
static const sh_command *instead_of_run(int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "allreduce") == 0) return &sh_command_bench_allreduce;
        if (strcmp(argv[i], "hogwild") != 0) continue;
        // "hogwild" is also the name of a scheme: `bench train --sync hogwild` is a run.
        if (i == 0 || strcmp(argv[i - 1], "--sync") != 0) return &sh_command_bench_hogwild;
    }
    return NULL;
}

/* joins_ranks: the ranks of mpirun are the workers whose steps are timed. */
const sh_command sh_command_bench = {
    .name = "bench",
    .help = "measure the speed of training, of all-reduces, or of Hogwild",
    .usage =
        "  shoal bench train RUN.yaml [--key value]...\n"
        "  shoal bench train --model lenet --data synthetic:classes=10,shape=1x28x28\n"
        "  shoal bench allreduce -n 2   (see: shoal bench allreduce --help)\n"
        "  shoal bench hogwild   (see: shoal bench hogwild --help)\n\n"
        "Here --warmup counts steps; that of the schedule is --schedule.warmup.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(bench_options),
    .takes_run_options = true,
    .operands_least = 1,
    .operands_most = 2,
    .joins_ranks = true,
    .run = run_bench,
    .instead = instead_of_run,
};
