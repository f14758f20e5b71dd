/* The exchange takes gradients, bucket by bucket, through a codec and over the ranks:
 *
 *   encode -> all-gather of messages, or all-reduce of sums -> decode   (powersgd: twice)
 *
 * Before, the gradient block of a rank holds its own part; after, the sum over all ranks, with
 * equal bits on all of them. Buckets are started in the same order by all ranks, several are under
 * way at once, and testing drives them. Nothing is allocated after create, but for what the engine
 * does at the first call of a size.
 *
 * Later rounds are started in the order of the first ones, in a group of their own: ranks that
 * reach them at different times still start the same collectives in the same order.
 *
 * A codec with states may deliver parts of earlier gradients, so a parameter that no rank used in
 * this step can get a gradient other than zero; leaving it untouched would lose that part.
 *
 * Without gradients only time passes: messages have their sizes and no contents.
 *
 * The main task's alone. */
#ifndef SH_CODEC_EXCHANGE_H
#define SH_CODEC_EXCHANGE_H

#include "codec/codec.h"
#include "comm/engine.h"
#include "nn/param.h"

typedef struct sh_exchange sh_exchange;

/* Parameters [first, first + count): neighbours in the gradient block. */
typedef struct sh_exchange_bucket {
    size_t first, count;
} sh_exchange_bucket;

typedef struct sh_exchange_options {
    sh_group *group;
    const sh_codec *codec;        // copied; kind NULL: a plain all-reduce of floats
    const sh_param_list *params;  // kept
    float *gradients;             // the whole block; kept. NULL: timing only
    const sh_shared *shared;      // that holds it; NULL: private memory
    const sh_exchange_bucket *buckets;
    size_t bucket_count;
    uint64_t seed;          // the same on all ranks
    const sh_clock *clock;  // NULL: codec_ns stays 0
} sh_exchange_options;

/* Collective. Fails if the codec's options do not fit. */
sh_status sh_exchange_create(const sh_exchange_options *options, sh_exchange **exchange_out);
/* Collective, with no bucket under way. */
void sh_exchange_destroy(sh_exchange *exchange);

/* A new step: all buckets may be started again, each once. Random draws and the warm-up depend on
 * its number. */
void sh_exchange_begin(sh_exchange *exchange, int64_t step);
/* The gradients of the bucket are final: encodes them and starts. */
void sh_exchange_start(sh_exchange *exchange, size_t index);
/* Makes progress with all buckets. True once this one has ended, well or not. */
bool sh_exchange_test(sh_exchange *exchange, size_t index);
/* How a bucket ended. SH_E_NUMERIC: a rank's gradient was not finite; all ranks are told the same,
 * and the bucket's gradients are spoilt. */
sh_status sh_exchange_wait(sh_exchange *exchange, size_t index);

typedef struct sh_exchange_stats {
    uint64_t message_bytes;  // of this rank's messages
    uint64_t float_bytes;    // of the gradients in them
    uint64_t sent_bytes;     // over the wire by this rank
    uint64_t dense_bytes;    // that a bandwidth-optimal all-reduce of the floats sends
    int64_t codec_ns;        // spent encoding and decoding
} sh_exchange_stats;

/* Sums since the last call. */
sh_exchange_stats sh_exchange_take_stats(sh_exchange *exchange);

enum { SH_EXCHANGE_STATES = 3 };

/* A block that belongs into checkpoints. */
typedef struct sh_exchange_state {
    const char *name;             // "residual", "velocity", "factors"
    const sh_param_list *params;  // names, shapes and places in the block
    float *block;                 // NULL: timing only
} sh_exchange_state;

/* Returns how many there are; their contents may be overwritten between steps (resume). */
size_t sh_exchange_states(const sh_exchange *exchange,
                          sh_exchange_state states_out[SH_EXCHANGE_STATES]);
/* Collective, between steps: replaces the residual and the velocity of every rank by the mean over
 * the ranks. The sum over ranks, which is all that a later gradient sees of them, stays. So one
 * copy describes all ranks; and since the run goes on from it as well, a resumed run continues with
 * the same bits. */
sh_status sh_exchange_settle(sh_exchange *exchange);
/* The states were read from a checkpoint of a run with another number of ranks: scales them so that
 * the sum over ranks stays. Without effect when the number is the same. */
void sh_exchange_adopt(sh_exchange *exchange, int ranks_before);

#endif
