#include "sync/reducer.h"

#include "base/memory.h"

typedef struct bucket {
    size_t first, count;  // parameters
    size_t waiting;       // of them whose gradients are not ready yet
    sh_call call;
} bucket;

struct sh_reducer {
    sh_reducer_options options;
    bucket *buckets;  // in the order they start: the last parameters first
    size_t bucket_count, bucket_capacity;
    size_t *bucket_of;         // per parameter
    size_t started, finished;  // buckets of this step
    int64_t step;
    sh_status status;  // of the first failure in this step; its record is in `error`
    sh_error error;
    sh_reducer_stats stats;
};

static int64_t now(const sh_reducer *reducer) { return sh_clock_now_ns(reducer->options.clock); }

/* Cuts the parameters, from the last to the first, into runs of at least bucket_bytes. */
static sh_status make_buckets(sh_reducer *reducer) {
    const sh_param_list *params = reducer->options.params;
    size_t end = params->count;
    while (end > 0) {
        size_t first = end, bytes = 0;
        while (first > 0 && bytes < reducer->options.bucket_bytes)
            bytes += params->items[--first].count * sizeof(float);
        SH_TRY(sh_grow((void **)&reducer->buckets, &reducer->bucket_capacity,
                       reducer->bucket_count + 1, sizeof *reducer->buckets));
        for (size_t i = first; i < end; i++) reducer->bucket_of[i] = reducer->bucket_count;
        const sh_param *low = &params->items[first], *high = &params->items[end - 1];
        reducer->buckets[reducer->bucket_count] = (bucket){
            .first = first,
            .count = end - first,
            .call = {.what = SH_ALLREDUCE,
                     .data = reducer->options.gradients + low->offset,
                     .count = high->offset + high->count - low->offset,
                     .dtype = SH_DTYPE_F32,
                     .op = SH_SUM,
                     .shared = reducer->options.shared,
                     .bucket = (int)reducer->bucket_count},
        };
        reducer->bucket_count++;
        end = first;
    }
    return SH_OK;
}

sh_status sh_reducer_create(const sh_reducer_options *options, sh_reducer **reducer_out) {
    sh_reducer *reducer = sh_alloc(1, sizeof *reducer);
    if (reducer == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for gradient buckets");
    reducer->options = *options;
    reducer->bucket_of = sh_alloc(options->params->count + 1, sizeof *reducer->bucket_of);
    sh_status status = reducer->bucket_of != NULL
                           ? make_buckets(reducer)
                           : SH_FAIL(SH_E_MEMORY, "out of memory for gradient buckets");
    if (status != SH_OK)
        sh_reducer_destroy(reducer);
    else
        *reducer_out = reducer;
    return status;
}

void sh_reducer_destroy(sh_reducer *reducer) {
    if (reducer == NULL) return;
    sh_free(reducer->buckets);
    sh_free(reducer->bucket_of);
    sh_free(reducer);
}

void sh_reducer_begin(sh_reducer *reducer, int64_t step) {
    reducer->step = step;
    reducer->started = reducer->finished = 0;
    reducer->status = SH_OK;
    for (size_t i = 0; i < reducer->bucket_count; i++)
        reducer->buckets[i].waiting = reducer->buckets[i].count;
}

static void note_failure(sh_reducer *reducer, sh_status status) {
    if (status == SH_OK || reducer->status != SH_OK) return;
    reducer->status = status;
    reducer->error = *sh_error_last();
}

/* Starts what is complete, in order. */
static void start_ready(sh_reducer *reducer) {
    while (reducer->started < reducer->bucket_count) {
        bucket *next = &reducer->buckets[reducer->started];
        if (next->waiting > 0 || reducer->status != SH_OK) return;
        next->call.step = reducer->step;
        note_failure(reducer, sh_engine_start(reducer->options.engine, &next->call));
        reducer->started++;
    }
}

static void arrive(sh_reducer *reducer, bucket *done) {
    reducer->stats.sent_bytes += done->call.sent_bytes;
    reducer->stats.dense_bytes += done->call.sent_bytes;
    reducer->finished++;
    if (reducer->options.arrived != NULL)
        reducer->options.arrived(reducer->options.user, done->first, done->count);
}

/* Hands over, in order, what has arrived so far. */
static void take_arrived(sh_reducer *reducer) {
    while (reducer->finished < reducer->started && reducer->status == SH_OK) {
        bucket *next = &reducer->buckets[reducer->finished];
        if (!sh_engine_test(reducer->options.engine, &next->call)) return;
        if (next->call.status != SH_OK)
            note_failure(reducer, next->call.status);
        else
            arrive(reducer, next);
    }
}

void sh_reducer_ready(void *self, size_t param) {
    sh_reducer *reducer = self;
    bucket *mine = &reducer->buckets[reducer->bucket_of[param]];
    SH_DCHECK(mine->waiting > 0);
    mine->waiting--;
    if (!reducer->options.overlap) return;
    int64_t begin = now(reducer);
    start_ready(reducer);
    sh_engine_poll(reducer->options.engine);
    reducer->stats.exposed_ns += now(reducer) - begin;
    take_arrived(reducer);
}

sh_status sh_reducer_finish(sh_reducer *reducer) {
    start_ready(reducer);
    while (reducer->finished < reducer->bucket_count && reducer->status == SH_OK) {
        bucket *next = &reducer->buckets[reducer->finished];
        int64_t begin = now(reducer);
        note_failure(reducer, sh_engine_wait(reducer->options.engine, &next->call));
        reducer->stats.exposed_ns += now(reducer) - begin;
        if (reducer->status == SH_OK) arrive(reducer, next);
    }
    if (reducer->status != SH_OK) return sh_error_adopt(&reducer->error);
    return SH_OK;
}

size_t sh_reducer_buckets(const sh_reducer *reducer) { return reducer->bucket_count; }

sh_reducer_stats sh_reducer_take_stats(sh_reducer *reducer) {
    sh_reducer_stats stats = reducer->stats;
    reducer->stats = (sh_reducer_stats){0};
    return stats;
}
