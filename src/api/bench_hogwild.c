/* Sparse logistic regression by threads on one block of weights, as `shoal bench hogwild` prints
 * it: lock-free; with one lock around every update; with a lock for each weight that an update
 * touches (AIG of Recht et al. 2011); and with weights apart, where no cache line has two writers:
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

enum { WORKERS_MOST = 64, REPEAT_MOST = 101, CASES = SHOAL_HOGWILD_CASES };

typedef enum mode { FREE, LOCKED, EACH, APART } mode;

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

typedef struct bench {
    const shoal_hogwild_options *options;
    sh_sparse rows;
    int32_t *labels;
    size_t stride;      // floats from one worker's weights to the next one's, where they are apart
    float *weights;     // (workers, stride)
    atomic_bool *held;  // (features): the locks of EACH
    double rates[CASES][REPEAT_MOST];
} bench;

/* One measurement. */
typedef struct race {
    const bench *bench;
    mode mode;
    int workers;
    pthread_mutex_t lock;  // LOCKED: around all of an update, from the first read
    atomic_int ready;      // workers at the start
    atomic_bool started;   // released by whoever is last
    int64_t begin_ns[WORKERS_MOST], end_ns[WORKERS_MOST];
} race;

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

/* Rows list their features in ascending order: all take locks in one order, so none waits for one
 * that waits for it. */
static void take_each(const bench *b, size_t row) {
    sh_sparse_row x = sh_sparse_at(&b->rows, row);
    for (size_t i = 0; i < x.count; i++)
        while (atomic_exchange_explicit(&b->held[x.index[i]], true, memory_order_acquire))
            sh_task_yield();
}

static void give_each(const bench *b, size_t row) {
    sh_sparse_row x = sh_sparse_at(&b->rows, row);
    for (size_t i = 0; i < x.count; i++)
        atomic_store_explicit(&b->held[x.index[i]], false, memory_order_release);
}

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

/* Updates per second, from the first start to the last end. */
static double rate_of(const race *r) {
    int64_t begin = r->begin_ns[0], end = r->end_ns[0];
    for (int w = 1; w < r->workers; w++) {
        if (r->begin_ns[w] < begin) begin = r->begin_ns[w];
        if (r->end_ns[w] > end) end = r->end_ns[w];
    }
    double updates = (double)r->bench->rows.rows * (double)r->bench->options->epochs;
    return updates / ((double)(end - begin) * 1e-9);
}

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
    if (status != SH_OK) atomic_store(&r.started, true);  // those that wait for the rest
    for (int w = 0; w < workers; w++)
        if (tasks[w] != NULL) sh_task_wait(tasks[w]);
    pthread_mutex_destroy(&r.lock);
    if (status == SH_OK) *rate_out = rate_of(&r);
    return status;
}

/* The mean logistic loss over all rows, and how many are on the right side. */
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

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarize(bench *b, shoal_hogwild_timing *timings) {
    size_t count = (size_t)b->options->repeat;
    for (int i = 0; i < CASES; i++) {
        qsort(b->rates[i], count, sizeof b->rates[i][0], compare);
        timings[i].updates_per_s = b->rates[i][count / 2];
        timings[i].least = b->rates[i][0];
        timings[i].most = b->rates[i][count - 1];
    }
}

/* The cases take turns, so that what the machine does beside them hits all alike. */
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
