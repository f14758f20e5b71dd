#include "codec/exchange.h"

#include <string.h>

#include "codec/exchange_internal.h"
#include "tensor/kernels/vector.h"

static sh_status out_of_memory(void) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for the exchange of gradients");
}

/* Fills the codec's view of every parameter: as a matrix, and with the factors of low-rank
 * codecs. */
static sh_status describe_tensors(sh_exchange *exchange) {
    const sh_param_list *params = exchange->options.params;
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *param = &params->items[i];
        sh_codec_tensor *tensor = &exchange->tensors[i];
        if (param->count > UINT32_MAX) {
            SH_FAIL(SH_E_UNSUPPORTED, "'%s' has %zu elements, codecs take 2^32 - 1 at most",
                    param->name, param->count);
            return sh_error_hint("train with 'compress: none'");
        }
        tensor->name = param->name;
        tensor->count = param->count;
        sh_codec_matrix(&param->shape, &tensor->rows, &tensor->columns);
        size_t floats = sh_codec_factors(&exchange->codec, tensor->rows, tensor->columns);
        if (floats == 0) continue;
        sh_shape shape = SH_SHAPE((int64_t)(floats / tensor->columns), (int64_t)tensor->columns);
        SH_TRY(sh_param_list_add(&exchange->factors, param->name, shape, false, NULL));
    }
    return SH_OK;
}

static size_t floats_bytes(size_t count) { return sh_round_up(count * sizeof(float), SH_ALIGN); }

/* Bytes of memory by use. */
typedef struct needs {
    size_t state_bytes, factor_bytes, between_bytes, work_bytes;
} needs;

/* Working memory is the largest of all tensors, since they are encoded one after another. */
static needs needs_of(const sh_exchange *exchange) {
    const sh_param_list *params = exchange->options.params;
    needs n = {.state_bytes = floats_bytes(params->total),
               .factor_bytes = floats_bytes(exchange->factors.total)};
    for (size_t i = 0; i < params->count; i++) {
        const sh_codec_tensor *tensor = &exchange->tensors[i];
        size_t work = sh_codec_work_bytes(&exchange->codec, tensor);
        n.between_bytes += floats_bytes(sh_codec_between(&exchange->codec, tensor));
        if (work > n.work_bytes) n.work_bytes = work;
    }
    n.work_bytes = sh_round_up(n.work_bytes, SH_ALIGN);
    return n;
}

/* One arena for all state, so that nothing is allocated later. Without gradients (planning) none
 * is needed. */
static sh_status take_memory(sh_exchange *exchange) {
    const sh_param_list *params = exchange->options.params;
    int states = sh_codec_states(&exchange->codec);
    needs n = needs_of(exchange);
    size_t bytes = (size_t)states * n.state_bytes + n.factor_bytes + n.between_bytes + n.work_bytes;
    if (bytes == 0 || exchange->options.gradients == NULL) return SH_OK;
    SH_TRY(sh_arena_init(&exchange->arena, "codec state", bytes));
    for (int s = 0; s < states; s++)
        exchange->states[s] = sh_arena_take(&exchange->arena, n.state_bytes);
    exchange->factor_block = sh_arena_take(&exchange->arena, n.factor_bytes);
    void *work = sh_arena_take(&exchange->arena, n.work_bytes);
    size_t factor = 0;
    for (size_t i = 0; i < params->count; i++) {
        sh_codec_tensor *tensor = &exchange->tensors[i];
        size_t between = sh_codec_between(&exchange->codec, tensor);
        for (int s = 0; s < states; s++)
            tensor->state[s] = exchange->states[s] + params->items[i].offset;
        tensor->between = sh_arena_take(&exchange->arena, floats_bytes(between));
        tensor->work = work;
        if (sh_codec_factors(&exchange->codec, tensor->rows, tensor->columns) > 0)
            tensor->factors = exchange->factor_block + exchange->factors.items[factor++].offset;
    }
    return SH_OK;
}

/* The room that the messages of a bucket need in any round and step, in all. */
static size_t room_of(const sh_exchange *exchange, const sh_coded_bucket *bucket) {
    const sh_codec_kind *kind = exchange->codec.kind;
    size_t most = 0;
    for (int round = 0; round < kind->rounds; round++) {
        size_t bytes = 0;
        for (size_t i = 0; i < bucket->count; i++)
            bytes +=
                sh_codec_bytes_most(&exchange->codec, &exchange->tensors[bucket->first + i], round);
        if (bytes > most) most = bytes;
    }
    return sh_round_up(most, SH_ALIGN) * (kind->gathers ? (size_t)exchange->codec.ranks : 1);
}

/* Messages lie in memory that peers on the same node can map: there they are not sent at all. */
static sh_status share_messages(sh_exchange *exchange) {
    size_t bytes = 0;
    if (exchange->codec.kind == NULL || exchange->options.gradients == NULL) return SH_OK;
    for (size_t i = 0; i < exchange->options.bucket_count; i++)
        bytes += room_of(exchange, &exchange->buckets[i]);
    if (bytes == 0) return SH_OK;
    SH_TRY(sh_group_share(exchange->options.group, bytes, &exchange->shared));
    exchange->shares = true;
    char *at = sh_group_memory(exchange->options.group, &exchange->shared);
    for (size_t i = 0; i < exchange->options.bucket_count; i++) {
        exchange->buckets[i].messages = at;
        at += room_of(exchange, &exchange->buckets[i]);
    }
    return SH_OK;
}

/* Later rounds run in a twin of the group, whose calls have an order of their own. */
static sh_status group_later_rounds(sh_exchange *exchange) {
    bool later = exchange->codec.kind != NULL && exchange->codec.kind->rounds > 1;
    if (!later || exchange->codec.ranks == 1) return SH_OK;
    return sh_group_twin(exchange->options.group, &exchange->later);
}

static sh_status take_buckets(sh_exchange *exchange) {
    const sh_exchange_options *options = &exchange->options;
    for (size_t i = 0; i < options->bucket_count; i++) {
        sh_exchange_bucket given = options->buckets[i];
        SH_ASSERT(given.first + given.count <= options->params->count);
        exchange->buckets[i] = (sh_coded_bucket){.first = given.first, .count = given.count};
    }
    return share_messages(exchange);
}

static sh_status build(sh_exchange *exchange) {
    const sh_exchange_options *options = &exchange->options;
    exchange->tensors = sh_alloc(options->params->count + 1, sizeof *exchange->tensors);
    exchange->buckets = sh_alloc(options->bucket_count + 1, sizeof *exchange->buckets);
    exchange->order = sh_alloc(options->bucket_count + 1, sizeof *exchange->order);
    if (exchange->tensors == NULL || exchange->buckets == NULL || exchange->order == NULL)
        return out_of_memory();
    SH_TRY(describe_tensors(exchange));
    SH_TRY(take_memory(exchange));
    SH_TRY(take_buckets(exchange));
    return group_later_rounds(exchange);
}

sh_status sh_exchange_create(const sh_exchange_options *options, sh_exchange **exchange_out) {
    SH_TRY(sh_codec_check(options->codec));
    sh_exchange *exchange = sh_alloc(1, sizeof *exchange);
    if (exchange == NULL) return out_of_memory();
    exchange->options = *options;
    exchange->codec = *options->codec;
    exchange->codec.ranks = sh_group_ranks(options->group);
    exchange->options.codec = &exchange->codec;
    exchange->rank = sh_group_rank(options->group);
    sh_status status = build(exchange);
    exchange->options.buckets = NULL;  // the caller's
    if (status != SH_OK)
        sh_exchange_destroy(exchange);
    else
        *exchange_out = exchange;
    return status;
}

void sh_exchange_destroy(sh_exchange *exchange) {
    if (exchange == NULL) return;
    sh_group_destroy(exchange->later);
    if (exchange->shares) sh_group_unshare(exchange->options.group, &exchange->shared);
    sh_arena_fini(&exchange->arena);
    sh_param_list_fini(&exchange->factors);
    sh_free(exchange->order);
    sh_free(exchange->buckets);
    sh_free(exchange->tensors);
    sh_free(exchange);
}

sh_exchange_stats sh_exchange_take_stats(sh_exchange *exchange) {
    sh_exchange_stats stats = exchange->stats;
    exchange->stats = (sh_exchange_stats){0};
    return stats;
}

size_t sh_exchange_states(const sh_exchange *exchange,
                          sh_exchange_state states_out[SH_EXCHANGE_STATES]) {
    size_t count = 0;
    for (int s = 0; s < sh_codec_states(&exchange->codec); s++)
        states_out[count++] = (sh_exchange_state){.name = exchange->codec.kind->state_names[s],
                                                  .params = exchange->options.params,
                                                  .block = exchange->states[s]};
    if (exchange->factors.count > 0)
        states_out[count++] = (sh_exchange_state){
            .name = "factors", .params = &exchange->factors, .block = exchange->factor_block};
    return count;
}

/* Averages the states over the ranks, so that one copy in a checkpoint describes all of them;
 * their sum over ranks stays. */
sh_status sh_exchange_settle(sh_exchange *exchange) {
    if (exchange->codec.ranks == 1) return SH_OK;
    for (int s = 0; s < sh_codec_states(&exchange->codec); s++) {
        sh_call call = {.what = SH_ALLREDUCE,
                        .data = exchange->states[s],
                        .count = exchange->options.params->total,
                        .dtype = SH_DTYPE_F32,
                        .op = SH_MEAN,
                        .step = exchange->step + 1,
                        .bucket = -1};
        SH_TRY(sh_group_run(exchange->options.group, &call));
    }
    return SH_OK;
}

/* Rescales residuals saved by another number of ranks: their sum over ranks stays the same. */
void sh_exchange_adopt(sh_exchange *exchange, int ranks_before) {
    SH_ASSERT(ranks_before > 0);
    if (ranks_before == exchange->codec.ranks) return;
    float factor = (float)ranks_before / (float)exchange->codec.ranks;
    for (int s = 0; s < sh_codec_states(&exchange->codec); s++)
        sh_vector()->scale(exchange->states[s], factor, exchange->options.params->total);
}
