/* Buckets under way. */
#include <string.h>

#include "codec/exchange_internal.h"
#include "tensor/kernels/vector.h"

/* Streams of a step: number 0 is common to the ranks, rank r has number r + 1. */
static const int RANK_BITS = 20;

static sh_rng stream(const sh_exchange *exchange, size_t param, int number) {
    uint64_t place = (uint64_t)exchange->step << RANK_BITS | (uint64_t)number;
    return sh_rng_stream(exchange->options.seed, SH_RNG_CODEC, (uint32_t)param, place);
}

void sh_exchange_begin(sh_exchange *exchange, int64_t step) {
    exchange->step = exchange->codec.step = step;
    for (size_t i = 0; i < exchange->started; i++) {
        sh_coded_bucket *bucket = &exchange->buckets[exchange->order[i]];
        SH_ASSERT(bucket->phase == SH_BUCKET_ENDED);
        bucket->phase = SH_BUCKET_IDLE;
    }
    exchange->started = 0;
}

static float *gradient_of(const sh_exchange *exchange, size_t param) {
    return exchange->options.gradients + exchange->options.params->items[param].offset;
}

static size_t bytes_of(const sh_exchange *exchange, const sh_coded_bucket *bucket, int round) {
    size_t bytes = 0;
    for (size_t i = bucket->first; i < bucket->first + bucket->count; i++)
        bytes += sh_codec_bytes(&exchange->codec, &exchange->tensors[i], round);
    return bytes;
}

static void encode(sh_exchange *exchange, sh_coded_bucket *bucket) {
    char *at = bucket->messages;
    if (exchange->codec.kind->gathers) at += (size_t)exchange->rank * bucket->message_bytes;
    const char *end = at + bucket->message_bytes;
    for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        sh_codec_tensor *tensor = &exchange->tensors[i];
        if (bucket->round == 0) {
            tensor->own = stream(exchange, i, exchange->rank + 1);
            tensor->common = stream(exchange, i, 0);
        }
        sh_codec_encode(&exchange->codec, tensor, bucket->round, gradient_of(exchange, i), at);
        at += sh_codec_bytes(&exchange->codec, tensor, bucket->round);
    }
    memset(at, 0, (size_t)(end - at));
}

/* The call of the bucket's round, not yet started. */
static sh_call call_of(const sh_exchange *exchange, const sh_coded_bucket *bucket, size_t index) {
    const sh_codec_kind *kind = exchange->codec.kind;
    sh_call call = {.what = SH_ALLREDUCE,
                    .op = SH_SUM,
                    .group = bucket->round > 0 && exchange->later != NULL ? exchange->later
                                                                          : exchange->options.group,
                    .step = exchange->step + 1,
                    .bucket = (int)index};
    if (kind == NULL) {
        const sh_param *low = &exchange->options.params->items[bucket->first];
        const sh_param *high = low + bucket->count - 1;
        if (bucket->count > 0 && exchange->options.gradients != NULL)
            call.data = exchange->options.gradients + low->offset;
        call.count = bucket->count > 0 ? high->offset + high->count - low->offset : 0;
        call.dtype = SH_DTYPE_F32;
        call.shared = exchange->options.shared;
        return call;
    }
    call.data = bucket->messages;
    call.shared = exchange->shares ? sh_group_mapped(&exchange->shared) : NULL;
    call.dtype = kind->gathers ? SH_DTYPE_BYTE : kind->dtype;
    call.count = bucket->message_bytes / sh_dtype_bytes(call.dtype);
    if (kind->gathers) {
        call.what = SH_ALLGATHER;
        call.count *= (size_t)exchange->codec.ranks;
    }
    return call;
}

static void end(sh_coded_bucket *bucket, sh_status status) {
    bucket->phase = SH_BUCKET_ENDED;
    bucket->status = status;
    if (status != SH_OK) bucket->error = *sh_error_last();
}

static int64_t now(const sh_exchange *exchange) {
    return exchange->options.clock != NULL ? sh_clock_now_ns(exchange->options.clock) : 0;
}

static void start_round(sh_exchange *exchange, size_t index) {
    sh_coded_bucket *bucket = &exchange->buckets[index];
    const sh_codec_kind *kind = exchange->codec.kind;
    if (kind != NULL) {
        int64_t begin = now(exchange);
        size_t bytes = bytes_of(exchange, bucket, bucket->round);
        exchange->stats.message_bytes += bytes;
        // Blocks of ranks begin on cache lines of their own.
        bucket->message_bytes = kind->gathers ? sh_round_up(bytes, SH_ALIGN) : bytes;
        if (exchange->options.gradients != NULL) encode(exchange, bucket);
        exchange->stats.codec_ns += now(exchange) - begin;
    }
    bucket->call = call_of(exchange, bucket, index);
    bucket->phase = SH_BUCKET_TRAVELS;
    sh_status status = sh_group_start(bucket->call.group, &bucket->call);
    if (status != SH_OK) end(bucket, status);
}

void sh_exchange_start(sh_exchange *exchange, size_t index) {
    SH_ASSERT(index < exchange->options.bucket_count);
    sh_coded_bucket *bucket = &exchange->buckets[index];
    SH_ASSERT(bucket->phase == SH_BUCKET_IDLE);
    size_t floats = 0;
    for (size_t i = bucket->first; i < bucket->first + bucket->count; i++)
        floats += exchange->tensors[i].count * sizeof(float);
    exchange->stats.float_bytes += floats;
    if (exchange->codec.kind == NULL) exchange->stats.message_bytes += floats;
    size_t ranks = (size_t)exchange->codec.ranks;
    exchange->stats.dense_bytes += 2 * (ranks - 1) * floats / ranks;
    exchange->order[exchange->started++] = index;
    bucket->round = 0;
    start_round(exchange, index);
}

/* One parameter: all ranks' messages in rank order, or the sum. `at` is its place in a message. */
static sh_status decode_param(sh_exchange *exchange, const sh_coded_bucket *bucket, size_t param,
                              size_t at, size_t bytes) {
    sh_codec_tensor *tensor = &exchange->tensors[param];
    float *x = gradient_of(exchange, param);
    int senders = exchange->codec.kind->gathers ? exchange->codec.ranks : 1;
    if (exchange->codec.kind->gathers) sh_vector()->fill(x, 0, tensor->count);
    for (int from = 0; from < senders; from++) {
        const char *message = bucket->messages + (size_t)from * bucket->message_bytes + at;
        tensor->from = from;
        SH_TRY(sh_codec_decode(&exchange->codec, tensor, bucket->round, message, bytes, 1, x));
    }
    return SH_OK;
}

static sh_status decode(sh_exchange *exchange, const sh_coded_bucket *bucket) {
    size_t at = 0;
    for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        size_t bytes = sh_codec_bytes(&exchange->codec, &exchange->tensors[i], bucket->round);
        SH_TRY(decode_param(exchange, bucket, i, at, bytes));
        at += bytes;
    }
    return SH_OK;
}

/* The bucket's call is finished. */
static void arrive(sh_exchange *exchange, sh_coded_bucket *bucket) {
    const sh_codec_kind *kind = exchange->codec.kind;
    sh_status status = sh_group_wait(exchange->options.group, &bucket->call);  // at once
    exchange->stats.sent_bytes += bucket->call.sent_bytes;
    if (status == SH_OK && kind != NULL && exchange->options.gradients != NULL) {
        int64_t begin = now(exchange);
        status = decode(exchange, bucket);
        exchange->stats.codec_ns += now(exchange) - begin;
    }
    if (status != SH_OK || kind == NULL || bucket->round + 1 == kind->rounds) {
        end(bucket, status);
        return;
    }
    bucket->round++;
    bucket->phase = SH_BUCKET_WAITS;
}

/* The bucket at `place` of the order may start its round: the one before it has done so. */
static bool has_turn(const sh_exchange *exchange, size_t place) {
    if (place == 0) return true;
    const sh_coded_bucket *bucket = &exchange->buckets[exchange->order[place]];
    const sh_coded_bucket *before = &exchange->buckets[exchange->order[place - 1]];
    return before->phase == SH_BUCKET_ENDED ||
           (before->phase == SH_BUCKET_TRAVELS && before->round >= bucket->round) ||
           before->round > bucket->round;
}

static void drive(sh_exchange *exchange) {
    for (size_t place = 0; place < exchange->started; place++) {
        size_t index = exchange->order[place];
        sh_coded_bucket *bucket = &exchange->buckets[index];
        if (bucket->phase == SH_BUCKET_TRAVELS &&
            sh_group_test(exchange->options.group, &bucket->call))
            arrive(exchange, bucket);
        if (bucket->phase == SH_BUCKET_WAITS && has_turn(exchange, place))
            start_round(exchange, index);
    }
}

bool sh_exchange_test(sh_exchange *exchange, size_t index) {
    const sh_coded_bucket *bucket = &exchange->buckets[index];
    SH_ASSERT(bucket->phase != SH_BUCKET_IDLE);
    if (bucket->phase != SH_BUCKET_ENDED) drive(exchange);
    return bucket->phase == SH_BUCKET_ENDED;
}

/* The first bucket that has not ended is always with the engine: the others are before it. */
static sh_coded_bucket *first_under_way(const sh_exchange *exchange) {
    for (size_t place = 0; place < exchange->started; place++) {
        sh_coded_bucket *bucket = &exchange->buckets[exchange->order[place]];
        if (bucket->phase == SH_BUCKET_TRAVELS) return bucket;
        SH_ASSERT(bucket->phase == SH_BUCKET_ENDED);
    }
    return NULL;
}

sh_status sh_exchange_wait(sh_exchange *exchange, size_t index) {
    const sh_coded_bucket *bucket = &exchange->buckets[index];
    while (!sh_exchange_test(exchange, index)) {
        sh_coded_bucket *first = first_under_way(exchange);
        sh_status status = sh_group_wait(exchange->options.group, &first->call);
        // A time-out leaves the call under way; whoever waits is told.
        if (status != SH_OK && !sh_group_test(exchange->options.group, &first->call)) return status;
    }
    return bucket->status == SH_OK ? SH_OK : sh_error_adopt(&bucket->error);
}
