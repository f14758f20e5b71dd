#include "run/server_snapshots.h"

#include "base/addresses.h"
#include "run/regroup.h"

sh_status sh_server_snapshots_open(shoal_run *run, const sh_service *like) {
    const sh_sync_family *family = like->scheme.kind->family;
    if (family->snapshot_bytes == NULL || !sh_regroup_possible(run)) return SH_OK;
    // All get the room of the largest snapshot, so that a service's address follows from its index.
    size_t most = 0, bytes = 0;
    for (int i = 0; i < like->count; i++) {
        SH_TRY(family->snapshot_bytes(like, i, &bytes));
        if (bytes > most) most = bytes;
    }
    sh_server_snapshots snapshots = {
        .bytes = sh_round_up(most, SH_ALIGN),
        .workers = like->workers,
        .services = like->count,
        .counted = !sh_sync_apart(like->options)};  // by who they sit on
    const sh_worker_env *env = &run->team.env;
    if (sh_team_leads(&run->team))
        snapshots.base =
            env->regroup->keep(env->self, (size_t)snapshots.services * snapshots.bytes);
    SH_TRY(sh_team_broadcast(&run->team, &snapshots.base, sizeof snapshots.base));
    if (snapshots.base == NULL) {
        SH_FAIL(SH_E_MEMORY, "not enough memory for the snapshots of %d servers, %zu MiB each",
                snapshots.services, snapshots.bytes >> 20);
        return sh_addresses_hint("use a smaller model; with --restarts 0 servers keep none");
    }
    run->team.snapshots = snapshots;
    return SH_OK;
}

void *sh_server_snapshots_at(const sh_server_snapshots *snapshots, int index) {
    return snapshots->base != NULL ? snapshots->base + (size_t)index * snapshots->bytes : NULL;
}

sh_status sh_server_snapshots_restore(shoal_run *run, void (*tell)(shoal_run *run, int service,
                                                                   const sh_recovered *recovered)) {
    sh_server_snapshots *snapshots = &run->team.left;
    if (snapshots->base == NULL) return SH_OK;
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(run->config.scheme.name, &scheme));
    sh_service like = {.count = snapshots->services,
                       .workers = snapshots->workers,
                       .scheme = scheme,
                       .options = &run->config.scheme,
                       .params = &run->model.net->params,
                       .optim = &run->optim};
    for (int i = 0; i < snapshots->services; i++) {
        sh_recovered recovered;
        SH_TRY(scheme.kind->family->restore(&like, i, sh_server_snapshots_at(snapshots, i),
                                            run->model.blocks.weights, &run->optim, &recovered));
        tell(run, i, &recovered);
    }
    // Read once: should the team regroup again before it trains, its members hold the model
    // already.
    *snapshots = (sh_server_snapshots){0};
    return SH_OK;
}
