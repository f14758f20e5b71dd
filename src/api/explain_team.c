/* What several workers cost a run, as the last part of `shoal explain`: memory on each of them,
 * and how their gradients are summed. Nothing is measured here; link costs are those that earlier
 * runs have remembered. */
#include "api/explain.h"

#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "explain/collective.h"
#include "explain/units.h"
#include "run/costs.h"

/* Bytes in MiB. */
static double mib(double bytes) { return bytes / 0x1p20; }

/* With --shard-optimizer each worker keeps its part of the optimizer's state instead of all of it.
 */
static void print_sharding(const shoal_run *run, int workers, FILE *file) {
    double slots = (double)run->optim.slot_count * (double)run->optim.total * sizeof(float);
    if (slots <= 0) {
        fprintf(file, "  --shard-optimizer saves nothing: this optimizer keeps no state\n");
        return;
    }
    sh_fprintf(file,
               "  --shard-optimizer %s %.1f MiB on each worker: optimizer %.1f instead of %.1f\n",
               run->config.shard_optimizer ? "saves" : "would save", mib(slots - slots / workers),
               mib(slots / workers), mib(slots));
}

/* Memory of exact runs: a gradient and the states for each shard that a worker computes, and with
 * several workers the 64-bit integers they are summed in. */
static void print_exact(const shoal_run *run, int workers, FILE *file) {
    const sh_net *net = run->model.net;
    double elements = (double)net->params.total + (double)net->states.total;
    int64_t shards = (run->config.shards + workers - 1) / workers;
    double blocks = (double)shards * elements * sizeof(float);
    double sums = workers > 1 ? elements * sizeof(int64_t) : 0;
    sh_fprintf(file, "  --exact %s %.1f MiB on each worker: gradients of %ld shard%s %.1f",
               run->config.exact ? "takes" : "would take", mib(blocks + sums), (long)shards,
               shards == 1 ? "" : "s", mib(blocks));
    if (sums > 0) sh_fprintf(file, ", sums in 64-bit integers %.1f", mib(sums));
    fputc('\n', file);
}

/* Which all-reduce is the cheapest from which size on. Where large buffers were tried, what was
 * the fastest then counts more than the formula. */
static void print_ranges(const sh_costs *costs, const sh_topology *topology, FILE *file) {
    sh_links links = {.between = costs->link, .inside = costs->node_link};
    sh_size_range ranges[SH_RANGES_MOST];
    char from[SH_UNIT_TEXT];
    int count = sh_size_ranges(SH_ALLREDUCE, topology, &links, ranges);
    for (int i = 0; i < count; i++) {
        if (i > 0) fprintf(file, ", from %s ", sh_bytes_text(ranges[i].from_bytes, from));
        fputs(ranges[i].algorithm->name, file);
    }
    if (costs->large != NULL)
        fprintf(file, ", from %s %s as tried", sh_bytes_text(SH_TRIED_BYTES, from),
                costs->large->name);
    fputc('\n', file);
}

/* Prints the link that runs of as many workers on as many nodes measured, and the algorithms that
 * follow from it; nothing where no such run was. Workers are dealt to nodes evenly, as launchers
 * do. */
static void print_remembered(const shoal_run *run, int workers, int nodes, FILE *file) {
    sh_costs costs;
    sh_places *places = NULL;
    char name[SH_COSTS_KEY], link[3 * SH_UNIT_TEXT];
    if (!sh_costs_recall(run->folders.cache, workers, nodes, &costs, name)) return;
    int *node = sh_alloc((size_t)workers, sizeof *node);
    for (int i = 0; node != NULL && i < workers; i++) node[i] = (int)((int64_t)i * nodes / workers);
    if (node != NULL && sh_places_create(node, workers, &places) == SH_OK) {
        fprintf(file, "  %s, measured %s: ", name, sh_link_text(&costs.link, link));
        print_ranges(&costs, &(sh_topology){.ranks = workers, .places = places}, file);
    }
    sh_places_destroy(places);
    sh_free(node);
}

/* `forced`: the config names the all-reduce, so what runs remember does not choose it. */
void sh_explain_team(const shoal_run *run, FILE *file) {
    int workers = (int)run->config.workers;
    bool several = workers > 1;
    if (!several && !run->config.exact) return;  // one worker has nothing to agree on
    fprintf(file, "\nwith %d worker%s\n", several ? workers : 1, several ? "s" : "");
    if (several) print_sharding(run, workers, file);
    print_exact(run, several ? workers : 1, file);
    if (!several) return;
    bool forced = run->config.allreduce != NULL && strcmp(run->config.allreduce, "auto") != 0;
    fprintf(file, "  sums of gradients: %s\n",
            forced ? run->config.allreduce : "direct on one machine, through shared memory");
    const sh_algorithm *named =
        forced ? sh_algorithm_find(SH_ALLREDUCE, run->config.allreduce) : NULL;
    // Updates can be fused only where workers map each other's memory.
    bool maps = !forced || (named != NULL && named->maps);
    double slots = (double)run->optim.slot_count * (double)run->optim.total * sizeof(float);
    if (maps && sh_team_may_fuse_update(run, workers))
        sh_fprintf(file,
                   "  updates: on one machine workers of one thread update what they sum,\n"
                   "    on one optimizer state of %.1f MiB for all, with or without "
                   "--shard-optimizer\n",
                   mib(slots));
    for (int nodes = 2; !forced && nodes <= workers; nodes++)
        print_remembered(run, workers, nodes, file);
}
