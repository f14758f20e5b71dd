/* Dealing the training data of one machine to simulated clients: evenly, by shards of classes
 * (McMahan et al. 2017), or by Dirichlet proportions (Hsu et al. 2019). Everything is drawn from
 * the seed, so that a simulation can be repeated exactly. */
#include "fed/partition.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/view.h"

enum { USE_ORDER, USE_SHARDS, USE_DIRICHLET, USE_FILL };  // streams of one seed

/* A partition being made; `out` has room for the order of all samples. */
typedef struct dealer {
    const sh_dataset *train;
    size_t count, classes;
    uint64_t seed;
    int32_t *labels;  // (count); NULL: iid
    sh_fed_partition *out;
} dealer;

/* Independent streams: another use draws the same whatever the first one drew. */
static sh_rng stream(const dealer *d, uint32_t use) {
    return sh_rng_stream(d->seed, SH_RNG_FED_PARTITION, use, 0);
}

/* Labels only: features need not be read to deal. */
static sh_status read_labels(dealer *d, const char *how) {
    const sh_data_info *info = &d->train->info;
    if (info->target != SH_TARGET_CLASS)
        return SH_FAIL(SH_E_USAGE, "partition '%s' deals classes, and this data has none", how);
    d->classes = (size_t)info->classes;
    d->labels = sh_alloc(d->count, sizeof *d->labels);
    if (d->labels == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for labels");
    for (size_t i = 0; i < d->count; i++) {
        d->train->get(d->train, i, NULL, &d->labels[i]);  // NULL: no features
        // A label that does not count is dealt with the first class.
        if (d->labels[i] < 0 || (size_t)d->labels[i] >= d->classes) d->labels[i] = 0;
    }
    return SH_OK;
}

/* A shuffle cut into stretches whose sizes differ by at most one. */
static void deal_evenly(dealer *d) {
    sh_rng rng = stream(d, USE_ORDER);
    sh_rng_shuffle(&rng, d->out->order, d->count);
    // begin[c] of integer shares: sizes differ by one at most.
    for (size_t c = 0; c <= d->out->clients; c++) d->out->begin[c] = d->count * c / d->out->clients;
}

/* Sorted by class, and in drawn order within one. `starts_out` (classes + 1). */
static sh_status sort_by_class(dealer *d, uint32_t *sorted_out, size_t *starts_out) {
    uint32_t *drawn = sh_alloc(d->count, sizeof *drawn);
    if (drawn == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a partition");
    sh_rng rng = stream(d, USE_ORDER);
    sh_rng_shuffle(&rng, drawn, d->count);
    size_t at = 0;
    for (size_t k = 0; k < d->classes; k++) {
        starts_out[k] = at;
        for (size_t i = 0; i < d->count; i++)  // O(classes count): done once
            if ((size_t)d->labels[drawn[i]] == k) sorted_out[at++] = drawn[i];
    }
    starts_out[d->classes] = at;
    sh_free(drawn);
    return SH_OK;
}

/* `each` shards per client, drawn from a shuffled deck: a client sees few classes. */
static sh_status deal_shards(dealer *d, const uint32_t *sorted, size_t each) {
    size_t shards = each * d->out->clients, at = 0;
    if (shards > d->count) {  // an empty shard would leave a client without samples
        SH_FAIL(SH_E_USAGE, "%zu samples cannot be cut into %zu shards", d->count, shards);
        return sh_error_hint("take fewer clients or shards");
    }
    uint32_t *deck = sh_alloc(shards, sizeof *deck);
    if (deck == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a partition");
    sh_rng rng = stream(d, USE_SHARDS);
    sh_rng_shuffle(&rng, deck, shards);
    for (size_t s = 0; s < shards; s++) {  // consecutive cards of the deck go to one client
        size_t first = d->count * deck[s] / shards, end = d->count * (deck[s] + 1) / shards;
        if (s % each == 0) d->out->begin[s / each] = at;
        memcpy(d->out->order + at, sorted + first, (end - first) * sizeof *sorted);
        at += end - first;
    }
    d->out->begin[d->out->clients] = at;
    sh_free(deck);
    return SH_OK;
}

/* Gamma(a, 1) by Marsaglia and Tsang 2000; below 1 by the factor u^(1/a). */
static double draw_gamma(sh_rng *rng, double a) {
    double boost = 1;
    if (a < 1) {
        boost = pow(1.0 - (double)sh_rng_uniform(rng), 1 / a);
        a += 1;
    }
    double d = a - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = (double)sh_rng_normal(rng), v = 1 + c * x;
        if (v <= 0) continue;  // outside the support: draw again
        v = v * v * v;
        double u = 1.0 - (double)sh_rng_uniform(rng);
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return boost * d * v;
    }
}

/* Samples of each class for each client, counts (classes, clients): gamma draws divided by their
 * sum are Dirichlet proportions. Rounding cumulative sums makes the counts add up to the class. */
static void draw_counts(dealer *d, double concentration, const size_t *starts, double *weights,
                        size_t *counts_out) {
    sh_rng rng = stream(d, USE_DIRICHLET);
    size_t clients = d->out->clients;
    for (size_t k = 0; k < d->classes; k++) {
        double sum = 0, before = 0;
        size_t size = starts[k + 1] - starts[k], dealt = 0;
        for (size_t c = 0; c < clients; c++) sum += weights[c] = draw_gamma(&rng, concentration);
        for (size_t c = 0; c < clients; c++) {
            before += weights[c];
            // All draws underflowed: the last client gets the class.
            size_t end = sum > 0 ? (size_t)llrint((double)size * before / sum) : dealt;
            if (end > size || c + 1 == clients) end = size;  // rounding may not lose a sample
            counts_out[k * clients + c] = end - dealt;
            dealt = end;
        }
    }
}

/* Takes a sample from the largest (class, client) count for each client that has none: nobody can
 * train on nothing. */
static void fill_empty(size_t *counts, size_t classes, size_t clients) {
    for (size_t c = 0; c < clients; c++) {
        size_t own = 0, most = 0, from = 0;
        for (size_t k = 0; k < classes; k++) own += counts[k * clients + c];
        for (size_t i = 0; i < classes * clients && own == 0; i++)
            if (counts[i] > most) {
                most = counts[i];
                from = i;
            }
        if (own > 0) continue;
        counts[from]--;
        counts[from / clients * clients + c]++;  // same class, moved to the client that had none
    }
}

/* `starts` moves on as samples of a class are dealt. */
static sh_status deal_dirichlet(dealer *d, const uint32_t *sorted, size_t *starts,
                                double concentration) {
    size_t clients = d->out->clients, at = 0;
    size_t *counts = sh_alloc(d->classes * clients, sizeof *counts);
    double *weights = sh_alloc(clients, sizeof *weights);
    sh_status status = SH_OK;
    if (counts == NULL || weights == NULL) {
        status = SH_FAIL(SH_E_MEMORY, "out of memory for a partition");
    } else {
        draw_counts(d, concentration, starts, weights, counts);
        fill_empty(counts, d->classes, clients);
        for (size_t c = 0; c < clients; c++) {
            d->out->begin[c] = at;
            for (size_t k = 0; k < d->classes; k++) {
                size_t some = counts[k * clients + c];
                memcpy(d->out->order + at, sorted + starts[k], some * sizeof *sorted);
                starts[k] += some;
                at += some;
            }
        }
        d->out->begin[clients] = at;
    }
    sh_free(counts);
    sh_free(weights);
    return status;
}

/* A client's samples lie class by class: another order, so that any stretch of them is a sample of
 * all. */
static sh_status mix(dealer *d) {
    sh_fed_partition *out = d->out;
    uint32_t *order = sh_alloc(d->count, sizeof *order), *own = sh_alloc(d->count, sizeof *own);
    sh_rng rng = stream(d, USE_FILL);
    for (size_t c = 0; order != NULL && own != NULL && c < out->clients; c++) {
        size_t size = sh_fed_partition_size(out, c), first = out->begin[c];
        sh_rng_shuffle(&rng, order, size);
        memcpy(own, out->order + first, size * sizeof *own);
        for (size_t i = 0; i < size; i++) out->order[first + i] = own[order[i]];
    }
    bool complete = order != NULL && own != NULL;
    sh_free(order);
    sh_free(own);
    return complete ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for a partition");
}

/* Sorts, deals, then mixes within each client. `amount`: shards for each client, or the
 * concentration. */
static sh_status deal_classes(dealer *d, const char *how, bool shards, double amount) {
    SH_TRY(read_labels(d, how));
    uint32_t *sorted = sh_alloc(d->count, sizeof *sorted);
    size_t *starts = sh_alloc(d->classes + 1, sizeof *starts);
    sh_status status = sorted != NULL && starts != NULL
                           ? sort_by_class(d, sorted, starts)
                           : SH_FAIL(SH_E_MEMORY, "out of memory for a partition");
    if (status == SH_OK)
        status = shards ? deal_shards(d, sorted, (size_t)amount)
                        : deal_dirichlet(d, sorted, starts, amount);
    sh_free(sorted);
    sh_free(starts);
    return status == SH_OK ? mix(d) : status;
}

static sh_status refuse(const char *how) {
    SH_FAIL(SH_E_USAGE, "there is no partition '%.40s'", how);
    return sh_error_hint("iid, shards:S with a whole S from 1, or dirichlet:A with A from 0.01");
}

/* Reads "iid", "shards:S" or "dirichlet:A"; small A makes clients unlike each other. */
static sh_status deal(dealer *d, const char *how) {
    char *end = NULL;
    bool shards = strncmp(how, "shards:", 7) == 0, dirichlet = strncmp(how, "dirichlet:", 10) == 0;
    if (strcmp(how, "iid") == 0) {
        deal_evenly(d);
        return SH_OK;
    }
    if (!shards && !dirichlet) return refuse(how);
    const char *number = how + (shards ? 7 : 10);
    double amount = sh_strtod(number, &end), least = shards ? 1 : 0.01;
    bool whole = !shards || amount == floor(amount);
    // NaN fails the comparisons.
    if (end == number || *end != '\0' || !(amount >= least) || !(amount <= 1e6) || !whole)
        return refuse(how);
    return deal_classes(d, how, shards, amount);
}

static sh_status check(const sh_dataset *train, size_t clients) {
    if (train->info.tokens) {
        SH_FAIL(SH_E_UNSUPPORTED, "text is one sequence, which is not dealt to clients");
        return sh_error_hint("give each client its own text: shoal fed serve, shoal join");
    }
    if (clients >= 1 && clients <= train->info.count) return SH_OK;
    SH_FAIL(SH_E_USAGE, "%zu samples cannot be dealt to %zu clients", train->info.count, clients);
    return sh_error_hint("take fewer clients");
}

sh_status sh_fed_partition_make(const sh_dataset *train, const char *how, size_t clients,
                                uint64_t seed, sh_fed_partition *partition_out) {
    SH_TRY(check(train, clients));
    sh_fed_partition partition = {.order = sh_alloc(train->info.count, sizeof(uint32_t)),
                                  .begin = sh_alloc(clients + 1, sizeof(size_t)),
                                  .clients = clients};
    dealer d = {.train = train, .count = train->info.count, .seed = seed, .out = &partition};
    // `begin` (clients + 1), `order` (count): indices into the training data.
    sh_status status = partition.order != NULL && partition.begin != NULL
                           ? deal(&d, how)
                           : SH_FAIL(SH_E_MEMORY, "out of memory for a partition");
    sh_free(d.labels);
    if (status != SH_OK)
        sh_fed_partition_fini(&partition);
    else
        *partition_out = partition;
    return status;
}

void sh_fed_partition_fini(sh_fed_partition *partition) {
    sh_free(partition->order);
    sh_free(partition->begin);
    *partition = (sh_fed_partition){0};
}

/* A view on the shared data: no sample is copied, and normalisation is that of all training data.
 */
sh_status sh_fed_partition_open(const sh_fed_partition *partition, const sh_data *data,
                                size_t client, size_t first, size_t count,
                                sh_dataset **dataset_out) {
    SH_ASSERT(first + count <= sh_fed_partition_size(partition, client));
    uint32_t *index = sh_alloc(count, sizeof *index);
    if (index == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a client's data");
    const uint32_t *own = partition->order + partition->begin[client] + first;
    // The training data may be a view itself.
    for (size_t i = 0; i < count; i++) index[i] = (uint32_t)sh_view_at(data->train, own[i]);
    sh_dataset *dataset = NULL;
    // Views do not change their source.
    sh_source *source = (sh_source *)(uintptr_t)sh_view_source(data->train);
    SH_TRY(sh_view_create(source, 0, count, index, &dataset));
    dataset->info = data->train->info;
    dataset->info.count = count;
    sh_status status = data->normal.count > 0 ? sh_view_normalise(dataset, &data->normal) : SH_OK;
    if (status != SH_OK)
        sh_dataset_destroy(dataset);
    else
        *dataset_out = dataset;
    return status;
}
