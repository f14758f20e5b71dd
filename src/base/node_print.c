/* Trees back to YAML text, through libyaml's emitter, which knows what must be quoted. */
#include "base/node.h"

#include <string.h>

#include <yaml.h>

#include "base/memory.h"

/* The text under way; zero-terminated from the first append on. */
typedef struct text_buffer {
    char *text;
    size_t length, capacity;
} text_buffer;

/* Write handler of libyaml: 1 for success, as it expects. */
static int append(void *pointer, unsigned char *data, size_t bytes) {
    text_buffer *buffer = pointer;
    void *text = buffer->text;
    if (sh_grow(&text, &buffer->capacity, buffer->length + bytes + 1, 1) != SH_OK) return 0;
    buffer->text = text;
    memcpy(buffer->text + buffer->length, data, bytes);
    buffer->length += bytes;
    buffer->text[buffer->length] = '\0';
    return 1;
}

/* Tells whether a list or map holds scalars only, and thus fits on one line. */
static bool holds_only_leaves(const sh_node *node) {
    for (const sh_node *child = node->child; child != NULL; child = child->next)
        if (child->kind == SH_NODE_LIST || child->kind == SH_NODE_MAP) return false;
    return true;
}

/* Emits an event that was initialised with success; the emitter takes it over. */
static bool emit(yaml_emitter_t *emitter, yaml_event_t *event, int initialised) {
    return initialised && yaml_emitter_emit(emitter, event);
}

/* Plain where YAML allows it. Words that read as null and texts with odd characters, which
 * libyaml's single quotes do not always bring back, go into double quotes. */
static bool emit_text(yaml_emitter_t *emitter, const char *text) {
    yaml_scalar_style_t style = YAML_ANY_SCALAR_STYLE;
    if (sh_node_text_is_null(text)) style = YAML_DOUBLE_QUOTED_SCALAR_STYLE;
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++)
        if (*c < 0x20 || *c >= 0x7f) style = YAML_DOUBLE_QUOTED_SCALAR_STYLE;
    yaml_event_t event;
    return emit(emitter, &event,
                yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text,
                                             (int)strlen(text), 1, 1, style));
}

static bool emit_null(yaml_emitter_t *emitter) {
    yaml_event_t event;
    return emit(emitter, &event,
                yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)"null", 4, 1,
                                             0, YAML_PLAIN_SCALAR_STYLE));
}

static bool emit_node(yaml_emitter_t *emitter, const sh_node *node, int depth);

/* Lists of scalars go on one line, as shapes and sizes are written by hand. */
static bool emit_list(yaml_emitter_t *emitter, const sh_node *node, int depth) {
    bool flow = holds_only_leaves(node);
    yaml_event_t event;
    if (!emit(emitter, &event,
              yaml_sequence_start_event_initialize(
                  &event, NULL, NULL, 1,
                  flow ? YAML_FLOW_SEQUENCE_STYLE : YAML_BLOCK_SEQUENCE_STYLE)))
        return false;
    for (const sh_node *child = node->child; child != NULL; child = child->next)
        if (!emit_node(emitter, child, depth + 1)) return false;
    return emit(emitter, &event, yaml_sequence_end_event_initialize(&event));
}

/* The upper two levels are written in blocks, deeper maps of scalars on one line. */
static bool emit_map(yaml_emitter_t *emitter, const sh_node *node, int depth) {
    bool flow = node->child == NULL || (depth > 1 && holds_only_leaves(node));
    yaml_event_t event;
    if (!emit(
            emitter, &event,
            yaml_mapping_start_event_initialize(
                &event, NULL, NULL, 1, flow ? YAML_FLOW_MAPPING_STYLE : YAML_BLOCK_MAPPING_STYLE)))
        return false;
    for (const sh_node *child = node->child; child != NULL; child = child->next)
        if (!emit_text(emitter, child->key) || !emit_node(emitter, child, depth + 1)) return false;
    return emit(emitter, &event, yaml_mapping_end_event_initialize(&event));
}

static bool emit_node(yaml_emitter_t *emitter, const sh_node *node, int depth) {
    switch (node->kind) {
        case SH_NODE_SCALAR:
            return emit_text(emitter, node->text);
        case SH_NODE_LIST:
            return emit_list(emitter, node, depth);
        case SH_NODE_MAP:
            return emit_map(emitter, node, depth);
        default:
            return emit_null(emitter);
    }
}

static bool emit_document(yaml_emitter_t *emitter, const sh_node *node) {
    yaml_event_t event;
    return emit(emitter, &event, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING)) &&
           emit(emitter, &event,
                yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1)) &&
           emit_node(emitter, node, 0) &&
           emit(emitter, &event, yaml_document_end_event_initialize(&event, 1)) &&
           emit(emitter, &event, yaml_stream_end_event_initialize(&event));
}

char *sh_node_print(const sh_node *node) {
    yaml_emitter_t emitter;
    if (!yaml_emitter_initialize(&emitter)) return NULL;
    text_buffer buffer = {0};
    yaml_emitter_set_output(&emitter, append, &buffer);
    yaml_emitter_set_width(&emitter, -1);  // never fold a long text
    yaml_emitter_set_unicode(&emitter, 1);
    bool done = emit_document(&emitter, node);
    yaml_emitter_delete(&emitter);
    if (done) return buffer.text;
    sh_free(buffer.text);
    return NULL;
}
