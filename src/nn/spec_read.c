/* From a run file's `model:` to a described net: a name, a map with options, or a list of layers
 *
 *   model:
 *     - {conv: 32, kernel: 5, padding: 2}     # the key that is a layer; its value: main option
 *     - relu
 *     - {name: join, add: , from: [relu1, input]}
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "nn/spec.h"

/* Names in the form that sh_nearest takes, to suggest what a misspelt one meant. */
static const char *model_name(const void *names, size_t index) {
    (void)names;
    return sh_model_name_at(index);
}

static const char *layer_name(const void *names, size_t index) {
    (void)names;
    return sh_layer_name_at(index);
}

/* "there is no layer 'dens'", with the nearest name as a hint. */
static sh_status unknown(const sh_node *at, const char *what, const char *name,
                         const char *(*names)(const void *, size_t)) {
    SH_FAIL_AT(at, SH_E_USAGE, "there is no %s '%s'", what, name);
    const char *near = sh_nearest(name, names, NULL);
    if (near != NULL)
        return sh_error_hint("did you mean '%s'? 'shoal list %ss' shows all", near, what);
    return sh_error_hint("'shoal list %ss' shows all", what);
}

/* Re-labels an error from inside a layer with the place of its entry in the run file. */
static sh_status place_error(const sh_node *at, sh_status status) {
    const sh_error *error = sh_error_last();
    if (status == SH_OK || strncmp(error->text, at->source, strlen(at->source)) == 0) return status;
    char text[sizeof error->text], hint[sizeof error->hint];
    snprintf(text, sizeof text, "%s", error->text);
    snprintf(hint, sizeof hint, "%s", error->hint);
    SH_FAIL_AT(at, status, "%s", text);
    return hint[0] != '\0' ? sh_error_hint("%s", hint) : status;
}

/* A copy of a map without the entries that are not the part's own options. */
static sh_node *without(const sh_node *map, const char *const *keys, size_t count) {
    sh_node *copy = sh_node_copy(map);
    if (copy == NULL) return NULL;
    for (sh_node **link = &copy->child; *link != NULL;) {
        bool drop = false;
        for (size_t i = 0; i < count; i++) drop = drop || strcmp((*link)->key, keys[i]) == 0;
        if (!drop) {
            link = &(*link)->next;
            continue;
        }
        sh_node *dropped = *link;
        *link = dropped->next;
        dropped->next = NULL;
        sh_node_destroy(dropped);
    }
    return copy;
}

/* `map` NULL: all defaults. */
static sh_status read_options(sh_option_table table, size_t bytes, const sh_node *map,
                              const char *const *not_options, size_t not_count,
                              void **options_out) {
    void *options = sh_alloc(1, bytes);
    sh_node *own = map == NULL ? NULL : without(map, not_options, not_count);
    sh_status status = SH_OK;
    if (options == NULL || (map != NULL && own == NULL))
        status = SH_FAIL(SH_E_MEMORY, "out of memory for options");
    if (status == SH_OK) status = sh_options_init(table, options);
    if (status == SH_OK && own != NULL) status = sh_options_apply(table, own, options, NULL);
    sh_node_destroy(own);
    if (status != SH_OK) {
        if (options != NULL) sh_options_fini(table, options);
        sh_free(options);
        return status;
    }
    *options_out = options;
    return SH_OK;
}

/* `name` is the only key of a model's map that is not an option of it. */
static sh_status read_model(sh_net_spec *net, const sh_node *node, const char *name) {
    const sh_model_kind *kind = sh_model_find(name);
    if (kind == NULL) return unknown(node, "model", name, model_name);
    static const char *const not_options[] = {"name"};
    void *options = NULL;
    SH_TRY(read_options(kind->options, kind->options_bytes, node->kind == SH_NODE_MAP ? node : NULL,
                        not_options, 1, &options));
    sh_status status = kind->describe(net, options);
    sh_options_fini(kind->options, options);
    sh_free(options);
    return place_error(node, status);
}

/* For sh_nearest: what `from` could have meant. */
static const char *earlier_name(const void *net, size_t index) {
    const sh_net_spec *n = net;
    return index < n->layer_count ? n->layers[index]->name : NULL;
}

/* Only earlier layers can be read: later ones are not in the list yet. */
static sh_status find_input(const sh_net_spec *net, const sh_node *node, int *index_out) {
    if (node->kind != SH_NODE_SCALAR)
        return SH_FAIL_AT(node, SH_E_USAGE, "'from' wants layer names");
    *index_out = sh_net_spec_find_group(net, node->text);
    if (*index_out != SH_NOT_FOUND) return SH_OK;
    SH_FAIL_AT(node, SH_E_USAGE, "there is no layer '%s' before this one", node->text);
    const char *near = sh_nearest(node->text, earlier_name, net);
    return near != NULL ? sh_error_hint("did you mean '%s'?", near) : SH_E_USAGE;
}

/* `from: name` or `from: [a, b]`; absent: the layer before. */
static sh_status read_inputs(const sh_net_spec *net, const sh_node *map, int inputs[SH_INPUTS_MOST],
                             int *count_out) {
    const sh_node *from = map->kind == SH_NODE_MAP ? sh_node_find(map, "from") : NULL;
    inputs[0] = sh_net_spec_last(net);
    *count_out = 1;
    if (from == NULL) return SH_OK;
    if (from->kind != SH_NODE_LIST) return find_input(net, from, &inputs[0]);
    int count = 0;
    for (const sh_node *item = from->child; item != NULL; item = item->next) {
        if (count == SH_INPUTS_MOST)
            return SH_FAIL_AT(item, SH_E_USAGE, "a layer has at most %d inputs", SH_INPUTS_MOST);
        SH_TRY(find_input(net, item, &inputs[count++]));
    }
    *count_out = count;
    return SH_OK;
}

/* Where a kind stands among all; NULL: how many there are. */
static size_t place_of(const sh_layer_kind *kind) {
    size_t place = 0;
    while (sh_layer_at(place) != kind) place++;
    return place;
}

/* "conv1" for the first conv, and so on, as PyTorch users would name attributes. `number` is that
 * of the last layer of the kind that was named so; lower ones stay taken. */
static void default_name(const sh_net_spec *net, const char *kind, int *number,
                         char name_out[SH_LAYER_NAME]) {
    do snprintf(name_out, SH_LAYER_NAME, "%s%d", kind, ++*number);
    while (sh_net_spec_find_group(net, name_out) != SH_NOT_FOUND);
}

/* The entry of a layer's map whose key is a layer kind. */
static const sh_node *kind_entry(const sh_node *map) {
    for (const sh_node *entry = map->child; entry != NULL; entry = entry->next)
        if (sh_layer_find(entry->key) != NULL) return entry;
    return NULL;
}

/* Blames the first key that could have been meant as a kind. */
static sh_status unknown_layer(const sh_node *node) {
    if (node->kind == SH_NODE_SCALAR) return unknown(node, "layer", node->text, layer_name);
    for (const sh_node *entry = node->child; entry != NULL; entry = entry->next)
        if (strcmp(entry->key, "name") != 0 && strcmp(entry->key, "from") != 0)
            return unknown(entry, "layer", entry->key, layer_name);
    return SH_FAIL_AT(node, SH_E_USAGE, "this layer does not say what it is");
}

/* The value beside the layer's kind: nothing, its main option, or a map of all. */
static sh_status apply_entry(const sh_layer_kind *kind, const sh_node *entry, void *options) {
    if (entry->kind == SH_NODE_NULL) return SH_OK;
    if (entry->kind == SH_NODE_MAP) return sh_options_apply(kind->options, entry, options, NULL);
    if (entry->kind == SH_NODE_LIST)
        return SH_FAIL(SH_E_USAGE, "layer '%s' takes one value or a map, not a list", kind->name);
    if (entry->text[0] == '\0') return SH_OK;
    if (kind->main_option == NULL)
        return SH_FAIL(SH_E_USAGE, "layer '%s' takes no value", kind->name);
    return sh_options_set(kind->options, kind->main_option, entry->text, options);
}

/* `entry` says the kind; it is the node itself where a layer is a mere name. */
static sh_status add_known(sh_net_spec *net, const sh_node *node, const sh_node *entry,
                           const sh_layer_kind *kind, const char *name) {
    int inputs[SH_INPUTS_MOST], input_count = 1;
    SH_TRY(read_inputs(net, node, inputs, &input_count));
    const char *not_options[] = {kind->name, "name", "from"};
    bool is_map = node->kind == SH_NODE_MAP;
    void *options = NULL;
    SH_TRY(read_options(kind->options, kind->options_bytes, is_map ? node : NULL, not_options,
                        SH_COUNT(not_options), &options));
    sh_status status = is_map ? apply_entry(kind, entry, options) : SH_OK;
    if (status == SH_OK)
        status = sh_net_spec_add(net, kind, name, inputs, input_count, options, NULL);
    sh_options_fini(kind->options, options);
    sh_free(options);
    return place_error(entry, status);
}

/* `numbers`: of default_name, one per kind. */
static sh_status add_layer(sh_net_spec *net, const sh_node *node, int *numbers) {
    if (node->kind != SH_NODE_SCALAR && node->kind != SH_NODE_MAP)
        return SH_FAIL_AT(node, SH_E_USAGE, "a layer is a name or a map such as {conv: 32}");
    bool is_map = node->kind == SH_NODE_MAP;
    const sh_node *entry = is_map ? kind_entry(node) : node;
    const sh_layer_kind *kind =
        entry != NULL ? sh_layer_find(is_map ? entry->key : entry->text) : NULL;
    if (kind == NULL) return unknown_layer(node);

    const sh_node *named = is_map ? sh_node_find(node, "name") : NULL;
    if (named != NULL && named->kind != SH_NODE_SCALAR)
        return SH_FAIL_AT(named, SH_E_USAGE, "'name' wants a text");
    if (named != NULL) return add_known(net, node, entry, kind, named->text);
    char name[SH_LAYER_NAME];
    default_name(net, kind->name, &numbers[place_of(kind)], name);
    return add_known(net, node, entry, kind, name);
}

/* The three forms of `model:`: a name, a map with a name, a list of layers. */
static sh_status read_net(sh_net_spec *net, const sh_node *node) {
    if (node->kind == SH_NODE_SCALAR) return read_model(net, node, node->text);
    if (node->kind == SH_NODE_MAP) {
        const sh_node *name = sh_node_find(node, "name");
        if (name == NULL || name->kind != SH_NODE_SCALAR)
            return SH_FAIL_AT(node, SH_E_USAGE,
                              "'model' wants a name, e.g. {name: mlp, hidden: [512]}");
        return read_model(net, node, name->text);
    }
    if (node->kind != SH_NODE_LIST || node->child == NULL)
        return SH_FAIL_AT(node, SH_E_USAGE, "'model' wants a name or a list of layers");
    int *numbers = sh_alloc(place_of(NULL), sizeof *numbers);
    sh_status status =
        numbers != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for a list of layers");
    for (const sh_node *layer = node->child; status == SH_OK && layer != NULL; layer = layer->next)
        status = add_layer(net, layer, numbers);
    sh_free(numbers);
    return status;
}

/* The text is printed anew from the node, so that a checkpoint can describe the net again without
 * the run file. */
sh_status sh_net_spec_read(const sh_node *node, const sh_net_input *input, sh_net_spec *net_out) {
    sh_net_spec net = {.input = *input};
    sh_status status = read_net(&net, node);
    if (status == SH_OK) {
        net.text = sh_node_print(node);
        if (net.text == NULL) status = SH_FAIL(SH_E_MEMORY, "out of memory for a model");
    }
    if (status != SH_OK)
        sh_net_spec_fini(&net);
    else
        *net_out = net;
    return status;
}
