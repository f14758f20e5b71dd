/* Backup workers (Chen et al. 2016): of P workers B are spare, and each update is the mean of the
 * first P - B gradients of its step; the others break off. ksync:K with K = P - B. */
#include "sync/list.h"
#include "sync/ps.h"

static sh_status check(sh_scheme scheme, const sh_sync_options *options,
                       const sh_sync_terms *terms) {
    SH_TRY(sh_ps_check_amount(scheme, terms->workers, terms->workers - 1));
    return sh_ps_check(scheme, options, terms, false);
}

static sh_ps_policy policy_of(sh_scheme scheme, const sh_sync_options *options, int workers) {
    return (sh_ps_policy){.group = workers - (int)scheme.amount,
                          .rounds = true,
                          .slack = -1,
                          .rate = 1,
                          .per = 1,
                          .staleness = sh_ps_staleness(options, false),
                          .period = 1};
}

const sh_sync_kind sh_sync_backup = {
    .name = "backup",
    .help = "in step, with B spare workers: the first P - B gradients make the update",
    .amount = "B",
    .amount_least = 1,
    .amount_most = 4095,
    .amount_initial = 1,
    .free = true,
    .mails = true,
    .services = sh_ps_services,
    .check = check,
    .create = sh_ps_create,
    .destroy = sh_ps_destroy,
    .step = sh_ps_step,
    .meet = sh_ps_meet,
    .serve = sh_ps_serve,
    .policy = policy_of,
};
