#include "tensor/kernels/conv_weight.h"

#include <stdio.h>
#include <string.h>

#include "tensor/convolutions.h"

typedef struct size_row {
    conv_sizes sizes;
    bool x_blocked;
} size_row;

static const size_row rows[] = {
    {{2, 1, 16, 28, 28, 5, 5, 1, 1, 2, 2, 1}, false},
    {{2, 3, 16, 35, 33, 11, 11, 4, 4, 2, 2, 1}, false},
    {{5, 3, 24, 9, 7, 3, 3, 1, 1, 1, 1, 1}, false},
    {{2, 4, 8, 6, 5, 7, 7, 2, 2, 3, 3, 1}, false},
    {{1, 2, 40, 5, 9, 1, 1, 2, 3, 0, 0, 1}, false},
    {{2, 3, 16, 4, 4, 2, 9, 1, 1, 3, 8, 1}, false},  // rows of x that lie wholly in the padding
    {{7, 2, 8, 1, 1, 3, 3, 1, 1, 1, 1, 1}, false},
    {{4, 16, 24, 13, 13, 3, 3, 1, 1, 1, 1, 1}, true},
    {{2, 8, 24, 32, 32, 3, 3, 1, 1, 1, 1, 1}, true},
    {{19, 24, 32, 4, 4, 3, 3, 1, 1, 1, 1, 1}, true},
    {{9, 16, 40, 8, 8, 3, 3, 2, 2, 1, 1, 1}, true},
    {{3, 8, 8, 14, 14, 5, 5, 1, 1, 2, 2, 1}, true},
    {{2, 8, 16, 17, 5, 5, 3, 2, 1, 0, 2, 1}, true},
    {{3, 16, 16, 7, 9, 1, 1, 2, 2, 0, 0, 1}, true},
    {{3, 8, 16, 2, 2, 5, 5, 1, 1, 2, 2, 1}, true},
    {{2, 8, 8, 3, 3, 2, 2, 1, 1, 3, 3, 1}, true},  // taps that see only padding for some pixels
    {{1, 8, 8, 40, 3, 3, 3, 3, 1, 1, 1, 1}, true},
};

typedef struct fixture {
    sh_conv_shape s;
    bool x_blocked;
    size_t x_count, y_count, w_count;
    float *x, *dy;                // plain
    float *x_input, *dy_blocked;  // as the kernel wants them
    float *want, *want_bias, *dw, *db;
    unsigned char *scratch;
    size_t scratch_bytes;
} fixture;

static fixture fixture_make(const size_row *row) {
    fixture f = {.s = shape_of(&row->sizes), .x_blocked = row->x_blocked};
    const sh_conv_shape *s = &f.s;
    f.x_count = (size_t)(s->n * s->ic * s->ih * s->iw);
    f.y_count = (size_t)(s->n * s->oc * s->oh * s->ow);
    f.w_count = (size_t)(s->oc * s->ic * s->kh * s->kw);
    f.x = seeded(f.x_count, 1), f.dy = seeded(f.y_count, 2);
    f.dy_blocked = rearranged(f.dy, s->n, s->oc, s->oh * s->ow, true);
    f.x_input =
        f.x_blocked ? rearranged(f.x, s->n, s->ic, s->ih * s->iw, true) : seeded(f.x_count, 1);
    f.want = floats(f.w_count), f.dw = floats(f.w_count);
    f.want_bias = floats((size_t)s->oc), f.db = floats((size_t)s->oc);
    sh_reference_conv_weight(s, f.x, f.dy, f.want, f.want_bias);
    return f;
}

static void fixture_free(fixture *f) {
    free(f->x), free(f->x_input), free(f->dy), free(f->dy_blocked);
    free(f->want), free(f->want_bias), free(f->dw), free(f->db);
}

/* Runs with a fence behind the scratch and fails if it is written. */
static void run(const fixture *f, int threads, bool accumulate) {
    enum { FENCE = 256 };
    const sh_conv_weight_kernels *k = sh_conv_weight();
    size_t bytes = k->scratch_bytes(&f->s, f->x_blocked, threads);
    unsigned char *scratch = (unsigned char *)floats((bytes + FENCE) / sizeof(float));
    memset(scratch, 0xFF, bytes + FENCE);  // NaN: scratch must be written before it is read
    k->run(&(sh_conv_weight_call){.shape = &f->s,
                                  .x = f->x_input,
                                  .dy = f->dy_blocked,
                                  .dw = f->dw,
                                  .db = f->db,
                                  .scratch = scratch,
                                  .threads = threads,
                                  .x_blocked = f->x_blocked,
                                  .accumulate = accumulate});
    for (size_t i = 0; i < FENCE; i++) assert_int_equal(scratch[bytes + i], 0xFF);
    free(scratch);
}

static void check_all(int threads) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f = fixture_make(&rows[i]);
        assert_true(sh_conv_weight()->supports(&f.s, f.x_blocked));
        run(&f, threads, false);
        CHECK_CLOSE(f.dw, f.want, f.w_count, 2e-5);
        CHECK_CLOSE(f.db, f.want_bias, (size_t)f.s.oc, 2e-5);
        fixture_free(&f);
    }
}

TEST(conv_weight, equals_reference_on_one_thread) { check_all(1); }
TEST(conv_weight, equals_reference_on_two_threads) { check_all(2); }
TEST(conv_weight, equals_reference_on_more_threads_than_blocks) { check_all(7); }

TEST(conv_weight, equals_reference_on_lesser_instruction_sets) {
    check_lesser_levels(check_all, 2);
}

TEST(conv_weight, accumulates_onto_what_is_there) {
    fixture f = fixture_make(&rows[7]);
    for (size_t i = 0; i < f.w_count; i++) f.dw[i] = 3.0f, f.want[i] += 3.0f;
    for (int64_t i = 0; i < f.s.oc; i++) f.db[i] = -2.0f, f.want_bias[i] -= 2.0f;
    run(&f, 2, true);
    CHECK_CLOSE(f.dw, f.want, f.w_count, 2e-5);
    CHECK_CLOSE(f.db, f.want_bias, (size_t)f.s.oc, 2e-5);
    fixture_free(&f);
}

TEST(conv_weight, repeats_bit_for_bit) {
    fixture f = fixture_make(&rows[9]);
    run(&f, 3, false);
    float *first = floats(f.w_count);
    memcpy(first, f.dw, f.w_count * sizeof(float));
    for (int round = 0; round < 5; round++) {
        run(&f, 3, false);
        assert_memory_equal(first, f.dw, f.w_count * sizeof(float));
    }
    free(first);
    fixture_free(&f);
}

TEST(conv_weight, sums_the_bias_alone) {
    fixture f = fixture_make(&rows[8]);
    sh_conv_weight()->bias(f.dy_blocked, f.s.n, f.s.oc, f.s.oh * f.s.ow, f.db, false);
    CHECK_CLOSE(f.db, f.want_bias, (size_t)f.s.oc, 2e-5);
    sh_conv_weight()->bias(f.dy_blocked, f.s.n, f.s.oc, f.s.oh * f.s.ow, f.db, true);
    for (int64_t i = 0; i < f.s.oc; i++) f.want_bias[i] *= 2;
    CHECK_CLOSE(f.db, f.want_bias, (size_t)f.s.oc, 2e-5);
    fixture_free(&f);
}

TEST(conv_weight, refuses_what_it_cannot_do) {
    sh_conv_shape good = {.n = 1,
                          .ic = 8,
                          .oc = 8,
                          .ih = 4,
                          .iw = 4,
                          .oh = 4,
                          .ow = 4,
                          .kh = 1,
                          .kw = 1,
                          .stride_h = 1,
                          .stride_w = 1,
                          .dilation_h = 1,
                          .dilation_w = 1,
                          .groups = 1};
    bool (*supports)(const sh_conv_shape *, bool) = sh_conv_weight()->supports;
    assert_true(supports(&good, true));
    sh_conv_shape s = good;
    s.groups = 2;
    assert_false(supports(&s, true));
    s = good, s.dilation_w = 2;
    assert_false(supports(&s, true));
    s = good, s.oc = 12;
    assert_false(supports(&s, true));
    s = good, s.ic = 3;
    assert_false(supports(&s, true));
    assert_true(supports(&s, false));
}
