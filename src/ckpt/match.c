#include "ckpt/match.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static sh_status misfit(const sh_match *match, const char *name, const char *what) {
    SH_FAIL(SH_E_SHAPE, "'%.300s' does not fit the model: tensor '%s' %s", match->source, name,
            what);
    return sh_error_hint("use the run file that it was written with");
}

static sh_status check_fit(const sh_match *match, const char *name, const sh_shape *shape,
                           const sh_tensor_entry *entry) {
    char what[320], wanted[SH_SHAPE_TEXT], found[SH_SHAPE_TEXT];
    const char *wanted_text = sh_shape_text(shape, wanted);
    if (entry == NULL) {
        snprintf(what, sizeof what, "(%s) is missing", wanted_text);
        return misfit(match, name, what);
    }
    if (!sh_shape_equal(shape, &entry->shape)) {
        snprintf(what, sizeof what, "is %s there and %s in the model",
                 sh_shape_text(&entry->shape, found), wanted_text);
        return misfit(match, name, what);
    }
    if (entry->type != SH_TENSOR_F32) {
        SH_FAIL(SH_E_UNSUPPORTED, "'%.300s': tensor '%s' is %s", match->source, name,
                sh_tensor_type_name(entry->type));
        return sh_error_hint("convert it to F32 first");
    }
    return SH_OK;
}

sh_status sh_match_list(sh_match *match, const sh_param_list *list, const char *slot,
                        float *values) {
    size_t count = list != NULL ? list->count : 0;
    SH_TRY(sh_grow((void **)&match->pairs, &match->capacity, match->count + count,
                   sizeof *match->pairs));
    for (size_t i = 0; i < count; i++) {
        const sh_param *param = &list->items[i];
        char name[SH_PARAM_NAME + 64];
        snprintf(name, sizeof name, "%s%s%s", param->name, slot != NULL ? "." : "",
                 slot != NULL ? slot : "");
        const sh_tensor_entry *entry = sh_safetensors_find(match->tensors, name);
        SH_TRY(check_fit(match, name, &param->shape, entry));
        match->pairs[match->count++] = (sh_match_pair){entry, values + param->offset, param->count};
    }
    return SH_OK;
}

static bool is_paired(const sh_match *match, const sh_tensor_entry *entry) {
    for (size_t i = 0; i < match->count; i++)
        if (match->pairs[i].entry == entry) return true;
    return false;
}

static bool is_batch_count(const sh_tensor_entry *entry) {
    static const char end[] = ".num_batches_tracked";
    size_t length = strlen(entry->name), end_length = strlen(end);
    return length > end_length && strcmp(entry->name + length - end_length, end) == 0;
}

sh_status sh_match_end(const sh_match *match) {
    for (size_t i = 0; i < match->tensors->count; i++) {
        const sh_tensor_entry *entry = &match->tensors->entries[i];
        if (!is_paired(match, entry) && !is_batch_count(entry))
            return misfit(match, entry->name, "is there and not in the model");
    }
    return SH_OK;
}

void sh_match_copy(const sh_match *match) {
    for (size_t i = 0; i < match->count; i++)
        memcpy(match->pairs[i].values, match->pairs[i].entry->data,
               match->pairs[i].count * sizeof(float));
}

void sh_match_fini(sh_match *match) {
    sh_free(match->pairs);
    match->pairs = NULL;
    match->count = match->capacity = 0;
}
