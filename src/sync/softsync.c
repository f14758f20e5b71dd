/* N-softsync (Zhang, Gupta, Lian, Liu, IJCAI 2016): the servers average the first c = floor(P / N)
 * gradients that arrive, whoever sent them, and apply the mean; nobody waits. Where N divides P, N
 * is the staleness that is to be expected: with N = 1 an update takes as many gradients as there
 * are workers, and with N = P it is asynchronous. Each gradient counts 1 / max(1, tau):
 *
 *   w <- w - lr (1/c) sum_i g_i / max(1, tau_i) */
#include "sync/list.h"
#include "sync/ps.h"

static sh_status check(sh_scheme scheme, const sh_sync_options *options,
                       const sh_sync_terms *terms) {
    SH_TRY(sh_ps_check_amount(scheme, options, terms, 0));
    return sh_ps_check(scheme, options, terms, true);
}

static sh_ps_policy policy_of(sh_scheme scheme, const sh_sync_options *options, int workers) {
    return (sh_ps_policy){.group = sh_ps_group(workers / (int)scheme.amount, workers),
                          .slack = -1,
                          .rate = 1,
                          .per = 1,
                          .staleness = sh_ps_staleness(options, options->compensation == 0),
                          .compensation = options->compensation,
                          .period = 1};
}

const sh_sync_kind sh_sync_softsync = {
    .name = "softsync",
    .help = "the servers average P/N gradients as they come; staleness is about N",
    .amount = "N",
    .amount_least = 1,
    .amount_most = 4096,
    .amount_initial = 1,
    .survives = true,
    .reads = SH_PS_READS " snapshot_every staleness compensation",
    .states = SH_PS_STATES,
    .family = &sh_ps_family,
    .check = check,
    .policy = policy_of,
};
