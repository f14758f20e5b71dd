/* The options that several schemes share, as a run file has them. What one scheme alone has stands
 * in its own row. */
#include "base/option.h"
#include "sync/graph.h"
#include "sync/sync.h"

static const char *placement_choice(size_t index) {
    static const char *const names[] = {"range", "variable"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *server_ranks_choice(size_t index) {
    static const char *const names[] = {"shared", "own"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *auto_choice(size_t index) {
    static const char *const names[] = {"auto", "on", "off"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *momentum_choice(size_t index) {
    static const char *const names[] = {"auto", "average", "keep", "reset"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *graph_choice(size_t index) {
    const sh_graph_kind *kind = index > 0 ? sh_graph_at(index - 1) : NULL;
    return index == 0 ? "auto" : kind != NULL ? kind->name : NULL;
}

static const sh_option rows[] = {
    SH_TEXT_ROW(sh_sync_options, name, "sync.name", "bsp",
                "how workers agree on the parameters: bsp, local:8, ...; 'shoal list sync'",
                .flag = "sync-name", .alias = "sync", .value = "SCHEME"),
    SH_INT_ROW(sh_sync_options, servers, "sync.servers", "0", 0, 4096,
               "parameter servers: parts of the parameters; 0: one on each worker, 16 at most",
               .flag = "servers", .value = "S"),
    SH_TEXT_ROW(sh_sync_options, server_ranks, "sync.server_ranks", "shared",
                "parameter servers: shared: beside the workers; own: each has a process of its "
                "own, under mpirun the last ranks",
                .flag = "server-ranks", .choices = server_ranks_choice),
    SH_TEXT_ROW(sh_sync_options, placement, "sync.placement", "range",
                "parameter servers: equal ranges, or each variable whole on one server",
                .flag = "placement", .choices = placement_choice),
    SH_TEXT_ROW(sh_sync_options, staleness, "sync.staleness", "auto",
                "divide the rate by the staleness of a gradient; auto: as the scheme's paper does, "
                "and not with --compensation",
                .flag = "staleness", .choices = auto_choice),
    SH_REAL_ROW(sh_sync_options, compensation, "sync.compensation", "0", 0, 1e6,
                "delay compensation: lambda of DC-ASGD, instead of a rate divided by the "
                "staleness; 0: none",
                .flag = "compensation"),
    SH_INT_ROW(sh_sync_options, fetch_every, "sync.fetch_every", "1", 1, 1e6,
               "async: pull weights every N steps, and go on alone in between",
               .flag = "fetch-every", .value = "N"),
    SH_INT_ROW(sh_sync_options, push_every, "sync.push_every", "1", 1, 1e6,
               "async: push gradients every N steps, added up; at every pull anyway",
               .flag = "push-every", .value = "N"),
    SH_TEXT_ROW(
        sh_sync_options, momentum, "sync.momentum", "auto",
        "the optimizer's state where models are averaged; auto: average; diloco, codecs: keep",
        .flag = "sync-momentum", .choices = momentum_choice),
    SH_TEXT_ROW(sh_sync_options, graph, "sync.graph", "auto",
                "gossip: who talks to whom; auto: ring (in pairs: complete, sgp: exponential)",
                .flag = "graph", .choices = graph_choice),
    SH_INT_ROW(sh_sync_options, snapshot_every, "sync.snapshot_every", "50", 1, 1e9,
               "parameter servers: updates between two snapshots of a shard; those after the last "
               "are lost when its worker dies",
               .flag = "snapshot-every", .value = "N"),
    SH_REAL_ROW(sh_sync_options, mixing, "sync.mixing", "0", 0, 1,
                "gossip through a codec: step towards the neighbours; 0: by the codec",
                .flag = "mixing", .value = "GAMMA"),
};

const sh_option_table sh_sync_table = {rows, SH_COUNT(rows)};

const sh_own_options *sh_sync_own_at(size_t index) {
    const sh_sync_kind *kind = sh_sync_at(index);
    return kind != NULL ? &kind->own : NULL;
}

const void *sh_sync_own(const sh_sync_options *options, const sh_sync_kind *kind) {
    size_t index = 0;
    while (sh_sync_at(index) != kind) index++;
    return options->own.bytes + sh_own_offset(sh_sync_own_at, index);
}
