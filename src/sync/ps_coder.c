#include <string.h>

#include "base/memory.h"
#include "sync/ps.h"
#include "tensor/kernels/vector.h"

static sh_status out_of_memory(void) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for compressed messages of parameter servers");
}

static sh_status take_memory(sh_ps_coder *coder) {
    size_t count = coder->shard->params.total + 1, work = 0;
    for (size_t i = 0; i < coder->shard->params.count; i++) {
        size_t bytes = sh_codec_work_bytes(&coder->codec, &coder->tensors[i]);
        if (bytes > work) work = bytes;
    }
    size_t state_bytes = sh_round_up(count * sizeof(float), SH_ALIGN);
    size_t message_bytes = sh_round_up(coder->bytes + 1, SH_ALIGN);
    work = sh_round_up(work + 1, SH_ALIGN);
    SH_TRY(sh_arena_init(&coder->arena, "compressed messages", state_bytes + message_bytes + work));
    coder->state = sh_arena_take(&coder->arena, state_bytes);
    coder->message = sh_arena_take(&coder->arena, message_bytes);
    void *room = sh_arena_take(&coder->arena, work);
    for (size_t i = 0; i < coder->shard->params.count; i++) {
        coder->tensors[i].state[0] = coder->state + coder->shard->params.items[i].offset;
        coder->tensors[i].work = room;
    }
    return SH_OK;
}

static sh_status describe(sh_ps_coder *coder) {
    const sh_param_list *params = &coder->shard->params;
    coder->tensors = sh_alloc(params->count + 1, sizeof *coder->tensors);
    if (coder->tensors == NULL) return out_of_memory();
    coder->bytes = 0;
    for (size_t i = 0; i < params->count; i++) {
        sh_codec_tensor *tensor = &coder->tensors[i];
        if (params->items[i].count > UINT32_MAX)
            return SH_FAIL(SH_E_UNSUPPORTED, "'%s' has %zu elements, codecs take 2^32 - 1 at most",
                           params->items[i].name, params->items[i].count);
        tensor->name = params->items[i].name;
        tensor->count = params->items[i].count;
        sh_codec_matrix(&params->items[i].shape, &tensor->rows, &tensor->columns);
        coder->bytes += sh_codec_bytes(&coder->codec, tensor, 0);
    }
    return SH_OK;
}

sh_status sh_ps_coder_init(sh_ps_coder *coder, const sh_codec *codec, const sh_ps_shard *shard,
                           uint64_t seed, bool computes) {
    *coder = (sh_ps_coder){
        .codec = *codec, .shard = shard, .seed = seed, .bytes = sh_ps_shard_bytes(shard)};
    coder->codec.ranks = 1;  // a message stands for itself
    if (codec->kind == NULL) return SH_OK;
    SH_TRY(describe(coder));
    return computes ? take_memory(coder) : SH_OK;
}

void sh_ps_coder_fini(sh_ps_coder *coder) {
    sh_arena_fini(&coder->arena);
    sh_free(coder->tensors);
    *coder = (sh_ps_coder){0};
}

/* Draws are named by who sends and when, so that both sides know them. */
static void set_streams(sh_ps_coder *coder, size_t index, int rank, int64_t step) {
    sh_codec_tensor *tensor = &coder->tensors[index];
    uint64_t place = (uint64_t)step << 20 | (uint64_t)rank;
    uint32_t name = (uint32_t)coder->shard->origin[index];
    tensor->from = rank;
    tensor->common = sh_rng_stream(coder->seed, SH_RNG_CODEC, name, place << 1);
    tensor->own = sh_rng_stream(coder->seed, SH_RNG_CODEC, name, place << 1 | 1);
}

void sh_ps_encode(sh_ps_coder *coder, int rank, int64_t step, const float *x) {
    char *at = coder->message;
    for (size_t i = 0; i < coder->shard->params.count; i++) {
        set_streams(coder, i, rank, step);
        sh_codec_encode(&coder->codec, &coder->tensors[i], 0,
                        x + coder->shard->params.items[i].offset, at);
        at += sh_codec_bytes(&coder->codec, &coder->tensors[i], 0);
    }
}

sh_status sh_ps_decode(sh_ps_coder *coder, int rank, int64_t step, const char *message,
                       float *x_out) {
    sh_vector()->fill(x_out, 0, coder->shard->params.total);
    for (size_t i = 0; i < coder->shard->params.count; i++) {
        size_t bytes = sh_codec_bytes(&coder->codec, &coder->tensors[i], 0);
        set_streams(coder, i, rank, step);
        SH_TRY(sh_codec_decode(&coder->codec, &coder->tensors[i], 0, message, bytes, 1,
                               x_out + coder->shard->params.items[i].offset));
        message += bytes;
    }
    return SH_OK;
}

void sh_ps_encode_alone(sh_ps_coder *coder, int rank, int64_t step, const float *x) {
    sh_vector()->fill(coder->state, 0, coder->shard->params.total);
    sh_ps_encode(coder, rank, step, x);
}

void sh_ps_encode_lag(sh_ps_coder *coder, int rank, int64_t step, const float *now,
                      const float *known, float *lag) {
    size_t total = coder->shard->params.total;
    for (size_t i = 0; i < total; i++) lag[i] = now[i] - known[i];
    sh_ps_encode_alone(coder, rank, step, lag);
}
