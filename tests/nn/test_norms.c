/* That the options of norms reach their kernels. */
#include "rig.h"

enum { ROWS = 4, WIDTH = 6 };

/* Rows and columns of +-small: mean 0, variance small^2. */
static void fill_signs(float *x, float small) {
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < WIDTH; j++) x[i * WIDTH + j] = (i + j) % 2 ? small : -small;
}

/* y = x / sqrt(variance + epsilon), with weight 1 and bias 0. */
static void check_epsilon(const char *net, double epsilon) {
    const double small = 1e-3;
    rig r = rig_make(net, RIG_VECTOR(WIDTH), ROWS);
    sh_net_init(r.net, 1, r.blocks.weights, r.blocks.states);
    fill_signs(r.x, (float)small);
    sh_executor_forward(r.executor, &r.step, r.x);
    float want[ROWS * WIDTH];
    fill_signs(want, (float)(small / sqrt(small * small + epsilon)));
    CHECK_CLOSE((const float *)r.executor->output->data, want, SH_COUNT(want), 1e-6);
    rig_free(&r);
}

TEST(norms, add_their_epsilon_to_the_variance) {
    check_epsilon("[layernorm]", 1e-5);  // PyTorch's default
    check_epsilon("[{layernorm: {epsilon: 0.01}}]", 0.01);
    check_epsilon("[batchnorm]", 1e-5);
    check_epsilon("[{batchnorm: {epsilon: 0.01}}]", 0.01);
}
