/* shoal_bench_allreduce: all-reduces timed between workers, for a list of sizes.
 *
 * Workers are forked processes joined by shared memory, or the ranks of mpirun. Every sample
 * starts after a barrier and counts the slowest rank, because a collective is over when the last
 * rank has its sum. Small buffers are summed several times per sample, so that reading the clock
 * does not count. Each size is first verified against the known sum.
 *
 * Forked ranks write their rows to memory shared with the parent, and report failures on the
 * fabric's board, as a child has no other way to hand over an error. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/engine.h"
#include "comm/transports/mpi.h"
#include "comm/transports/shm.h"
#include "shoal/tools.h"
#include "host/launch.h"
#include "run/need.h"

/* Limits of the measurement; SIZES_MAX is promised in tools.h. */
enum {
    WAIT_S_MOST = 60,          // a wait for a peer that is longer fails, in seconds
    SIZES_MAX = 64,            // rows of timings that a call may ask for
    SAMPLES_MAX = 1000,        // kept per size; more would not move the median
    SAMPLES_LEAST = 5,         // of large buffers, however long one sample takes
    WARM = 3,                  // samples that are not kept: pages are touched, peers awake
    AT_ONCE = 20,              // calls per sample of a small buffer
    AT_ONCE_BYTES = 64 << 10,  // buffers up to this size are small
    RANKS_PER_CORE = 32,       // more workers than this would mostly wait for a core
};

/* One call of shoal_bench_allreduce, seen by the parent and copied into forked ranks. */
typedef struct bench {
    const shoal_allreduce_options *options;
    const shoal_hooks *hooks;         // environment of the launcher; borrowed
    int ranks;                        // workers to fork; under MPI the launcher's number counts
    size_t most_bytes;                // largest of the sizes: room of the buffer
    shoal_allreduce_timing *timings;  // written by rank 0; shared with the parent of forked ranks
    sh_shm *fabric;                   // shared memory of forked ranks; NULL under MPI; owned
    pid_t *pids;                      // by rank; 0: has ended; owned by the parent
} bench;

/* One rank of the measurement. */
typedef struct side {
    const bench *bench;
    sh_engine *engine;
    sh_shared shared;  // buffers of all ranks, mapped where they share a node
    float *data;       // this rank's buffer: its part of `shared`, or private memory
    int rank, ranks;
} side;

/* The all-reduce to time. Without `shared` the engine copies the data in and out, which is what
 * --private measures. */
static sh_call call_of(const side *s, size_t size) {
    const shoal_allreduce_options *options = s->bench->options;
    return (sh_call){.what = SH_ALLREDUCE,
                     .algorithm = options->algorithm,
                     .data = s->data,
                     .count = (size_t)options->sizes[size] / sizeof(float),
                     .shared = options->private_memory ? NULL : &s->shared,
                     .bucket = -1};
}

/* Sums known values once and compares every element, before anything is timed: a fast wrong sum is
 * no result. Element i of rank r is r + i mod 7, so the sum is exact in floats and depends on the
 * position. The buffer is left zeroed, or repeated sums in place would grow to infinity. */
static sh_status verify(side *s, size_t size) {
    sh_call call = call_of(s, size);
    for (size_t i = 0; i < call.count; i++) s->data[i] = (float)(s->rank + (int)(i % 7));
    SH_TRY(sh_engine_run(s->engine, &call));
    int pairs = s->ranks * (s->ranks - 1) / 2;  // 0 + 1 + ... + (ranks - 1)
    for (size_t i = 0; i < call.count; i++) {
        float wanted = (float)(pairs + s->ranks * (int)(i % 7));
        if (s->data[i] != wanted)
            return SH_FAIL(SH_E_NUMERIC, "rank %d: element %zu of %zu is %g, not %g", s->rank, i,
                           call.count, (double)s->data[i], (double)wanted);
    }
    memset(s->data, 0, call.count * sizeof *s->data);
    return SH_OK;
}

/* One sample: microseconds per call on this rank, from a barrier on. */
static sh_status take_sample(side *s, size_t size, double *us_out) {
    sh_call call = call_of(s, size);
    int calls = s->bench->options->sizes[size] <= AT_ONCE_BYTES ? AT_ONCE : 1;
    SH_TRY(sh_engine_barrier(s->engine));
    int64_t start = sh_clock_now_ns(&sh_clock_real);
    for (int i = 0; i < calls; i++) SH_TRY(sh_engine_run(s->engine, &call));
    *us_out = (double)(sh_clock_now_ns(&sh_clock_real) - start) * 1e-3 / calls;
    return SH_OK;
}

/* Collective: how many samples fit the wanted time, from the last warm-up sample `us`. Rank 0
 * decides and broadcasts the number, since ranks measured different times and must take equally
 * many. */
static sh_status choose_samples(side *s, size_t size, double us, int32_t *samples_out) {
    int calls = s->bench->options->sizes[size] <= AT_ONCE_BYTES ? AT_ONCE : 1;
    double seconds = s->bench->options->seconds > 0 ? s->bench->options->seconds : 1;
    double fit = seconds * 1e6 / (us * calls + 0.1);  // the addend keeps a time of 0 from dividing
    *samples_out = fit > SAMPLES_MAX ? SAMPLES_MAX : fit < SAMPLES_LEAST ? SAMPLES_LEAST : (int)fit;
    sh_call call = {
        .what = SH_BROADCAST, .data = samples_out, .count = 1, .dtype = SH_DTYPE_I32, .bucket = -1};
    return sh_engine_run(s->engine, &call);
}

/* Ascending order of floats, for qsort. */
static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Rank 0's row of a size, from the slowest rank's samples. Without a named algorithm the row has
 * the one that the engine chose for this size. */
static void summarize(const side *s, size_t size, float *us, int samples) {
    const shoal_allreduce_options *options = s->bench->options;
    shoal_allreduce_timing *timing = &s->bench->timings[size];
    qsort(us, (size_t)samples, sizeof *us, compare);
    double median = (double)us[samples / 2], bytes = (double)options->sizes[size];
    *timing = (shoal_allreduce_timing){
        .size_bytes = options->sizes[size],
        .ranks = s->ranks,
        .median_us = median,
        .p10_us = (double)us[samples / 10],
        .p90_us = (double)us[samples * 9 / 10],
        .gb_s = median > 0 ? bytes / median * 1e-3 : 0,
        .samples = samples,
    };
    const char *name = options->algorithm;
    if (name == NULL)
        name = sh_engine_choice(s->engine, NULL, (size_t)options->sizes[size],
                                !options->private_memory, NULL)
                   ->name;
    snprintf(timing->algorithm, sizeof timing->algorithm, "%s", name);
}

/* Collective: verifies, warms up and times one size. The element-wise maximum over ranks makes
 * sample i that of the slowest rank. */
static sh_status measure_size(side *s, size_t size) {
    double us = 0;
    float times[SAMPLES_MAX];
    int32_t samples = 0;
    SH_TRY(verify(s, size));
    for (int i = 0; i < WARM; i++) SH_TRY(take_sample(s, size, &us));
    SH_TRY(choose_samples(s, size, us, &samples));
    for (int i = 0; i < samples; i++) {
        SH_TRY(take_sample(s, size, &us));
        times[i] = (float)us;
    }
    sh_call slowest = {
        .what = SH_ALLREDUCE, .data = times, .count = (size_t)samples, .op = SH_MAX, .bucket = -1};
    SH_TRY(sh_engine_run(s->engine, &slowest));
    if (s->rank == 0) summarize(s, size, times, samples);
    return SH_OK;
}

/* Collective: all sizes in one buffer that has room for the largest. After the barrier at the end
 * no rank needs the memory of another. */
static sh_status measure_all(side *s) {
    const bench *b = s->bench;
    SH_TRY(sh_engine_share(s->engine, b->most_bytes, &s->shared));
    s->data = (float *)(void *)s->shared.base[s->rank];
    void *own = NULL;
    // Page-aligned like the shared buffer, so that both ways copy alike.
    if (b->options->private_memory) {
        if (posix_memalign(&own, 4096, b->most_bytes) != 0)
            return SH_FAIL(SH_E_MEMORY, "out of memory for %zu bytes", b->most_bytes);
        s->data = own;
    }
    sh_status status = SH_OK;
    for (size_t i = 0; status == SH_OK && i < b->options->size_count; i++)
        status = measure_size(s, i);
    if (status == SH_OK) status = sh_engine_barrier(s->engine);
    free(own);
    return status;
}

/* Makes the engine of this rank over an open transport and measures. `task`: MPI, where a comm
 * task drives the engine. Calibration measures the links first, so that the engine chooses
 * algorithms as in a run; with a named one there is nothing to choose. `*engine_out` is set as
 * soon as there is an engine, also if measuring fails. */
static sh_status join_and_measure(const bench *b, sh_transport *transport, bool task,
                                  sh_engine **engine_out) {
    side s = {.bench = b, .rank = transport->rank, .ranks = transport->ranks};
    sh_engine_options options = {.timeout_ns = WAIT_S_MOST * INT64_C(1000000000), .task = task};
    SH_TRY(sh_engine_create(transport, &options, &s.engine));
    *engine_out = s.engine;
    sh_costs costs;
    sh_status status = SH_OK;
    if (b->options->algorithm == NULL) status = sh_engine_calibrate(s.engine, &costs);
    if (status == SH_OK) status = measure_all(&s);
    return status;
}

/* A forked rank: takes its cores, attaches to the fabric and measures. Nothing is freed, as the
 * process exits next. */
static sh_status work(const bench *b, int rank) {
    int cores = sh_cores();
    sh_transport *transport = NULL;
    sh_engine *engine = NULL;
    sh_take_cores(rank, b->ranks);
    SH_TRY(sh_shm_attach(b->fabric, rank, cores, &transport));
    return join_and_measure(b, transport, false, &engine);
}

/* Body of a forked rank; never returns into the parent's code. The error record is this process's
 * own, so status, text and hint are copied to the board, where the parent reads them. _exit skips
 * the parent's exit handlers and buffers. */
static _Noreturn void be_rank(const bench *b, int rank) {
    sh_status status = work(b, rank);
    sh_rank_status *board = &sh_shm_board(b->fabric)->rank[rank];
    board->status = (int32_t)status;
    if (status != SH_OK) {
        snprintf(board->error, sizeof board->error, "%.500s", sh_error_last()->text);
        snprintf(board->hint, sizeof board->hint, "%.500s", sh_error_last()->hint);
    }
    _exit(status == SH_OK ? 0 : 1);
}

/* Forks all ranks. Each dies with the parent, so that a killed benchmark leaves no process
 * spinning. */
static sh_status start_ranks(bench *b) {
    for (int rank = 0; rank < b->ranks; rank++) {
        pid_t parent = getpid(), pid = fork();
        if (pid == 0) {
            sh_die_with(parent);
            be_rank(b, rank);
        }
        if (pid < 0) return SH_FAIL(SH_E_IO, "cannot start worker %d", rank);
        b->pids[rank] = pid;
    }
    return SH_OK;
}

/* Accounts for a rank that ended with wait status `how` (0: well), and returns the failure to
 * report so far. Peers are woken, as they would wait for the dead rank. A rank that failed by
 * itself is reported before those that failed because a peer left (SH_E_PEER). */
static sh_status take_end(bench *b, int rank, int how, sh_status status) {
    if (how == 0) return status;
    sh_shm_mark_dead(b->fabric, rank);
    const sh_rank_status *board = &sh_shm_board(b->fabric)->rank[rank];
    if (status != SH_OK && (status != SH_E_PEER || board->status == SH_E_PEER)) return status;
    if (WIFSIGNALED(how))
        return SH_FAIL(SH_E_PEER, "worker %d was ended by signal %d", rank, WTERMSIG(how));
    status =
        SH_FAIL(board->status != SH_OK ? (sh_status)board->status : SH_E_PEER, "%s", board->error);
    return board->hint[0] != '\0' ? sh_error_hint("%s", board->hint) : status;
}

/* Waits until every rank has ended, in whatever order: waiting for rank 0 first would hang on a
 * death of rank 1, of which rank 0 must be told. Polls every 5 ms, which takes no time from the
 * measurement. */
static sh_status await_ranks(bench *b) {
    sh_status status = SH_OK;
    for (int left = b->ranks; left > 0;) {
        left = 0;
        for (int rank = 0; rank < b->ranks; rank++) {
            int how = 0;
            if (b->pids[rank] <= 0) continue;
            left++;
            if (waitpid(b->pids[rank], &how, WNOHANG) != b->pids[rank]) continue;
            b->pids[rank] = 0;
            status = take_end(b, rank, how, status);
        }
        const struct timespec look = {.tv_nsec = 5000000};
        if (left > 0) nanosleep(&look, NULL);
    }
    return status;
}

/* Refuses what the header does not allow, before anything is forked, and finds the largest size. */
static sh_status check(const shoal_allreduce_options *options, bench *b) {
    b->ranks = options->ranks > 0 ? (int)options->ranks : 2;
    if (options->ranks < 0 || options->ranks > SH_SHM_RANKS_MAX)
        return SH_FAIL(SH_E_USAGE, "%lld workers", (long long)options->ranks);
    if (options->size_count < 1 || options->size_count > SIZES_MAX)
        return SH_FAIL(SH_E_USAGE, "%zu sizes, not 1 to %d", options->size_count, SIZES_MAX);
    for (size_t i = 0; i < options->size_count; i++) {
        int64_t bytes = options->sizes[i];
        if (bytes < 4 || bytes % 4 != 0 || bytes > (int64_t)1 << 40)
            return SH_FAIL(SH_E_USAGE, "a buffer of %lld bytes: whole floats are summed",
                           (long long)bytes);
        if ((size_t)bytes > b->most_bytes) b->most_bytes = (size_t)bytes;
    }
    const char *name = options->algorithm;
    if (name == NULL || sh_algorithm_find(SH_ALLREDUCE, name) != NULL) return SH_OK;
    SH_FAIL(SH_E_USAGE, "there is no all-reduce '%s'", name);
    return sh_error_hint("shoal list collectives");
}

/* Refuses so many workers that a sum would last as long as the scheduler needs to give each a
 * turn: it ends when the last worker had its turn on a core. The hint names the command that
 * computes what cannot be measured. */
static sh_status check_cores(const bench *b) {
    int cores = sh_cores();
    if (b->ranks <= cores * RANKS_PER_CORE) return SH_OK;
    SH_FAIL(SH_E_USAGE, "%d workers on %d core%s would hardly ever get through a sum", b->ranks,
            cores, cores == 1 ? "" : "s");
    return sh_error_hint(
        "-n %d at most; what a sum between %d would cost, 'shoal explain allreduce -n %d' computes",
        cores * RANKS_PER_CORE, b->ranks, b->ranks);
}

/* Forks and awaits the ranks. If one cannot be started, the others are killed: they would wait for
 * it. */
static sh_status bench_forked(bench *b) {
    SH_TRY(check_cores(b));
    b->pids = sh_alloc((size_t)b->ranks, sizeof *b->pids);
    if (b->pids == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for workers");
    SH_TRY(sh_shm_create(b->ranks, &b->fabric));
    sh_status started = start_ranks(b);
    if (started != SH_OK)
        for (int rank = 0; rank < b->ranks; rank++)
            if (b->pids[rank] > 0) kill(b->pids[rank], SIGKILL);
    sh_status ended = await_ranks(b);
    SH_TRY(started);
    return ended;
}

/* This process is one rank of mpirun. After a failure MPI stays open, so that the caller can
 * report it and shoal_abort then ends all ranks. */
static sh_status bench_mpi(bench *b) {
    sh_transport *transport = NULL;
    sh_engine *engine = NULL;
    double start_s = sh_watch_limit(&(sh_watch){0}, SH_PHASE_START);
    SH_TRY(sh_launcher_join(b->hooks, 0, start_s, &transport));
    // A status other than SH_OK on the board makes closing wait for nobody; it is cleared when all
    // is well.
    transport->board->status = (int32_t)SH_E_PEER;
    SH_TRY(join_and_measure(b, transport, true, &engine));
    transport->board->status = SH_OK;
    sh_mpi_limit_end(transport, WAIT_S_MOST);
    sh_engine_destroy(engine);
    return sh_mpi_ended();
}

/* The launcher's variables, which the hooks tell, decide whether MPI is used. */
static sh_status bench_all(bench *b) {
    bool under_mpi = false;
    SH_TRY(sh_launcher_check(b->hooks, "auto", &under_mpi));
    return under_mpi ? bench_mpi(b) : bench_forked(b);
}

/* Rows are anonymous shared memory, which forked ranks write and this process reads. Under MPI
 * ranks other than 0 return rows of zeros, whose `samples` 0 the header promises. */
shoal_status shoal_bench_allreduce(const shoal_allreduce_options *options,
                                   shoal_allreduce_timing *timings_out) {
    SHOAL_NEED(options);
    SHOAL_NEED(options->sizes);
    SHOAL_NEED(timings_out);
    SHOAL_TAKE(shoal_hooks, hooks, options->hooks);
    bench b = {.options = options, .hooks = &hooks};
    size_t bytes = SIZES_MAX * sizeof *b.timings;
    SHOAL_TRY(check(options, &b));
    b.timings = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b.timings == MAP_FAILED)
        return (shoal_status)SH_FAIL(SH_E_MEMORY, "out of memory for timings");
    sh_status status = bench_all(&b);
    if (status == SH_OK) memcpy(timings_out, b.timings, options->size_count * sizeof *timings_out);
    munmap(b.timings, bytes);
    sh_free(b.pids);
    sh_shm_destroy(b.fabric);
    return (shoal_status)status;
}
