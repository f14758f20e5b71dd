/* Elastic averaging (EASGD; Zhang, Choromanska, LeCun, NIPS 2015), asynchronous: each worker trains
 * weights x of its own, and after every H steps these and the centre c, which the servers hold,
 * pull each other:
 *
 *   c <- c + alpha (x - c)        x <- x - alpha (x - c)        with c and x as they were before
 *
 * alpha = 0.9 / P, as in the paper. What the workers learn in between stays theirs: they explore.
 * The model is the centre; a worker goes on from its own weights after a meeting. */
#include "sync/list.h"
#include "sync/ps.h"

static sh_status check(sh_scheme scheme, const sh_sync_options *options,
                       const sh_sync_terms *terms) {
    return sh_ps_check(scheme, options, terms, false);
}

static sh_ps_policy policy_of(sh_scheme scheme, const sh_sync_options *options, int workers) {
    (void)options;
    return (sh_ps_policy){.group = 1,
                          .slack = -1,
                          .rate = 1,
                          .per = 1,
                          .elastic = 0.9 / workers,
                          .period = (int64_t)scheme.amount};
}

const sh_sync_kind sh_sync_easgd = {
    .name = "easgd",
    .help = "elastic averaging: every H steps a worker and the centre pull each other",
    .amount = "H",
    .amount_least = 1,
    .amount_most = 1e6,
    .amount_initial = 10,
    .periodic = true,
    .survives = true,
    .reads = SH_PS_READS " snapshot_every",
    .family = &sh_ps_family,
    .check = check,
    .policy = policy_of,
};
