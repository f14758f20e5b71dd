/* Any bytes as a run file: they are refused with a message, or print to text that reads back. */
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_same(const sh_node *a, const sh_node *b) {
    SH_ASSERT(a->kind == b->kind);
    SH_ASSERT((a->key == NULL) == (b->key == NULL));
    SH_ASSERT(a->key == NULL || strcmp(a->key, b->key) == 0);
    SH_ASSERT(a->kind != SH_NODE_SCALAR || strcmp(a->text, b->text) == 0);
    const sh_node *x = a->child, *y = b->child;
    for (; x != NULL && y != NULL; x = x->next, y = y->next) check_same(x, y);
    SH_ASSERT(x == NULL && y == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    sh_node *node = NULL, *again = NULL;
    if (sh_node_parse("fuzz", (const char *)data, bytes, &node) != SH_OK) {
        SH_ASSERT(sh_error_last()->text[0] != '\0');
        return 0;
    }
    char *text = sh_node_print(node);
    SH_ASSERT(text != NULL);
    SH_ASSERT(sh_node_parse("again", text, strlen(text), &again) == SH_OK);
    check_same(node, again);
    sh_free(text);
    sh_node_destroy(again);
    sh_node_destroy(node);
    return 0;
}
