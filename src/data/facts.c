/* What a model remembers of its data (facts.h), written to and read from a checkpoint as JSON.
 * Floats keep their bits, so predictions do not change by a save. Reading believes nothing:
 * whoever hands over a checkpoint chooses every number in it. */
#include "data/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"

enum {
    VERSION = 1,
    OUTPUTS_MOST = INT32_MAX,
    NORMAL_MOST = 1 << 18,  // as many channels or features as a file's header has room for
    FLOAT_DIGITS = 9,       // tell any two floats apart
};

static const char *const targets[] = {
    [SH_TARGET_CLASS] = "classes", [SH_TARGET_VALUES] = "values", [SH_TARGET_TOKENS] = "tokens"};

/* Reports a failure of jansson, which here can only be a lack of memory. */
static sh_status no_memory(void) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for what is known of the data");
}

/* Floats as JSON. FLOAT_DIGITS are enough that each comes back with its bits. */
static json_t *floats_json(const float *values, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_real((double)values[i]));
    return list;
}

/* The facts as JSON; members that say nothing are left out, so that files stay short. */
static json_t *facts_json(const sh_data *data) {
    const sh_data_info *info = &data->info;
    bool values = info->target == SH_TARGET_VALUES;
    json_t *sample = json_array();
    for (int i = 0; i < info->sample.rank; i++)
        json_array_append_new(sample, json_integer(info->sample.dim[i]));
    json_t *root = json_pack("{s:i, s:o, s:s, s:I}", "version", VERSION, "sample", sample, "target",
                             targets[info->target], "outputs",
                             (json_int_t)(values ? info->values : info->classes));
    if (data->normal.count > 0) {
        json_object_set_new(root, "mean", floats_json(data->normal.mean, data->normal.count));
        json_object_set_new(root, "scale", floats_json(data->normal.scale, data->normal.count));
    }
    if (data->vocabulary != NULL)
        json_object_set_new(root, "vocabulary", json_string(data->vocabulary));
    return root;
}

/* One line with members in a fixed order: the same facts give the same bytes. */
sh_status sh_facts_print(const sh_data *data, char **text_out) {
    SH_ASSERT(data->info.target != SH_TARGET_NONE);
    *text_out = NULL;
    if (data->normal.count > NORMAL_MOST) return SH_OK;
    json_t *root = facts_json(data);
    char *dumped = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(FLOAT_DIGITS));
    json_decref(root);
    char *text = dumped != NULL ? sh_strdup(dumped) : NULL;
    free(dumped);
    if (text == NULL) return no_memory();
    *text_out = text;
    return SH_OK;
}

/* Reports a fault with the file's name. */
static sh_status bad(const char *source, const char *what) {
    SH_FAIL(SH_E_FORMAT, "what '%.300s' tells of its training data is not sound: %s", source, what);
    return sh_error_hint("write it again, or bring it back from a copy");
}

/* Reads the sample's shape: one to three dimensions with a bounded product. */
static sh_status read_sample(const char *source, const json_t *list, sh_shape *shape) {
    size_t rank = json_array_size(list), cells;
    if (rank < 1 || rank > 3) return bad(source, "a sample has 1 to 3 dimensions");
    shape->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(list, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 1)
            return bad(source, "a dimension of its samples is no size");
        shape->dim[i] = json_integer_value(dim);
    }
    if (!sh_shape_count_checked(shape, &cells) || cells > (size_t)1 << 31)
        return bad(source, "its samples are too large");
    return SH_OK;
}

/* Reads the kind of target and the number of classes or values. */
static sh_status read_target(const char *source, const json_t *root, sh_data_info *info) {
    const char *name = json_string_value(json_object_get(root, "target"));
    for (int i = SH_TARGET_CLASS; name != NULL && i <= SH_TARGET_TOKENS; i++)
        if (strcmp(name, targets[i]) == 0) info->target = (sh_target)i;
    if (info->target == SH_TARGET_NONE) return bad(source, "its target is of no known kind");
    bool values = info->target == SH_TARGET_VALUES;
    json_int_t outputs = json_integer_value(json_object_get(root, "outputs"));
    if (outputs < 1 || outputs > OUTPUTS_MOST)
        return bad(source, "'outputs' is no number of classes or values");
    *(values ? &info->values : &info->classes) = outputs;
    info->tokens = info->target == SH_TARGET_TOKENS;
    if (info->tokens && info->sample.rank != 1) return bad(source, "tokens have one dimension");
    return SH_OK;
}

/* Reads exactly `count` finite floats, one per channel or feature. The caller frees them, also on
 * failure. */
static sh_status read_floats(const char *source, const json_t *list, size_t count,
                             float **values_out) {
    if (json_array_size(list) != count)
        return bad(source, "'mean' and 'scale' need a number for each channel or feature");
    float *values = sh_alloc(count, sizeof *values);
    if (values == NULL) return no_memory();
    *values_out = values;
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        values[i] = (float)json_number_value(value);
        if (!json_is_number(value) || !isfinite(values[i]))
            return bad(source, "'mean' or 'scale' holds what is no finite float");
    }
    return SH_OK;
}

/* Reads mean and scale, which come together or not at all. */
static sh_status read_normal(const char *source, const json_t *root, const sh_data_info *info,
                             sh_normal *normal) {
    const json_t *mean = json_object_get(root, "mean"), *scale = json_object_get(root, "scale");
    if (mean == NULL && scale == NULL) return SH_OK;
    if (info->tokens) return bad(source, "tokens have no mean");
    size_t count = (size_t)info->sample.dim[0];
    if (count > NORMAL_MOST) return bad(source, "it has too many means");
    SH_TRY(read_floats(source, mean, count, &normal->mean));
    SH_TRY(read_floats(source, scale, count, &normal->scale));
    normal->count = count;
    return SH_OK;
}

/* Tells whether a text is `count` characters in ascending order, as readers/text.c numbers them.
 * The JSON library lets only valid UTF-8 through, where order by bytes is order by code points. */
static bool is_vocabulary(const char *text, int64_t count) {
    const char *before = "";
    int64_t found = 0;
    for (const char *at = text, *next; *at != '\0'; before = at, at = next, found++) {
        for (next = at + 1; ((unsigned char)*next & 0xc0) == 0x80;) next++;
        if (strncmp(before, at, (size_t)(next - at)) >= 0) return false;
    }
    return found == count;
}

/* Reads the vocabulary. Its characters are the tokens, so their count must be the number of
 * classes. */
static sh_status read_vocabulary(const char *source, const json_t *root, const sh_data_info *info,
                                 char **vocabulary_out) {
    const json_t *value = json_object_get(root, "vocabulary");
    if (value == NULL) return SH_OK;
    const char *text = json_string_value(value);
    if (text == NULL || !info->tokens || !is_vocabulary(text, info->classes))
        return bad(source, "'vocabulary' is no list of as many characters as there are tokens");
    *vocabulary_out = sh_strdup(text);
    return *vocabulary_out != NULL ? SH_OK : no_memory();
}

/* Reads all facts: the shape first, then the target, then what must agree with both. */
static sh_status read_facts(const char *source, const json_t *root, sh_data *data) {
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    if (version != VERSION) {
        SH_FAIL(SH_E_UNSUPPORTED, "what '%.300s' tells of its training data has version %lld",
                source, (long long)version);
        return sh_error_hint("this Shoal (%s) reads version %d", SHOAL_VERSION, VERSION);
    }
    SH_TRY(read_sample(source, json_object_get(root, "sample"), &data->info.sample));
    SH_TRY(read_target(source, root, &data->info));
    SH_TRY(read_normal(source, root, &data->info, &data->normal));
    return read_vocabulary(source, root, &data->info, &data->vocabulary);
}

/* Parses facts from JSON; `data_out` is written only on success. */
sh_status sh_facts_parse(const char *source, const char *text, size_t bytes, sh_data *data_out) {
    char fault[SH_JSON_FAULT];
    json_t *root = sh_json_read_map(text, bytes, fault);
    if (root == NULL) return bad(source, fault);
    sh_data data = {0};
    sh_status status = read_facts(source, root, &data);
    json_decref(root);
    if (status == SH_OK)
        *data_out = data;
    else
        sh_data_close(&data);
    return status;
}

/* A copy of `count` floats; NULL: out of memory. */
static float *copy_floats(const float *from, size_t count) {
    float *copy = sh_alloc(count, sizeof *copy);
    if (copy != NULL) memcpy(copy, from, count * sizeof *copy);
    return copy;
}

/* A deep copy; on failure `to` is not touched. */
sh_status sh_facts_copy(const sh_data *from, sh_data *to) {
    const sh_normal *normal = &from->normal;
    sh_data copy = {.info = from->info};
    bool whole = true;
    if (normal->count > 0) {
        copy.normal.mean = copy_floats(normal->mean, normal->count);
        copy.normal.scale = copy_floats(normal->scale, normal->count);
        copy.normal.count = normal->count;
        whole = copy.normal.mean != NULL && copy.normal.scale != NULL;
    }
    if (from->vocabulary != NULL) copy.vocabulary = sh_strdup(from->vocabulary);
    whole = whole && (from->vocabulary == NULL || copy.vocabulary != NULL);
    if (whole)
        *to = copy;
    else
        sh_data_close(&copy);
    return whole ? SH_OK : no_memory();
}
