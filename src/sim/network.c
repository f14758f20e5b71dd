#include "sim/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* ---- Where ranks are ------------------------------------------------------------------------- */

/* Racks are consecutive blocks of hosts. Only where the links have racks: rack_ranks is 0
 * otherwise, and the division would trap. */
static int rack_of(const sh_network *network, int host) { return host / network->links.rack_ranks; }

/* Which wire of a level a host uses. */
static int wire_of(const sh_network *network, int host, int level) {
    if (level == 0) return host;
    int rack = rack_of(network, host);
    return level == 1 ? rack : rack / network->links.site_racks;
}

/* The farthest level whose wires lie between two hosts. */
static int level_between(const sh_network *network, int a, int b) {
    for (int level = SH_SIM_LEVELS - 1; level > 0; level--)
        if (network->wires[level] != NULL &&
            wire_of(network, a, level) != wire_of(network, b, level))
            return level;
    return 0;
}

int sh_network_rack(const sh_network *network, int rank) {
    int host = network->host[rank];
    return network->links.rack_ranks > 0 ? rack_of(network, host) : host;
}

/* ---- Pairs that are special ------------------------------------------------------------------ */

/* Order of special links by their two hosts, the smaller one first. Set-up and look-up
 * normalise a pair alike, so one entry serves both directions. */
static int compare_pairs(const void *left, const void *right) {
    const sh_sim_pair *a = left, *b = right;
    if (a->a != b->a) return a->a < b->a ? -1 : 1;
    return (a->b > b->b) - (a->b < b->b);
}

/* The special link between two hosts; NULL: messages pass the wires of their levels. */
static const sh_link *pair_link(const sh_network *network, int a, int b) {
    if (network->links.pair_count == 0) return NULL;
    sh_sim_pair key = {.a = a < b ? a : b, .b = a < b ? b : a};
    const sh_sim_pair *found =
        bsearch(&key, network->pairs, (size_t)network->links.pair_count, sizeof key, compare_pairs);
    return found != NULL ? &found->link : NULL;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* What lies between two hosts: how many levels of wires, the latency, and the rate of the first. */
typedef struct path {
    int levels;
    int64_t alpha_ns;
    double beta_ns;  // of the hosts' own wires
} path;

/* A special link stands for the whole path: racks and sites between its two hosts do not count.
 * Adding 0.5 rounds to the nearest nanosecond. */
static path path_between(const sh_network *network, int a, int b) {
    const sh_link *special = pair_link(network, a, b);
    if (special != NULL)
        return (path){1, (int64_t)(special->alpha_s * 1e9 + 0.5), special->beta_s * 1e9};
    int level = level_between(network, a, b);
    return (path){level + 1, network->alpha_ns[level], network->beta_ns[0]};
}

/* A stretch of time in which all wires are free, from `now_ns` on; each is busy as long as it takes
 * it. Returns the beginning, and how long the slowest takes. */
static int64_t take_wires(sh_network *network, const path *p, int host, size_t bytes, bool out,
                          int64_t now_ns, int64_t *takes_ns_out) {
    int64_t begin = now_ns, slowest = 0;
    for (int level = 0; level < p->levels; level++) {
        const sh_wire *wire = &network->wires[level][wire_of(network, host, level)];
        int64_t free_ns = out ? wire->out_ns : wire->in_ns;
        if (free_ns > begin) begin = free_ns;
    }
    for (int level = 0; level < p->levels; level++) {
        sh_wire *wire = &network->wires[level][wire_of(network, host, level)];
        double beta = level == 0 ? p->beta_ns : network->beta_ns[level];
        int64_t takes = (int64_t)((double)bytes * beta + 0.5);
        if (takes > slowest) slowest = takes;
        *(out ? &wire->out_ns : &wire->in_ns) = begin + takes;
    }
    *takes_ns_out = slowest;
    return begin;
}

/* Departure adds the latency and not the transfer time. The receiver's wires account for the
 * bytes on arrival; otherwise an idle path would cost alpha + 2 n beta. */
int64_t sh_network_depart(sh_network *network, int from, int to, size_t bytes, int64_t now_ns) {
    int source = network->host[from], target = network->host[to];
    if (source == target) return now_ns;
    path p = path_between(network, source, target);
    int64_t takes;
    return take_wires(network, &p, source, bytes, true, now_ns, &takes) + p.alpha_ns;
}

/* The receiver's wires are taken when the first byte lands, not when the message leaves:
 * senders share them in the order of landing. */
int64_t sh_network_arrive(sh_network *network, int from, int to, size_t bytes, int64_t now_ns) {
    int source = network->host[from], target = network->host[to];
    if (source == target) return now_ns;
    path p = path_between(network, source, target);
    int64_t takes;
    int64_t begin = take_wires(network, &p, target, bytes, false, now_ns, &takes);
    return begin + takes;
}

/* ---- Set-up ---------------------------------------------------------------------------------- */

/* Copies the special links, with a < b and sorted. The caller's array is borrowed for the call
 * only, so the pointer in `links` is cleared. */
static sh_status keep_pairs(sh_network *network, const sh_sim_links *links) {
    if (links->pair_count == 0) return SH_OK;
    size_t count = (size_t)links->pair_count;
    network->pairs = sh_alloc(count, sizeof *network->pairs);
    if (network->pairs == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu links", count);
    for (size_t i = 0; i < count; i++) {
        sh_sim_pair pair = links->pairs[i];
        if (pair.a < 0 || pair.b < 0 || pair.a >= network->ranks || pair.b >= network->ranks ||
            pair.a == pair.b)
            return SH_FAIL(SH_E_USAGE, "a link between ranks %d and %d of %d", pair.a, pair.b,
                           network->ranks);
        if (pair.a > pair.b) pair = (sh_sim_pair){pair.b, pair.a, pair.link};
        network->pairs[i] = pair;
    }
    qsort(network->pairs, count, sizeof *network->pairs, compare_pairs);
    network->links.pairs = NULL;
    return SH_OK;
}

/* Copies the host of every endpoint. A host outside the endpoints would index past the wires,
 * hence the check. */
static sh_status keep_hosts(sh_network *network, const int *host) {
    network->host = sh_alloc((size_t)network->ranks, sizeof *network->host);
    if (network->host == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %d ranks", network->ranks);
    for (int r = 0; r < network->ranks; r++) {
        network->host[r] = host != NULL ? host[r] : r;
        if (network->host[r] < 0 || network->host[r] >= network->ranks)
            return SH_FAIL(SH_E_USAGE, "rank %d on the host of rank %d of %d", r, host[r],
                           network->ranks);
    }
    return SH_OK;
}

/* Wires of one level, all free at virtual time 0. What was made before a failure is given back
 * by sh_network_init. */
static sh_status make_wires(sh_network *network, int level, const sh_link *link, int count) {
    if (link->alpha_s < 0 || link->beta_s < 0)
        return SH_FAIL(SH_E_USAGE, "a link with a negative latency or rate");
    network->alpha_ns[level] = (int64_t)(link->alpha_s * 1e9 + 0.5);
    network->beta_ns[level] = link->beta_s * 1e9;
    network->wires[level] = sh_alloc((size_t)count, sizeof **network->wires);
    if (network->wires[level] != NULL) return SH_OK;
    return SH_FAIL(SH_E_MEMORY, "out of memory for the network");
}

static sh_status set_up(sh_network *network, const int *host) {
    const sh_sim_links *links = &network->links;
    if (links->rack_ranks < 0 || links->site_racks < 0 ||
        (links->site_racks > 0 && links->rack_ranks == 0))
        return SH_FAIL(SH_E_USAGE, "sites are made of racks, and racks of ranks");
    SH_TRY(keep_hosts(network, host));
    SH_TRY(keep_pairs(network, links));
    SH_TRY(make_wires(network, 0, &links->rank, network->ranks));
    if (links->rack_ranks == 0) return SH_OK;
    int racks = (network->ranks + links->rack_ranks - 1) / links->rack_ranks;
    SH_TRY(make_wires(network, 1, &links->rack, racks));
    // Sites are at most as many as racks, so that one wire per rack suffices for them.
    return links->site_racks > 0 ? make_wires(network, 2, &links->site, racks) : SH_OK;
}

sh_status sh_network_init(sh_network *network, const sh_sim_links *links, int ranks,
                          const int *host) {
    *network = (sh_network){.links = *links, .ranks = ranks};
    sh_status status = set_up(network, host);
    if (status != SH_OK) sh_network_fini(network);
    return status;
}

void sh_network_fini(sh_network *network) {
    for (int level = 0; level < SH_SIM_LEVELS; level++) sh_free(network->wires[level]);
    sh_free(network->pairs);
    sh_free(network->host);
    *network = (sh_network){0};
}
