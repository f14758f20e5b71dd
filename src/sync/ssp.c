/* Stale-synchronous parallel (Ho et al., NIPS 2013): a worker that has done c steps computes its
 * next gradient with weights that have
 *
 *   all updates of all workers up to step c - S - 1, all of its own, and perhaps some of the
 * others'
 *
 * and waits while it is more than S steps ahead of the slowest. With S = 0 the gradients of a step
 * are averaged into one update, which is bulk-synchronous training. With S > 0 each gradient is an
 * update of its own when it arrives, at 1/P of the rate, so that P of them move as far as one. */
#include "sync/list.h"
#include "sync/ps.h"

static sh_status check(sh_scheme scheme, const sh_sync_options *options,
                       const sh_sync_terms *terms) {
    if (terms->exact && sh_sync_acts(options, terms->workers) && scheme.amount > 0) {
        SH_FAIL(SH_E_USAGE,
                "scheme 'ssp:%.0f' does not go with --exact: what arrives first counts "
                "first",
                scheme.amount);
        return sh_error_hint("use --sync ssp:0, ps or bsp, or leave out --exact");
    }
    return sh_ps_check(scheme, options, terms, scheme.amount > 0);
}

static sh_ps_policy policy_of(sh_scheme scheme, const sh_sync_options *options, int workers) {
    int64_t slack = (int64_t)scheme.amount;
    bool together = slack == 0;
    return (sh_ps_policy){.group = together ? workers : 1,
                          .rounds = together,
                          .slack = slack,
                          .rate = together ? 1 : 1.0 / workers,
                          .per = together ? 1 : workers,
                          .staleness = sh_ps_staleness(options, false),
                          .compensation = options->compensation,
                          .period = 1};
}

const sh_sync_kind sh_sync_ssp = {
    .name = "ssp",
    .help = "stale-synchronous: nobody is more than S steps ahead of the slowest; ssp:0 is bsp",
    .amount = "S",
    .amount_least = 0,
    .amount_most = 1e6,
    .amount_initial = 3,
    .survives = true,
    .exact = true,
    .reads = SH_PS_READS " snapshot_every staleness compensation",
    .states = SH_PS_STATES,
    .family = &sh_ps_family,
    .check = check,
    .policy = policy_of,
};
