#include "sync/reducer.h"

#include "base/memory.h"

/* How the numbers of a bucket travel. Starting notes a failure in the reducer. */
typedef struct travel {
    void (*start)(sh_reducer *reducer, size_t index);
    bool (*test)(sh_reducer *reducer, size_t index);
    sh_status (*wait)(sh_reducer *reducer, size_t index);
    /* What is in place when it has arrived becomes the gradient, and is counted; NULL: nothing. */
    void (*take)(sh_reducer *reducer, size_t index);
} travel;

typedef struct bucket {
    sh_bucket range;
    size_t waiting;  // parameters whose gradients are not ready yet
    sh_call sum;     // of the gradients, unless a codec takes them over the ranks
    sh_call gather;  // sharded: of the updated weights
    bool gathers;    // that call is under way
} bucket;

struct sh_reducer {
    sh_reducer_options options;
    const travel *travel;
    bucket *buckets;  // in the order they start: the last parameters first
    size_t bucket_count, bucket_capacity;
    size_t *bucket_of;         // per parameter
    size_t started, finished;  // buckets of this step
    int64_t step;
    sh_status status;  // of the first failure in this step; its record is in `error`
    sh_error error;
    sh_reducer_stats stats;
    int64_t updating_ns;    // spent by `arrived` inside of collectives
    sh_exchange *exchange;  // takes buckets over the ranks, through the codec; NULL: there is none
    /* Gathers follow arrivals, whose order against later starts differs between ranks; in a group
     * of their own they are in the same order everywhere. */
    sh_group *group;
};

static int64_t now(const sh_reducer *reducer) { return sh_clock_now_ns(reducer->options.clock); }

/* Communication, less the updates that were made inside of it. */
typedef struct span {
    int64_t begin_ns, updating_ns;
} span;

static span begin_span(const sh_reducer *reducer) {
    return (span){now(reducer), reducer->updating_ns};
}

static void end_span(sh_reducer *reducer, span since) {
    int64_t updating_ns = reducer->updating_ns - since.updating_ns;
    reducer->stats.exposed_ns += now(reducer) - since.begin_ns - updating_ns;
}

/* The sums of a part of a bucket are there, and in the cache. */
static void update_part(void *self, const sh_call *call, sh_range part) {
    sh_reducer *reducer = self;
    sh_bucket updated = reducer->buckets[call->bucket].range;
    updated.low += part.first;
    updated.high = updated.low + part.count;
    int64_t begin = now(reducer);
    reducer->options.arrived(reducer->options.user, &updated);
    reducer->updating_ns += now(reducer) - begin;
}

static float *at_offset(float *block, size_t offset) {
    return block != NULL ? block + offset : NULL;
}

/* The call that sums a bucket of these elements. */
static sh_call sum_of(const sh_reducer_options *options, size_t offset, size_t elements,
                      int index) {
    const sh_fixed_gradient *fixed = options->fixed;
    if (fixed != NULL)
        return (sh_call){.what = SH_ALLREDUCE,
                         .data = fixed->sums + offset,
                         .count = elements,
                         .dtype = SH_DTYPE_I64,
                         .op = SH_SUM,
                         .shared = fixed->shared,
                         .bucket = index};
    return (sh_call){.what = options->shards ? SH_REDUCE_SCATTER : SH_ALLREDUCE,
                     .data = at_offset(options->gradients, offset),
                     .count = elements,
                     .dtype = SH_DTYPE_F32,
                     .op = SH_SUM,
                     .shared = options->shared,
                     .bucket = index};
}

static bucket make_bucket(sh_reducer *reducer, size_t first, size_t end) {
    const sh_reducer_options *options = &reducer->options;
    const sh_param *low = &options->params->items[first], *high = &options->params->items[end - 1];
    size_t elements = high->offset + high->count - low->offset;
    int index = (int)reducer->bucket_count;
    bucket made = {
        .range = {first, end - first, low->offset, low->offset + elements},
        .sum = sum_of(options, low->offset, elements, index),
    };
    if (options->fuses_update)
        made.sum.fused = (sh_fused_work){.work = update_part,
                                         .self = reducer,
                                         .result = options->weights + low->offset,
                                         .shared = options->weights_shared};
    if (!options->shards) return made;
    int rank = sh_group_rank(options->group), ranks = sh_group_ranks(options->group);
    sh_range mine = sh_block_range(elements, ranks, rank);
    made.range.low = low->offset + mine.first;
    made.range.high = made.range.low + mine.count;
    made.gather = (sh_call){.what = SH_ALLGATHER,
                            .data = options->weights + low->offset,
                            .count = elements,
                            .dtype = SH_DTYPE_F32,
                            .shared = options->weights_shared,
                            .bucket = index};
    return made;
}

/* Cuts the parameters, from the last to the first, into runs of at least bucket_bytes, and of one
 * parameter. */
static sh_status make_buckets(sh_reducer *reducer) {
    const sh_param_list *params = reducer->options.params;
    for (size_t end = params->count, first; end > 0; end = first) {
        size_t bytes = 0;
        first = end;
        do {
            bytes += params->items[--first].count * sizeof(float);
        } while (first > 0 && bytes < reducer->options.bucket_bytes);
        SH_TRY(sh_grow((void **)&reducer->buckets, &reducer->bucket_capacity,
                       reducer->bucket_count + 1, sizeof *reducer->buckets));
        for (size_t i = first; i < end; i++) reducer->bucket_of[i] = reducer->bucket_count;
        reducer->buckets[reducer->bucket_count] = make_bucket(reducer, first, end);
        reducer->bucket_count++;
    }
    return SH_OK;
}

static sh_status make_exchange(sh_reducer *reducer) {
    sh_exchange_bucket *ranges = sh_alloc(reducer->bucket_count + 1, sizeof *ranges);
    if (ranges == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for gradient buckets");
    for (size_t i = 0; i < reducer->bucket_count; i++)
        ranges[i] =
            (sh_exchange_bucket){reducer->buckets[i].range.first, reducer->buckets[i].range.count};
    sh_exchange_options options = {.group = reducer->options.group,
                                   .codec = reducer->options.codec,
                                   .params = reducer->options.params,
                                   .gradients = reducer->options.gradients,
                                   .shared = reducer->options.shared,
                                   .buckets = ranges,
                                   .bucket_count = reducer->bucket_count,
                                   .seed = reducer->options.seed,
                                   .clock = reducer->options.clock};
    sh_status status = sh_exchange_create(&options, &reducer->exchange);
    sh_free(ranges);
    return status;
}

static const travel as_floats, as_messages, as_integers;

static const travel *travel_of(const sh_reducer_options *options) {
    if (options->fixed != NULL) return &as_integers;
    bool coded = options->codec->kind != NULL && !options->shards && !options->fuses_update;
    return coded ? &as_messages : &as_floats;
}

sh_status sh_reducer_create(const sh_reducer_options *options, sh_reducer **reducer_out) {
    sh_reducer *reducer = sh_alloc(1, sizeof *reducer);
    if (reducer == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for gradient buckets");
    reducer->options = *options;
    reducer->travel = travel_of(options);
    reducer->bucket_of = sh_alloc(options->params->count + 1, sizeof *reducer->bucket_of);
    sh_status status = options->shards ? sh_group_twin(options->group, &reducer->group) : SH_OK;
    if (status == SH_OK)
        status = reducer->bucket_of != NULL
                     ? make_buckets(reducer)
                     : SH_FAIL(SH_E_MEMORY, "out of memory for gradient buckets");
    if (status == SH_OK && reducer->travel == &as_messages) status = make_exchange(reducer);
    if (status != SH_OK)
        sh_reducer_destroy(reducer);
    else
        *reducer_out = reducer;
    return status;
}

void sh_reducer_destroy(sh_reducer *reducer) {
    if (reducer == NULL) return;
    if (reducer->exchange != NULL) sh_exchange_destroy(reducer->exchange);
    sh_group_destroy(reducer->group);
    sh_free(reducer->buckets);
    sh_free(reducer->bucket_of);
    sh_free(reducer);
}

void sh_reducer_begin(sh_reducer *reducer, int64_t step) {
    reducer->step = step;
    reducer->started = reducer->finished = 0;
    reducer->status = SH_OK;
    if (reducer->exchange != NULL) sh_exchange_begin(reducer->exchange, step);
    for (size_t i = 0; i < reducer->bucket_count; i++)
        reducer->buckets[i].waiting = reducer->buckets[i].range.count;
}

static void note_failure(sh_reducer *reducer, sh_status status) {
    if (status == SH_OK || reducer->status != SH_OK) return;
    reducer->status = status;
    reducer->error = *sh_error_last();
}

/* ---- How buckets travel: rows ---------------------------------------------------------------- */

static void start_call(sh_reducer *reducer, size_t index) {
    sh_call *call = &reducer->buckets[index].sum;
    call->step = reducer->step + 1;
    note_failure(reducer, sh_group_start(reducer->options.group, call));
}

static bool test_call(sh_reducer *reducer, size_t index) {
    return sh_group_test(reducer->options.group, &reducer->buckets[index].sum);
}

static sh_status wait_for_call(sh_reducer *reducer, size_t index) {
    return sh_group_wait(reducer->options.group, &reducer->buckets[index].sum);
}

/* Without a codec the floats that an all-reduce sends at least are what it would send anyway; the
 * other calls tell what they sent. */
static void count_floats(sh_reducer *reducer, size_t index) {
    const sh_call *call = &reducer->buckets[index].sum;
    size_t ranks = (size_t)sh_group_ranks(reducer->options.group);
    bool plain = call->what == SH_ALLREDUCE && call->fused.work == NULL;
    reducer->stats.sent_bytes += call->sent_bytes;
    reducer->stats.dense_bytes +=
        plain ? 2 * (ranks - 1) * call->count * sizeof(float) / ranks : call->sent_bytes;
}

static const travel as_floats = {
    .start = start_call, .test = test_call, .wait = wait_for_call, .take = count_floats};

static void start_message(sh_reducer *reducer, size_t index) {
    sh_exchange_start(reducer->exchange, index);
}

static bool test_message(sh_reducer *reducer, size_t index) {
    return sh_exchange_test(reducer->exchange, index);
}

static sh_status wait_for_message(sh_reducer *reducer, size_t index) {
    return sh_exchange_wait(reducer->exchange, index);
}

static const travel as_messages = {
    .start = start_message, .test = test_message, .wait = wait_for_message};

/* Making integers is computing: it hides behind the buckets before. */
static void start_integers(sh_reducer *reducer, size_t index) {
    const sh_fixed_gradient *fixed = reducer->options.fixed;
    const sh_bucket *range = &reducer->buckets[index].range;
    int64_t begin = now(reducer);
    fixed->sum(fixed->self, range->first, range->count);
    reducer->updating_ns += now(reducer) - begin;
    start_call(reducer, index);
}

static void take_integers(sh_reducer *reducer, size_t index) {
    const sh_fixed_gradient *fixed = reducer->options.fixed;
    const bucket *done = &reducer->buckets[index];
    reducer->stats.sent_bytes += done->sum.sent_bytes;
    reducer->stats.dense_bytes += done->sum.sent_bytes;
    fixed->mean(fixed->self, done->range.first, done->range.count);
}

static const travel as_integers = {
    .start = start_integers, .test = test_call, .wait = wait_for_call, .take = take_integers};

/* ---- A step ---------------------------------------------------------------------------------- */

/* Starts what is complete, in order. */
static void start_ready(sh_reducer *reducer) {
    while (reducer->started < reducer->bucket_count) {
        bucket *next = &reducer->buckets[reducer->started];
        if (next->waiting > 0 || reducer->status != SH_OK) return;
        reducer->travel->start(reducer, reducer->started);
        reducer->started++;
    }
}

static void start_gather(sh_reducer *reducer, bucket *updated) {
    updated->gather.step = reducer->step + 1;
    note_failure(reducer, sh_group_start(reducer->group, &updated->gather));
    updated->gathers = reducer->status == SH_OK;
}

static void arrive(sh_reducer *reducer, size_t index) {
    bucket *done = &reducer->buckets[index];
    if (reducer->travel->take != NULL) reducer->travel->take(reducer, index);
    reducer->finished++;
    if (reducer->options.fuses_update) return;
    bool updated = reducer->options.arrived == NULL ||
                   reducer->options.arrived(reducer->options.user, &done->range);
    if (updated && reducer->options.shards) start_gather(reducer, done);
}

/* Hands over, in order, what has arrived so far. */
static void take_arrived(sh_reducer *reducer) {
    while (reducer->finished < reducer->started && reducer->status == SH_OK) {
        size_t next = reducer->finished;
        span waits = begin_span(reducer);
        bool ended = reducer->travel->test(reducer, next);
        if (ended) note_failure(reducer, reducer->travel->wait(reducer, next));
        end_span(reducer, waits);
        if (!ended) return;
        if (reducer->status == SH_OK) arrive(reducer, next);
    }
}

void sh_reducer_ready(void *self, size_t param) {
    sh_reducer *reducer = self;
    bucket *mine = &reducer->buckets[reducer->bucket_of[param]];
    SH_DCHECK(mine->waiting > 0);
    mine->waiting--;
    if (!reducer->options.overlap) return;
    span sends = begin_span(reducer);
    start_ready(reducer);
    sh_engine_poll(sh_group_engine(reducer->options.group));
    end_span(reducer, sends);
    if (!reducer->options.fuses_update) take_arrived(reducer);
}

/* Waits for the weights of the other ranks' parts. */
static sh_status finish_gathers(sh_reducer *reducer) {
    for (size_t i = 0; i < reducer->bucket_count && reducer->status == SH_OK; i++) {
        bucket *next = &reducer->buckets[i];
        if (!next->gathers) continue;
        span waits = begin_span(reducer);
        note_failure(reducer, sh_group_wait(reducer->group, &next->gather));
        end_span(reducer, waits);
        reducer->stats.sent_bytes += next->gather.sent_bytes;
        reducer->stats.dense_bytes += next->gather.sent_bytes;
        next->gathers = false;
    }
    return reducer->status == SH_OK ? SH_OK : sh_error_adopt(&reducer->error);
}

sh_status sh_reducer_gather(sh_reducer *reducer) {
    if (!reducer->options.shards) return SH_OK;
    for (size_t i = 0; i < reducer->bucket_count; i++) start_gather(reducer, &reducer->buckets[i]);
    return finish_gathers(reducer);
}

sh_status sh_reducer_gather_block(sh_reducer *reducer, float *block) {
    for (size_t i = 0; i < reducer->bucket_count; i++) {
        sh_call call = reducer->buckets[i].gather;
        call.data = block + ((float *)call.data - reducer->options.weights);
        call.shared = NULL;
        SH_TRY(sh_group_run(reducer->group, &call));
    }
    return SH_OK;
}

sh_status sh_reducer_finish(sh_reducer *reducer) {
    span sends = begin_span(reducer);
    start_ready(reducer);  // encodes what is left: all of it without overlap
    end_span(reducer, sends);
    while (reducer->finished < reducer->bucket_count && reducer->status == SH_OK) {
        size_t next = reducer->finished;
        span waits = begin_span(reducer);
        note_failure(reducer, reducer->travel->wait(reducer, next));
        end_span(reducer, waits);
        if (reducer->status == SH_OK) arrive(reducer, next);
    }
    return finish_gathers(reducer);
}

size_t sh_reducer_buckets(const sh_reducer *reducer) { return reducer->bucket_count; }

size_t sh_reducer_bucket_begin(const sh_reducer *reducer, size_t end) {
    return reducer->buckets[reducer->bucket_of[end - 1]].range.first;
}

const sh_bucket *sh_reducer_bucket(const sh_reducer *reducer, size_t index) {
    return &reducer->buckets[index].range;
}

sh_exchange *sh_reducer_exchange(const sh_reducer *reducer) { return reducer->exchange; }

sh_group *sh_reducer_group(const sh_reducer *reducer) { return reducer->group; }

sh_reducer_stats sh_reducer_take_stats(sh_reducer *reducer) {
    sh_reducer_stats stats = reducer->stats;
    if (reducer->exchange != NULL) {
        sh_exchange_stats exchanged = sh_exchange_take_stats(reducer->exchange);
        stats.sent_bytes += exchanged.sent_bytes;
        stats.dense_bytes += exchanged.dense_bytes;
    }
    reducer->stats = (sh_reducer_stats){0};
    return stats;
}
