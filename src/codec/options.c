/* The options that all codecs share, as a run file has them. What one codec alone has stands in its
 * own row. */
#include <string.h>

#include "codec/codec.h"

static const sh_option rows[] = {
    SH_TEXT_ROW(sh_codec_settings, name, "compress.name", "none",
                "gradients made smaller: none, fp16, qsgd:4, topk:1%, ...; 'shoal list codecs'",
                .flag = "compress-name", .alias = "compress", .value = "CODEC"),
    SH_BOOL_ROW(sh_codec_settings, feedback, "compress.feedback", "true",
                "send later what a biased codec left out; off shows why", .flag = "error-feedback"),
    SH_REAL_ROW(sh_codec_settings, warmup, "compress.warmup", "0.1", 0, 1e12,
                "dgc: steps until the ratio is reached, or below 1 a part of the run",
                .flag = "compress-warmup"),
};

const sh_option_table sh_codec_table = {rows, SH_COUNT(rows)};

const sh_own_options *sh_codec_own_at(size_t index) {
    const sh_codec_kind *kind = sh_codec_at(index);
    return kind != NULL ? &kind->own : NULL;
}

sh_status sh_codec_make(const sh_codec_settings *settings, sh_codec *codec_out) {
    SH_TRY(sh_codec_parse(settings->name, codec_out));
    const sh_codec_kind *kind = codec_out->kind;
    if (kind == NULL) return SH_OK;
    if (!settings->feedback) codec_out->options.error_feedback = false;
    size_t index = 0;
    while (sh_codec_at(index) != kind) index++;
    memcpy(codec_out->own.bytes, settings->own.bytes + sh_own_offset(sh_codec_own_at, index),
           kind->own.bytes);
    return SH_OK;
}
