/* A tree of values with their places: what a run file, a flag's value or a layer list is read into
 * before option tables give it meaning. Parsed by libyaml; JSON and YAML flow style are the same.
 */
#ifndef SH_BASE_NODE_H
#define SH_BASE_NODE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum sh_node_kind {
    SH_NODE_NULL,
    SH_NODE_SCALAR,
    SH_NODE_LIST,
    SH_NODE_MAP,
} sh_node_kind;

typedef struct sh_node sh_node;
struct sh_node {
    sh_node_kind kind;
    char *text;          // scalars
    char *key;           // entries of a map, else NULL
    const char *source;  // file name or flag, for messages; lives as long as the root
    int line, column;    // from 1; of the key where there is one
    sh_node *child;      // first entry of a list or map
    sh_node *next;       // next entry of the parent
};

/* Reads a whole file or a text. Refuses aliases, tags, duplicate keys, more than 64 levels or
 * 262,144 values, files over 16 MiB, and several documents. A plain empty value, `~` or `null` is
 * SH_NODE_NULL, except that an empty document is an empty map. Caller destroys. */
sh_status sh_node_read(const char *path, sh_node **node_out);
sh_status sh_node_parse(const char *source, const char *text, size_t bytes, sh_node **node_out);
void sh_node_destroy(sh_node *node);

sh_node *sh_node_find(const sh_node *map, const char *key);  // NULL when absent
size_t sh_node_count(const sh_node *node);                   // entries of a list or map
/* YAML text of a tree (block style at the top) that reads back to the same tree, to be freed with
 * sh_free. NULL: out of memory. */
char *sh_node_print(const sh_node *node);
/* A deep copy of a node, its key and its source; a root of its own. NULL: out of memory. */
sh_node *sh_node_copy(const sh_node *node);
/* Whether an unquoted text means null. */
bool sh_node_text_is_null(const char *text);

/* Fails with "SOURCE:LINE:COLUMN: message". */
#define SH_FAIL_AT(node, code, format, ...)                                            \
    SH_FAIL((code), "%s:%d:%d: " format, (node)->source, (node)->line, (node)->column, \
            ##__VA_ARGS__)

#endif
