/* Which algorithm a call takes: the one that was asked for, mapped memory where it serves, else the
 * cheapest by the measured links. All ranks compute the same from the same numbers, so they choose
 * alike. */
#include <math.h>
#include <string.h>

#include "comm/engine_internal.h"

static sh_links links_of(const sh_engine *engine) {
    const sh_costs *costs = &engine->options.costs;
    return (sh_links){.between = costs->link, .inside = costs->node_link};
}

/* MPI knows no halves. */
static bool takes(const sh_algorithm *algorithm, sh_dtype dtype) {
    return !algorithm->native || (dtype != SH_DTYPE_F16 && dtype != SH_DTYPE_BF16);
}

static bool can_run(const sh_engine *engine, const sh_group *group, const sh_algorithm *algorithm) {
    if (!algorithm->native) return true;
    return engine->transport->ops->allreduce != NULL && group->ranks == engine->transport->ranks &&
           group->id == 0;
}

/* Long buffers: where the model sees little difference, what was tried decides. */
static void prefer_tried(const sh_engine *engine, const sh_topology *topology, sh_choice *best) {
    const sh_algorithm *tried = engine->options.costs.large;
    if (tried == NULL || best->what != tried->does || best->bytes < SH_TRIED_BYTES) return;
    sh_links links = links_of(engine);
    double seconds = sh_algorithm_price(tried, topology, (double)best->bytes, &links);
    if (seconds > best->seconds * SH_ALIKE) return;
    best->algorithm = tried;
    best->seconds = seconds;
}

/* The cheapest algorithm of a collective among those that send messages. */
static sh_choice cheapest(const sh_engine *engine, const sh_group *group, sh_collective what,
                          size_t bytes) {
    sh_choice best = {.bytes = bytes, .what = what, .seconds = INFINITY};
    sh_topology topology = {.ranks = group->ranks, .places = group->places};
    sh_links links = links_of(engine);
    const sh_algorithm *algorithm;
    for (size_t i = 0; (algorithm = sh_algorithm_at(i)) != NULL; i++) {
        if (algorithm->does != what || algorithm->maps) continue;
        if (!can_run(engine, group, algorithm)) continue;
        double seconds = sh_algorithm_price(algorithm, &topology, (double)bytes, &links);
        if (best.algorithm != NULL && !(seconds < best.seconds)) continue;
        best.algorithm = algorithm;
        best.seconds = seconds;
    }
    prefer_tried(engine, &topology, &best);
    return best;
}

/* Where all memory is mapped nothing is faster than to use it, even if the data must be copied in
 * and out. */
static const sh_algorithm *through_memory(const sh_engine *engine, const sh_group *group,
                                          size_t bytes, bool mapped, double *seconds_out) {
    const sh_algorithm *algorithm;
    for (size_t i = 0; (algorithm = sh_algorithm_at(i)) != NULL; i++)
        if (algorithm->does == SH_ALLREDUCE && algorithm->maps) break;
    if (algorithm == NULL) return NULL;
    sh_topology topology = {.ranks = group->ranks, .places = group->places};
    sh_links links = links_of(engine);
    *seconds_out = sh_algorithm_price(algorithm, &topology, (double)bytes, &links);
    if (!mapped) *seconds_out += 2 * (double)bytes * links.inside.beta_s;
    return algorithm;
}

const sh_algorithm *sh_engine_choice(const sh_engine *engine, const sh_group *group, size_t bytes,
                                     bool mapped, double *seconds_out) {
    if (group == NULL) group = engine->world;
    double seconds = 0;
    const sh_algorithm *algorithm = NULL;
    if (group->direct.area != NULL)
        algorithm = through_memory(engine, group, bytes, mapped, &seconds);
    if (algorithm == NULL) {
        sh_choice choice = cheapest(engine, group, SH_ALLREDUCE, bytes);
        algorithm = choice.algorithm;
        seconds = choice.seconds;
    }
    if (seconds_out != NULL) *seconds_out = seconds;
    return algorithm;
}

/* Pricing takes microseconds, or more on mixed topologies, so answers are kept. */
static const sh_choice *remembered(sh_engine *engine, sh_group *group, sh_collective what,
                                   size_t bytes) {
    sh_choice *slot = &group->choices[(bytes / 64 * 31 + (size_t)what) % SH_CHOICES];
    if (slot->algorithm == NULL || slot->bytes != bytes || slot->what != what)
        *slot = cheapest(engine, group, what, bytes);
    return slot;
}

static sh_status pick_named(const sh_engine *engine, const sh_call *call, const char *name,
                            const sh_algorithm **out) {
    const sh_group *group = sh_call_group(engine, call);
    const sh_algorithm *algorithm = sh_algorithm_find(call->what, name);
    if (algorithm == NULL)
        return SH_FAIL(SH_E_USAGE, "there is no %s '%s'", sh_collective_name(call->what), name);
    if (!can_run(engine, group, algorithm) || !takes(algorithm, call->dtype))
        return SH_FAIL(SH_E_UNSUPPORTED, "%s '%s' needs MPI, all ranks and a type that MPI knows",
                       sh_collective_name(call->what), name);
    *out = algorithm->maps && sh_direct_serves(engine, call) ? NULL : algorithm;
    return SH_OK;
}

sh_status sh_engine_pick(sh_engine *engine, const sh_call *call, const sh_algorithm **out) {
    sh_group *group = sh_call_group(engine, call);
    const char *name = call->algorithm;
    *out = NULL;
    if (group->ranks == 1 || call->fused.work != NULL) return SH_OK;
    if (name != NULL && strcmp(name, "auto") != 0) return pick_named(engine, call, name, out);
    if (call->what == SH_ALLREDUCE && engine->forced != NULL &&
        can_run(engine, group, engine->forced) && takes(engine->forced, call->dtype)) {
        bool direct = engine->forced->maps && sh_direct_serves(engine, call);
        *out = direct ? NULL : engine->forced;
        return SH_OK;
    }
    if (sh_direct_serves(engine, call)) return SH_OK;
    size_t bytes = call->count * sh_dtype_bytes(call->dtype);
    *out = remembered(engine, group, call->what, bytes)->algorithm;
    if (*out != NULL) return SH_OK;
    return SH_FAIL(SH_E_UNSUPPORTED, "there is no way to %s", sh_collective_name(call->what));
}
