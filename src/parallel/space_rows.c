#include "parallel/space_rows.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* a / b, rounded down, b > 0. */
static int64_t floor_of(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

static int64_t reach(const sh_window *window) {
    return window->dilation * (window->kernel - 1) + 1;
}

sh_rows sh_rows_meet(sh_rows a, sh_rows b) {
    sh_rows both = {most(a.first, b.first), least(a.last, b.last)};
    if (both.last < both.first) both.last = both.first;
    return both;
}

sh_rows sh_rows_owned(int64_t rows, int parts, int rank) {
    int64_t each = rows / parts, more = rows % parts;
    int64_t first = rank * each + least(rank, more);
    return (sh_rows){first, first + each + (rank < more)};
}

sh_rows sh_window_inputs(const sh_window *window, sh_rows outputs, int64_t in_rows) {
    if (sh_rows_count(outputs) == 0) return (sh_rows){0, 0};
    int64_t first = outputs.first * window->stride - window->padding;
    int64_t last = (outputs.last - 1) * window->stride - window->padding + reach(window);
    return sh_rows_meet((sh_rows){first, last}, (sh_rows){0, in_rows});
}

sh_rows sh_window_outputs(const sh_window *window, sh_rows inputs, int64_t out_rows) {
    if (sh_rows_count(inputs) == 0) return (sh_rows){0, 0};
    int64_t s = window->stride, q = window->padding;
    int64_t first = floor_of(inputs.first + q - reach(window) + s, s);  // rounded up
    int64_t last = floor_of(inputs.last - 1 + q, s) + 1;
    return sh_rows_meet((sh_rows){first, last}, (sh_rows){0, out_rows});
}

int64_t sh_window_above(const sh_window *window, sh_rows outputs) {
    return most(0, window->padding - outputs.first * window->stride);
}

sh_halo sh_halo_of(const sh_window *window, int64_t in_rows, int64_t out_rows, int parts,
                   int rank) {
    sh_rows own = sh_rows_owned(in_rows, parts, rank);
    sh_rows want = sh_window_inputs(window, sh_rows_owned(out_rows, parts, rank), in_rows);
    return (sh_halo){.top = most(0, own.first - want.first),
                     .bottom = most(0, want.last - own.last),
                     .own = sh_rows_count(own)};
}
