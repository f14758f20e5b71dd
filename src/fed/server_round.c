/* Rounds: whom to ask, when a round closes, and what a closed round leaves. */
#include <math.h>
#include <sodium.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "fed/server_internal.h"

/* The hash names the model in tasks, updates and downloads. */
void sh_fed_hash_model(sh_fed_server *server) {
    crypto_hash_sha256(sh_fed_hash_of(server, server->round), (const unsigned char *)server->model,
                       server->vectors * server->count * sizeof(float));
    server->known[server->round % (SH_FED_LATE_MOST + 1)] = true;
}

/* The sum starts empty, and nobody is asked. Held updates are overwritten before their memory is
 * given back. */
static void clear_round(sh_fed_server *server) {
    for (size_t i = 0; i < server->member_count; i++) {
        sh_fed_member *member = &server->members[i];
        if (member->held != NULL)
            sodium_memzero(member->held, server->vectors * server->count * sizeof(float));
        sh_free(member->held);
        member->held = NULL;
        member->selected = member->folded = false;
    }
    sh_fed_sum_clear(&server->open.sum);
    server->open.weights = server->open.weighted_steps = 0;
    server->open.selected = server->open.folded = server->open.late = server->open.target = 0;
    server->open.collecting = false;
}

/* Rounded up, but for the error of a product such as 0.1 x 30. */
static size_t at_most(double wanted, size_t most) {
    return wanted >= (double)most ? most : (size_t)ceil(wanted - 1e-9);
}

/* With a privacy budget everyone is drawn by itself, which is what the accountant counts on. */
static sh_status draw_clients(sh_fed_server *server, int64_t now_ms, size_t present) {
    sh_fed_open_round *open = &server->open;
    open->selected = 0;
    for (size_t i = 0; i < server->member_count; i++) {
        sh_fed_member *member = &server->members[i];
        member->selected = sh_fed_present(server, member, now_ms) &&
                           // Each by its own secret draw.
                           sh_fed_privacy_draws(&server->options.privacy, server->round,
                                                server->attempt, i, sh_fed_rate(server));
        open->selected += member->selected;
    }
    open->target = open->selected;
    // The divisor of the sum: known without looking at the draw.
    open->expected = sh_fed_rate(server) * (double)present;
    return SH_OK;
}

/* Draws whom to ask from those who are present; a function of (seed, round, attempt). */
static sh_status select_clients(sh_fed_server *server, int64_t now_ms, size_t present) {
    const sh_fed_options *options = &server->options;
    size_t least = (size_t)options->clients_min;
    if (options->privacy.on) return draw_clients(server, now_ms, present);
    server->open.target = at_most(options->fraction * (double)present, present);
    if (server->open.target < least) server->open.target = least;
    // More than needed, against stragglers.
    server->open.selected = at_most(options->over * (double)server->open.target, present);
    uint32_t *order = sh_alloc(present, sizeof *order), *ids = sh_alloc(present, sizeof *ids);
    if (order == NULL || ids == NULL) {
        sh_free(order);
        sh_free(ids);
        return SH_FAIL(SH_E_MEMORY, "out of memory for a selection of clients");
    }
    size_t found = 0;
    for (size_t i = 0; i < server->member_count; i++)
        if (sh_fed_present(server, &server->members[i], now_ms)) ids[found++] = (uint32_t)i;
    // Another attempt selects others.
    sh_rng rng = sh_rng_stream(options->seed, SH_RNG_FED_SELECT, server->attempt, server->round);
    sh_rng_shuffle(&rng, order, present);
    for (size_t i = 0; i < server->open.selected; i++)
        server->members[ids[order[i]]].selected = true;
    sh_free(order);
    sh_free(ids);
    return SH_OK;
}

/* Whether another round would cost more than there is left. */
static bool is_spent(const sh_fed_server *server) {
    const sh_fed_privacy *privacy = &server->options.privacy;
    sh_fed_accountant after = server->spent;
    if (!privacy->on) return false;
    sh_fed_accountant_repeat(&after, &server->cost, 1);
    // Rounding of the noise search must not end it a round early.
    return sh_fed_accountant_epsilon(&after, privacy->delta) > privacy->epsilon * (1 + 1e-12);
}

/* No budget for another round ends the training, with the last model. */
static sh_status open_round(sh_fed_server *server, int64_t now_ms) {
    size_t present = sh_fed_count_present(server, now_ms);
    if (present < (size_t)server->options.clients_min) return SH_OK;
    if (is_spent(server)) {
        server->over = true;
        return SH_OK;
    }
    if (sh_fed_buffered(server))
        server->open.target = (size_t)server->options.rule.amount;  // updates of a buffer
    else
        SH_TRY(select_clients(server, now_ms, present));
    if (server->options.privacy.on && server->open.selected == 0) {  // the next draw, then
        server->attempt++;
        return SH_OK;
    }
    server->open.collecting = true;
    server->open.opened_ms = now_ms;
    server->open.deadline_ms = now_ms + server->options.deadline_ms;
    return SH_OK;
}

/* A new attempt: updates of the old one are recognised by its number. */
static void restart_round(sh_fed_server *server) {
    clear_round(server);
    server->attempt++;
    server->restarted++;
}

/* Losses and accuracies are weighted by samples. */
static sh_fed_report report_of(const sh_fed_server *server, int64_t now_ms) {
    sh_fed_report report = {.round = server->round,
                            .attempt = server->attempt,
                            .selected = server->open.selected,
                            .counted = server->open.folded,
                            .late = server->open.late,
                            .opened_ms = (double)server->open.opened_ms,
                            .closed_ms = (double)now_ms,
                            .accuracy_least = NAN,
                            .accuracy_most = NAN};
    double loss = 0, accuracy = 0, known = 0;
    report.epsilon = sh_fed_spent(server);
    report.loss = report.accuracy = NAN;  // exact figures of clients would tell what noise hides
    if (server->options.privacy.on) return report;
    for (size_t i = 0; i < server->member_count; i++) {
        const sh_fed_member *member = &server->members[i];
        if (!member->folded) continue;
        report.samples += member->samples;
        loss += member->loss * (double)member->samples;
        if (isnan(member->accuracy)) continue;
        accuracy += member->accuracy * (double)member->samples;
        known += (double)member->samples;
        report.accuracy_least = fmin(report.accuracy_least, member->accuracy);
        report.accuracy_most = fmax(report.accuracy_most, member->accuracy);
    }
    report.loss = loss / (double)report.samples;
    report.accuracy = known > 0 ? accuracy / known : NAN;
    return report;
}

/* The charge is durable before anything is done with the sum. */
static sh_status make_private(sh_fed_server *server) {
    const sh_fed_privacy *privacy = &server->options.privacy;
    const uint64_t weight = (uint64_t)1 << 16;
    if (!privacy->on) return SH_OK;
    if (server->options.charge != NULL)  // on disk first: a crash must not forget what was spent
        SH_TRY(server->options.charge(server->self, server->round, sh_fed_rate(server),
                                      privacy->noise));
    sh_fed_accountant_repeat(&server->spent, &server->cost, 1);
    // The expected number, not the drawn one: it tells nothing.
    server->open.weights = (unsigned __int128)(server->open.expected * (double)weight);
    return sh_fed_privacy_add_noise(privacy, server->round, server->attempt, weight,
                                    &server->open.sum);
}

/* The mean of the updates, or what a robust rule makes of them. */
static sh_status combine(sh_fed_server *server) {
    const sh_fed_rule_options *rule = &server->options.rule;
    if (rule->rule->combine == NULL) {
        sh_fed_sum_mean(&server->open.sum, (double)server->open.weights, server->mean);
        return SH_OK;
    }
    const float **updates = sh_alloc(server->open.folded, sizeof *updates);
    if (updates == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a round's updates");
    size_t held = 0;
    for (size_t i = 0; i < server->member_count; i++)
        if (server->members[i].folded) updates[held++] = server->members[i].held;
    sh_status status =
        rule->rule->combine(rule, updates, held, server->vectors * server->count, server->mean);
    sh_free(updates);
    return status;
}

/* `share` is of all known clients, present or not, as scaffold has N. */
static void apply(sh_fed_server *server) {
    const sh_fed_rule_options *rule = &server->options.rule;
    sh_fed_closing closing = {
        .params = server->params,
        .count = server->count,
        .mean = server->mean,
        // In units of 2^-16, as it was summed.
        .steps = (double)server->open.weighted_steps / (double)server->open.weights * 0x1p-16,
        .share = (double)server->open.folded / (double)server->member_count,
        .model = server->model};
    for (int i = 0; i < SH_FED_SLOTS_MOST; i++) closing.slots[i] = server->slots[i];
    rule->rule->apply(rule, &closing);
}

/* A robust rule that has too few updates begins the round again, as a deadline does. */
static sh_status close_round(sh_fed_server *server, int64_t now_ms) {
    SH_TRY(make_private(server));
    sh_status status = combine(server);
    if (status == SH_E_SHAPE) {  // too few updates for the rule
        restart_round(server);
        return SH_OK;
    }
    SH_TRY(status);
    sh_fed_report report = report_of(server, now_ms);
    apply(server);
    for (size_t i = 0; i < server->member_count; i++)
        // An update counts once, for its round.
        if (server->members[i].folded) server->members[i].counted = server->members[i].base;
    clear_round(server);
    server->round++;
    server->attempt++;
    server->over = server->round > (uint64_t)server->options.rounds;
    sh_fed_hash_model(server);  // before anybody is told of the new round
    return server->commit(server->self, server, &report);  // durable before it is handed out
}

/* Whether nobody who was asked can still answer: each has, or is revoked. */
static bool all_have_answered(const sh_fed_server *server) {
    for (size_t i = 0; i < server->member_count; i++) {
        const sh_fed_member *member = &server->members[i];
        if (member->selected && !member->folded && !member->revoked) return false;
    }
    return true;
}

/* With a quorum, nobody is waited for who cannot answer any more. */
static bool is_full(const sh_fed_server *server) {
    if (server->open.folded >= server->open.target) return true;
    return !sh_fed_buffered(server) && server->open.folded > 0 && all_have_answered(server) &&
           (double)server->open.folded >= server->options.quorum * (double)server->open.target;
}

/* The only function that opens, closes or restarts a round; called at every event. fedbuff has no
 * deadline. */
sh_status sh_fed_advance(sh_fed_server *server, int64_t now_ms) {
    SH_TRY(server->failed);  // a failed commit is final
    if (server->over) return SH_OK;
    if (server->open.collecting) {
        double quorum = ceil(server->options.quorum * (double)server->open.target - 1e-9);
        bool expired = !sh_fed_buffered(server) && now_ms >= server->open.deadline_ms;
        bool enough = server->open.folded > 0 && (double)server->open.folded >= quorum;
        if (is_full(server) || (expired && enough))
            server->failed = close_round(server, now_ms);
        else if (expired)
            restart_round(server);
        SH_TRY(server->failed);
    }
    return server->open.collecting || server->over ? SH_OK : open_round(server, now_ms);
}
