/* K-sync: each update is the mean of the first K gradients of its step. Who still computes one
 * breaks off and goes on with the new weights (Dutta et al., AISTATS 2018). Nobody waits for
 * stragglers, at the price of their work. */
#include "sync/list.h"
#include "sync/ps.h"

static sh_status check(sh_scheme scheme, const sh_sync_options *options,
                       const sh_sync_terms *terms) {
    SH_TRY(sh_ps_check_amount(scheme, options, terms, 0));
    return sh_ps_check(scheme, options, terms, false);
}

static sh_ps_policy policy_of(sh_scheme scheme, const sh_sync_options *options, int workers) {
    (void)options;
    return (sh_ps_policy){.group = sh_ps_group((int)scheme.amount, workers),
                          .rounds = true,
                          .slack = -1,
                          .rate = 1,
                          .per = 1,
                          .period = 1};
}

const sh_sync_kind sh_sync_ksync = {
    .name = "ksync",
    .help = "in step, but the first K gradients of P make the update; the rest break off",
    .amount = "K",
    .amount_least = 1,
    .amount_most = 4096,
    .amount_initial = 1,
    .reads = SH_PS_READS,
    .states = SH_PS_STATES,
    .family = &sh_ps_family,
    .check = check,
    .policy = policy_of,
};
