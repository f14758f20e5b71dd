#include "tensor/kernels/embed.h"

#include "settings.h"

enum { V = 37 };

static int32_t *tokens_for(size_t count) {
    int32_t *tokens = malloc(count * sizeof *tokens);
    for (size_t i = 0; i < count; i++) tokens[i] = (int32_t)(i * i * 31 % V);
    return tokens;
}

static void check(size_t B, size_t T, size_t C) {
    size_t n = B * T * C;
    float *table = filled(V * C, 1, 1), *position = filled(T * C, 2, 1), *y = filled(n, 3, 1);
    float *want = filled(n, 4, 1), *dtable = filled(V * C, 5, 1),
          *dtable_want = copied(dtable, V * C);
    float *dposition = filled(T * C, 6, 1), *dposition_want = copied(dposition, T * C);
    int32_t *tokens = tokens_for(B * T);
    for (size_t i = 0; i < n; i++) want[i] = table[(size_t)tokens[i / C] * C + i % C];
    sh_embed()->forward(table, V, C, tokens, B * T, NULL, T, y);
    assert_memory_equal(y, want, n * sizeof *y);
    for (size_t i = 0; i < n; i++) want[i] += position[i % (T * C)];
    sh_embed()->position_forward(y, position, B, T, C, y);
    assert_memory_equal(y, want, n * sizeof *y);
    memset(y, 0, n * sizeof *y);
    sh_embed()->forward(table, V, C, tokens, B * T, position, T, y);
    assert_memory_equal(y, want, n * sizeof *y);

    /* The order of the sums is fixed, so bits must agree. */
    for (size_t i = 0; i < n; i++) {
        dtable_want[(size_t)tokens[i / C] * C + i % C] += y[i];
        dposition_want[i % (T * C)] += y[i];
    }
    sh_embed()->backward(y, tokens, B * T, V, C, dtable);
    sh_embed()->position_backward(y, B, T, C, true, dposition);
    assert_memory_equal(dtable, dtable_want, V * C * sizeof *dtable);
    assert_memory_equal(dposition, dposition_want, T * C * sizeof *dposition);
    memset(dposition_want, 0, T * C * sizeof *dposition);
    for (size_t i = 0; i < n; i++) dposition_want[i % (T * C)] += y[i];
    sh_embed()->position_backward(y, B, T, C, false, dposition);
    assert_memory_equal(dposition, dposition_want, T * C * sizeof *dposition);
    free(table), free(position), free(y), free(want), free(dtable), free(dtable_want);
    free(dposition), free(dposition_want), free(tokens);
}

static void shapes(void) {
    check(1, 1, 1);
    check(3, 5, 7);
    check(2, 9, 24);
    check(5, 64, 130);
}

TEST(embed, gathers_and_scatters_rows_in_a_fixed_order) { each_setting(shapes); }
