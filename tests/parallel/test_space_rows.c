/* The tables of domain parallelism against reference values, and against brute force. */
#include "harness.h"
#include "parallel/space_rows.h"

typedef struct reference {
    sh_window window;
    int64_t in, out;
    int parts;
    sh_halo halo[4];
} reference;

static const reference references[] = {
    {{11, 4, 1, 0}, 227, 55, 4, {{0, 6, 57}, {1, 5, 57}, {2, 4, 57}, {3, 0, 56}}},  // AlexNet
    {{7, 2, 1, 3}, 224, 112, 4, {{0, 2, 56}, {3, 2, 56}, {3, 2, 56}, {3, 0, 56}}},  // ResNet
    {{3, 2, 1, 1}, 32, 16, 4, {{0, 0, 8}, {1, 0, 8}, {1, 0, 8}, {1, 0, 8}}},
    {{3, 1, 1, 1}, 32, 32, 4, {{0, 1, 8}, {1, 1, 8}, {1, 1, 8}, {1, 0, 8}}},
    {{3, 2, 1, 0}, 55, 27, 4, {{0, 1, 14}, {0, 1, 14}, {0, 1, 14}, {0, 0, 13}}},  // pool
    {{2, 2, 1, 0}, 27, 13, 4, {{0, 1, 7}, {0, 0, 7}, {0, 0, 7}, {1, 0, 6}}},  // other boundaries
    {{5, 1, 1, 0}, 28, 24, 2, {{0, 2, 14}, {2, 0, 14}}},                      // LeNet
    {{3, 1, 2, 2}, 32, 32, 4, {{0, 2, 8}, {2, 2, 8}, {2, 2, 8}, {2, 0, 8}}},
};

TEST(space_rows, halos_are_those_of_the_references) {
    for (size_t i = 0; i < sizeof references / sizeof *references; i++) {
        const reference *r = &references[i];
        for (int rank = 0; rank < r->parts; rank++) {
            sh_halo halo = sh_halo_of(&r->window, r->in, r->out, r->parts, rank);
            assert_int_equal(halo.top, r->halo[rank].top);
            assert_int_equal(halo.bottom, r->halo[rank].bottom);
            assert_int_equal(halo.own, r->halo[rank].own);
        }
    }
}

/* Whether the window of output row `out` has a tap on input row `in`, or spans it. */
static bool spans(const sh_window *w, int64_t out, int64_t in) {
    int64_t first = out * w->stride - w->padding;
    return in >= first && in < first + w->dilation * (w->kernel - 1) + 1;
}

static void check_window(const sh_window *w, int64_t in) {
    int64_t room = in + 2 * w->padding - (w->dilation * (w->kernel - 1) + 1);
    if (room < 0) return;
    int64_t out = room / w->stride + 1;
    for (int64_t a = 0; a < out; a++)
        for (int64_t b = a + 1; b <= out; b++) {
            sh_rows got = sh_window_inputs(w, (sh_rows){a, b}, in);
            for (int64_t row = 0; row < in; row++) {
                bool between =
                    row >= a * w->stride - w->padding &&
                    row < (b - 1) * w->stride - w->padding + w->dilation * (w->kernel - 1) + 1;
                assert_int_equal(between, row >= got.first && row < got.last);
            }
        }
    for (int64_t row = 0; row < in; row++) {
        sh_rows got = sh_window_outputs(w, (sh_rows){row, row + 1}, out);
        for (int64_t y = 0; y < out; y++)
            assert_int_equal(spans(w, y, row), y >= got.first && y < got.last);
    }
}

TEST(space_rows, windows_span_what_brute_force_says) {
    for (int64_t k = 1; k < 5; k++)
        for (int64_t s = 1; s < 5; s++)
            for (int64_t d = 1; d < 3; d++)
                for (int64_t q = 0; q < 3; q++) {
                    sh_window w = {k, s, d, q};
                    for (int64_t in = 1; in < 14; in++) check_window(&w, in);
                }
}
