/* Public options of federated training: defaults, limits, and combinations that cannot work. */
#include "fed/settings.h"

#include <math.h>

/* 0 and NaN both mean "not set" in the public structs. */
static double or_initial(double given, double initial) {
    return given == 0 || isnan(given) ? initial : given;
}

/* Counts have no NaN: 0 alone means "not set". */
static int64_t or_count(int64_t given, int64_t initial) { return given == 0 ? initial : given; }

/* NaN fails both comparisons. */
static sh_status check_part(const char *name, double value, double least, double most) {
    if (value >= least && value <= most) return SH_OK;
    return SH_FAIL(SH_E_USAGE, "%s is %g, and must be from %g to %g", name, value, least, most);
}

/* What bounds one client's part of a sum, and takes every client into a round by a draw of its own.
 */
static sh_status check_private(const sh_fed_settings *settings) {
    const sh_fed_options *server = &settings->server;
    const sh_fed_rule *rule = server->rule.rule;
    const char *other = NULL;
    if (rule->combine != NULL || rule->controls || rule->per_step || rule->buffered)
        other = rule->name;
    if (server->over > 1) other = "--over";
    if (!server->privacy.on || other == NULL) return SH_OK;
    SH_FAIL(SH_E_USAGE, "--private does not go with %s", other);
    return sh_error_hint(
        "fedavg, fedprox, fedavgm, fedadagrad, fedadam and fedyogi have a sum that "
        "one client moves by no more than the clip");
}

/* The server sees one sum of integers, in which every client counts alike. */
static sh_status check_secure(const sh_fed_settings *settings) {
    const sh_fed_rule *rule = settings->server.rule.rule;
    const char *other = NULL, *why = "";
    if (rule->combine != NULL) {
        other = rule->name;
        why = ", which needs every update by itself";
    } else if (rule->buffered) {
        other = rule->name;
        why = ", whose updates are of different rounds";
    } else if (rule->controls || rule->per_step) {
        other = rule->name;
    } else if (settings->server.privacy.on) {
        other = "--private";
        why = ": its noise is added by a server that sees the sum";
    } else if (settings->held_out > 0) {
        other = "--held-out";
        why = ": what a client tells of itself is no sum";
    }
    if (!settings->secure || other == NULL) return SH_OK;
    SH_FAIL(SH_E_USAGE, "--secure does not go with %s%s", other, why);
    return sh_error_hint("leave one of them out");
}

/* Once, before anything is opened. */
static sh_status check(const sh_fed_settings *settings) {
    const sh_fed_options *server = &settings->server;
    if (server->clients_min < 1 || server->clients_min > (int64_t)settings->clients) {
        SH_FAIL(SH_E_USAGE, "rounds of at least %lld clients need as many, and there are %zu",
                (long long)server->clients_min, settings->clients);
        return sh_error_hint("lower --min-clients or raise --clients");
    }
    if (settings->local_epochs < 1 || settings->local_steps < 0 || server->rounds < 1)
        return SH_FAIL(SH_E_USAGE, "rounds and local epochs are counted from 1");
    SH_TRY(check_private(settings));
    SH_TRY(check_secure(settings));
    SH_TRY(check_part("secure-clip", settings->secure_clip, 1e-6, 1024));
    SH_TRY(check_part("fraction", server->fraction, 1e-6, 1));
    SH_TRY(check_part("over", server->over, 1, 100));
    SH_TRY(check_part("quorum", server->quorum, 0.01, 1));
    SH_TRY(check_part("dropout", settings->dropout, 0, 0.99));
    SH_TRY(check_part("held-out", settings->held_out, 0, 0.9));
    SH_TRY(check_part("server-lr", server->rule.lr, 1e-9, 1e6));
    SH_TRY(check_part("server-momentum", server->rule.beta1, 0, 0.9999));
    SH_TRY(check_part("server-beta2", server->rule.beta2, 0, 0.999999));
    return check_part("server-tau", server->rule.tau, 1e-12, 1e3);
}

/* An hour each for deadline and presence: simulated time, in which clients answer at once; serve.c
 * sets its own. */
sh_status sh_fed_settings_make(const shoal_fed_options *options, uint64_t seed,
                               sh_fed_settings *settings_out) {
    if (options->clients < 0 || options->clients > SH_FED_CLIENTS_MOST)
        return SH_FAIL(SH_E_USAGE, "there can be 1 to %d clients", SH_FED_CLIENTS_MOST);
    sh_fed_settings s = {
        .server = {.rounds = or_count(options->rounds, 10),
                   .fraction = or_initial(options->fraction, 1),
                   .clients_min = or_count(options->clients_min, 1),
                   .over = or_initial(options->over, 1),
                   .quorum = or_initial(options->quorum, 0.5),
                   .deadline_ms = 3600000,
                   .presence_ms = 3600000,
                   .poll_ms = 1000,
                   .equal_weights = options->equal_weights,
                   .seed = seed},
        .clients = (size_t)or_count(options->clients, 10),
        .partition = options->partition != NULL ? options->partition : "iid",
        .dropout = or_initial(options->dropout, 0),
        .held_out = or_initial(options->held_out, 0),
        .secure = options->secure,
        .secure_clip = or_initial(options->secure_clip, 1),
        .local_epochs = or_count(options->local_epochs, 1),
        .local_steps = options->local_steps,
    };
    sh_fed_rule_options *rule = &s.server.rule;
    SH_TRY(sh_fed_rule_parse(options->rule != NULL ? options->rule : "fedavg", rule));
    rule->lr = or_initial(options->server_lr, rule->lr);
    rule->beta1 = or_initial(options->server_momentum, rule->beta1);
    rule->beta2 = or_initial(options->server_beta2, rule->beta2);
    rule->tau = or_initial(options->server_tau, rule->tau);
    if (options->privacy != NULL)
        // The sampling rate of rounds amplifies privacy.
        SH_TRY(sh_fed_privacy_parse(options->privacy, s.server.fraction < 1 ? s.server.fraction : 1,
                                    s.server.rounds, &s.server.privacy));
    sh_fed_privacy_seed_key(&s.server.privacy, seed);  // for simulations; serve.c draws a real key
    SH_TRY(sh_fed_personalise_parse(options->personalise, &s.personalise));
    SH_TRY(check(&s));
    *settings_out = s;
    return SH_OK;
}
