/* Layouts of the cost formulas, from text and back. */
#include <stdio.h>
#include <string.h>

#include "base/node.h"
#include "base/text.h"
#include "plan/cost.h"

static const int64_t SIZE_MOST = 1 << 20;

static sh_status refuse(const char *text, const char *wrong) {
    SH_FAIL(SH_E_USAGE, "layout '%.64s': %s", text, wrong);
    return sh_error_hint(
        "such as data=64,tensor=8, space=4x2, or "
        "'{conv: space=4, dense: tensor=4}'");
}

/* Digits up to `end`. */
static bool take_size(const char *at, const char *end, int64_t *size_out) {
    int64_t size = 0;
    for (; at < end && *at >= '0' && *at <= '9' && size <= SIZE_MOST; at++)
        size = size * 10 + *at - '0';
    *size_out = size;
    return at == end && size >= 1 && size <= SIZE_MOST;
}

static bool take_space(const char *at, const char *end, int64_t space_out[2]) {
    const char *cross = memchr(at, 'x', (size_t)(end - at));
    space_out[1] = 1;
    if (!take_size(at, cross != NULL ? cross : end, &space_out[0])) return false;
    return cross == NULL || take_size(cross + 1, end, &space_out[1]);
}

/* One "name=size"; `data` stays 0 where nobody names it. */
static bool take_entry(const char *at, const char *end, sh_cost_grid *grid) {
    const char *equals = memchr(at, '=', (size_t)(end - at));
    if (equals == NULL) return false;
    size_t length = (size_t)(equals - at);
    if (length == 4 && strncmp(at, "data", 4) == 0)
        return grid->data == 0 && take_size(equals + 1, end, &grid->data);
    if (length == 6 && strncmp(at, "tensor", 6) == 0)
        return grid->tensor == 1 && take_size(equals + 1, end, &grid->tensor);
    if (length == 5 && strncmp(at, "space", 5) == 0)
        return grid->space[0] == 1 && take_space(equals + 1, end, grid->space);
    return false;
}

static sh_status parse_grid(const char *text, sh_cost_grid *grid_out) {
    *grid_out = (sh_cost_grid){.tensor = 1, .space = {1, 1}};
    if (strstr(text, "pipe=") != NULL) {
        SH_FAIL(SH_E_USAGE, "layout '%.64s': a pipeline is priced by its schedule", text);
        return sh_error_hint("shoal explain pipeline");
    }
    for (const char *at = text;;) {
        const char *end = at + strcspn(at, ",");
        if (!take_entry(at, end, grid_out))
            return refuse(text, "not a list of data=N, tensor=N and space=N or NxN, each once");
        if (*end == '\0') return SH_OK;
        at = end + 1;
    }
}

static sh_status fill(const char *text, int64_t workers, sh_cost_grid *grid) {
    bool open = grid->data == 0;
    if (open) grid->data = 1;
    int64_t product = sh_cost_grid_workers(grid);
    if (product > SIZE_MOST * SIZE_MOST || product < 1) return refuse(text, "it is too large");
    if (workers == 0 || product == workers) return SH_OK;
    if (open && workers % product == 0) {
        grid->data = workers / product;
        return SH_OK;
    }
    SH_FAIL(SH_E_USAGE, "layout '%.64s' makes %lld workers, not %lld", text, (long long)product,
            (long long)workers);
    if (open)
        return sh_error_hint("-n %lld: a multiple of %lld", (long long)product, (long long)product);
    return sh_error_hint("-n %lld, or leave out data=", (long long)product);
}

static sh_status parse_parts(const char *text, sh_cost_layout *layout_out) {
    sh_node *root = NULL;
    SH_TRY(sh_node_parse("layout", text, strlen(text), &root));
    sh_status status = SH_OK;
    bool known = root->kind == SH_NODE_MAP && sh_node_count(root) == 2;
    sh_node *conv = known ? sh_node_find(root, "conv") : NULL;
    sh_node *dense = known ? sh_node_find(root, "dense") : NULL;
    if (conv == NULL || dense == NULL || conv->kind != SH_NODE_SCALAR ||
        dense->kind != SH_NODE_SCALAR)
        status = refuse(text, "parts are one of conv and one of dense");
    if (status == SH_OK) status = parse_grid(conv->text, &layout_out->image);
    if (status == SH_OK) status = parse_grid(dense->text, &layout_out->dense);
    sh_node_destroy(root);
    return status;
}

sh_status sh_cost_layout_parse(const char *text, int64_t workers, sh_cost_layout *layout_out) {
    if (text == NULL) {
        int64_t data = workers > 0 ? workers : 1;
        layout_out->image = (sh_cost_grid){.data = data, .tensor = 1, .space = {1, 1}};
        layout_out->dense = layout_out->image;
        return SH_OK;
    }
    if (strchr(text, '{') != NULL || strchr(text, ':') != NULL) {
        SH_TRY(parse_parts(text, layout_out));
    } else {
        SH_TRY(parse_grid(text, &layout_out->image));
        layout_out->dense = layout_out->image;
    }
    SH_TRY(fill(text, workers, &layout_out->image));
    SH_TRY(fill(text, workers, &layout_out->dense));
    int64_t first = sh_cost_grid_workers(&layout_out->image);
    int64_t second = sh_cost_grid_workers(&layout_out->dense);
    if (first == second) return SH_OK;
    SH_FAIL(SH_E_USAGE, "layout '%.64s': its parts make %lld and %lld workers", text,
            (long long)first, (long long)second);
    return sh_error_hint("-n %lld, and leave out data=", (long long)(first * second));
}

static int print_grid(const sh_cost_grid *grid, char *text, size_t size) {
    int length = snprintf(text, size, "data=%lld", (long long)grid->data);
    if (grid->tensor > 1)
        length +=
            snprintf(text + length, size - (size_t)length, ",tensor=%lld", (long long)grid->tensor);
    if (grid->space[1] > 1)
        length += snprintf(text + length, size - (size_t)length, ",space=%lldx%lld",
                           (long long)grid->space[0], (long long)grid->space[1]);
    else if (grid->space[0] > 1)
        length += snprintf(text + length, size - (size_t)length, ",space=%lld",
                           (long long)grid->space[0]);
    return length;
}

const char *sh_cost_layout_text(const sh_cost_layout *layout, char text_out[SH_COST_LAYOUT_TEXT]) {
    char image[SH_COST_LAYOUT_TEXT / 2 - 16], dense[SH_COST_LAYOUT_TEXT / 2 - 16];
    print_grid(&layout->image, image, sizeof image);
    print_grid(&layout->dense, dense, sizeof dense);
    if (strcmp(image, dense) == 0)
        snprintf(text_out, SH_COST_LAYOUT_TEXT, "%s", image);
    else
        snprintf(text_out, SH_COST_LAYOUT_TEXT, "{conv: \"%s\", dense: \"%s\"}", image, dense);
    return text_out;
}
