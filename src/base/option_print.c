/* A target back to a run file: the fields become a tree, and the tree is printed. */
#include "base/option.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option_value.h"
#include "base/text.h"

/* A scalar node of its own; NULL: out of memory. */
sh_node *sh_option_scalar(const char *text) {
    sh_node *node = sh_alloc(1, sizeof *node);
    if (node == NULL) return NULL;
    node->kind = SH_NODE_SCALAR;
    node->text = sh_strdup(text);
    if (node->text != NULL) return node;
    sh_free(node);
    return NULL;
}

static sh_node *int_node(int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return sh_option_scalar(text);
}

/* The shortest decimal text that reads back to the same bits. */
static sh_node *real_node(double value) {
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        sh_snprintf(text, sizeof text, "%.*g", digits, value);
        if (sh_strtod(text, NULL) == value) break;
    }
    return sh_option_scalar(text);
}

static sh_node *empty_node(sh_node_kind kind) {
    sh_node *node = sh_alloc(1, sizeof *node);
    if (node != NULL) node->kind = kind;
    return node;
}

static sh_node *ints_node(const sh_ints *ints) {
    sh_node *list = empty_node(SH_NODE_LIST);
    if (list == NULL) return NULL;
    sh_node **tail = &list->child;
    for (size_t i = 0; i < ints->count; i++) {
        *tail = int_node(ints->items[i]);
        if (*tail == NULL) {
            sh_node_destroy(list);
            return NULL;
        }
        tail = &(*tail)->next;
    }
    return list;
}

/* What is unset is left out, unless the row would then start from another initial value. */
static sh_node *unset_node(const sh_option *row, bool *left_out) {
    *left_out = row->initial == NULL;
    return *left_out ? NULL : empty_node(SH_NODE_NULL);
}

/* A copy without its key: the option's own key takes that place. */
static sh_node *tree_node(const sh_node *tree) {
    sh_node *copy = sh_node_copy(tree);
    if (copy == NULL) return NULL;
    sh_free(copy->key);
    copy->key = NULL;
    return copy;
}

/* The field as a node; NULL in `node_out` if the option is left out. */
sh_status sh_option_get(const sh_option *row, const void *target, sh_node **node_out) {
    const void *field = (const char *)target + row->at;
    sh_node *node = NULL;
    bool left_out = false;
    switch (row->type) {
        case SH_OPTION_INT:
            node = int_node(*(const int64_t *)field);
            break;
        case SH_OPTION_REAL:
            left_out = isnan(*(const double *)field);
            if (!left_out) node = real_node(*(const double *)field);
            break;
        case SH_OPTION_BOOL:
            node = sh_option_scalar(*(const bool *)field ? "true" : "false");
            break;
        case SH_OPTION_STRING: {
            const char *text = *(char *const *)field;
            node = text != NULL ? sh_option_scalar(text) : unset_node(row, &left_out);
            break;
        }
        case SH_OPTION_INTS:
            node = ints_node(field);
            break;
        case SH_OPTION_NODE: {
            const sh_node *tree = *(sh_node *const *)field;
            node = tree != NULL ? tree_node(tree) : unset_node(row, &left_out);
            break;
        }
    }
    if (node == NULL && !left_out)
        return SH_FAIL(SH_E_MEMORY, "out of memory for option '%s'", row->key);
    *node_out = node;
    return SH_OK;
}

/* Appends at the end, so that the printed order is that of the table. */
static sh_node *append_child(sh_node *map, sh_node *child) {
    sh_node **tail = &map->child;
    while (*tail != NULL) tail = &(*tail)->next;
    return *tail = child;
}

/* The map in `parent` under the first `length` letters of `key`, made if need be. */
static sh_node *group_in(sh_node *parent, const char *key, size_t length) {
    for (sh_node *child = parent->child; child != NULL; child = child->next)
        if (strncmp(child->key, key, length) == 0 && child->key[length] == '\0') return child;
    sh_node *group = empty_node(SH_NODE_MAP);
    if (group == NULL) return NULL;
    group->key = sh_format("%.*s", (int)length, key);
    if (group->key != NULL) return append_child(parent, group);
    sh_free(group);
    return NULL;
}

/* Takes `value` over, also when it fails. */
static bool place_value(sh_node *root, const char *key, sh_node *value) {
    const char *dot;
    sh_node *map = root;
    for (; map != NULL && (dot = strchr(key, '.')) != NULL; key = dot + 1)
        map = group_in(map, key, (size_t)(dot - key));
    value->key = sh_strdup(key);
    if (map == NULL || value->key == NULL) {
        sh_node_destroy(value);
        return false;
    }
    append_child(map, value);
    return true;
}

/* Dotted keys become nested maps. */
char *sh_options_print(sh_option_table table, const void *target) {
    sh_node *root = empty_node(SH_NODE_MAP);
    bool done = root != NULL;
    for (size_t i = 0; i < table.count && done; i++) {
        sh_node *value = NULL;
        done = sh_option_get(&table.rows[i], target, &value) == SH_OK &&
               (value == NULL || place_value(root, table.rows[i].key, value));
    }
    char *text = done ? sh_node_print(root) : NULL;
    sh_node_destroy(root);
    return text;
}
