/* Every optimizer against its paper's formula, written out here in plain double precision. */
#include "harness.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "optim/optim.h"
#include "tensor/kernels/simd.h"

enum { STEPS = 7, PARAMS = 7 };

typedef struct problem {
    sh_param_list params;
    float *weights, *gradients;
    double *w, *m, *v;  // the reference
} problem;

/* Odd sizes, neighbours alike and unlike, one long enough for several threads and one of zeros. */
static problem problem_make(void) {
    problem p = {0};
    const sh_shape shapes[PARAMS] = {SH_SHAPE(13, 7),    SH_SHAPE(13), SH_SHAPE(3, 5, 3),
                                     SH_SHAPE(257, 139), SH_SHAPE(1),  SH_SHAPE(9),
                                     SH_SHAPE(4, 3)};
    const bool decays[PARAMS] = {true, false, true, true, false, false, true};
    for (int i = 0; i < PARAMS; i++) {
        char name[2] = {(char)('a' + i), 0};
        CHECK_OK(sh_param_list_add(&p.params, name, shapes[i], decays[i], NULL));
    }
    size_t total = p.params.total;
    p.weights = sh_alloc(total, sizeof *p.weights);
    p.gradients = sh_alloc(total, sizeof *p.gradients);
    p.w = sh_alloc(total, sizeof *p.w);
    p.m = sh_alloc(total, sizeof *p.m);
    p.v = sh_alloc(total, sizeof *p.v);
    sh_test_fill(p.weights, total, 1);
    const sh_param *zeros = &p.params.items[PARAMS - 1];
    memset(p.weights + zeros->offset, 0, zeros->count * sizeof(float));
    for (size_t i = 0; i < total; i++) p.w[i] = (double)p.weights[i];
    return p;
}

static void problem_free(problem *p) {
    sh_param_list_fini(&p->params);
    sh_free(p->weights);
    sh_free(p->gradients);
    sh_free(p->w);
    sh_free(p->m);
    sh_free(p->v);
}

static sh_optim_options unset(const char *name) {
    return (sh_optim_options){
        .name = (char *)(uintptr_t)name,
        .lr = NAN,
        .momentum = NAN,
        .beta1 = NAN,
        .beta2 = NAN,
        .epsilon = NAN,
        .weight_decay = NAN,
        .dampening = NAN,
        .trust = NAN,
        .rho = NAN,
    };
}

/* One parameter of `count` elements; g is scaled already, `decay` is 0 where none applies. */
typedef struct layer {
    double *w, *m, *v, *g;
    size_t count;
    double decay, lr;
    bool matrix;
    int step;  // from 1
} layer;

typedef void (*reference)(const sh_optim_options *o, layer l);

static void reference_sgd(const sh_optim_options *o, layer l) {
    for (size_t i = 0; i < l.count; i++) {
        double g = l.g[i] + l.decay * l.w[i];
        if (o->momentum != 0) {
            l.m[i] = l.step == 1 ? g : o->momentum * l.m[i] + (1 - o->dampening) * g;
            g = l.m[i];
        }
        l.w[i] -= l.lr * g;
    }
}

static void reference_nesterov(const sh_optim_options *o, layer l) {
    for (size_t i = 0; i < l.count; i++) {
        double g = l.g[i] + l.decay * l.w[i];
        l.m[i] = o->momentum * l.m[i] + g;
        l.w[i] -= l.lr * (g + o->momentum * l.m[i]);
    }
}

static double moments(const sh_optim_options *o, layer l, size_t i, double g) {
    l.m[i] = o->beta1 * l.m[i] + (1 - o->beta1) * g;
    l.v[i] = o->beta2 * l.v[i] + (1 - o->beta2) * g * g;
    double m = l.m[i] / (1 - pow(o->beta1, l.step)), v = l.v[i] / (1 - pow(o->beta2, l.step));
    return m / (sqrt(v) + o->epsilon);
}

static void reference_adam(const sh_optim_options *o, layer l) {
    for (size_t i = 0; i < l.count; i++)
        l.w[i] -= l.lr * moments(o, l, i, l.g[i] + l.decay * l.w[i]);
}

static void reference_adamw(const sh_optim_options *o, layer l) {
    for (size_t i = 0; i < l.count; i++)
        l.w[i] -= l.lr * (moments(o, l, i, l.g[i]) + l.decay * l.w[i]);
}

static void reference_adagrad(const sh_optim_options *o, layer l) {
    for (size_t i = 0; i < l.count; i++) {
        double g = l.g[i] + l.decay * l.w[i];
        l.m[i] += g * g;
        l.w[i] -= l.lr * g / (sqrt(l.m[i]) + o->epsilon);
    }
}

static void reference_rmsprop(const sh_optim_options *o, layer l) {
    for (size_t i = 0; i < l.count; i++) {
        double g = l.g[i] + l.decay * l.w[i];
        l.m[i] = o->rho * l.m[i] + (1 - o->rho) * g * g;
        l.v[i] = o->momentum * l.v[i] + g / (sqrt(l.m[i]) + o->epsilon);
        l.w[i] -= l.lr * l.v[i];
    }
}

static double norm(const double *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static void reference_lars(const sh_optim_options *o, layer l) {
    double w = norm(l.w, l.count), g = norm(l.g, l.count);
    double ratio = l.matrix && w > 0 && g > 0 ? o->trust * w / (g + l.decay * w) : 1;
    for (size_t i = 0; i < l.count; i++) {
        l.m[i] = o->momentum * l.m[i] + l.lr * ratio * (l.g[i] + l.decay * l.w[i]);
        l.w[i] -= l.m[i];
    }
}

static void reference_lamb(const sh_optim_options *o, layer l) {
    double *u = sh_alloc(l.count, sizeof *u);
    for (size_t i = 0; i < l.count; i++) u[i] = moments(o, l, i, l.g[i]) + l.decay * l.w[i];
    double w = norm(l.w, l.count), d = norm(u, l.count);
    double ratio = l.matrix && w > 0 && d > 0 ? w / d : 1;
    for (size_t i = 0; i < l.count; i++) l.w[i] -= l.lr * ratio * u[i];
    sh_free(u);
}

static void reference_step(problem *p, const sh_optim_options *o, reference rule, double scale,
                           double lr, int step) {
    double *g = sh_alloc(p->params.total, sizeof *g);
    for (size_t i = 0; i < p->params.total; i++) g[i] = scale * (double)p->gradients[i];
    for (size_t i = 0; i < p->params.count; i++) {
        const sh_param *param = &p->params.items[i];
        size_t at = param->offset;
        rule(o, (layer){.w = p->w + at,
                        .m = p->m + at,
                        .v = p->v + at,
                        .g = g + at,
                        .count = param->count,
                        .decay = param->decays || o->decay_all ? o->weight_decay : 0,
                        .lr = lr,
                        .matrix = param->decays,
                        .step = step});
    }
    sh_free(g);
}

/* Runs both for a few steps with a changing learning rate and compares after each. */
static void check_rule(sh_optim_options options, reference rule) {
    problem p = problem_make();
    sh_optim optim;
    CHECK_OK(sh_optim_init(&optim, &options, p.params.total));
    float *expected = sh_alloc(p.params.total, sizeof *expected);
    for (int step = 1; step <= STEPS; step++) {
        sh_test_fill(p.gradients, p.params.total, 100 + (uint64_t)step);
        double lr = optim.options.lr * (1 + 0.1 * step);
        reference_step(&p, &optim.options, rule, 0.75, lr, step);
        sh_optim_apply(&optim, &(sh_optim_step){.params = &p.params,
                                                .count = p.params.count,
                                                .weights = p.weights,
                                                .gradients = p.gradients,
                                                .gradient_scale = 0.75f,
                                                .lr = lr,
                                                .step = step});
        for (size_t i = 0; i < p.params.total; i++) expected[i] = (float)p.w[i];
        CHECK_CLOSE(p.weights, expected, p.params.total, 3e-6);
    }
    sh_free(expected);
    sh_optim_fini(&optim);
    problem_free(&p);
}

/* Plain, with decay on matrices, with decay on everything; all instruction sets. */
static void check_all(sh_optim_options options, reference rule) {
    for (int level = SH_SIMD_BASE; level <= SH_SIMD_MOST; level++) {
        sh_simd_limit((sh_simd_level)level);
        options.decay_all = false;
        options.weight_decay = 0;
        check_rule(options, rule);
        options.weight_decay = 0.03;
        check_rule(options, rule);
        options.decay_all = true;
        check_rule(options, rule);
    }
}

static sh_optim_options with_momentum(const char *name, double momentum) {
    sh_optim_options options = unset(name);
    options.momentum = momentum;
    return options;
}

TEST(optim, sgd_follows_its_formula) { check_all(unset("sgd"), reference_sgd); }
TEST(optim, sgd_takes_momentum) { check_all(with_momentum("sgd", 0.8), reference_sgd); }
TEST(optim, momentum_follows_its_formula) { check_all(unset("momentum"), reference_sgd); }
TEST(optim, momentum_can_be_dampened) {
    sh_optim_options options = unset("momentum");
    options.dampening = 0.25;
    check_all(options, reference_sgd);
}
TEST(optim, nesterov_follows_its_formula) { check_all(unset("nesterov"), reference_nesterov); }
TEST(optim, adam_follows_its_formula) { check_all(unset("adam"), reference_adam); }
TEST(optim, adamw_follows_its_formula) { check_all(unset("adamw"), reference_adamw); }
TEST(optim, adagrad_follows_its_formula) { check_all(unset("adagrad"), reference_adagrad); }
TEST(optim, rmsprop_follows_its_formula) { check_all(unset("rmsprop"), reference_rmsprop); }
TEST(optim, rmsprop_takes_momentum) { check_all(with_momentum("rmsprop", 0.5), reference_rmsprop); }
TEST(optim, lars_follows_its_formula) {
    sh_optim_options options = unset("lars");
    options.lr = 0.5;
    options.trust = 0.02;
    check_all(options, reference_lars);
}
TEST(optim, lamb_follows_its_formula) { check_all(unset("lamb"), reference_lamb); }

/* Three steps of every kind, each cut into `pieces` calls of whole parameters. */
static void run_in_pieces(problem *p, const char *name, double weight_decay, size_t pieces) {
    sh_optim optim;
    sh_optim_options options = unset(name);
    options.weight_decay = weight_decay;
    CHECK_OK(sh_optim_init(&optim, &options, p->params.total));
    for (int step = 1; step <= 3; step++) {
        sh_test_fill(p->gradients, p->params.total, (uint64_t)step);
        for (size_t piece = 0; piece < pieces; piece++) {
            size_t first = p->params.count * piece / pieces;
            size_t end = p->params.count * (piece + 1) / pieces;
            sh_optim_apply(&optim, &(sh_optim_step){.params = &p->params,
                                                    .first = first,
                                                    .count = end - first,
                                                    .weights = p->weights,
                                                    .gradients = p->gradients,
                                                    .gradient_scale = 0.3f,
                                                    .lr = optim.options.lr,
                                                    .step = step});
        }
    }
    sh_optim_fini(&optim);
}

static void check_pieces(const char *name, double weight_decay) {
    problem whole = problem_make();
    run_in_pieces(&whole, name, weight_decay, 1);
    for (size_t pieces = 3; pieces <= PARAMS; pieces += 4) {
        problem parts = problem_make();
        run_in_pieces(&parts, name, weight_decay, pieces);
        assert_memory_equal(whole.weights, parts.weights, whole.params.total * sizeof(float));
        problem_free(&parts);
    }
    problem_free(&whole);
}

TEST(optim, buckets_give_the_same_bits_as_one_call) {
    for (int level = SH_SIMD_BASE; level <= SH_SIMD_MOST; level++) {
        sh_simd_limit((sh_simd_level)level);
        for (size_t kind = 0; sh_optim_at(kind) != NULL; kind++) {
            check_pieces(sh_optim_at(kind)->name, 0);
            check_pieces(sh_optim_at(kind)->name, 0.02);
        }
    }
}

TEST(optim, thread_counts_give_the_same_bits) {
    int threads = omp_get_max_threads();
    for (size_t kind = 0; sh_optim_at(kind) != NULL; kind++) {
        problem one = problem_make(), three = problem_make();
        omp_set_num_threads(1);
        run_in_pieces(&one, sh_optim_at(kind)->name, 0.02, 1);
        omp_set_num_threads(3);
        run_in_pieces(&three, sh_optim_at(kind)->name, 0.02, 1);
        assert_memory_equal(one.weights, three.weights, one.params.total * sizeof(float));
        problem_free(&one);
        problem_free(&three);
    }
    omp_set_num_threads(threads);
}

static size_t count_runs(const problem *p, double weight_decay, bool decay_all, bool adaptive) {
    sh_optim_options options = {.weight_decay = weight_decay, .decay_all = decay_all};
    sh_optim_step step = {.params = &p->params, .count = p->params.count};
    size_t runs = 0, next = 0, covered = 0;
    sh_optim_run run;
    for (; sh_optim_next_run(&options, &step, adaptive, &next, &run); runs++) {
        assert_int_equal(run.at, covered);  // in order and without gaps
        covered += run.count;
    }
    assert_int_equal(covered, p->params.total);
    return runs;
}

TEST(optim, neighbours_treated_alike_are_one_run) {
    problem p = problem_make();
    assert_int_equal(count_runs(&p, 0, false, false), 1);
    assert_int_equal(count_runs(&p, 0.1, true, false), 1);
    assert_int_equal(count_runs(&p, 0.1, false, false), 5);  // W b WW bb W
    assert_int_equal(count_runs(&p, 0.1, false, true), 6);   // W b W W bb W
    problem_free(&p);
}

TEST(optim, slots_are_only_those_in_use) {
    sh_optim optim;
    sh_optim_options options = unset("sgd");
    CHECK_OK(sh_optim_init(&optim, &options, 100));
    assert_int_equal(optim.slot_count, 0);
    assert_null(optim.slots[0]);
    sh_optim_fini(&optim);
    options.momentum = 0.9;
    CHECK_OK(sh_optim_init(&optim, &options, 100));
    assert_int_equal(optim.slot_count, 1);
    assert_non_null(optim.slots[0]);
    assert_null(optim.slots[1]);
    sh_optim_fini(&optim);
    options = unset("adamw");
    CHECK_OK(sh_optim_init(&optim, &options, 100));
    assert_int_equal(optim.slot_count, 2);
    for (int slot = 0; slot < 2; slot++) {
        assert_int_equal((uintptr_t)optim.slots[slot] % SH_ALIGN, 0);
        for (size_t i = 0; i < 100; i++) assert_true(optim.slots[slot][i] == 0);
    }
    sh_optim_fini(&optim);
}

TEST(optim, options_are_checked) {
    sh_optim optim;
    sh_optim_options options = unset("sdg");
    CHECK_FAILS(SH_E_USAGE, "no optimizer 'sdg'", sh_optim_init(&optim, &options, 1));
    assert_non_null(strstr(sh_error_last()->hint, "sgd, momentum"));
    options = unset("sgd");
    options.beta1 = 0.9;
    CHECK_FAILS(SH_E_USAGE, "'sgd' has no option 'beta1'", sh_optim_init(&optim, &options, 1));
    options = unset("adam");
    options.beta2 = 1;
    CHECK_FAILS(SH_E_USAGE, "beta2 is 1", sh_optim_init(&optim, &options, 1));
    options = unset("sgd");
    options.lr = -1;
    CHECK_FAILS(SH_E_USAGE, "lr is -1", sh_optim_init(&optim, &options, 1));
    options.lr = INFINITY;
    CHECK_FAILS(SH_E_USAGE, "lr is inf", sh_optim_init(&optim, &options, 1));
    options = unset("adam");
    CHECK_FAILS(SH_E_MEMORY, "does not fit", sh_optim_init(&optim, &options, SIZE_MAX / 8));
}

TEST(optim, steps_do_not_allocate) {
    problem p = problem_make();
    for (size_t kind = 0; sh_optim_at(kind) != NULL; kind++) {
        sh_optim optim;
        sh_optim_options options = unset(sh_optim_at(kind)->name);
        CHECK_OK(sh_optim_init(&optim, &options, p.params.total));
        sh_optim_step step = {.params = &p.params,
                              .count = p.params.count,
                              .weights = p.weights,
                              .gradients = p.gradients,
                              .gradient_scale = 1,
                              .lr = 0.1,
                              .step = 1};
        uint64_t before = sh_alloc_calls();
        sh_optim_apply(&optim, &step);
        assert_int_equal(sh_alloc_calls(), before);
        sh_optim_fini(&optim);
    }
    problem_free(&p);
}

/* The other elements of a parameter, whose owner adds its part of the norms. */
typedef struct other_part {
    const float *w, *g;
    size_t low, high, count;  // all but low .. high - 1
} other_part;

static void add_other_part(void *self, double *values, size_t count) {
    const other_part *o = self;
    assert_int_equal(count, 2);
    for (size_t i = 0; i < o->count; i++) {
        if (i >= o->low && i < o->high) continue;
        values[0] += (double)o->w[i] * (double)o->w[i];
        values[1] += (double)o->g[i] * (double)o->g[i];
    }
}

TEST(optim, lars_takes_norms_of_whole_parameters_where_it_has_a_part) {
    enum { COUNT = 91, CUT = 30 };
    sh_param_list params = {0};
    float whole[COUNT], parts[COUNT], before[COUNT], gradients[COUNT];
    CHECK_OK(sh_param_list_add(&params, "a", SH_SHAPE(13, 7), true, NULL));
    sh_test_fill(before, COUNT, 1);
    sh_test_fill(gradients, COUNT, 2);
    for (int i = 0; i < CUT; i++) gradients[i] *= 5;  // so that the parts have ratios of their own
    memcpy(whole, before, sizeof whole);
    memcpy(parts, before, sizeof parts);
    for (int piece = 0; piece < 3; piece++) {  // the whole, then both parts
        sh_optim optim;
        other_part other = {.w = before, .g = gradients, .count = COUNT};
        other.low = piece == 2 ? CUT : 0;
        other.high = piece == 1 ? CUT : COUNT;
        CHECK_OK(sh_optim_init(&optim,
                               &(sh_optim_options){.name = (char *)(uintptr_t) "lars",
                                                   .lr = 0.5,
                                                   .momentum = NAN,
                                                   .beta1 = NAN,
                                                   .beta2 = NAN,
                                                   .epsilon = NAN,
                                                   .weight_decay = NAN,
                                                   .dampening = NAN,
                                                   .trust = NAN,
                                                   .rho = NAN},
                               COUNT));
        sh_optim_apply(&optim, &(sh_optim_step){.params = &params,
                                                .count = 1,
                                                .windowed = piece > 0,
                                                .low = other.low,
                                                .high = other.high,
                                                .sum = piece > 0 ? add_other_part : NULL,
                                                .sum_self = &other,
                                                .weights = piece > 0 ? parts : whole,
                                                .gradients = gradients,
                                                .gradient_scale = 1,
                                                .lr = 0.5,
                                                .step = 1});
        sh_optim_fini(&optim);
    }
    CHECK_CLOSE(whole, parts, COUNT, 1e-6);
    sh_param_list_fini(&params);
}

TEST(optim, parameters_without_a_gradient_stay_as_they_are) {
    const sh_optim_kind *kind;
    for (size_t k = 0; (kind = sh_optim_at(k)) != NULL; k++) {
        problem p = problem_make();
        sh_optim optim;
        bool unused[PARAMS] = {[1] = true, [2] = true, [5] = true};
        float *before = sh_alloc(p.params.total, sizeof *before);
        memcpy(before, p.weights, p.params.total * sizeof *before);
        sh_test_fill(p.gradients, p.params.total, 7);
        CHECK_OK(sh_optim_init(&optim,
                               &(sh_optim_options){.name = (char *)(uintptr_t)kind->name,
                                                   .lr = 0.1,
                                                   .momentum = NAN,
                                                   .beta1 = NAN,
                                                   .beta2 = NAN,
                                                   .epsilon = NAN,
                                                   .weight_decay = NAN,
                                                   .dampening = NAN,
                                                   .trust = NAN,
                                                   .rho = NAN},
                               p.params.total));
        sh_optim_apply(&optim, &(sh_optim_step){.params = &p.params,
                                                .count = p.params.count,
                                                .unused = unused,
                                                .weights = p.weights,
                                                .gradients = p.gradients,
                                                .gradient_scale = 1,
                                                .lr = 0.1,
                                                .step = 1});
        for (int i = 0; i < PARAMS; i++) {
            const sh_param *param = &p.params.items[i];
            bool same = memcmp(before + param->offset, p.weights + param->offset,
                               param->count * sizeof *before) == 0;
            if (same != unused[i]) fail_msg("%s: parameter %d", kind->name, i);
        }
        sh_optim_fini(&optim);
        sh_free(before);
        problem_free(&p);
    }
}
