/* shoal_bench_hogwild: how many updates per second threads make on one shared block of weights.
 *
 * The problem is sparse logistic regression, one row per update. Variants: lock-free (Hogwild,
 * Recht et al. 2011); one lock around every update; a lock for each weight that an update touches
 * (AIG of the same paper); and weights apart, where no cache line has two writers, which shows
 * what the same threads could do if they did not share. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/task.h"
#include "data/sparse.h"
#include "shoal/tools.h"
#include "sync/hogwild_sparse.h"
#include "host/launch.h"
#include "run/need.h"

/* Bounds of the options, which also size arrays below. */
enum { WORKERS_MOST = 64, REPEAT_MOST = 101, CASES = SHOAL_HOGWILD_CASES };

/* How threads keep out of each other's way: not at all, by one lock, by a lock per weight, or by
 * weights of their own. */
typedef enum mode { FREE, LOCKED, EACH, APART } mode;

/* Measured cases in the order of the result. The first is one worker without a lock, plain SGD,
 * against which speed-ups are computed. */
static const struct {
    const char *name;
    mode mode;
    bool alone;  // one worker
} cases[CASES] = {
    {"hogwild", FREE, true},          {"hogwild", FREE, false},
    {"hogwild-locked", LOCKED, true}, {"hogwild-locked", LOCKED, false},
    {"weight-locks", EACH, true},     {"weight-locks", EACH, false},
    {"apart", APART, false},
};

/* Data and weights of one call, shared by all cases. */
typedef struct bench {
    const shoal_hogwild_options *options;
    sh_sparse rows;     // samples, made from the seed; owned
    int32_t *labels;    // (rows), 0 or 1; owned
    size_t stride;      // floats from one worker's weights to the next one's, where they are apart
    float *weights;     // (workers, stride)
    atomic_bool *held;  // (features): the locks of EACH
    double rates[CASES][REPEAT_MOST];  // updates per second, by case and repetition
} bench;

/* One measurement: threads that start together and run over all rows. */
typedef struct race {
    const bench *bench;
    mode mode;
    int workers;
    pthread_mutex_t lock;  // LOCKED: around all of an update, from the first read
    atomic_int ready;      // workers at the start
    atomic_bool started;   // released by whoever is last
    int64_t begin_ns[WORKERS_MOST], end_ns[WORKERS_MOST];  // each written by its own thread
} race;

/* Argument of one thread. */
typedef struct runner {
    race *race;
    int index;
} runner;

/* One sample: z = w x, then w -= lr (sigmoid(z) - y) x. */
static void update(const bench *b, float *weights, size_t row) {
    sh_sparse_row x = sh_sparse_at(&b->rows, row);
    float z = sh_shared_dot(weights, x);
    float error = 1 / (1 + expf(-z)) - (float)b->labels[row];
    sh_shared_add(weights, x, -(float)b->options->lr * error);
}

/* Takes the locks of all weights that a row touches, spinning. Rows list features in ascending
 * order, so all threads take locks in one order and cannot deadlock. acquire: reads of the weights
 * come after the lock. */
static void take_each(const bench *b, size_t row) {
    sh_sparse_row x = sh_sparse_at(&b->rows, row);
    for (size_t i = 0; i < x.count; i++)
        while (atomic_exchange_explicit(&b->held[x.index[i]], true, memory_order_acquire))
            sh_task_yield();
}

/* Releases the locks of a row's weights. release: the update is seen by whoever takes the lock
 * next. */
static void give_each(const bench *b, size_t row) {
    sh_sparse_row x = sh_sparse_at(&b->rows, row);
    for (size_t i = 0; i < x.count; i++)
        atomic_store_explicit(&b->held[x.index[i]], false, memory_order_release);
}

/* A worker's part of all epochs: rows are dealt round-robin, so that all cases make the same
 * updates. The mode is tested per row, which costs little beside an update of a whole row. */
static void run_rows(race *r, int index) {
    const bench *b = r->bench;
    float *weights = b->weights + (r->mode == APART ? (size_t)index * b->stride : 0);
    for (int64_t epoch = 0; epoch < b->options->epochs; epoch++)
        for (size_t row = (size_t)index; row < b->rows.rows; row += (size_t)r->workers) {
            if (r->mode == LOCKED) pthread_mutex_lock(&r->lock);
            if (r->mode == EACH) take_each(b, row);
            update(b, weights, row);
            if (r->mode == EACH) give_each(b, row);
            if (r->mode == LOCKED) pthread_mutex_unlock(&r->lock);
        }
}

/* Body of a thread. Threads start together, released by the last that is ready; each notes its own
 * begin and end. */
static sh_status run_worker(void *argument) {
    runner *self = argument;
    race *r = self->race;
    sh_take_cores(self->index, r->workers);
    if (atomic_fetch_add(&r->ready, 1) + 1 == r->workers) atomic_store(&r->started, true);
    while (!atomic_load(&r->started)) sh_task_yield();
    r->begin_ns[self->index] = sh_clock_now_ns(&sh_clock_real);
    run_rows(r, self->index);
    r->end_ns[self->index] = sh_clock_now_ns(&sh_clock_real);
    return SH_OK;
}

/* Updates per second of all workers together, from the first begin to the last end: threads that
 * finish early do not make it look faster. */
static double rate_of(const race *r) {
    int64_t begin = r->begin_ns[0], end = r->end_ns[0];
    for (int w = 1; w < r->workers; w++) {
        if (r->begin_ns[w] < begin) begin = r->begin_ns[w];
        if (r->end_ns[w] > end) end = r->end_ns[w];
    }
    double updates = (double)r->bench->rows.rows * (double)r->bench->options->epochs;
    return updates / ((double)(end - begin) * 1e-9);
}

/* Zeroes the weights, starts the threads, waits for them and computes the rate. */
static sh_status race_once(bench *b, mode how, int workers, double *rate_out) {
    race r = {.bench = b, .mode = how, .workers = workers};
    runner runners[WORKERS_MOST];
    sh_task *tasks[WORKERS_MOST] = {0};
    if (pthread_mutex_init(&r.lock, NULL) != 0) return SH_FAIL(SH_E_MEMORY, "no lock");
    memset(b->weights, 0, b->stride * (size_t)b->options->workers * sizeof *b->weights);
    sh_status status = SH_OK;
    for (int w = 0; status == SH_OK && w < workers; w++) {
        runners[w] = (runner){&r, w};
        status = sh_task_spawn("hogwild", run_worker, &runners[w], &tasks[w]);
    }
    // If a thread could not be started, those that wait at the barrier are let go, to be joined.
    if (status != SH_OK) atomic_store(&r.started, true);
    for (int w = 0; w < workers; w++)
        if (tasks[w] != NULL) sh_task_wait(tasks[w]);
    pthread_mutex_destroy(&r.lock);
    if (status == SH_OK) *rate_out = rate_of(&r);
    return status;
}

/* Mean logistic loss and accuracy of the weights over all rows. log1p with a negative exponent
 * keeps large margins from overflowing exp. */
static void score(const bench *b, shoal_hogwild_timing *timing) {
    double loss = 0, right = 0;
    for (size_t row = 0; row < b->rows.rows; row++) {
        double z = (double)sh_shared_dot(b->weights, sh_sparse_at(&b->rows, row));
        double margin = b->labels[row] ? z : -z;
        loss += margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
        right += margin > 0;
    }
    timing->loss = loss / (double)b->rows.rows;
    timing->accuracy = right / (double)b->rows.rows;
}

/* Ascending order of doubles, for qsort. */
static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median and extremes of each case over the repetitions. */
static void summarize(bench *b, shoal_hogwild_timing *timings) {
    size_t count = (size_t)b->options->repeat;
    for (int i = 0; i < CASES; i++) {
        qsort(b->rates[i], count, sizeof b->rates[i][0], compare);
        timings[i].updates_per_s = b->rates[i][count / 2];
        timings[i].least = b->rates[i][0];
        timings[i].most = b->rates[i][count - 1];
    }
}

/* Runs all cases in turns, so that what else the machine does hits all alike. Loss and accuracy
 * are those of the last repetition; weights that are apart form no model to score. */
static sh_status measure(bench *b, shoal_hogwild_timing *timings) {
    for (int64_t turn = 0; turn < b->options->repeat; turn++)
        for (int i = 0; i < CASES; i++) {
            int workers = cases[i].alone ? 1 : (int)b->options->workers;
            SH_TRY(race_once(b, cases[i].mode, workers, &b->rates[i][turn]));
            timings[i] = (shoal_hogwild_timing){.workers = workers};
            snprintf(timings[i].scheme, sizeof timings[i].scheme, "%s", cases[i].name);
            if (cases[i].mode != APART)
                score(b, &timings[i]);
            else
                timings[i].loss = timings[i].accuracy = NAN;  // nobody has the whole model
        }
    summarize(b, timings);
    return SH_OK;
}

/* Makes data, weights and locks. Weights of one worker start on a page of their own, so that no
 * cache line is shared where they are apart. */
static sh_status prepare(bench *b) {
    const shoal_hogwild_options *o = b->options;
    const sh_sparse_spec executor = {.rows = (size_t)o->rows,
                                     .width = (size_t)o->features,
                                     .nonzeros = (size_t)o->nonzeros,
                                     .zipf = o->zipf,
                                     .seed = (uint64_t)o->seed};
    b->stride = sh_round_up((size_t)o->features, 4096);  // whole pages: no line is shared
    b->labels = sh_alloc(executor.rows, sizeof *b->labels);
    b->weights = sh_alloc(b->stride * (size_t)o->workers, sizeof *b->weights);
    b->held = sh_alloc(executor.width, sizeof *b->held);
    if (b->labels == NULL || b->weights == NULL || b->held == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %lld features", (long long)o->features);
    return sh_sparse_make(&executor, &b->rows, b->labels);
}

/* Refuses options outside the bounds that arrays rely on. A learning rate that is NaN fails too. */
static sh_status check(const shoal_hogwild_options *o) {
    bool good = o->workers >= 2 && o->workers <= WORKERS_MOST && o->features >= 1 &&
                o->features <= SH_SPARSE_WIDTH_MOST && o->rows >= 1 && o->rows <= UINT32_MAX &&
                o->epochs >= 1 && o->repeat >= 1 && o->repeat <= REPEAT_MOST && o->lr > 0 &&
                o->nonzeros >= 1;
    if (good) return SH_OK;
    SH_FAIL(SH_E_USAGE, "no such measurement of Hogwild");
    return sh_error_hint("2 to %d workers, 1 to %d repetitions, and all else above 0", WORKERS_MOST,
                         REPEAT_MOST);
}

/* All memory is taken before the first measurement, and freed on any failure. */
shoal_status shoal_bench_hogwild(const shoal_hogwild_options *options,
                                 shoal_hogwild_timing timings_out[SHOAL_HOGWILD_CASES]) {
    SHOAL_NEED(options);
    SHOAL_NEED(timings_out);
    bench b = {.options = options};
    sh_status status = check(options);
    if (status == SH_OK) status = prepare(&b);
    if (status == SH_OK) status = measure(&b, timings_out);
    sh_sparse_fini(&b.rows);
    sh_free(b.labels);
    sh_free(b.weights);
    sh_free(b.held);
    return (shoal_status)status;
}
