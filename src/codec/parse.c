/* Codecs as text: "topk:1%". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "base/text.h"
#include "codec/codec.h"

static const char *name_at(const void *names, size_t index) {
    (void)names;
    if (index == 0) return "none";
    const sh_codec_kind *kind = sh_codec_at(index - 1);
    return kind != NULL ? kind->name : NULL;
}

/* With the nearest name. */
static sh_status refuse_name(const char *name) {
    SH_FAIL(SH_E_USAGE, "there is no codec '%s'", name);
    const char *near = sh_nearest(name, name_at, NULL);
    if (near != NULL)
        return sh_error_hint("did you mean '%s'? 'shoal list codecs' shows all", near);
    return sh_error_hint("'shoal list codecs' shows all");
}

/* An amount as a user would write it. */
static const char *amount_text(const sh_codec_kind *kind, double amount, char text_out[24]) {
    if (kind->amount_whole)
        sh_snprintf(text_out, 24, "%.0f", amount);
    else
        sh_snprintf(text_out, 24, "%.9g%%", 100 * amount);
    return text_out;
}

/* With the bounds of this codec. */
static sh_status refuse_amount(const sh_codec_kind *kind, const char *amount) {
    char least[24], most[24], initial[24];
    SH_FAIL(SH_E_USAGE, "codec '%s': %s is '%.32s'", kind->name, kind->amount, amount);
    return sh_error_hint("give a %s from %s to %s, as in %s:%s",
                         kind->amount_whole ? "whole number" : "fraction or percentage",
                         amount_text(kind, kind->amount_least, least),
                         amount_text(kind, kind->amount_most, most), kind->name,
                         amount_text(kind, kind->amount_initial, initial));
}

/* A plain decimal number, with '%' where fractions are meant; nothing else. */
static bool read_amount(const sh_codec_kind *kind, const char *text, double *amount_out) {
    char *end;
    if (text[0] == '\0' || text[strspn(text, "0123456789.eE-+%")] != '\0') return false;
    double amount = sh_strtod(text, &end);
    if (end == text) return false;
    if (*end == '%' && !kind->amount_whole) {
        amount /= 100;
        end++;
    }
    *amount_out = amount;
    return *end == '\0';
}

static bool is_valid(const sh_codec_kind *kind, double amount) {
    return amount >= kind->amount_least && amount <= kind->amount_most &&
           (!kind->amount_whole || amount == floor(amount));
}

static sh_status set_amount(const sh_codec_kind *kind, const char *text, double *amount_out) {
    double amount = 0;
    if (kind->amount == NULL) {
        SH_FAIL(SH_E_USAGE, "codec '%s' takes no amount, '%.32s' was given", kind->name, text);
        return sh_error_hint("write '%s' alone", kind->name);
    }
    if (!read_amount(kind, text, &amount) || !is_valid(kind, amount))
        return refuse_amount(kind, text);
    *amount_out = amount;
    return SH_OK;
}

sh_status sh_codec_parse(const char *text, sh_codec *codec_out) {
    sh_codec codec = {.ranks = 1};
    const char *colon = strchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name), text);
    codec.kind = sh_codec_find(name);
    if (codec.kind == NULL && strcmp(name, "none") != 0) return refuse_name(name);
    snprintf(codec.options.name, sizeof codec.options.name, "%.23s", name);
    if (codec.kind == NULL) {
        if (colon != NULL) return SH_FAIL(SH_E_USAGE, "codec 'none' takes no amount");
        *codec_out = codec;
        return SH_OK;
    }
    codec.options.amount = codec.kind->amount_initial;
    codec.options.clip = codec.kind->clip_initial;
    codec.options.dense_below = codec.kind->dense_below;
    codec.options.error_feedback = codec.kind->feedback == SH_FEEDBACK_USUAL;
    if (colon != NULL) SH_TRY(set_amount(codec.kind, colon + 1, &codec.options.amount));
    SH_TRY(sh_options_init(codec.kind->own.table, codec.own.bytes));
    *codec_out = codec;
    return SH_OK;
}

sh_status sh_codec_check(const sh_codec *codec) {
    const sh_codec_kind *kind = codec->kind;
    const sh_codec_options *o = &codec->options;
    if (kind == NULL) return SH_OK;
    if (kind->amount != NULL && !is_valid(kind, o->amount)) {
        char amount[24];
        return refuse_amount(kind, amount_text(kind, o->amount, amount));
    }
    if (o->error_feedback && kind->feedback == SH_FEEDBACK_NEVER) {
        SH_FAIL(SH_E_USAGE, "codec '%s' is right on average and has no error feedback", kind->name);
        return sh_error_hint("leave error feedback off");
    }
    if (!(o->momentum >= 0 && o->momentum < 1))
        return SH_FAIL(SH_E_USAGE, "codec '%s': momentum is %g", kind->name, o->momentum);
    if (!kind->owns_momentum && o->momentum != 0)
        return SH_FAIL(SH_E_USAGE, "codec '%s' applies no momentum", kind->name);
    if (!(o->clip >= 0 && o->clip < INFINITY)) {
        SH_FAIL(SH_E_USAGE, "codec '%s': clip is %g", kind->name, o->clip);
        return sh_error_hint("give a positive number, or 0 for none");
    }
    if (o->warmup_steps < 0)
        return SH_FAIL(SH_E_USAGE, "codec '%s': the warm-up has %lld steps", kind->name,
                       (long long)o->warmup_steps);
    return SH_OK;
}

const char *sh_codec_text(const sh_codec *codec, char text_out[SH_CODEC_TEXT]) {
    char amount[24];
    if (codec->kind == NULL)
        snprintf(text_out, SH_CODEC_TEXT, "none");
    else if (codec->kind->amount == NULL)
        snprintf(text_out, SH_CODEC_TEXT, "%.23s", codec->kind->name);
    else
        snprintf(text_out, SH_CODEC_TEXT, "%.20s:%s", codec->kind->name,
                 amount_text(codec->kind, codec->options.amount, amount));
    return text_out;
}
