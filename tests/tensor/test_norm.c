#include "tensor/kernels/norm.h"

#include <math.h>

#include "settings.h"
#include "tensor/kernels/reference.h"

static const struct layer_case {
    size_t rows, C;
} ROWS[] = {{1, 1}, {3, 5}, {7, 8}, {5, 33}, {130, 384}, {257, 129}, {64, 768}};

static void check_layernorm(size_t rows, size_t C, bool beta_too, bool accumulate) {
    size_t n = rows * C, scratch_floats = 4 * C * (size_t)omp_get_max_threads();
    float *x = filled(n, 1, 3), *dy = filled(n, 2, 1), *residual = filled(n, 3, 1);
    float *gamma = filled(C, 4, 2), *beta = filled(C, 5, 1),
          *scratch = filled(scratch_floats, 6, 9);
    float *y = filled(n, 7, 1), *y_want = filled(n, 8, 1), *mean = filled(4 * rows, 9, 1);
    float *rstd = mean + rows, *mean_want = rstd + rows, *rstd_want = mean_want + rows;
    for (size_t i = 0; i < n; i++) x[i] += 10;
    sh_layernorm()->forward(x, gamma, beta_too ? beta : NULL, 1e-5f, rows, C, y, mean, rstd);
    sh_ref_layernorm_forward(x, gamma, beta_too ? beta : NULL, 1e-5f, rows, C, y_want, mean_want,
                             rstd_want);
    CHECK_CLOSE(mean, mean_want, rows, 1e-6);
    CHECK_CLOSE(rstd, rstd_want, rows, 1e-5);
    if (C > 1) CHECK_CLOSE(y, y_want, n, 1e-5);

    float *dgamma = filled(C, 10, 1), *dbeta = filled(C, 11, 1), *dx = filled(n, 12, 1);
    float *dgamma_want = copied(dgamma, C), *dbeta_want = copied(dbeta, C),
          *dx_want = copied(dx, n);
    sh_layernorm_backward a = {rows,
                               C,
                               dy,
                               x,
                               gamma,
                               mean_want,
                               rstd_want,
                               accumulate ? residual : NULL,
                               dx_want,
                               dgamma_want,
                               beta_too ? dbeta_want : NULL,
                               accumulate,
                               scratch,
                               scratch_floats};
    sh_ref_layernorm_backward(&a);
    a.dx = dx;
    a.dgamma = dgamma;
    a.dbeta = beta_too ? dbeta : NULL;
    sh_layernorm()->backward(&a);
    CHECK_CLOSE(dx, dx_want, n, C > 1 ? 1e-5 : 1e-2);
    CHECK_CLOSE(dgamma, dgamma_want, C, 1e-5);
    CHECK_CLOSE(dbeta, dbeta_want, C, 1e-5);
    a.dx = dy;
    sh_layernorm()->backward(&a);
    assert_memory_equal(dy, dx, n * sizeof *dx);
    free(x), free(dy), free(residual), free(gamma), free(beta), free(scratch), free(y),
        free(y_want);
    free(mean), free(dgamma), free(dbeta), free(dx), free(dgamma_want), free(dbeta_want);
    free(dx_want);
}

static void layernorm(void) {
    for (size_t c = 0; c < SH_COUNT(ROWS); c++) {
        check_layernorm(ROWS[c].rows, ROWS[c].C, true, false);
        check_layernorm(ROWS[c].rows, ROWS[c].C, false, true);
    }
}

TEST(layernorm, matches_reference) { each_setting(layernorm); }

/* 65,536 features of mean 1: sums in float lanes alone are off by 1e-5. */
static void wide_layernorm(void) {
    enum { C = 1 << 16 };
    float *x = filled(C, 1, 1), *dy = filled(C, 2, 1), *gamma = filled(C, 3, 1);
    float *y = filled(C, 4, 1), *want = filled(C, 5, 1), *dx = filled(C, 6, 1);
    float *scratch = filled(4 * C, 7, 1), *grads = filled(2 * C, 8, 1);
    float mean, rstd, mean_want, rstd_want;
    for (size_t i = 0; i < C; i++) x[i] += 1, dy[i] += 1, gamma[i] += 1;
    sh_layernorm()->forward(x, gamma, NULL, 1e-5f, 1, C, y, &mean, &rstd);
    sh_ref_layernorm_forward(x, gamma, NULL, 1e-5f, 1, C, want, &mean_want, &rstd_want);
    CHECK_CLOSE(&mean, &mean_want, 1, 3e-7);
    CHECK_CLOSE(&rstd, &rstd_want, 1, 3e-7);
    CHECK_CLOSE(y, want, C, 1e-6);
    sh_layernorm_backward a = {.rows = 1,
                               .C = C,
                               .dy = dy,
                               .x = x,
                               .gamma = gamma,
                               .mean = &mean_want,
                               .rstd = &rstd_want,
                               .dx = want,
                               .dgamma = grads,
                               .dbeta = grads + C,
                               .scratch = scratch,
                               .scratch_floats = 4 * C};
    sh_ref_layernorm_backward(&a);
    a.dx = dx;
    sh_layernorm()->backward(&a);
    CHECK_CLOSE(dx, want, C, 1e-6);
    free(x), free(dy), free(gamma), free(y), free(want), free(dx), free(scratch), free(grads);
}

TEST(layernorm, keeps_its_digits_in_wide_rows) { each_setting(wide_layernorm); }

static void many_rows(void) {
    enum { R = 1 << 16, C = 9 };
    float *x = filled(R * C, 1, 1), *dy = filled(R * C, 2, 1), *dx = filled(R * C, 3, 1);
    float *mean = filled(R, 4, 1), *rstd = filled(R, 5, 1), *y = filled(R * C, 6, 1);
    float gamma[C], grads[2 * C], want[2 * C], scratch[8 * C];
    for (size_t i = 0; i < R * C; i++) x[i] += (float)(i % C), dy[i] += 1;
    for (size_t i = 0; i < C; i++) gamma[i] = 1;
    sh_ref_layernorm_forward(x, gamma, NULL, 1e-5f, R, C, y, mean, rstd);
    sh_layernorm_backward a = {.rows = R,
                               .C = C,
                               .dy = dy,
                               .x = x,
                               .gamma = gamma,
                               .mean = mean,
                               .rstd = rstd,
                               .dx = dx,
                               .dgamma = want,
                               .dbeta = want + C,
                               .scratch = scratch,
                               .scratch_floats = SH_COUNT(scratch)};
    sh_ref_layernorm_backward(&a);
    a.dgamma = grads, a.dbeta = grads + C;
    sh_layernorm()->backward(&a);
    CHECK_CLOSE(grads, want, 2 * C, 1e-6);
    free(x), free(dy), free(dx), free(mean), free(rstd), free(y);
}

TEST(layernorm, keeps_the_digits_of_gradients_over_many_rows) { each_setting(many_rows); }

/* Rows whose variance is no larger than epsilon: nearly all of 1 / sqrt(variance + eps) is eps. */
static void layernorm_epsilon(void) {
    enum { R = 3, C = 37, N = R * C };
    const float epsilons[] = {1e-5f, 1e-3f, 0.25f};
    float y[N], y_want[N], mean[R], mean_want[R], rstd[R], rstd_want[R];
    float *x = filled(N, 1, 1e-3f), *gamma = filled(C, 2, 1);
    for (size_t e = 0; e < SH_COUNT(epsilons); e++) {
        sh_layernorm()->forward(x, gamma, NULL, epsilons[e], R, C, y, mean, rstd);
        sh_ref_layernorm_forward(x, gamma, NULL, epsilons[e], R, C, y_want, mean_want, rstd_want);
        CHECK_CLOSE(rstd, rstd_want, R, 1e-6);
        CHECK_CLOSE(y, y_want, N, 1e-6);
    }
    free(x), free(gamma);
}

TEST(layernorm, adds_epsilon_to_the_variance) { each_setting(layernorm_epsilon); }

typedef struct layer_run {
    float *x, *gamma, *beta, *y, *mean, *rstd;
    size_t rows, C;
} layer_run;

static void run_layernorm(void *context) {
    layer_run *r = context;
    sh_layernorm()->forward(r->x, r->gamma, r->beta, 1e-5f, r->rows, r->C, r->y, r->mean, r->rstd);
}

TEST(layernorm, gradients_match_finite_differences) {
    enum { R = 5, C = 13, N = R * C };
    float y[N], mean[R], rstd[R], dx[N], dgamma[C], dbeta[C], scratch[4 * C];
    float *x = filled(N, 1, 2), *gamma = filled(C, 2, 1), *beta = filled(C, 3, 1);
    float *dy = filled(N, 4, 1);
    layer_run r = {x, gamma, beta, y, mean, rstd, R, C};
    run_layernorm(&r);
    sh_layernorm_backward a = {.rows = R,
                               .C = C,
                               .dy = dy,
                               .x = x,
                               .gamma = gamma,
                               .mean = mean,
                               .rstd = rstd,
                               .dx = dx,
                               .dgamma = dgamma,
                               .dbeta = dbeta,
                               .scratch = scratch,
                               .scratch_floats = SH_COUNT(scratch)};
    sh_layernorm()->backward(&a);
    check_slopes(run_layernorm, &r, x, N, y, dy, N, dx, 1e-2, 1e-3);
    check_slopes(run_layernorm, &r, gamma, C, y, dy, N, dgamma, 1e-2, 1e-3);
    check_slopes(run_layernorm, &r, beta, C, y, dy, N, dbeta, 1e-2, 1e-3);
    free(x), free(gamma), free(beta), free(dy);
}

static const sh_batchnorm_shape IMAGES[] = {
    {2, 8, 9, 8},     {3, 16, 4, 8},  {5, 3, 7, 1},    {2, 6, 33, 3},   {1, 16, 600, 16},
    {4, 24, 1030, 8}, {70, 12, 1, 1}, {33, 20, 1, 20}, {2, 2, 4500, 1}, {6, 4, 5, 2},
};

typedef struct batch_data {
    size_t n;
    float *x, *y, *residual, *dy, *dx, *dresidual;        // [n]
    float *gamma, *beta, *mean, *rstd, *running, *grads;  // [C], the last two [2C]
} batch_data;

static batch_data batch_create(const sh_batchnorm_shape *s, float offset) {
    size_t n = s->outer * s->channels * s->inner, C = s->channels;
    batch_data d = {n,
                    filled(n, 1, 2),
                    filled(n, 2, 1),
                    filled(n, 3, 1),
                    filled(n, 4, 1),
                    filled(n, 5, 1),
                    filled(n, 6, 1),
                    filled(C, 7, 2),
                    filled(C, 8, 1),
                    filled(C, 9, 1),
                    filled(C, 10, 1),
                    filled(2 * C, 11, 1),
                    filled(2 * C, 12, 1)};
    for (size_t i = 0; i < n; i++) d.x[i] += offset;
    for (size_t i = 0; i < 2 * C; i++) d.running[i] += 2;
    return d;
}

static void batch_free(batch_data *d) {
    free(d->x), free(d->y), free(d->residual), free(d->dy), free(d->dx), free(d->dresidual);
    free(d->gamma), free(d->beta), free(d->mean), free(d->rstd), free(d->running), free(d->grads);
}

static sh_batchnorm_forward forward_args(const sh_batchnorm_shape *s, batch_data *d, bool relu,
                                         bool residual) {
    return (sh_batchnorm_forward){.shape = *s,
                                  .x = d->x,
                                  .gamma = d->gamma,
                                  .beta = d->beta,
                                  .residual = residual ? d->residual : NULL,
                                  .y = d->y,
                                  .mean = d->mean,
                                  .rstd = d->rstd,
                                  .running_mean = d->running,
                                  .running_var = d->running + s->channels,
                                  .eps = 1e-5f,
                                  .momentum = 0.1f,
                                  .relu = relu};
}

static sh_batchnorm_backward backward_args(const sh_batchnorm_shape *s, batch_data *d, bool relu,
                                           bool residual) {
    return (sh_batchnorm_backward){.shape = *s,
                                   .dy = d->dy,
                                   .x = d->x,
                                   .gamma = d->gamma,
                                   .mean = d->mean,
                                   .rstd = d->rstd,
                                   .y = relu ? d->y : NULL,
                                   .dx = d->dx,
                                   .dresidual = residual ? d->dresidual : NULL,
                                   .dgamma = d->grads,
                                   .dbeta = d->grads + s->channels,
                                   .accumulate = residual};
}

static void check_batchnorm(const sh_batchnorm_shape *s, bool relu, bool residual, float offset) {
    batch_data got = batch_create(s, offset), want = batch_create(s, offset);
    size_t n = got.n, C = s->channels;
    sh_batchnorm_forward f = forward_args(s, &got, relu, residual);
    sh_batchnorm_forward fw = forward_args(s, &want, relu, residual);
    double loose = 2e-5 * fmax(1, (double)offset);
    sh_batchnorm()->infer(&f);
    sh_ref_batchnorm_infer(&fw);
    CHECK_CLOSE(got.y, want.y, n, 2e-5);
    sh_batchnorm()->train(&f);
    sh_ref_batchnorm_train(&fw);
    CHECK_CLOSE(got.mean, want.mean, C, 1e-6);
    CHECK_CLOSE(got.rstd, want.rstd, C, 1e-5);
    CHECK_CLOSE(got.running, want.running, 2 * C, 2e-6);
    CHECK_CLOSE(got.y, want.y, n, loose);

    memcpy(got.y, want.y, n * sizeof *got.y);  // one mask for both
    sh_batchnorm_backward b = backward_args(s, &got, relu, residual);
    sh_batchnorm_backward bw = backward_args(s, &want, relu, residual);
    sh_batchnorm()->backward(&b);
    sh_ref_batchnorm_backward(&bw);
    CHECK_CLOSE(got.dx, want.dx, n, loose);
    CHECK_CLOSE(got.grads, want.grads, 2 * C, loose);
    if (residual) assert_memory_equal(got.dresidual, want.dresidual, n * sizeof *got.dx);

    b.dx = got.dy;  // in place
    sh_batchnorm()->backward(&b);
    assert_memory_equal(got.dy, got.dx, n * sizeof *got.dx);
    float *y = copied(got.x, n);  // likewise
    f.running_mean = want.running, f.running_var = want.running + C;
    sh_batchnorm()->infer(&f);
    f.x = f.y = y;
    sh_batchnorm()->infer(&f);
    assert_memory_equal(y, got.y, n * sizeof *y);
    free(y);
    batch_free(&got), batch_free(&want);
}

static void batchnorm(void) {
    for (size_t i = 0; i < SH_COUNT(IMAGES); i++)
        for (int mode = 0; mode < 4; mode++) check_batchnorm(&IMAGES[i], mode & 1, mode & 2, 0.5f);
}

TEST(batchnorm, matches_reference) { each_setting(batchnorm); }

/* E[x^2] - E[x]^2 in float would lose everything here. */
static void far_mean(void) {
    check_batchnorm(&IMAGES[5], false, false, 100.0f);
    check_batchnorm(&IMAGES[8], false, false, 100.0f);
}

/* A batch cut in two, with the sums of both halves added, is the whole batch. */
static void halves(void) {
    for (size_t i = 0; i < SH_COUNT(IMAGES); i++) {
        sh_batchnorm_shape s = IMAGES[i], half = s;
        if (s.outer % 2 != 0) continue;
        half.outer = s.outer / 2;
        size_t C = s.channels, part = half.outer * C * s.inner;
        batch_data whole = batch_create(&s, 0.5f), cut = batch_create(&s, 0.5f);
        sh_batchnorm_forward f = forward_args(&s, &whole, true, false);
        sh_batchnorm()->train(&f);
        sh_batchnorm_backward b = backward_args(&s, &whole, true, false);
        b.accumulate = false;
        sh_batchnorm()->backward(&b);

        double *sums = calloc(6 * C, sizeof *sums), *all = sums + 4 * C;
        double count = (double)(s.outer * s.inner);
        float *running = copied(cut.running, 2 * C);  // each half has its own copy
        for (size_t h = 0; h < 2; h++) {
            f = forward_args(&half, &cut, true, false);
            f.x += h * part;
            sh_batchnorm()->train_sums(&f, sums + h * 2 * C);
        }
        for (size_t k = 0; k < 2 * C; k++) all[k] = sums[k] + sums[2 * C + k];
        for (size_t h = 0; h < 2; h++) {
            f = forward_args(&half, &cut, true, false);
            f.x += h * part, f.y += h * part;
            memcpy(cut.running, running, 2 * C * sizeof *running);
            sh_batchnorm()->train_rest(&f, all, count);
        }
        CHECK_CLOSE(cut.running, whole.running, 2 * C, 2e-6);
        CHECK_CLOSE(cut.y, whole.y, whole.n, 1e-5);
        memcpy(cut.y, whole.y, whole.n * sizeof *cut.y);  // one mask for both
        for (size_t h = 0; h < 2; h++) {
            b = backward_args(&half, &cut, true, false);
            b.dy += h * part, b.x += h * part, b.y += h * part, b.accumulate = h == 1;
            sh_batchnorm()->backward_sums(&b, sums + h * 2 * C);
        }
        for (size_t k = 0; k < 2 * C; k++) all[k] = sums[k] + sums[2 * C + k];
        for (size_t h = 0; h < 2; h++) {
            b = backward_args(&half, &cut, true, false);
            b.dy += h * part, b.x += h * part, b.y += h * part, b.dx += h * part;
            sh_batchnorm()->backward_rest(&b, all, count);
        }
        CHECK_CLOSE(cut.dx, whole.dx, whole.n, 2e-5);
        CHECK_CLOSE(cut.grads, whole.grads, 2 * C, 2e-5);
        free(running), free(sums);
        batch_free(&whole), batch_free(&cut);
    }
}

TEST(batchnorm, halves_with_added_sums_are_the_whole) { each_setting(halves); }

TEST(batchnorm, bears_a_mean_far_from_zero) { each_setting(far_mean); }

static void run_batchnorm(void *context) { sh_batchnorm()->train(context); }

TEST(batchnorm, gradients_match_finite_differences) {
    const sh_batchnorm_shape shapes[] = {{3, 8, 5, 8}, {3, 3, 5, 1}, {12, 5, 1, 5}};
    for (size_t i = 0; i < SH_COUNT(shapes); i++) {
        const sh_batchnorm_shape *s = &shapes[i];
        batch_data d = batch_create(s, 0);
        sh_batchnorm_forward f = forward_args(s, &d, false, true);
        sh_batchnorm()->train(&f);
        sh_batchnorm_backward b = backward_args(s, &d, false, true);
        b.accumulate = false;
        sh_batchnorm()->backward(&b);
        check_slopes(run_batchnorm, &f, d.x, d.n, d.y, d.dy, d.n, d.dx, 1e-2, 1e-3);
        check_slopes(run_batchnorm, &f, d.gamma, s->channels, d.y, d.dy, d.n, d.grads, 1e-2, 1e-3);
        check_slopes(run_batchnorm, &f, d.beta, s->channels, d.y, d.dy, d.n, d.grads + s->channels,
                     1e-2, 1e-3);
        check_slopes(run_batchnorm, &f, d.residual, d.n, d.y, d.dy, d.n, d.dresidual, 1e-2, 1e-3);
        batch_free(&d);
    }
}
