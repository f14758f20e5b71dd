/* How the training data of one machine is dealt to simulated clients. */
#ifndef SH_FED_PARTITION_H
#define SH_FED_PARTITION_H

#include "data/dataset.h"

typedef struct sh_fed_partition {
    uint32_t *order;  // samples of the training data, client after client
    size_t *begin;    // (clients + 1) client c has order[begin[c]] to order[begin[c + 1] - 1]
    size_t clients;
} sh_fed_partition;

/* `how`: "iid", "shards:S" (sorted by class, cut into clients x S shards, S for each client;
 * McMahan et al. 2017) or "dirichlet:A" (each class is dealt in proportions drawn from a symmetric
 * Dirichlet distribution; Hsu et al. 2019). A function of the seed. No client stays without a
 * sample. Caller ends it. */
sh_status sh_fed_partition_make(const sh_dataset *train, const char *how, size_t clients,
                                uint64_t seed, sh_fed_partition *partition_out);
void sh_fed_partition_fini(sh_fed_partition *partition);

/* Samples [first, first + count) of a client's as a dataset with the training data's
 * normalisation. */
sh_status sh_fed_partition_open(const sh_fed_partition *partition, const sh_data *data,
                                size_t client, size_t first, size_t count,
                                sh_dataset **dataset_out);

static inline size_t sh_fed_partition_size(const sh_fed_partition *partition, size_t client) {
    return partition->begin[client + 1] - partition->begin[client];
}

#endif
