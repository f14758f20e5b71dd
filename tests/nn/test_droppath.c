/* Drop-path: a dropped branch is not computed, its parameters are unused with zero gradients, and
 * what stands before the branch still gets its whole gradient. */
#include <stdio.h>

#include "nn/rig.h"

static bool unused(const rig *r, const char *param) {
    const sh_param *found = sh_param_list_find(&r->net->params, param);
    assert_non_null(found);
    bool marked = r->executor->param_unused[found - r->net->params.items];
    double norm = rig_norm(r->blocks.gradients + found->offset, found->count);
    assert_true(marked ? norm == 0 : norm > 0);
    return marked;
}

/* The same net by hand: the branch left out or scaled. Returns the gradients of the whole net. */
static void check_against(rig *r, const char *text, sh_net_input input, float scale) {
    rig hand = rig_make(text, input, r->executor->batch);
    for (size_t i = 0; i < hand.net->params.count; i++) {
        const sh_param *to = &hand.net->params.items[i];
        const sh_param *from = sh_param_list_find(&r->net->params, to->name);
        memcpy(hand.blocks.weights + to->offset, r->blocks.weights + from->offset,
               to->count * sizeof(float));
    }
    const sh_param *last = sh_param_list_find(&hand.net->params, "f2.weight");
    const sh_param *bias = sh_param_list_find(&hand.net->params, "f2.bias");
    for (size_t i = 0; last != NULL && i < last->count; i++)
        hand.blocks.weights[last->offset + i] *= scale;
    for (size_t i = 0; bias != NULL && i < bias->count; i++)
        hand.blocks.weights[bias->offset + i] *= scale;
    double a = rig_step(r), b = rig_step(&hand);
    assert_true(fabs(a - b) < 1e-4);
    for (size_t i = 0; i < hand.net->params.count; i++) {
        const sh_param *to = &hand.net->params.items[i];
        const sh_param *from = sh_param_list_find(&r->net->params, to->name);
        if (strncmp(to->name, "f2.", 3) == 0) continue;  // scaled by hand
        CHECK_CLOSE(hand.blocks.gradients + to->offset, r->blocks.gradients + from->offset,
                    to->count, 2e-5);
    }
    rig_free(&hand);
}

#define BRANCH "[{dense: 8, name: a}, {dense: 9, name: f1}, relu, {dense: 8, name: f2}, "

TEST(droppath, drops_a_branch_whole_or_scales_it) {
    rig r = rig_make(BRANCH "{droppath: 0.4, name: d}, {add: , from: [d, a]}, tanh, dense]",
                     RIG_VECTOR(5), 3);
    int dropped = 0, kept = 0;
    for (int64_t step = 0; step < 20; step++) {
        r.step.step = step;
        rig_step(&r);
        bool gone = unused(&r, "f1.weight");
        assert_int_equal(gone, unused(&r, "f2.bias"));
        assert_false(unused(&r, "a.weight"));
        if (gone)
            check_against(&r, "[{dense: 8, name: a}, tanh, dense]", RIG_VECTOR(5), 1.0f);
        else
            check_against(&r, BRANCH "{add: , from: [f2, a]}, tanh, dense]", RIG_VECTOR(5),
                          1.0f / 0.6f);
        dropped += gone, kept += !gone;
    }
    assert_true(dropped > 2);
    assert_true(kept > 5);
    rig_free(&r);
}

TEST(droppath, keeps_everything_unscaled_in_inference) {
    rig r = rig_make(BRANCH "{droppath: 0.9, name: d}, {add: , from: [d, a]}, tanh, dense]",
                     RIG_VECTOR(5), 3);
    r.step.training = false;
    for (int64_t step = 0; step < 8; step++) {
        r.step.step = step;
        check_against(&r, BRANCH "{add: , from: [f2, a]}, tanh, dense]", RIG_VECTOR(5), 1.0f);
        assert_false(unused(&r, "f1.weight"));
    }
    rig_free(&r);
}

/* The shortcut is read before the branch, so a skipped op would have written the gradient first. */
TEST(droppath, leaves_a_whole_gradient_where_the_branch_would_have_written_first) {
    const char *text =
        "[{conv: 8, padding: 1, name: a}, {conv: 8, kernel: 1, name: s, from: a}, "
        "{conv: 8, padding: 1, name: f1, from: a}, relu, {conv: 8, padding: 1, "
        "name: f2}, {droppath: 0.5, name: d}, {add: , from: [s, d]}, relu, "
        "globalpool, dense]";
    // Memory apart, so that no other buffer's zeros lie where the gradient should be.
    rig r = rig_make_with(rig_net(text, RIG_IMAGE(2, 6, 5)),
                          &(sh_executor_options){.batch = 3, .training = true, .no_sharing = true});
    int dropped = 0;
    for (int64_t step = 0; step < 12; step++) {
        r.step.step = step;
        rig_step(&r);
        if (!unused(&r, "f1.weight")) continue;
        dropped++;
        check_against(&r,
                      "[{conv: 8, padding: 1, name: a}, {conv: 8, kernel: 1, name: s}, relu, "
                      "globalpool, dense]",
                      RIG_IMAGE(2, 6, 5), 1.0f);
    }
    assert_true(dropped > 1);
    rig_free(&r);
}

TEST(droppath, skips_inner_branches_with_the_outer_one) {
    const char *text =
        "[{dense: 6, name: a}, {dense: 6, name: b}, {dense: 6, name: c}, {droppath: 0.5, name: in},"
        " {add: , name: j, from: [in, b]}, {dense: 6, name: e}, {droppath: 0.5, name: out}, "
        "{add: , from: [out, a]}, dense]";
    rig r = rig_make(text, RIG_VECTOR(4), 2);
    int seen[2][2] = {{0}};
    for (int64_t step = 0; step < 40; step++) {
        r.step.step = step;
        assert_true(isfinite(rig_step(&r)));
        bool outer = unused(&r, "e.weight"), inner = unused(&r, "c.weight");
        assert_int_equal(outer, unused(&r, "b.weight"));
        assert_true(inner || !outer);
        seen[outer][inner]++;
    }
    assert_true(seen[0][0] > 0);
    assert_true(seen[0][1] > 0);
    assert_true(seen[1][1] > 0);
    rig_free(&r);
}

/* A weight used twice is unused only if both uses are dropped, whatever their order. */
TEST(droppath, counts_a_tied_weight_as_unused_only_when_all_its_uses_are_dropped) {
    const char *text =
        "[{dense: 6, name: a}, {dense: 6, name: w}, {droppath: 0.5, name: d1}, {add: , name: j, "
        "from: [d1, a]}, {dense: {units: 6, bias: false, tie: w.weight}, name: v}, {droppath: 0.5, "
        "name: d2}, {add: , from: [d2, j]}, dense]";
    rig r = rig_make(text, RIG_VECTOR(4), 2);
    int seen[2][2] = {{0}};
    for (int64_t step = 0; step < 40; step++) {
        r.step.step = step;
        rig_step(&r);
        bool first = r.executor->skipped[1], second = false;
        for (size_t i = 0; i < r.executor->op_count; i++)
            if (strcmp(sh_op_name(r.executor->ops[i]), "v") == 0) second = r.executor->skipped[i];
        assert_int_equal(unused(&r, "w.weight"), first && second);
        seen[first][second]++;
    }
    for (int i = 0; i < 4; i++) assert_true(seen[i / 2][i % 2] > 0);
    rig_free(&r);
}

TEST(droppath, keeps_what_earlier_steps_accumulated) {
    rig r = rig_make(BRANCH "{droppath: 0.5, name: d}, {add: , from: [d, a]}, dense]",
                     RIG_VECTOR(5), 3);
    int64_t kept = -1, dropped = -1;
    for (int64_t step = 0; step < 20; step++) {
        r.step.step = step;
        rig_step(&r);
        *(unused(&r, "f1.weight") ? &dropped : &kept) = step;
    }
    assert_true(kept >= 0);
    assert_true(dropped >= 0);
    const sh_param *p = sh_param_list_find(&r.net->params, "f1.weight");
    r.step.step = kept;
    rig_step(&r);
    float *before = rig_copy(r.blocks.gradients + p->offset, p->count);
    r.step = (sh_step_context){.training = true, .seed = 5, .step = dropped, .accumulate = true};
    rig_step(&r);
    assert_memory_equal(before, r.blocks.gradients + p->offset, p->count * sizeof(float));
    assert_false(unused(&r, "f1.weight"));
    sh_free(before);
    rig_free(&r);
}
