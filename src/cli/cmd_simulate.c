/* shoal simulate: a run on simulated workers. They execute the code that trains, as coroutines of
 * this process on a virtual clock, in a world (links, compute times, faults) that flags describe.
 * Training results and virtual time are the outcome; with --numerics off only time passes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/simulation.h"

/* Flags of this command beside the settings of a run. */
typedef struct simulate_options {
    sh_world world;  // texts that describe links, compute times and faults
    char *numerics;  // "on", or "off": messages and time without any computing
    bool json;
} simulate_options;

static const sh_option rows[] = {
    SH_WORLD_ROWS(simulate_options),
    SH_TEXT_ROW(simulate_options, numerics, "numerics", "on",
                "off: nothing is computed, only time passes", .value = "on|off"),
    SH_BOOL_ROW(simulate_options, json, "json", "false", "print the result as JSON"),
};

/* State of the hooks during the simulation. */
typedef struct view {
    sh_view shown;        // first member, as sh_view_line wants it
    shoal_progress last;  // last step reported; losses are NaN before the first
} view;

/* As `shoal train` shows it. Speed and remaining time on the line are those of the simulation on
 * the real clock, not of the virtual one. */
static void show_progress(void *user, const shoal_progress *now) {
    view *v = user;
    bool tested = !isnan(now->test_loss) && now->test_loss != v->last.test_loss;
    sh_view_show(&v->shown, now, now->epoch_end || tested);
    v->last = *now;
}

/* One line with every figure. "seconds" is virtual time; "real_s" is what the simulation took. */
static void print_json(const view *v, const shoal_simulation_result *done, const char *folder,
                       double real_s) {
    const struct {
        const char *key;
        double value;
    } fields[] = {
        {"seconds", done->seconds},
        {"steps", (double)done->steps},
        {"seconds_per_step", done->seconds / (double)done->steps},
        {"compute_s", done->compute_s},
        {"messages", (double)done->messages},
        {"bytes", (double)done->bytes},
        {"events", (double)done->events},
        {"train_loss", v->last.train_loss},
        {"test_loss", v->last.test_loss},
        {"test_accuracy", v->last.test_accuracy},
        {"real_s", real_s},
    };
    printf("{\"run\": ");
    sh_json_text(stdout, folder != NULL ? folder : "");
    for (size_t i = 0; i < SH_COUNT(fields); i++) {
        printf(", \"%s\": ", fields[i].key);
        sh_json_number(stdout, fields[i].value);
    }
    printf("}\n");
}

/* The same figures as text; measures that do not exist have no line. */
static void print_summary(const view *v, const shoal_simulation_result *done, const char *folder,
                          double real_s) {
    char shown[SH_ESCAPED];
    if (folder != NULL) printf("run            %s\n", sh_escaped(folder, shown));
    printf("virtual time   %.6f s\n", done->seconds);
    printf("steps          %lld, %.6f s each\n", (long long)done->steps,
           done->seconds / (double)done->steps);
    printf("computing      %.6f s a step and worker, in the mean\n", done->compute_s);
    printf("messages       %lld, %.1f MB\n", (long long)done->messages, (double)done->bytes / 1e6);
    if (!isnan(v->last.train_loss)) printf("train loss     %.4f\n", v->last.train_loss);
    if (!isnan(v->last.test_loss)) printf("test loss      %.4f\n", v->last.test_loss);
    if (!isnan(v->last.test_accuracy)) printf("test accuracy  %.4f\n", v->last.test_accuracy);
    printf("real time      %.1f s, %lld events\n", real_s, (long long)done->events);
}

/* The flags as the library takes them. The texts of the world are parsed by the library, which
 * knows how many workers there are; only on|off is checked here. */
static shoal_status simulation_of(const simulate_options *options, shoal_simulation *out) {
    bool on = strcmp(options->numerics, "on") == 0;
    if (!on && strcmp(options->numerics, "off") != 0) {
        CLI_FAIL(SHOAL_E_USAGE, "--numerics '%.20s' is neither on nor off", options->numerics);
        return CLI_HINT("--numerics off simulates timing only");
    }
    *out = sh_world_simulation(&options->world);
    out->timing_only = !on;
    return SHOAL_OK;
}

static shoal_status run_simulate(sh_args *args) {
    const simulate_options *options = args->options;
    shoal_simulation simulation;
    CLI_TRY(sh_args_config(args, args->operand_count > 0 ? args->operands[0] : NULL));
    // Must come after sh_args_config, which parses the flags anew and frees the texts of the first
    // pass, while the simulation borrows them.
    CLI_TRY(simulation_of(options, &simulation));  // the texts are read anew by the line before
    view v = {.shown = {.args = args}};
    v.last.train_loss = v.last.test_loss = v.last.test_accuracy = NAN;
    shoal_hooks hooks = sh_args_watch(args, &v, sh_view_line, show_progress);
    char *folder = NULL;
    // `size` tells the library how much of the struct this program knows (shoal.h).
    shoal_simulation_result done = {.size = sizeof done};
    int64_t begin = sh_clock_now_ns(&sh_clock_real);
    shoal_status status = shoal_simulate(args->config, &hooks, &simulation, &folder, &done);
    double real_s = (double)(sh_clock_now_ns(&sh_clock_real) - begin) * 1e-9;
    sh_args_unwatch(args);
    // Not `shoal train --resume`: the flags that describe the world are in no run file, so the
    // user must repeat the command.
    if (status == SHOAL_E_INTERRUPTED && folder != NULL)
        sh_say(args, "stopped after step %lld of %lld; the same command with --resume %s goes on",
               (long long)v.last.step, (long long)v.last.steps, folder);
    if (status == SHOAL_OK && done.steps > 0)  // 0: resumed, and nothing was left to do
        (options->json ? print_json : print_summary)(&v, &done, folder, real_s);
    shoal_free(folder);
    return status;
}

const sh_command sh_command_simulate = {
    .name = "simulate",
    .help = "train on simulated workers, on a virtual clock",
    .usage =
        "  shoal simulate RUN.yaml -n 64 --link 1Gbit,100us --compute exp:20ms\n"
        "  shoal simulate RUN.yaml -n 8 --sync local:8 --straggler 3:4x\n"
        "  shoal simulate RUN.yaml -n 4096 --link 10Gbit,50us --compute 30ms --numerics off\n\n"
        "The workers' own code runs, as coroutines of one process; the same seed gives the same\n"
        "bits. What is modelled and what is not: docs/simulator.md.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(simulate_options),
    .takes_run_options = true,
    .operands_most = 1,
    .run = run_simulate,
};
