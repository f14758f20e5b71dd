/* shoal bench allreduce: how fast workers sum a buffer, for a list of sizes. Workers are processes
 * forked on this machine, or the ranks of mpirun. A row has the median, the 10th and the 90th
 * percentile of the slowest worker's time, and the bandwidth at the median. */
#include "cli/list.h"

enum { SIZES_MAX = 64 };  // rows of `timings`; shoal_bench_allreduce refuses more sizes

/* What to measure. */
typedef struct allreduce_options {
    char *algorithm;  // name of a collective's algorithm; NULL: the library chooses by size
    sh_ints sizes;    // bytes of the whole buffer
    int64_t ranks;
    double seconds;
    bool private_memory, json;  // buffers outside shared memory; JSON lines instead of a table
} allreduce_options;

static const sh_option rows[] = {
    SH_INT_ROW(allreduce_options, ranks, "ranks", "2", 1, 4096, "workers that take part",
               .letter = 'n', .value = "N"),
    SH_INTS_ROW(allreduce_options, sizes, "sizes", "1K,16K,256K,1M,4M,25M,100M", sizeof(float),
                0x1p40, "of the whole buffer", .value = "BYTES,..."),
    SH_TEXT_ROW(allreduce_options, algorithm, "algorithm", NULL,
                "as in 'shoal list collectives'; default: the best for each size", .value = "NAME"),
    SH_BOOL_ROW(allreduce_options, private_memory, "private", "false",
                "data outside shared memory, copied in and out"),
    SH_REAL_ROW(allreduce_options, seconds, "seconds", "1", 0.001, 1e6,
                "measured time of each size"),
    SH_BOOL_ROW(allreduce_options, json, "json", "false", "a line of JSON per size"),
};

/* One line per size; times in microseconds, bandwidth in 10^9 bytes per second. */
static void print_json(const shoal_allreduce_timing *t) {
    printf("{\"bytes\":%lld,\"ranks\":%lld,\"algorithm\":", (long long)t->size_bytes,
           (long long)t->ranks);
    sh_json_text(stdout, t->algorithm);
    printf(",\"us\":");
    sh_json_number(stdout, t->median_us);
    printf(",\"p10\":");
    sh_json_number(stdout, t->p10_us);
    printf(",\"p90\":");
    sh_json_number(stdout, t->p90_us);
    printf(",\"gb_s\":");
    sh_json_number(stdout, t->gb_s);
    printf(",\"samples\":%lld}\n", (long long)t->samples);
}

/* A size in the largest binary unit that divides it, so that no digit is lost. */
static void print_size(int64_t bytes) {
    const char *units[] = {"B", "KiB", "MiB", "GiB"};
    int unit = 0;
    for (; unit < 3 && bytes >= 1024 && bytes % 1024 == 0; unit++) bytes /= 1024;
    printf("%7lld %-3s", (long long)bytes, units[unit]);
}

/* A table with one row per size. */
static void print_text(const shoal_allreduce_timing *t, size_t count) {
    printf("%11s  %-17s %11s %11s %11s %9s\n", "size", "algorithm", "median us", "p10", "p90",
           "GB/s");
    for (size_t i = 0; i < count; i++) {
        print_size(t[i].size_bytes);
        printf("  %-17s %11.2f %11.2f %11.2f %9.2f\n", t[i].algorithm, t[i].median_us, t[i].p10_us,
               t[i].p90_us, t[i].gb_s);
    }
}

/* Nothing is printed before the last size is measured: the library returns all rows together. */
static shoal_status run_allreduce(sh_args *args) {
    const allreduce_options *o = args->options;
    shoal_hooks hooks = sh_args_hooks(args);
    shoal_allreduce_options options = {.ranks = o->ranks,
                                       .sizes = o->sizes.items,
                                       .size_count = o->sizes.count,
                                       .algorithm = o->algorithm,
                                       .seconds = o->seconds,
                                       .private_memory = o->private_memory,
                                       .hooks = &hooks};
    shoal_allreduce_timing timings[SIZES_MAX];
    CLI_TRY(shoal_bench_allreduce(&options, timings));
    if (timings[0].samples == 0) return SHOAL_OK;  // under MPI, rank 0 has the figures
    for (size_t i = 0; o->json && i < options.size_count; i++) print_json(&timings[i]);
    if (!o->json) print_text(timings, options.size_count);
    return SHOAL_OK;
}

const sh_command sh_command_bench_allreduce = {
    .name = "bench",
    .help = "measure all-reduces between workers of this machine",
    .usage =
        "  shoal bench allreduce [-n 2] [--sizes 1K,16K,25M]\n"
        "  shoal bench allreduce -n 4 --algorithm ring --json\n"
        "  mpirun -n 4 shoal bench allreduce\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(allreduce_options),
    .operands_least = 1,
    .operands_most = 1,
    .joins_ranks = true,
    .run = run_allreduce,
};
