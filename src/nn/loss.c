#include "nn/loss.h"

#include <string.h>

/* An option that has no effect on this loss is an error, unless it has its initial value. */
static sh_status check_options(const sh_loss *loss) {
    // Where nobody sets them; the option table of a run says the same.
    static const sh_loss_options initial = {.smoothing = 0, .ignore_index = -100, .delta = 1};
    const sh_loss_options *set = &loss->options;
    const sh_loss_kind *kind = loss->kind;
    const char *other = NULL;
    if (!kind->has_smoothing && set->smoothing != initial.smoothing) other = "smoothing";
    if (!kind->classes && set->ignore_index != initial.ignore_index) other = "ignore";
    if (!kind->has_delta && set->delta != initial.delta) other = "delta";
    if (other == NULL) return SH_OK;
    SH_FAIL(SH_E_USAGE, "loss '%s' has no option '%s'", kind->name, other);
    return sh_error_hint("leave 'loss.%s' (--%s) out, or choose another loss", other, other);
}

/* Class losses index scores by the target; value losses subtract it: neither can read the other
 * kind. */
static sh_status check_targets(const sh_loss *loss, const sh_data_info *data) {
    bool classes = data->target == SH_TARGET_CLASS || data->target == SH_TARGET_TOKENS;
    if (loss->kind->any_target || loss->kind->classes == classes) return SH_OK;
    if (classes) {
        SH_FAIL(SH_E_USAGE, "loss '%s' wants float targets, but the data has class labels",
                loss->kind->name);
        return sh_error_hint(
            "'data: {targets: values}' (--targets values) takes whole numbers "
            "as values");
    }
    SH_FAIL(SH_E_USAGE, "loss '%s' wants class labels, but the data has values", loss->kind->name);
    return sh_error_hint(
        "'data: {targets: classes}' (--targets classes) says where a target is "
        "no class");
}

/* Tokens want scores per token (T, V), other targets one row per sample. More outputs than classes
 * are allowed (a vocabulary that is rounded up), fewer are not. */
sh_status sh_loss_init(sh_loss *loss, const sh_loss_options *options, const sh_data_info *data,
                       const sh_shape *output) {
    bool classes = data->target == SH_TARGET_CLASS || data->target == SH_TARGET_TOKENS;
    const char *name = options->name;
    if (strcmp(name, "auto") == 0) name = classes ? "cross-entropy" : "mse";
    *loss = (sh_loss){.kind = sh_loss_find(name), .options = *options};
    if (loss->kind == NULL) return SH_FAIL(SH_E_USAGE, "there is no loss '%s'", name);
    SH_TRY(check_options(loss));
    SH_TRY(check_targets(loss, data));
    int64_t width = output->dim[output->rank - 1];
    int64_t wanted = classes ? data->classes : data->values;
    char text[SH_SHAPE_TEXT];
    bool fits = data->target == SH_TARGET_TOKENS
                    ? output->rank == 2 && output->dim[0] == data->sample.dim[0]
                    : output->rank == 1;
    if (!fits)
        return SH_FAIL(SH_E_SHAPE, "the model ends in %s, which does not fit the targets",
                       sh_shape_text(output, text));
    if (loss->kind->any_target) return SH_OK;
    if (classes ? width < wanted : width != wanted)
        return SH_FAIL(SH_E_SHAPE, "the model has %ld outputs, but the data has %ld %s",
                       (long)width, (long)wanted, classes ? "classes" : "target values");
    return SH_OK;
}
