/* Asynchronous parameter servers (ASP; Dean et al. 2012, Downpour SGD): each gradient is applied as
 * it arrives, to weights that others may have changed since it was computed:
 *
 *   w <- w - lr / max(1, tau) g(w_then)       tau: updates since w_then
 *
 * The rate that falls with the staleness (Zhang, Gupta, Lian, Liu, IJCAI 2016) makes P updates of P
 * workers move about as far as one synchronous step. `--staleness off` is plain asynchrony, where
 * each moves as far as that, and the default where delay is compensated: DC-ASGD corrects the
 * gradient instead of the rate.
 *
 * With a fetch period of F a worker takes F steps after a pull, moving its copy of the weights by
 * its own gradients in between, and pushes the sum of every U of them and of what is left at the
 * end. Its own updates are in its copy and no staleness; the copy moves at the full rate. */
#include <string.h>

#include "sync/list.h"
#include "sync/ps.h"

/* A worker's copy of the weights moves by rate times gradient, so the servers' must move that way,
 * too: with momentum they do, and farther. */
static sh_status check_copy(const sh_sync_options *options, const sh_sync_terms *terms) {
    if (!terms->optim->momentum_sgd || terms->optim->nesterov) {
        SH_FAIL(SH_E_USAGE,
                "between two pulls a worker's weights move by lr times the gradient, which is no "
                "step of '%s'",
                terms->optim->name);
        return sh_error_hint("leave out --fetch-every, or use --optimizer sgd or momentum");
    }
    if (options->compensation > 0) {
        SH_FAIL(SH_E_USAGE,
                "the delay of a gradient is compensated from the weights of the last pull, and "
                "with --fetch-every %ld the worker has moved them itself",
                (long)options->fetch_every);
        return sh_error_hint("leave out --compensation or --fetch-every");
    }
    return SH_OK;
}

static sh_status check(sh_scheme scheme, const sh_sync_options *options,
                       const sh_sync_terms *terms) {
    if (!sh_sync_acts(options, terms->workers)) return SH_OK;
    if (options->push_every > options->fetch_every) {
        SH_FAIL(SH_E_USAGE,
                "a worker pushes whenever it fetches, so --push-every %ld is more than %ld",
                (long)options->push_every, (long)options->fetch_every);
        return sh_error_hint("give --fetch-every at least as much");
    }
    if (options->fetch_every > 1 && terms->codec->kind != NULL) {
        SH_FAIL(SH_E_USAGE,
                "compressed pulls tell what is new to a worker whose weights did not move");
        return sh_error_hint("leave out --compress or --fetch-every");
    }
    if (options->fetch_every > 1) SH_TRY(check_copy(options, terms));
    return sh_ps_check(scheme, options, terms, true);
}

static sh_ps_policy policy_of(sh_scheme scheme, const sh_sync_options *options, int workers) {
    (void)scheme;
    (void)workers;
    return (sh_ps_policy){.group = 1,
                          .slack = -1,
                          .rate = 1,
                          .per = 1,
                          .staleness = sh_ps_staleness(options, options->compensation == 0),
                          .compensation = options->compensation,
                          .period = options->fetch_every > 1 ? options->fetch_every : 1,
                          .push_every = options->push_every};
}

const sh_sync_kind sh_sync_async = {
    .name = "async",
    .alias = "asp",
    .help = "asynchronous (also 'asp'): each gradient is applied as it arrives, however old it is",
    .survives = true,
    .reads = SH_PS_READS " snapshot_every staleness compensation fetch_every push_every",
    .states = SH_PS_STATES,
    .family = &sh_ps_family,
    .check = check,
    .policy = policy_of,
};
