/* Pairing a file's tensors with a net's parameters by name and shape, see match.h: first all
 * pairs, then the checks of what is left over, then the copies. */
#include "ckpt/match.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "tensor/kernels/reduce.h"

/* Reports a tensor that does not fit, with file and name. */
static sh_status misfit(const sh_match *match, const char *name, const char *what) {
    SH_FAIL(SH_E_SHAPE, "'%.300s' does not fit the model: tensor '%s' %s", match->source, name,
            what);
    return sh_error_hint("use the run file that it was written with");
}

/* Checks presence, shape and type of a tensor; the message has both shapes. */
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

/* NAME.SLOT with its zero. */
enum { TENSOR_NAME = SH_PARAM_NAME + 64 };

/* Tensor of a parameter, called NAME, or NAME.SLOT for a slot; NULL if the file lacks it. */
static const sh_tensor_entry *find(const sh_match *match, const sh_param *param, const char *slot,
                                   char name_out[TENSOR_NAME]) {
    snprintf(name_out, TENSOR_NAME, "%s%s%s", param->name, slot != NULL ? "." : "",
             slot != NULL ? slot : "");
    return sh_safetensors_find(match->tensors, name_out);
}

/* Compares shapes too: a tensor of another shape counts as missing. */
bool sh_match_has(const sh_match *match, const sh_param_list *list, const char *slot) {
    char name[TENSOR_NAME];
    for (size_t i = 0; i < list->count; i++) {
        const sh_tensor_entry *entry = find(match, &list->items[i], slot, name);
        if (entry == NULL || !sh_shape_equal(&list->items[i].shape, &entry->shape)) return false;
    }
    return true;
}

/* Pairs all or fails; `list` NULL pairs nothing. */
sh_status sh_match_list(sh_match *match, const sh_param_list *list, const char *slot,
                        float *values) {
    size_t count = list != NULL ? list->count : 0;
    SH_TRY(sh_grow((void **)&match->pairs, &match->capacity, match->count + count,
                   sizeof *match->pairs));
    for (size_t i = 0; i < count; i++) {
        const sh_param *param = &list->items[i];
        char name[TENSOR_NAME];
        const sh_tensor_entry *entry = find(match, param, slot, name);
        SH_TRY(check_fit(match, name, &param->shape, entry));
        match->pairs[match->count++] = (sh_match_pair){entry, values + param->offset, param->count};
    }
    return SH_OK;
}

/* Tells whether a tensor is finite. Copied piece by piece, as data in a file may lie unaligned. */
static bool is_finite(const sh_match_pair *pair) {
    enum { PIECE = 4096 };
    float piece[PIECE];
    for (size_t at = 0; at < pair->count; at += PIECE) {
        size_t count = pair->count - at < PIECE ? pair->count - at : PIECE;
        memcpy(piece, (const char *)pair->entry->data + at * sizeof *piece, count * sizeof *piece);
        if (!sh_reduce()->all_finite(piece, count)) return false;
    }
    return true;
}

/* A NaN in one weight makes every output NaN, so such a model is refused at once. */
sh_status sh_match_check_finite(const sh_match *match) {
    for (size_t i = 0; i < match->count; i++) {
        const sh_match_pair *pair = &match->pairs[i];
        if (is_finite(pair)) continue;
        SH_FAIL(SH_E_NUMERIC, "'%.300s': tensor '%s' holds a NaN or an infinity", match->source,
                pair->entry->name);
        return sh_error_hint("take a checkpoint from before the numbers failed");
    }
    return SH_OK;
}

/* Linear search: nets have hundreds of tensors. */
static bool is_paired(const sh_match *match, const sh_tensor_entry *entry) {
    for (size_t i = 0; i < match->count; i++)
        if (match->pairs[i].entry == entry) return true;
    return false;
}

/* Tells whether a tensor belongs to a slot: its name is NAME.SLOT. */
static bool ends_in(const sh_tensor_entry *entry, const char *slot) {
    const char *dot = strrchr(entry->name, '.');
    return dot != NULL && strcmp(dot + 1, slot) == 0;
}

/* Tells whether an unpaired tensor is allowed, and marks its slot. */
static bool is_left_out(const sh_tensor_entry *entry, const char *const *left_out,
                        uint32_t *found_out) {
    for (size_t i = 0; left_out != NULL && left_out[i] != NULL; i++) {
        if (!ends_in(entry, left_out[i])) continue;
        *found_out |= UINT32_C(1) << i;
        return true;
    }
    // PyTorch's batch normalisation counts its batches; nothing here reads that.
    return ends_in(entry, "num_batches_tracked");
}

/* A tensor too many means another model, even if all others fit. */
sh_status sh_match_end(const sh_match *match, const char *const *left_out, uint32_t *found_out) {
    for (size_t i = 0; i < match->tensors->count; i++) {
        const sh_tensor_entry *entry = &match->tensors->entries[i];
        if (!is_paired(match, entry) && !is_left_out(entry, left_out, found_out))
            return misfit(match, entry->name, "is there and not in the model");
    }
    return SH_OK;
}

/* Copies all pairs. Cannot fail, since everything was checked before. */
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
