/* Backup workers (Chen et al. 2016): of P workers B are spare, and each update is the mean of the
 * first P - B gradients of its step; the others break off. ksync:K with K = P - B. */
#include "sync/list.h"
#include "sync/ps.h"

static sh_status check(sh_scheme scheme, const sh_sync_options *options,
                       const sh_sync_terms *terms) {
    SH_TRY(sh_ps_check_amount(scheme, options, terms, 1));
    return sh_ps_check(scheme, options, terms, false);
}

static sh_ps_policy policy_of(sh_scheme scheme, const sh_sync_options *options, int workers) {
    (void)options;
    return (sh_ps_policy){.group = sh_ps_group(workers - (int)scheme.amount, workers),
                          .rounds = true,
                          .slack = -1,
                          .rate = 1,
                          .per = 1,
                          .period = 1};
}

const sh_sync_kind sh_sync_backup = {
    .name = "backup",
    .help = "in step, with B spare workers: the first P - B gradients make the update",
    .amount = "B",
    .amount_least = 1,
    .amount_most = 4095,
    .amount_initial = 1,
    .reads = SH_PS_READS,
    .states = SH_PS_STATES,
    .family = &sh_ps_family,
    .check = check,
    .policy = policy_of,
};
