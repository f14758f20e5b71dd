/* Run files as trees. libyaml gives events; this file builds maps, lists and scalars from them,
 * each with its line and column, so that every later message can name the place. Types are not
 * decided here: a scalar is text until an option row reads it.
 *
 * What a hostile file may cost is bounded: depth, nodes and bytes. Anchors, tags and several
 * documents are refused, as they would let a short file grow. */
#include "base/node.h"

#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/file.h"
#include "base/memory.h"

enum {
    DEPTH_MAX = 64,
    NODES_MAX = 1 << 18,  // a run file has hundreds; this bounds what a hostile one can allocate
    BYTES_MAX = 16 << 20,
};

/* State of one parse. `nodes` counts what was made, against NODES_MAX. */
typedef struct yaml_reader {
    yaml_parser_t parser;
    const char *source;  // stored behind the root
    const char *text;
    size_t bytes, nodes;
} yaml_reader;

/* Names the file that was being read. */
static sh_status out_of_memory(const char *source) {
    return SH_FAIL(SH_E_MEMORY, "out of memory while reading '%s'", source);
}

void sh_node_destroy(sh_node *node) {
    if (node == NULL) return;
    for (sh_node *child = node->child, *next; child != NULL; child = next) {
        next = child->next;
        sh_node_destroy(child);
    }
    sh_free(node->text);
    sh_free(node->key);
    sh_free(node);
}

/* A root keeps its source in the same allocation, so destroying any node is the same. */
static sh_node *root_create(const char *source) {
    size_t bytes = strlen(source) + 1;
    sh_node *root = sh_alloc(1, sizeof *root + bytes);
    if (root == NULL) return NULL;
    memcpy(root + 1, source, bytes);
    root->source = (const char *)(root + 1);
    root->line = root->column = 1;
    return root;
}

/* Line and column of a byte, for faults that libyaml reports by offset only. */
static void place_of_offset(const yaml_reader *reader, size_t offset, sh_node *place) {
    place->line = place->column = 1;
    for (size_t i = 0; i < offset && i < reader->bytes; i++) {
        bool ends = reader->text[i] == '\n';
        place->column = ends ? 1 : place->column + 1;
        place->line += ends;
    }
}

/* Reports libyaml's words with our place. Bytes that are not UTF-8 come with an offset only. */
static sh_status yaml_fault(yaml_reader *reader) {
    const yaml_parser_t *parser = &reader->parser;
    if (parser->error == YAML_MEMORY_ERROR) return out_of_memory(reader->source);
    sh_node place = {.source = reader->source};
    if (parser->error == YAML_READER_ERROR) {
        place_of_offset(reader, parser->problem_offset, &place);
        SH_FAIL_AT(&place, SH_E_FORMAT, "not a text: %s", parser->problem);
        return sh_error_hint("run files are YAML in UTF-8");
    }
    place.line = (int)parser->problem_mark.line + 1;
    place.column = (int)parser->problem_mark.column + 1;
    const char *problem = parser->problem ? parser->problem : "malformed YAML";
    if (parser->context == NULL) return SH_FAIL_AT(&place, SH_E_FORMAT, "%s", problem);
    return SH_FAIL_AT(&place, SH_E_FORMAT, "%s, %s", problem, parser->context);
}

/* The next event, or the fault with its place. */
static sh_status next_event(yaml_reader *reader, yaml_event_t *event_out) {
    return yaml_parser_parse(&reader->parser, event_out) ? SH_OK : yaml_fault(reader);
}

/* Sets a node's place; libyaml counts lines and columns from 0, people from 1. */
static void set_place(const yaml_reader *reader, const yaml_event_t *event, sh_node *node) {
    node->source = reader->source;
    node->line = (int)event->start_mark.line + 1;
    node->column = (int)event->start_mark.column + 1;
}

/* Copies a scalar's text. A zero byte would cut it silently, so it is refused. */
static sh_status scalar_text(const yaml_reader *reader, const yaml_event_t *event,
                             char **text_out) {
    size_t length = event->data.scalar.length;
    sh_node place = {0};
    set_place(reader, event, &place);
    if (memchr(event->data.scalar.value, '\0', length) != NULL)
        return SH_FAIL_AT(&place, SH_E_FORMAT, "a text may not contain a zero character");
    char *text = sh_alloc(length + 1, 1);
    if (text == NULL) return out_of_memory(reader->source);
    memcpy(text, event->data.scalar.value, length);
    *text_out = text;
    return SH_OK;
}

/* Tells whether a scalar means null: only unquoted, since a quoted word is a text. */
static bool is_null(const yaml_event_t *event) {
    const char *text = (const char *)event->data.scalar.value;
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && sh_node_text_is_null(text);
}

bool sh_node_text_is_null(const char *text) {
    return *text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 ||
           strcmp(text, "Null") == 0 || strcmp(text, "NULL") == 0;
}

/* Tag of a node's event; NULL for none. */
static const yaml_char_t *tag_of(const yaml_event_t *event) {
    switch (event->type) {
        case YAML_SCALAR_EVENT:
            return event->data.scalar.tag;
        case YAML_SEQUENCE_START_EVENT:
            return event->data.sequence_start.tag;
        case YAML_MAPPING_START_EVENT:
            return event->data.mapping_start.tag;
        default:
            return NULL;
    }
}

/* Refuses what the bounded subset of YAML leaves out: aliases, tags, depth, number of values. */
static sh_status refuse_event(const yaml_reader *reader, const yaml_event_t *event, int depth) {
    sh_node place = {0};
    set_place(reader, event, &place);
    if (event->type == YAML_ALIAS_EVENT) {
        SH_FAIL_AT(&place, SH_E_FORMAT, "YAML aliases are not supported");
        return sh_error_hint("write the value out where it is used");
    }
    if (tag_of(event) != NULL)
        return SH_FAIL_AT(&place, SH_E_FORMAT, "YAML tags are not supported (%.40s)",
                          (const char *)tag_of(event));
    if (depth > DEPTH_MAX)
        return SH_FAIL_AT(&place, SH_E_FORMAT, "nested more than %d levels deep", DEPTH_MAX);
    if (reader->nodes >= NODES_MAX)
        return SH_FAIL_AT(&place, SH_E_FORMAT, "more than %d values", NODES_MAX);
    return SH_OK;
}

/* An entry of a map with its position, for a sort that keeps the order of equal keys. */
typedef struct entry {
    const sh_node *node;
    size_t index;
} entry;

static int compare_entries(const void *left, const void *right) {
    const entry *a = left, *b = right;
    int order = strcmp(a->node->key, b->node->key);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

/* Refuses a key that occurs twice. Sorts instead of comparing all pairs, so that a hostile map
 * costs n log n. */
static sh_status refuse_duplicates(const yaml_reader *reader, const sh_node *map) {
    size_t count = sh_node_count(map);
    if (count < 2) return SH_OK;
    entry *entries = sh_alloc(count, sizeof *entries);
    if (entries == NULL) return out_of_memory(reader->source);
    size_t index = 0;
    for (const sh_node *node = map->child; node != NULL; node = node->next, index++)
        entries[index] = (entry){node, index};
    qsort(entries, count, sizeof *entries, compare_entries);
    sh_status status = SH_OK;
    for (size_t i = 1; i < count && status == SH_OK; i++) {
        const sh_node *first = entries[i - 1].node, *again = entries[i].node;
        if (strcmp(first->key, again->key) == 0)
            status = SH_FAIL_AT(again, SH_E_FORMAT, "key '%.200s' is already set in line %d",
                                again->key, first->line);
    }
    sh_free(entries);
    return status;
}

static sh_status read_value(yaml_reader *reader, const yaml_event_t *event, int depth,
                            sh_node *node);

/* Reads one key and takes its place over to the node that will hold the value. */
static sh_status read_key(const yaml_reader *reader, const yaml_event_t *event, sh_node *node) {
    SH_TRY(refuse_event(reader, event, 0));
    if (event->type != YAML_SCALAR_EVENT)
        return SH_FAIL_AT(node, SH_E_FORMAT, "a key must be a plain word");
    return scalar_text(reader, event, &node->key);
}

/* Reads the entries of a list or map up to its end event. */
static sh_status read_entries(yaml_reader *reader, int depth, sh_node *parent) {
    sh_node **tail = &parent->child;
    for (;;) {
        yaml_event_t event;
        SH_TRY(next_event(reader, &event));
        sh_status status = SH_OK;
        bool ends = event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        sh_node *node = NULL;
        if (!ends) {
            node = *tail = sh_alloc(1, sizeof *node);  // the parent owns it from here on
            if (node == NULL) {
                status = out_of_memory(reader->source);
            } else {
                tail = &node->next;
                set_place(reader, &event, node);
                status = parent->kind == SH_NODE_MAP ? read_key(reader, &event, node)
                                                     : read_value(reader, &event, depth, node);
            }
        }
        yaml_event_delete(&event);
        if (status != SH_OK || ends) return status;
        if (parent->kind != SH_NODE_MAP) continue;
        SH_TRY(next_event(reader, &event));
        status = read_value(reader, &event, depth, node);
        yaml_event_delete(&event);
        if (status != SH_OK) return status;
    }
}

/* Reads one value into `node`, recursively; refuse_event bounds the depth. */
static sh_status read_value(yaml_reader *reader, const yaml_event_t *event, int depth,
                            sh_node *node) {
    SH_TRY(refuse_event(reader, event, depth));
    reader->nodes++;
    switch (event->type) {
        case YAML_SCALAR_EVENT:
            if (is_null(event)) return SH_OK;
            node->kind = SH_NODE_SCALAR;
            return scalar_text(reader, event, &node->text);
        case YAML_SEQUENCE_START_EVENT:
            node->kind = SH_NODE_LIST;
            return read_entries(reader, depth + 1, node);
        case YAML_MAPPING_START_EVENT:
            node->kind = SH_NODE_MAP;
            SH_TRY(read_entries(reader, depth + 1, node));
            return refuse_duplicates(reader, node);
        default:
            return SH_FAIL_AT(node, SH_E_FORMAT, "malformed YAML");
    }
}

/* Walks stream start, at most one document, and stream end. */
static sh_status read_stream(yaml_reader *reader, sh_node *root) {
    bool seen = false;
    for (;;) {
        yaml_event_t event;
        SH_TRY(next_event(reader, &event));
        yaml_event_type_t type = event.type;
        sh_status status = SH_OK;
        if (type == YAML_DOCUMENT_START_EVENT && seen) {
            sh_node place = {0};
            set_place(reader, &event, &place);
            status = SH_FAIL_AT(&place, SH_E_FORMAT, "a second document starts here");
            sh_error_hint("keep one run per file");
        } else if (type == YAML_DOCUMENT_START_EVENT) {
            seen = true;
        } else if (type != YAML_STREAM_START_EVENT && type != YAML_STREAM_END_EVENT &&
                   type != YAML_DOCUMENT_END_EVENT) {
            set_place(reader, &event, root);
            status = read_value(reader, &event, 0, root);
        }
        yaml_event_delete(&event);
        if (status != SH_OK || type == YAML_STREAM_END_EVENT) return status;
    }
}

/* An empty document becomes an empty map, so that an empty run file means all defaults. */
sh_status sh_node_parse(const char *source, const char *text, size_t bytes, sh_node **node_out) {
    if (bytes > BYTES_MAX)
        return SH_FAIL(SH_E_FORMAT, "'%s' has %zu bytes; a run file has at most %d", source, bytes,
                       BYTES_MAX);
    sh_node *root = root_create(source);
    if (root == NULL) return out_of_memory(source);
    yaml_reader reader = {.source = root->source, .text = text, .bytes = bytes};
    if (!yaml_parser_initialize(&reader.parser)) {
        sh_node_destroy(root);
        return out_of_memory(source);
    }
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)(text ? text : ""), bytes);
    sh_status status = read_stream(&reader, root);
    yaml_parser_delete(&reader.parser);
    if (status != SH_OK) {
        sh_node_destroy(root);
        return status;
    }
    if (root->kind == SH_NODE_NULL) root->kind = SH_NODE_MAP;
    *node_out = root;
    return SH_OK;
}

/* Reads a file into a tree, which keeps no pointer into the file. */
sh_status sh_node_read(const char *path, sh_node **node_out) {
    sh_mapped mapped;
    SH_TRY(sh_file_map(path, &mapped));
    sh_status status = sh_node_parse(path, (const char *)mapped.data, mapped.bytes, node_out);
    sh_file_unmap(&mapped);
    return status;
}

/* Entry of a map by its key. Linear search: maps of run files have some dozens of keys. */
sh_node *sh_node_find(const sh_node *map, const char *key) {
    if (map == NULL || map->kind != SH_NODE_MAP) return NULL;
    for (sh_node *child = map->child; child != NULL; child = child->next)
        if (strcmp(child->key, key) == 0) return child;
    return NULL;
}

/* Number of entries of a list or map; walks them. */
size_t sh_node_count(const sh_node *node) {
    size_t count = 0;
    for (const sh_node *child = node->child; child != NULL; child = child->next) count++;
    return count;
}

/* Copies what `from` holds into the fresh `to`. On failure `to` is still fit to be destroyed. */
static bool copy_into(const sh_node *from, const char *source, sh_node *to) {
    to->kind = from->kind;
    to->source = source;
    to->line = from->line;
    to->column = from->column;
    if (from->text != NULL && (to->text = sh_strdup(from->text)) == NULL) return false;
    if (from->key != NULL && (to->key = sh_strdup(from->key)) == NULL) return false;
    sh_node **tail = &to->child;
    for (const sh_node *child = from->child; child != NULL; child = child->next) {
        *tail = sh_alloc(1, sizeof **tail);
        if (*tail == NULL || !copy_into(child, source, *tail)) return false;
        tail = &(*tail)->next;
    }
    return true;
}

sh_node *sh_node_copy(const sh_node *node) {
    sh_node *root = root_create(node->source ? node->source : "");
    if (root == NULL) return NULL;
    if (copy_into(node, root->source, root)) return root;
    sh_node_destroy(root);
    return NULL;
}
