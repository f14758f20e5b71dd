#include "train/vault.h"

#include "train/regroup.h"

sh_status sh_vault_open(shoal_run *run, const sh_service *like) {
    const sh_sync_kind *kind = like->scheme.kind;
    if (kind->snapshot_bytes == NULL || !sh_regroup_possible(run)) return SH_OK;
    size_t most = 0, bytes = 0;
    for (int i = 0; i < like->count; i++) {
        SH_TRY(kind->snapshot_bytes(like, i, &bytes));
        if (bytes > most) most = bytes;
    }
    sh_vault vault = {
        .bytes = sh_round_up(most, SH_ALIGN), .workers = like->workers, .services = like->count};
    size_t each = (size_t)((vault.services + vault.workers - 1) / vault.workers);
    const sh_seat *seat = &run->team.seat;
    SH_TRY(seat->regroup->share(seat->self, each * vault.bytes, &vault.base));
    run->team.vault = vault;
    return SH_OK;
}

/* Service s sits on worker s mod P. */
void *sh_vault_snapshot(const sh_vault *vault, int index) {
    if (vault->base == NULL) return NULL;
    return vault->base[index % vault->workers] + (size_t)(index / vault->workers) * vault->bytes;
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
        SH_TRY(scheme.kind->restore(&like, i, sh_vault_snapshot(vault, i),
                                    run->model.blocks.weights, &run->optim, &remains));
        tell(run, i, &remains);
    }
    *vault = (sh_vault){0};
    return SH_OK;
}
