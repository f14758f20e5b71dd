/* shoal_run_bench: steps of a run timed one by one on the real clock, for `shoal bench train` and
 * the scripts of bench/. The median of many steps is the figure, as single steps suffer from
 * whatever else the machine does. Workers are those of the run; rank 0's clock decides for all
 * when it is enough. */
#include <stdlib.h>
#include <sys/resource.h>

#include "run/need.h"
#include "run/run.h"
#include "run/scheme.h"
#include "shoal/tools.h"

/* Most memory that this process has had so far, in MiB; Linux counts ru_maxrss in KiB. */
static double peak_rss_mib(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss / 1024 : 0;
}

/* Ascending order of doubles, for qsort. */
static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One training step as the loop takes it, in milliseconds. The progress hook is called after the
 * clock has stopped: `shoal bench` notes the end of the first step by it. */
static sh_status timed_step(shoal_run *run, double *ms_out) {
    int64_t begin = sh_clock_now_ns(&sh_clock_real);
    sh_loss_result result;
    bool meets = false;
    SH_TRY(sh_scheme_step(run, &result, &meets));
    *ms_out = (double)(sh_clock_now_ns(&sh_clock_real) - begin) * 1e-6;
    if (run->hooks.progress != NULL)
        run->hooks.progress(run->hooks.user, &(shoal_progress){.step = run->at.step});
    return SH_OK;
}

/* Collective: all workers stop after the same step, by rank 0's word. Clocks of several ranks
 * would disagree about the last step, and a rank that steps alone waits for the others in vain.
 * Only rank 0 adds a number that may differ from 0. */
static sh_status agree(sh_team *team, bool *enough) {
    double says = sh_team_leads(team) && *enough ? 1 : 0;
    SH_TRY(sh_team_sum(team, &says, 1));
    *enough = says > 0;
    return SH_OK;
}

/* Takes `warmup` steps, then timed ones until `steps` are done or `seconds` have passed, but at
 * least ten, so that percentiles have a meaning. `times` has room for `steps`. */
static sh_status run_steps(shoal_run *run, int64_t warmup, int64_t steps, double seconds,
                           double *times, int64_t *count_out) {
    double ms = 0, spent = 0;
    for (int64_t i = 0; i < warmup; i++) SH_TRY(timed_step(run, &ms));
    int64_t count = 0;
    for (bool enough = false; !enough;) {
        SH_TRY(timed_step(run, &times[count++]));
        spent += times[count - 1];
        // `steps` bounds the array; the time limit is in milliseconds like `spent`.
        enough = count >= steps || (count >= 10 && spent >= seconds * 1e3);
        SH_TRY(agree(&run->team, &enough));
    }
    *count_out = count;
    return SH_OK;
}

/* Refuses schemes whose workers step at their own pace between meetings: a step there sums no
 * gradients, and its time says nothing about the scheme. One worker is never refused. */
static sh_status check_scheme(const shoal_run *run) {
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(run->config.scheme.name, &scheme));
    bool acts = sh_scheme_acts(scheme, &run->config.scheme, run->team.ranks);
    if (run->team.group == NULL || !acts) return SH_OK;
    SH_FAIL(SH_E_USAGE, "in scheme '%s' workers do not step together, and this times steps",
            scheme.kind->name);
    return sh_error_hint("use --sync bsp here; 'shoal compare' compares schemes");
}

/* Prepares the run as shoal_run_train does, without its folder, evaluation and checkpoints. The
 * order is that of run/train.c and run/learner_net.c, because each part needs the one before: the
 * optimizer gives the steps, the blocks move to where peers map them, the scheme opens, costs and
 * state are shared by all ranks, then executors are made. */
shoal_status shoal_run_bench(shoal_run *run, int64_t warmup, int64_t steps, double seconds,
                             shoal_timing *timing_out) {
    SHOAL_NEED(run);
    SHOAL_NEED(timing_out);
    if (steps < 1) return (shoal_status)SH_FAIL(SH_E_USAGE, "a benchmark needs at least one step");
    // A last batch that is smaller would be a second population among the times.
    run->config.drop_last = true;
    SHOAL_TRY(check_scheme(run));
    SHOAL_TRY(sh_run_make_optimizer(run));
    SHOAL_TRY(sh_team_place_blocks(run));
    SHOAL_TRY(sh_scheme_open(run));
    SHOAL_TRY(sh_team_take_costs(run));
    SHOAL_TRY(sh_team_broadcast_state(run));
    sh_scheme_saved(run);
    SHOAL_TRY(sh_run_loader(run, 0, &run->loader));
    SHOAL_TRY(sh_run_prepare_team(run, false));
    SHOAL_TRY(sh_scheme_begin(run));
    if (sh_team_leads(&run->team)) sh_run_save_kernels(run);
    double *times = sh_alloc((size_t)steps, sizeof *times);
    if (times == NULL) return (shoal_status)SH_FAIL(SH_E_MEMORY, "out of memory for timings");
    int64_t count = 0;
    sh_status status = run_steps(run, warmup, steps, seconds, times, &count);
    if (status == SH_OK) {
        qsort(times, (size_t)count, sizeof *times, compare);
        // Text counts tokens, as its cost does.
        double per_sample = run->data.train->info.target == SH_TARGET_TOKENS
                                ? (double)sh_shape_count(&run->data.train->info.sample)
                                : 1.0;
        // Percentiles by rank in the sorted times: no interpolation, each was measured.
        double median = times[count / 2];
        *timing_out = (shoal_timing){
            .median_ms = median,
            .p10_ms = times[count / 10],
            .p90_ms = times[count * 9 / 10],
            // The batch is that of all workers together.
            .samples_per_s = (double)run->config.batch * per_sample / median * 1e3,
            .steps = count,
            // Exposed time is counted since the start, so warm-up steps are part of the mean.
            .exposed_ms = (double)run->stats.spent.exposed_ns * 1e-6 / (double)(count + warmup),
            .rss_mib = peak_rss_mib(),
            .workers = run->team.ranks,
            .threads = sh_run_threads(run),
        };
    }
    sh_free(times);
    return (shoal_status)status;
}
