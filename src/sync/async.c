/* Asynchronous parameter servers (ASP; Dean et al. 2012, Downpour SGD): each gradient is applied as
 * it arrives, to weights that others may have changed since it was computed:
 *
 *   w <- w - lr / max(1, tau) g(w_then)       tau: updates since w_then
 *
 * The rate that falls with the staleness (Zhang, Gupta, Lian, Liu, IJCAI 2016) makes P updates of P
 * workers move about as far as one synchronous step. `--staleness off` is plain asynchrony, where
 * each moves as far as that.
 *
 * With a fetch period of F a worker takes F steps after a pull, moving its copy of the weights by
 * its own gradients in between, and pushes the sum of every U of them and of what is left at the
 * end. */
#include "sync/list.h"
#include "sync/ps.h"

static sh_status check(sh_scheme scheme, const sh_sync_options *options,
                       const sh_sync_terms *terms) {
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
    return sh_ps_check(scheme, options, terms, true);
}

static sh_ps_policy policy_of(sh_scheme scheme, const sh_sync_options *options, int workers) {
    (void)scheme;
    (void)workers;
    return (sh_ps_policy){.group = 1,
                          .slack = -1,
                          .rate = 1,
                          .per = 1,
                          .staleness = sh_ps_staleness(options, true),
                          .compensation = options->compensation,
                          .period = options->fetch_every > 1 ? options->fetch_every : 1,
                          .push_every = options->push_every};
}

const sh_sync_kind sh_sync_async = {
    .name = "async",
    .help = "asynchronous (ASP): each gradient is applied as it arrives, however old it is",
    .free = true,
    .mails = true,
    .survives = true,
    .services = sh_ps_services,
    .check = check,
    .create = sh_ps_create,
    .destroy = sh_ps_destroy,
    .step = sh_ps_step,
    .meet = sh_ps_meet,
    .serve = sh_ps_serve,
    .snapshot_bytes = sh_ps_snapshot_bytes,
    .restore = sh_ps_restore,
    .policy = policy_of,
};
