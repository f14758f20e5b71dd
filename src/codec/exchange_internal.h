/* What exchange.c (memory, states) and exchange_run.c (buckets under way) share. */
#ifndef SH_CODEC_EXCHANGE_INTERNAL_H
#define SH_CODEC_EXCHANGE_INTERNAL_H

#include "base/clock.h"
#include "base/memory.h"
#include "codec/exchange.h"

typedef enum sh_bucket_phase {
    SH_BUCKET_IDLE,
    SH_BUCKET_TRAVELS,  // its call is with the engine
    SH_BUCKET_WAITS,    // decoded; its next round waits for its turn
    SH_BUCKET_ENDED,
} sh_bucket_phase;

typedef struct sh_coded_bucket {
    size_t first, count;  // parameters
    char *messages;       // gather: (ranks, message_bytes); sum: one message
    size_t message_bytes;
    int round;
    sh_bucket_phase phase;
    sh_call call;
    sh_status status;  // once ended; `error` has its record unless SH_OK
    sh_error error;
} sh_coded_bucket;

struct sh_exchange {
    sh_exchange_options options;  // codec: the one below
    sh_codec codec;
    int rank;
    int64_t step;
    sh_codec_tensor *tensors;  // one per parameter
    sh_coded_bucket *buckets;
    size_t *order;  // buckets of this step as they were started
    size_t started;
    sh_shared shared;  // the messages of all buckets
    bool shares;
    sh_group *later;        // of rounds after the first; NULL: there are none
    sh_arena arena;         // states, factors, what is kept between rounds, work
    float *states[2];       // of the gradient block's layout
    sh_param_list factors;  // powersgd: shapes (rank, columns)
    float *factor_block;
    sh_exchange_stats stats;
};

#endif
