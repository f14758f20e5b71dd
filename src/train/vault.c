#include "train/vault.h"

#include "base/addresses.h"
#include "train/regroup.h"

sh_status sh_vault_open(shoal_run *run, const sh_service *like) {
    const sh_sync_family *family = like->scheme.kind->family;
    if (family->snapshot_bytes == NULL || !sh_regroup_possible(run)) return SH_OK;
    size_t most = 0, bytes = 0;
    for (int i = 0; i < like->count; i++) {
        SH_TRY(family->snapshot_bytes(like, i, &bytes));
        if (bytes > most) most = bytes;
    }
    sh_vault vault = {.bytes = sh_round_up(most, SH_ALIGN),
                      .workers = like->workers,
                      .services = like->count,
                      .counted = !sh_sync_apart(like->options)};  // by who they sit on
    const sh_seat *seat = &run->team.seat;
    if (sh_team_leads(&run->team))
        vault.base = seat->regroup->keep(seat->self, (size_t)vault.services * vault.bytes);
    SH_TRY(sh_team_broadcast(&run->team, &vault.base, sizeof vault.base));
    if (vault.base == NULL) {
        SH_FAIL(SH_E_MEMORY, "not enough memory for the snapshots of %d servers, %zu MiB each",
                vault.services, vault.bytes >> 20);
        return sh_addresses_hint("use a smaller model; with --restarts 0 servers keep none");
    }
    run->team.vault = vault;
    return SH_OK;
}

void *sh_vault_snapshot(const sh_vault *vault, int index) {
    return vault->base != NULL ? vault->base + (size_t)index * vault->bytes : NULL;
}

sh_status sh_vault_restore(shoal_run *run,
                           void (*tell)(shoal_run *run, int service, const sh_remains *remains)) {
    sh_vault *vault = &run->team.left;
    if (vault->base == NULL) return SH_OK;
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(run->config.scheme.name, &scheme));
    sh_service like = {.count = vault->services,
                       .workers = vault->workers,
                       .scheme = scheme,
                       .options = &run->config.scheme,
                       .params = &run->model.net->params,
                       .optim = &run->optim};
    for (int i = 0; i < vault->services; i++) {
        sh_remains remains;
        SH_TRY(scheme.kind->family->restore(&like, i, sh_vault_snapshot(vault, i),
                                            run->model.blocks.weights, &run->optim, &remains));
        tell(run, i, &remains);
    }
    *vault = (sh_vault){0};
    return SH_OK;
}
