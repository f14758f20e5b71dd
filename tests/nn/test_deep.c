/* Nets of many layers: names, fusions, guards, memory. What grows with pairs of layers takes hours
 * here, and what does not a second. */
#include <stdio.h>

#include "rig.h"

enum { BLOCKS = 6000, ROOM = 128 };

/* Residual blocks with branches that are dropped; every tenth weight is that of the first layer. */
static char *deep_text(void) {
    char *text = sh_alloc(BLOCKS + 2, ROOM);
    assert_non_null(text);
    size_t at = (size_t)sprintf(text, "[{dense: 4, name: first}, {dense: 4, name: add0}");
    for (int i = 1; i <= BLOCKS; i++)
        at += (size_t)sprintf(text + at,
                              ", {dense: {units: 4%s}}, relu, droppath, "
                              "{add: , name: add%d, from: [droppath%d, add%d]}",
                              i % 10 == 0 ? ", tie: first.weight" : "", i, i, i - 1);
    sprintf(text + at, ", dense]");
    return text;
}

TEST(deep, nets_are_planned_in_time_that_their_length_gives) {
    char *text = deep_text();
    rig r = rig_make(text, RIG_VECTOR(4), 2);
    assert_int_equal(r.net->layer_count, 4 * BLOCKS + 3);
    memset(r.blocks.weights, 0, r.net->params.total * sizeof(float));  // so many would overflow
    assert_true(isfinite(rig_step(&r)));
    int guarded = 0, tied = 0, last = 0;
    for (size_t i = 0; i < r.executor->op_count; i++) {
        const sh_op *op = r.executor->ops[i];
        guarded += op->guard >= 0;
        bool has_first = op->layer->param_count > 0 && op->layer->params[0] == 0;
        tied += has_first;
        last += has_first && op->param_last[0];
        if (has_first) assert_true(op->param_added[0] == (tied < BLOCKS / 10 + 1));
    }
    assert_int_equal(guarded, BLOCKS);  // a dense layer with its relu before each drop-path
    assert_int_equal(tied, BLOCKS / 10 + 1);
    assert_int_equal(last, 1);
    rig_free(&r);
    sh_free(text);
}
