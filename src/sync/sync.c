#include "sync/sync.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "base/text.h"
#include "sync/list.h"

static const sh_sync_kind *const kinds[] = {
#define X(name) &sh_sync_##name,
    SH_SYNC_LIST(X)
#undef X
};

const sh_sync_kind *sh_sync_at(size_t index) {
    if (index < SH_COUNT(kinds)) return kinds[index];
    if (sh_sync_more == NULL) return NULL;
    for (size_t i = 0;; i++)
        if (sh_sync_more[i] == NULL || i == index - SH_COUNT(kinds)) return sh_sync_more[i];
}

const sh_sync_kind *sh_sync_find(const char *name) {
    const sh_sync_kind *kind;
    for (size_t i = 0; (kind = sh_sync_at(i)) != NULL; i++)
        if (strcmp(kind->name, name) == 0 ||
            (kind->alias != NULL && strcmp(kind->alias, name) == 0))
            return kind;
    return NULL;
}

bool sh_sync_reads(const sh_sync_kind *kind, const char *option) {
    size_t length = strlen(option);
    for (const char *word = kind->reads; word != NULL && *word != '\0';) {
        size_t own = strcspn(word, " ");
        if (own == length && strncmp(word, option, length) == 0) return true;
        word += own + strspn(word + own, " ");
    }
    for (size_t i = 0; i < kind->own.table.count; i++)
        if (strcmp(strchr(kind->own.table.rows[i].key, '.') + 1, option) == 0) return true;
    return false;
}

static const char *name_at(const void *names, size_t index) {
    (void)names;
    const sh_sync_kind *kind = sh_sync_at(index);
    return kind != NULL ? kind->name : NULL;
}

static sh_status refuse_name(const char *name) {
    SH_FAIL(SH_E_USAGE, "there is no scheme '%s'", name);
    const char *near = sh_nearest(name, name_at, NULL);
    if (near != NULL) return sh_error_hint("did you mean '%s'? 'shoal list sync' shows all", near);
    return sh_error_hint("'shoal list sync' shows all");
}

static sh_status read_amount(const sh_sync_kind *kind, const char *text, double *amount_out) {
    if (kind->amount == NULL) {
        SH_FAIL(SH_E_USAGE, "scheme '%s' takes no amount, '%.32s' was given", kind->name, text);
        return sh_error_hint("write '%s' alone", kind->name);
    }
    char *end;
    bool plain = *text != '\0' && text[strspn(text, "0123456789")] == '\0';
    double amount = plain ? sh_strtod(text, &end) : NAN;
    if (!(amount >= kind->amount_least && amount <= kind->amount_most)) {
        SH_FAIL(SH_E_USAGE, "scheme '%s': %s is '%.32s'", kind->name, kind->amount, text);
        return sh_error_hint("give a whole number from %.0f to %.0f, as in %s:%.0f",
                             kind->amount_least, kind->amount_most, kind->name,
                             kind->amount_initial);
    }
    *amount_out = amount;
    return SH_OK;
}

sh_status sh_scheme_parse(const char *text, sh_scheme *scheme_out) {
    const char *colon = strchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name), text);
    sh_scheme scheme = {.kind = sh_sync_find(name)};
    if (scheme.kind == NULL) return refuse_name(name);
    scheme.amount = scheme.kind->amount_initial;
    if (colon != NULL) SH_TRY(read_amount(scheme.kind, colon + 1, &scheme.amount));
    *scheme_out = scheme;
    return SH_OK;
}

sh_scheme sh_scheme_of(sh_scheme scheme, const sh_sync_options *options, int workers,
                       bool has_engine) {
    if (!has_engine) return (sh_scheme){.kind = &sh_sync_alone};
    if (sh_scheme_acts(scheme, options, workers)) return scheme;
    return (sh_scheme){.kind = &sh_sync_bsp};
}

bool sh_sync_apart(const sh_sync_options *options) {
    return options->server_ranks != NULL && strcmp(options->server_ranks, "own") == 0;
}

const char *sh_scheme_text(sh_scheme scheme, char text_out[SH_SCHEME_TEXT]) {
    if (scheme.kind->amount == NULL)
        snprintf(text_out, SH_SCHEME_TEXT, "%s", scheme.kind->name);
    else
        sh_snprintf(text_out, SH_SCHEME_TEXT, "%s:%.0f", scheme.kind->name, scheme.amount);
    return text_out;
}

/* What only the summed gradient of bulk-synchronous steps has. */
static const char *only_bsp(const sh_sync_kind *kind, const sh_sync_terms *terms) {
    if (terms->exact && !kind->exact) return "--exact";
    if (terms->shard_optimizer) return "--shard-optimizer";
    if (terms->balance) return "--balance";
    if (terms->sync_batchnorm) return "--sync-batchnorm";
    if (terms->drops_paths) return "paths that are dropped";
    return NULL;
}

sh_status sh_scheme_check(sh_scheme scheme, const sh_sync_options *options,
                          const sh_sync_terms *terms) {
    const sh_sync_kind *kind = scheme.kind;
    bool acts = sh_scheme_acts(scheme, options, terms->workers);
    const char *other = acts ? only_bsp(kind, terms) : NULL;
    if (other != NULL) {
        SH_FAIL(SH_E_USAGE, "scheme '%s' does not go with %s, which needs every step's sum",
                kind->name, other);
        return sh_error_hint("leave out one of them, or use --sync bsp");
    }
    return kind->check != NULL ? kind->check(scheme, options, terms) : SH_OK;
}

sh_status sh_service_health(const sh_service *service) {
    SH_TRY(sh_transport_health(service->mail.transport));
    if (service->quits == NULL || !service->quits(service->user)) return SH_OK;
    return SH_FAIL(SH_E_PEER, "the team regroups without service %d", service->index);
}

void sh_replica_update(sh_replica *replica) {
    replica->counts.updates++;
    if (replica->weights == NULL) return;
    const sh_optim_step step = {
        .params = replica->params,
        .count = replica->params->count,
        .high = replica->params->total,
        .weights = replica->weights,
        .gradients = replica->gradients,
        .gradient_scale = 1,
        .lr = sh_schedule_lr(replica->schedule, replica->all.done / replica->ranks),
        .step = replica->step + 1,
    };
    sh_optim_apply(replica->optim, &step);
}

void sh_replica_apply(sh_replica *replica, sh_optim_step step) {
    if (replica->weights == NULL) return;  // timing only
    int64_t begin = sh_clock_now_ns(replica->clock);
    step.params = replica->params;
    step.windowed = true;
    step.weights = replica->weights;
    step.gradients = replica->gradients;
    step.lr = sh_schedule_lr(replica->schedule, replica->step);
    step.step = replica->step + 1;
    if (replica->ops.apply != NULL)
        replica->ops.apply(replica->ops.self, &step);
    else
        sh_optim_apply(replica->optim, &step);
    replica->counts.updated_ns += sh_clock_now_ns(replica->clock) - begin;
}

double sh_replica_clip(const sh_replica *replica, size_t low, size_t high) {
    const sh_step_options *steps = replica->steps;
    if (replica->gradients == NULL) return 0;
    float *gradients = replica->gradients + low;
    if (steps->clip_value > 0) sh_clip_value(gradients, high - low, (float)steps->clip_value);
    return steps->clip_norm > 0 ? sh_clip_squares(gradients, high - low) : 0;
}

sh_status sh_replica_average(sh_replica *replica, float *data, size_t count) {
    if (count == 0 || replica->ranks == 1) return SH_OK;
    float *spare = data != NULL ? replica->spare : NULL;
    if (spare != NULL) memcpy(spare, data, count * sizeof *data);
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = spare != NULL ? spare : data,
                    .count = count,
                    .dtype = SH_DTYPE_F32,
                    .op = SH_MEAN,
                    .step = replica->step,
                    .bucket = -1};
    int64_t begin = sh_clock_now_ns(replica->clock);
    SH_TRY(sh_group_run(replica->group, &call));
    if (spare != NULL) memcpy(data, spare, count * sizeof *data);
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    replica->counts.sent_bytes += call.sent_bytes;
    replica->counts.dense_bytes += call.sent_bytes;
    return SH_OK;
}

sh_momentum sh_sync_momentum(const sh_sync_options *options, sh_momentum usual) {
    static const char *const names[] = {"average", "keep", "reset"};
    for (size_t i = 0; i < SH_COUNT(names); i++)
        if (strcmp(options->momentum, names[i]) == 0) return (sh_momentum)i;
    return usual;
}

sh_status sh_replica_average_optim(sh_replica *replica, sh_momentum policy) {
    size_t total = replica->params->total;
    for (int i = 0; replica->optim != NULL && i < replica->optim->slot_count; i++) {
        float *slot = replica->optim->slots[i];
        if (policy == SH_MOMENTUM_AVERAGE)
            SH_TRY(sh_replica_average(replica, slot, total));
        else if (policy == SH_MOMENTUM_RESET && slot != NULL)
            memset(slot, 0, total * sizeof *slot);
    }
    return SH_OK;
}

sh_status sh_sync_meet_mean(sh_sync *sync) {
    bool resets = sh_sync_momentum(sync->options, SH_MOMENTUM_AVERAGE) == SH_MOMENTUM_RESET;
    SH_TRY(sh_replica_average(sync->replica, sync->replica->weights, sync->replica->params->total));
    return sh_replica_average_optim(sync->replica,
                                    resets ? SH_MOMENTUM_RESET : SH_MOMENTUM_AVERAGE);
}

sh_status sh_refuse_codec(sh_scheme scheme, const sh_sync_terms *terms, const char *why) {
    if (terms->codec->kind == NULL || terms->workers == 1) return SH_OK;
    SH_FAIL(SH_E_USAGE, "codec '%s' does not go with scheme '%s': it %s", terms->codec->kind->name,
            scheme.kind->name, why);
    return sh_error_hint("use another codec or none, or --sync bsp");
}
