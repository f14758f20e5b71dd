/* One parameter of one rank with everything a codec needs, and a round trip over several ranks in
 * one thread, as an exchange would run it. */
#ifndef SH_TESTS_CODEC_RIG_H
#define SH_TESTS_CODEC_RIG_H

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "codec/codec.h"
#include "harness.h"
#include "tensor/settings.h"

typedef struct rig {
    sh_codec codec;
    sh_codec_tensor tensor;
    unsigned char *message;
    int rank;
} rig;

/* Exact blocks on the heap, so that a sanitizer sees every excess. */
static inline void *block(size_t bytes) {
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, SH_ALIGN, bytes != 0 ? bytes : 1), 0);
    memset(memory, 0, bytes != 0 ? bytes : 1);
    return memory;
}

static inline sh_codec codec_of(const char *text) {
    sh_codec codec;
    CHECK_OK(sh_codec_parse(text, &codec));
    CHECK_OK(sh_codec_check(&codec));
    codec.options.dense_below = 0;  // so that small tensors show what a codec does
    return codec;
}

static inline void rig_init(rig *r, const sh_codec *codec, size_t rows, size_t columns, int rank) {
    *r = (rig){.codec = *codec, .rank = rank};
    r->tensor = (sh_codec_tensor){
        .name = "weight", .rows = rows, .columns = columns, .count = rows * columns};
    size_t most = 0;
    for (int round = 0; round < codec->kind->rounds; round++) {
        size_t bytes = sh_codec_bytes_most(codec, &r->tensor, round);
        if (bytes > most) most = bytes;
    }
    r->message = block(most);
    for (int i = 0; i < sh_codec_states(codec); i++)
        r->tensor.state[i] = block(r->tensor.count * sizeof(float));
    r->tensor.factors = block(sh_codec_factors(codec, rows, columns) * sizeof(float));
    r->tensor.between = block(sh_codec_between(codec, &r->tensor) * sizeof(float));
    r->tensor.work = block(sh_codec_work_bytes(codec, &r->tensor));
}

static inline void rig_fini(rig *r) {
    free(r->message);
    free(r->tensor.state[0]);
    free(r->tensor.state[1]);
    free(r->tensor.factors);
    free(r->tensor.between);
    free(r->tensor.work);
}

static inline void rig_step_param(rig *r, uint64_t seed, int64_t step, size_t param) {
    uint64_t place = (uint64_t)step << 20;
    r->codec.step = step;
    r->tensor.common = sh_rng_stream(seed, SH_RNG_CODEC, (uint32_t)param, place);
    r->tensor.own =
        sh_rng_stream(seed, SH_RNG_CODEC, (uint32_t)param, place | ((uint64_t)r->rank + 1));
}

static inline void rig_step(rig *r, uint64_t seed, int64_t step) {
    rig_step_param(r, seed, step, 0);
}

/* Sums the messages of a round into that of every rank: floats only. */
static inline void sum_messages(rig *rigs, int ranks, size_t bytes) {
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        double sum = 0;
        for (int k = 0; k < ranks; k++) sum += (double)((float *)rigs[k].message)[i];
        for (int k = 0; k < ranks; k++) ((float *)rigs[k].message)[i] = (float)sum;
    }
}

/* Gradients x[rank] become, on every rank, the decoded sum. Sums of 16 bits: one rank only. */
static inline void round_trip_param(rig *rigs, int ranks, float *const *x, uint64_t seed,
                                    int64_t step, size_t param) {
    size_t count = rigs[0].tensor.count;
    const sh_codec_kind *kind = rigs[0].codec.kind;
    for (int k = 0; k < ranks; k++) {
        rigs[k].codec.ranks = ranks;
        rig_step_param(&rigs[k], seed, step, param);
    }
    for (int round = 0; round < kind->rounds; round++) {
        size_t bytes = sh_codec_bytes(&rigs[0].codec, &rigs[0].tensor, round);
        for (int k = 0; k < ranks; k++)
            sh_codec_encode(&rigs[k].codec, &rigs[k].tensor, round, x[k], rigs[k].message);
        if (!kind->gathers && kind->dtype == SH_DTYPE_F32) sum_messages(rigs, ranks, bytes);
        if (!kind->gathers && kind->dtype != SH_DTYPE_F32) assert_int_equal(ranks, 1);
        for (int k = 0; k < ranks; k++) {
            if (kind->gathers) memset(x[k], 0, count * sizeof(float));
            for (int from = 0; from < (kind->gathers ? ranks : 1); from++) {
                const rig *sender = kind->gathers ? &rigs[from] : &rigs[k];
                CHECK_OK(sh_codec_decode(&rigs[k].codec, &rigs[k].tensor, round, sender->message,
                                         bytes, 1, x[k]));
            }
        }
    }
}

static inline void round_trip(rig *rigs, int ranks, float *const *x, uint64_t seed, int64_t step) {
    round_trip_param(rigs, ranks, x, seed, step, 0);
}

#endif
