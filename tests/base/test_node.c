#include "base/node.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "harness.h"

static sh_node *parse(const char *text) {
    sh_node *node = NULL;
    CHECK_OK(sh_node_parse("run.yaml", text, strlen(text), &node));
    return node;
}

static sh_status try_parse(const char *text, size_t bytes) {
    sh_node *node = NULL;
    sh_status status = sh_node_parse("run.yaml", text, bytes, &node);
    assert_true((status == SH_OK) == (node != NULL));
    sh_node_destroy(node);
    return status;
}

#define REFUSES(part, text) CHECK_FAILS(SH_E_FORMAT, part, try_parse(text, sizeof(text) - 1))

TEST(node, keeps_kinds_texts_and_places) {
    sh_node *root = parse("model: lenet\ndata:\n  train: mnist\n  sizes: [1, '']\nempty:\n");
    assert_int_equal(root->kind, SH_NODE_MAP);
    assert_int_equal(sh_node_count(root), 3);
    assert_string_equal(sh_node_find(root, "model")->text, "lenet");
    const sh_node *sizes = sh_node_find(sh_node_find(root, "data"), "sizes");
    assert_int_equal(sizes->kind, SH_NODE_LIST);
    assert_int_equal(sizes->line, 4);
    assert_int_equal(sizes->column, 3);
    assert_int_equal(sizes->child->next->kind, SH_NODE_SCALAR);
    assert_string_equal(sizes->child->next->text, "");
    assert_int_equal(sh_node_find(root, "empty")->kind, SH_NODE_NULL);
    assert_null(sh_node_find(root, "modell"));
    assert_null(sh_node_find(sizes, "model"));
    sh_node_destroy(root);
}

TEST(node, reads_an_empty_document_as_an_empty_map) {
    const char *const texts[] = {"", "# only a comment\n", "---\n", "~\n"};
    for (size_t i = 0; i < SH_COUNT(texts); i++) {
        sh_node *root = parse(texts[i]);
        assert_int_equal(root->kind, SH_NODE_MAP);
        assert_int_equal(sh_node_count(root), 0);
        sh_node_destroy(root);
    }
}

TEST(node, reads_json) {
    sh_node *root = parse("{\"a\": [1, {\"b\": \"x: y\"}]}");
    const sh_node *inner = sh_node_find(root, "a")->child->next;
    assert_string_equal(sh_node_find(inner, "b")->text, "x: y");
    sh_node_destroy(root);
}

TEST(node, names_the_place_of_a_fault) {
    REFUSES("run.yaml:2:4: ", "a: 1\nb: : 2\n");
    REFUSES("run.yaml:3:1: key 'a' is already set in line 1", "a: 1\nb: 2\na: 3\n");
    REFUSES("run.yaml:2:2: not a text", "a: 1\nb\xff\n");
}

TEST(node, refuses_what_it_does_not_support) {
    REFUSES("aliases are not supported", "a: &x 1\nb: *x\n");
    REFUSES("tags are not supported", "a: !!binary abc\n");
    REFUSES("second document", "a: 1\n---\nb: 2\n");
    REFUSES("zero character", "a: \"x\\0y\"\n");
    REFUSES("a key must be a plain word", "? [1, 2]\n: 3\n");
    REFUSES("", "a: [1, 2\n");
    REFUSES("", "a: \"unfinished\n");
}

TEST(node, bounds_depth_size_and_number_of_values) {
    char deep[200] = "";
    memset(deep, '[', 70);
    CHECK_FAILS(SH_E_FORMAT, "more than 64 levels", try_parse(deep, strlen(deep)));
    memset(deep, '[', 64);
    memset(deep + 64, ']', 64);
    deep[128] = '\0';
    CHECK_OK(try_parse(deep, strlen(deep)));

    size_t bytes = 1 << 20;
    char *many = sh_alloc(bytes, 1);
    for (size_t i = 0; i < bytes; i += 2) memcpy(many + i, i == 0 ? "[a" : ",a", 2);
    CHECK_FAILS(SH_E_FORMAT, "more than 262144 values", try_parse(many, bytes));
    sh_free(many);
    CHECK_FAILS(SH_E_FORMAT, "at most", try_parse("", (size_t)17 << 20));
}

TEST(node, reads_a_file_and_names_a_missing_one) {
    char *path = sh_path_join(sh_test_folder("node"), "run.yaml");
    CHECK_OK(sh_file_write(path, "a: 1\n", 5));
    sh_node *root = NULL;
    CHECK_OK(sh_node_read(path, &root));
    assert_string_equal(sh_node_find(root, "a")->text, "1");
    assert_string_equal(root->source, path);
    sh_node_destroy(root);
    CHECK_FAILS(SH_E_IO, "no-such-run.yaml", sh_node_read("no-such-run.yaml", &root));
    sh_free(path);
}

static void assert_same(const sh_node *a, const sh_node *b) {
    assert_int_equal(a->kind, b->kind);
    assert_true((a->key == NULL) == (b->key == NULL));
    if (a->key != NULL) assert_string_equal(a->key, b->key);
    if (a->kind == SH_NODE_SCALAR) assert_string_equal(a->text, b->text);
    const sh_node *x = a->child, *y = b->child;
    for (; x != NULL && y != NULL; x = x->next, y = y->next) assert_same(x, y);
    assert_true(x == NULL && y == NULL);
}

static void assert_round_trip(const sh_node *node) {
    char *text = sh_node_print(node);
    assert_non_null(text);
    sh_node *again = NULL;
    CHECK_OK(sh_node_parse("printed", text, strlen(text), &again));
    assert_same(node, again);
    sh_node_destroy(again);
    sh_free(text);
}

TEST(node, prints_what_reads_back_the_same) {
    const char *const texts[] = {
        "model: [{conv: {out: 8, kernel: [3, 3]}}, relu, {dense: 10, name: \"a: b\"}]\n",
        "{a: {}, b: [], c: null, d: 'null', e: '~', f: '', g: '- x', h: ' lead', i: 'tail '}",
        "{a: \"two\\nlines\", b: \"tab\\t\", c: \"\\e[31m\", d: \"\\u00e9\\u2028x\", e: '#no'}",
        "[[[1, [2, 3]], {x: [{y: z}]}], '{', '}', '[', ',', '&a', '*b', '!c', '%d', '@e', '`f']",
        "just a word",
    };
    for (size_t i = 0; i < SH_COUNT(texts); i++) {
        sh_node *root = parse(texts[i]);
        assert_round_trip(root);
        sh_node_destroy(root);
    }
}

static sh_node *random_tree(sh_rng *rng, int depth) {
    static const char *const texts[] = {"",         "a",    "x: y", "null", "- 1",
                                        "\xc3\xa9", "a\nb", "#",    "'"};
    sh_node *node = sh_alloc(1, sizeof *node);
    node->kind = (sh_node_kind)sh_rng_below(rng, depth > 0 ? 4 : 2);
    if (node->kind == SH_NODE_SCALAR)
        node->text = sh_strdup(texts[sh_rng_below(rng, SH_COUNT(texts))]);
    if (node->kind < SH_NODE_LIST) return node;
    sh_node **tail = &node->child;
    uint64_t count = sh_rng_below(rng, 4);
    for (uint64_t i = 0; i < count; i++) {
        *tail = random_tree(rng, depth - 1);
        if (node->kind == SH_NODE_MAP)
            (*tail)->key = sh_format("%s%d", texts[sh_rng_below(rng, SH_COUNT(texts))], (int)i);
        tail = &(*tail)->next;
    }
    return node;
}

TEST(node, round_trips_random_trees) {
    sh_rng rng = sh_rng_stream(1, SH_RNG_TEST, 0, 0);
    for (int i = 0; i < 2000; i++) {
        sh_node *tree = random_tree(&rng, 5);
        if (tree->kind == SH_NODE_NULL) tree->kind = SH_NODE_MAP;  // how an empty document reads
        assert_round_trip(tree);
        sh_node_destroy(tree);
    }
}

TEST(node, copy_outlives_the_original) {
    sh_node *root = parse("a: {b: [1, x]}\n");
    sh_node *copy = sh_node_copy(sh_node_find(root, "a"));
    assert_same(sh_node_find(root, "a"), copy);
    sh_node_destroy(root);
    assert_string_equal(copy->source, "run.yaml");
    assert_string_equal(copy->child->source, "run.yaml");
    sh_node_destroy(copy);
}

TEST(node, survives_every_truncation) {
    const char *text =
        "a: {b: [1, \"x\\u00e9\"], 'c': |\n  text\n  more\n}\nd:\n- e\n- ? f\n  : g\n";
    for (size_t bytes = 0; bytes <= strlen(text); bytes++) {
        char *cut = sh_alloc(bytes + 1, 1);  // exact size, so that a sanitizer sees overruns
        memcpy(cut, text, bytes);
        sh_status status = try_parse(cut, bytes);
        assert_true(status == SH_OK || status == SH_E_FORMAT);
        sh_free(cut);
    }
}
