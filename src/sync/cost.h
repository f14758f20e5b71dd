/* What schemes, codecs and optimizers cost a step, as closed forms over the link, the size of the
 * model and the number of workers: what plans are made of. Each family of schemes has its form
 * beside its code (sh_sync_family.cost); the simulator's counts are their test. */
#ifndef SH_SYNC_COST_H
#define SH_SYNC_COST_H

#include "comm/schedule.h"
#include "sync/sync.h"

/* A step of workers that are alike, each with a link of its own. */
struct sh_sync_load {
    sh_scheme scheme;
    const sh_sync_options *options;
    int workers;
    const sh_param_list *params;
    const sh_codec *codec;  // kind NULL: none
    const sh_optim *optim;  // whose slots are averaged with the models; NULL: it has none
    sh_link link;
};

struct sh_sync_cost {
    double sent_bytes;  // in a step of every worker, by all together; control messages left out
    double seconds;     // of communication in a step, nothing of it hidden behind computing
};

/* The mean over the steps of a long run. SH_E_UNSUPPORTED where the family has no closed form. */
sh_status sh_sync_cost_of(const sh_sync_load *load, sh_sync_cost *cost_out);

/* Bytes of all messages that a worker makes of one gradient. */
double sh_codec_message_bytes(const sh_codec *codec, const sh_param_list *params);
/* Bytes of memory that an update of `total` parameters reads and writes: it is bound by these. */
double sh_optim_traffic_bytes(const sh_optim *optim, size_t total);

/* For families: a sum of `bytes` over all workers by a schedule that sends as little as any, and
 * everybody's message of `bytes` to everybody. */
sh_sync_cost sh_cost_sum(const sh_sync_load *load, double bytes);
sh_sync_cost sh_cost_gather(const sh_sync_load *load, double bytes);
/* The mean of the models every `period` steps, with the optimizer's slots where they are averaged.
 */
sh_sync_cost sh_cost_model_mean(const sh_sync_load *load, double period, sh_momentum usual);
double sh_cost_model_bytes(const sh_sync_load *load);

#endif
