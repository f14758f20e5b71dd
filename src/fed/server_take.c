/* What becomes of an update that arrives: the one place where it is decided whether it counts. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "fed/server_internal.h"

/* An update of the open round must be of this attempt and of the model that was handed out. */
static sh_fed_verdict judge_open(sh_fed_server *server, const sh_fed_member *member,
                                 const sh_fed_update *update, const char **reason_out) {
    if (memcmp(update->model, sh_fed_hash_of(server, update->round), SH_FED_HASH) != 0) {
        *reason_out = "it was trained from another model than this round's";
        return SH_FED_REFUSED;
    }
    // Fedbuff knows no attempts.
    if (!sh_fed_buffered(server) && update->attempt != server->attempt) {
        *reason_out = "the round has begun again since";
        return SH_FED_NOT_NOW;
    }
    if (!server->open.collecting || !(member->selected || sh_fed_buffered(server))) {
        *reason_out = "this client is not asked in this round";
        return SH_FED_NOT_NOW;
    }
    return SH_FED_COUNTED;
}

/* A late update must be of a round whose model hash is still known, and of that model. */
static sh_fed_verdict judge_closed(sh_fed_server *server, const sh_fed_update *update,
                                   const char **reason_out) {
    uint64_t age = server->round - update->round;  // rounds that have closed since
    *reason_out = "its round is closed";
    if (age > (uint64_t)server->options.late_rounds) return SH_FED_LATE;
    // Restored servers may not know its hash.
    if (!server->known[update->round % (SH_FED_LATE_MOST + 1)]) return SH_FED_LATE;
    *reason_out = "no round is open";
    if (memcmp(update->model, sh_fed_hash_of(server, update->round), SH_FED_HASH) == 0)
        return server->open.collecting ? SH_FED_COUNTED : SH_FED_NOT_NOW;
    *reason_out = "it was trained from another model than its round's";
    return SH_FED_REFUSED;
}

/* By everything but the values. */
static sh_fed_verdict judge(sh_fed_server *server, const sh_fed_member *member,
                            const sh_fed_update *update, const char **reason_out) {
    *reason_out = "";
    if (member->revoked) {
        *reason_out = "this client is revoked";
        return SH_FED_REFUSED;
    }
    if (update->vectors != server->vectors || update->count != server->count) {
        *reason_out = "it has another shape than the model";
        return SH_FED_REFUSED;
    }
    // Steps divide in fednova; the bound keeps sums in range.
    if (update->samples == 0 || !(update->steps > 0) || !(update->steps < 0x1p30)) {
        *reason_out = "it says that nothing was trained on";
        return SH_FED_REFUSED;
    }
    if (update->round == 0 || update->round > server->round) {
        *reason_out = "its round has not begun";
        return SH_FED_REFUSED;
    }
    // Sent again after a lost receipt.
    if (update->round <= member->counted) return SH_FED_DUPLICATE;
    if (server->over) {
        *reason_out = "the training is over";
        return SH_FED_LATE;
    }
    if (member->folded) {
        *reason_out = member->base == update->round ? "" : "another update of it is counted";
        return member->base == update->round ? SH_FED_DUPLICATE : SH_FED_NOT_NOW;
    }
    if (update->round == server->round) return judge_open(server, member, update, reason_out);
    return judge_closed(server, update, reason_out);
}

/* In units of 2^-16: samples, or 1; less for an update of an older model. */
static uint64_t weight_of(const sh_fed_server *server, const sh_fed_update *update) {
    const sh_fed_options *options = &server->options;
    // 2^31 x 2^16 stays below SH_FED_WEIGHT_MOST.
    uint64_t samples = update->samples, most = (uint64_t)1 << 31;
    // A client could claim any number of samples.
    if (options->samples_most > 0 && samples > (uint64_t)options->samples_most)
        samples = (uint64_t)options->samples_most;
    if (samples > most) samples = most;
    if (options->equal_weights || options->privacy.on || options->rule.rule->equal_weights)
        samples = 1;
    double discount = 1.0 / sqrt(1.0 + (double)(server->round - update->round));
    return samples * (uint64_t)llrint(discount * 0x1p16);
}

/* Robust rules need the update itself until the round closes. */
static sh_status hold(sh_fed_server *server, sh_fed_member *member, const sh_fed_update *update) {
    size_t values = server->vectors * server->count;
    member->held = sh_alloc(values, sizeof *member->held);
    if (member->held == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an update");
    memcpy(member->held, update->values, values * sizeof *member->held);
    return SH_OK;
}

/* Adds the update to the sum with its weight and marks the client as counted in this round. */
static sh_status fold(sh_fed_server *server, sh_fed_member *member, const sh_fed_update *update) {
    uint64_t weight = weight_of(server, update);
    bool per_step = server->options.rule.rule->per_step;
    const sh_fed_privacy *privacy = &server->options.privacy;
    double scale = per_step ? 1.0 / update->steps : 1.0, rest_scale = 1.0;
    if (privacy->on)
        // Clips parameters and states together.
        scale = rest_scale = sh_fed_privacy_scale(privacy, update->values, server->count);
    if (server->options.rule.rule->combine != NULL) {
        SH_TRY(hold(server, member, update));
    } else {
        for (size_t v = 0; v < server->vectors; v++) {
            const float *values = update->values + v * server->count;
            size_t at = v * server->count, rest = server->count - server->params;
            sh_fed_sum_add(&server->open.sum, at, values, server->params, scale, weight);
            sh_fed_sum_add(&server->open.sum, at + server->params, values + server->params, rest,
                           rest_scale, weight);
        }
    }
    server->open.weights += weight;
    server->open.weighted_steps +=
        (unsigned __int128)weight * (uint64_t)llrint(update->steps * 0x1p16);
    member->folded = true;
    member->base = update->round;
    member->samples = update->samples;
    member->loss = update->loss;
    member->accuracy = update->accuracy;
    server->open.folded++;
    server->open.late += update->round < server->round;
    return SH_OK;
}

/* Values are checked last, as that takes a pass over all of them. The last update of a round closes
 * it at once. */
sh_status sh_fed_server_take(sh_fed_server *server, int64_t now_ms, size_t client,
                             const sh_fed_update *update, sh_fed_receipt *receipt_out) {
    SH_ASSERT(client < server->member_count);
    const char *reason;
    sh_fed_receipt receipt = {.round = update->round, .attempt = update->attempt};
    server->members[client].seen_ms = now_ms;  // an update is a sign of life
    SH_TRY(sh_fed_advance(server, now_ms));
    sh_fed_member *member = &server->members[client];
    receipt.verdict = judge(server, member, update, &reason);
    if (receipt.verdict == SH_FED_COUNTED &&
        // NaN or huge values would spoil the sum for all.
        sh_fed_sum_check(update->values, server->vectors * server->count) != SH_OK) {
        receipt.verdict = SH_FED_REFUSED;
        reason = sh_error_last()->text;
    }
    sh_snprintf(receipt.reason, sizeof receipt.reason, "%s", reason);
    if (receipt.verdict == SH_FED_COUNTED) {  // the round may close with it
        SH_TRY(fold(server, member, update));
        SH_TRY(sh_fed_advance(server, now_ms));
    }
    *receipt_out = receipt;
    return SH_OK;
}

/* Secure aggregation tells no samples, losses or steps of a client: each has weight 1. */
void sh_fed_server_take_sum(sh_fed_server *server, const bool *came, const int32_t *sum,
                            double unit) {
    const uint64_t weight = (uint64_t)1 << 16;
    sh_fed_open_round *open = &server->open;
    SH_ASSERT(open->collecting && open->folded == 0 && server->vectors == 1);
    for (size_t i = 0; i < server->count; i++)
        // Back from quantised levels, rounded once more.
        open->sum.total[i] += (__int128)llrint((double)sum[i] * unit * 0x1p40) * (int64_t)weight;
    for (size_t c = 0; c < server->member_count; c++) {
        sh_fed_member *member = &server->members[c];
        if (!came[c]) continue;
        SH_ASSERT(member->selected && !member->folded);
        member->folded = true;
        member->base = server->round;
        member->samples = 0;
        member->loss = member->accuracy = NAN;
        open->folded++;
        open->weights += weight;
        open->weighted_steps += (unsigned __int128)weight << 16;
    }
}
