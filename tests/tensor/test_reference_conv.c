#include "tensor/kernels/reference_conv.h"

#include "harness.h"

static const sh_conv_shape odd = {.n = 2,
                                  .ic = 4,
                                  .oc = 6,
                                  .ih = 7,
                                  .iw = 6,
                                  .oh = 3,
                                  .ow = 6,
                                  .kh = 3,
                                  .kw = 2,
                                  .stride_h = 2,
                                  .stride_w = 1,
                                  .pad_h = 1,
                                  .pad_w = 1,
                                  .dilation_h = 2,
                                  .dilation_w = 2,
                                  .groups = 2};
enum { X = 2 * 4 * 7 * 6, W = 6 * 2 * 3 * 2, Y = 2 * 6 * 3 * 6, OC = 6 };

static double dot(const float *a, const float *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Hand-made: a 2x2 kernel over 3x3 with padding 1 on the top left only. */
TEST(reference_conv, gives_the_numbers_of_a_small_example) {
    sh_conv_shape s = {.n = 1,
                       .ic = 1,
                       .oc = 1,
                       .ih = 3,
                       .iw = 3,
                       .oh = 3,
                       .ow = 3,
                       .kh = 2,
                       .kw = 2,
                       .stride_h = 1,
                       .stride_w = 1,
                       .pad_h = 1,
                       .pad_w = 1,
                       .dilation_h = 1,
                       .dilation_w = 1,
                       .groups = 1};
    const float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, w[] = {1, 10, 100, 1000}, bias[] = {0.5f};
    const float want[] = {1000.5f, 2100.5f, 3200.5f, 4010.5f, 5421.5f,
                          6532.5f, 7040.5f, 8754.5f, 9865.5f};
    float y[9];
    sh_reference_conv_forward(&s, x, w, bias, y);
    CHECK_CLOSE(y, want, 9, 0);
}

/* Forward is linear in x and in w, so the three products must agree: <dy, y> = <dx, x> = <dw, w>.
 */
TEST(reference_conv, gradients_are_the_adjoints_of_forward) {
    float x[X], w[W], y[Y], dy[Y], dx[X], dw[W], db[OC];
    sh_test_fill(x, X, 1);
    sh_test_fill(w, W, 2);
    sh_test_fill(dy, Y, 3);
    sh_reference_conv_forward(&odd, x, w, NULL, y);
    sh_reference_conv_data(&odd, dy, w, dx);
    sh_reference_conv_weight(&odd, x, dy, dw, db);
    float products[] = {(float)dot(dy, y, Y), (float)dot(dy, y, Y)};
    float others[] = {(float)dot(dx, x, X), (float)dot(dw, w, W)};
    CHECK_CLOSE(products, others, 2, 1e-5);
    float bias[OC], with_bias[Y];
    sh_test_fill(bias, OC, 4);
    sh_reference_conv_forward(&odd, x, w, bias, with_bias);
    float added = (float)(dot(dy, with_bias, Y) - dot(dy, y, Y)), wanted = (float)dot(db, bias, OC);
    CHECK_CLOSE(&added, &wanted, 1, 1e-5);
}

/* The adjoint test alone would pass for a wrong index used alike everywhere. */
TEST(reference_conv, a_weight_moves_only_its_own_channels) {
    float x[X], w[W], y[Y], moved[Y];
    sh_test_fill(x, X, 1);
    sh_test_fill(w, W, 2);
    sh_reference_conv_forward(&odd, x, w, NULL, y);
    w[4 * 12 + 7] += 1;  // output channel 4, second input channel of group 1, tap (0, 1)
    sh_reference_conv_forward(&odd, x, w, NULL, moved);
    for (int64_t n = 0; n < 2; n++)
        for (int64_t o = 0; o < 6; o++)
            for (int64_t r = 0; r < 3; r++)
                for (int64_t c = 0; c < 6; c++) {
                    int64_t at = ((n * 6 + o) * 3 + r) * 6 + c, row = 2 * r - 1, col = c + 1;
                    bool reached = o == 4 && row >= 0 && col < 6;
                    float by = reached ? x[((n * 4 + 3) * 7 + row) * 6 + col] : 0;
                    float want = y[at] + by;
                    CHECK_CLOSE(&moved[at], &want, 1, 1e-5);
                }
}
