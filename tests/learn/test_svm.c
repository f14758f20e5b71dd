#include "learn/svm.h"

#include <libsvm/svm.h>
#include <math.h>
#include <stdlib.h>

#include "learn/rig.h"

typedef struct trial {
    rig_data data;
    sh_svm_options options;
    bool sparse;
    sh_svm_model model;  // of rank 0
    uint64_t training_bytes[8];
} trial;

static sh_status fit(sh_learn_team *team, void *argument) {
    trial *t = argument;
    sh_learn_team alone = sh_learn_alone(1);
    sh_rows rows = rig_rows(&t->data, team, t->sparse), all = rig_rows(&t->data, &alone, t->sparse);
    sh_svm_model model = {0};
    sh_status status = sh_svm_train(&t->options, &rows, &all, team, &model);
    if (status == SH_OK) t->training_bytes[team->rank] = model.training_bytes;
    if (team->rank == 0 && status == SH_OK) {
        sh_svm_model_fini(&t->model);
        t->model = model;
    } else {
        sh_svm_model_fini(&model);
    }
    sh_rows_fini(&rows);
    sh_rows_fini(&all);
    return status;
}

static void trial_fini(trial *t) {
    sh_svm_model_fini(&t->model);
    rig_data_fini(&t->data);
}

/* ---- libsvm on the same problem ---- */

typedef struct oracle {
    struct svm_problem problem;
    struct svm_node *nodes;
    struct svm_model *model;
} oracle;

static void silent(const char *text) { (void)text; }

static oracle oracle_train(const trial *t, double tolerance) {
    const rig_data *d = &t->data;
    oracle o = {.problem = {.l = (int)d->rows}};
    o.nodes = calloc(d->rows * (d->width + 1), sizeof *o.nodes);
    o.problem.x = calloc(d->rows, sizeof *o.problem.x);
    o.problem.y = d->target;
    for (size_t i = 0; i < d->rows; i++) {
        struct svm_node *at = o.problem.x[i] = o.nodes + i * (d->width + 1);
        for (size_t j = 0; j < d->width; j++)
            *at++ = (struct svm_node){(int)j + 1, (double)d->x[i * d->width + j]};
        at->index = -1;
    }
    static const int kernels[] = {LINEAR, POLY, RBF};
    struct svm_parameter parameter = {.svm_type = d->classes > 0 ? C_SVC : EPSILON_SVR,
                                      .kernel_type = kernels[t->options.kernel.kind],
                                      .degree = t->options.kernel.degree,
                                      .gamma = t->options.kernel.gamma,
                                      .coef0 = t->options.kernel.coef0,
                                      .cache_size = 50,
                                      .eps = tolerance,
                                      .C = t->options.c,
                                      .p = t->options.epsilon,
                                      .shrinking = 1};
    svm_set_print_string_function(silent);
    o.model = svm_train(&o.problem, &parameter);
    return o;
}

static void oracle_fini(oracle *o) {
    svm_free_and_destroy_model(&o->model);
    free(o->problem.x);
    free(o->nodes);
}

/* The dual's value of a model of two classes, or a regression, from its vectors alone. */
static double dual(const trial *t, size_t vectors, const float *x, const double *factor,
                   const double *linear) {
    double sum = 0;
    size_t width = t->data.width;
    for (size_t i = 0; i < vectors; i++) {
        sum += linear[i];
        for (size_t j = 0; j < vectors; j++) {
            double dot = 0, a = 0, b = 0;
            for (size_t k = 0; k < width; k++) {
                double u = (double)x[i * width + k], v = (double)x[j * width + k];
                dot += u * v;
                a += u * u;
                b += v * v;
            }
            sum += factor[i] * factor[j] * sh_kernel_value(&t->options.kernel, dot, a, b) / 2;
        }
    }
    return sum;
}

/* That of libsvm's model, by the rows that its vectors are. */
static double oracle_dual(const trial *t, const oracle *o) {
    size_t n = (size_t)o->model->l, width = t->data.width;
    float *x = calloc(n * width, sizeof *x);
    double *linear = calloc(n, sizeof *linear);
    for (size_t i = 0; i < n; i++) {
        size_t row = (size_t)o->model->sv_indices[i] - 1;
        memcpy(x + i * width, t->data.x + row * width, width * sizeof *x);
        double factor = o->model->sv_coef[0][i];
        linear[i] = t->data.classes > 0
                        ? -fabs(factor)
                        : t->options.epsilon * fabs(factor) - t->data.target[row] * factor;
    }
    double value = dual(t, n, x, o->model->sv_coef[0], linear);
    free(x);
    free(linear);
    return value;
}

/* The same rows are vectors: every vector of ours is a row with a factor in libsvm's model. */
static void expect_same_vectors(const trial *t, const oracle *o) {
    size_t found = 0, width = t->data.width;
    for (int i = 0; i < o->model->l; i++) {
        const float *row = t->data.x + ((size_t)o->model->sv_indices[i] - 1) * width;
        for (size_t v = 0; v < t->model.vectors; v++)
            if (memcmp(row, t->model.x + v * width, width * sizeof *row) == 0) {
                found++;
                break;
            }
    }
    assert_int_equal(t->model.vectors, o->model->l);
    assert_int_equal(found, t->model.vectors);
}

static const sh_kernel rbf = {.kind = SH_KERNEL_RBF, .gamma = 0.1};

static sh_svm_options exact(sh_kernel kernel) {
    return (sh_svm_options){.kernel = kernel,
                            .c = 2,
                            .epsilon = 0.2,
                            .tolerance = 1e-7,
                            .cache_bytes = 1 << 22,
                            .seed = 5};
}

static void expect_libsvm(trial *t, int workers) {
    CHECK_OK(rig_run(workers, 1, fit, t));
    oracle o = oracle_train(t, 1e-7);
    double wanted = oracle_dual(t, &o);
    if (!(fabs(t->model.objective - wanted) <= 1e-6 * fabs(wanted)))
        fail_msg("objective %.12g, libsvm's %.12g", t->model.objective, wanted);
    expect_same_vectors(t, &o);
    oracle_fini(&o);
}

TEST(svm, has_the_objective_and_the_vectors_of_libsvm) {
    const sh_kernel kernels[] = {
        {.kind = SH_KERNEL_LINEAR},
        {.kind = SH_KERNEL_POLYNOMIAL, .gamma = 0.2, .coef0 = 1, .degree = 3},
        rbf};
    for (size_t i = 0; i < SH_COUNT(kernels); i++) {
        trial t = {.data = rig_mixture(600, 5, 2, 0.7F, 3), .options = exact(kernels[i])};
        for (int sparse = 0; sparse < 2; sparse++) {
            t.sparse = sparse;
            expect_libsvm(&t, 1 + (int)i + sparse);
        }
        trial_fini(&t);
    }
}

/* y = a sine of the first feature. */
static rig_data wave(size_t rows) {
    rig_data data = rig_mixture(rows, 2, 1, 1, 4);
    data.classes = 0;
    for (size_t i = 0; i < rows; i++)
        data.target[i] = sin(2 * (double)data.x[i * 2]) + 0.3 * (double)data.x[i * 2 + 1];
    return data;
}

TEST(svm, regresses_as_libsvm) {
    trial t = {.data = wave(500), .options = exact(rbf)};
    for (int workers = 1; workers < 4; workers++) expect_libsvm(&t, workers);
    trial_fini(&t);
}

TEST(svm, votes_as_libsvm_between_several_classes) {
    trial t = {.data = rig_mixture(700, 4, 4, 1, 6), .options = exact(rbf)};
    size_t same = 0;
    CHECK_OK(rig_run(2, 1, fit, &t));
    oracle o = oracle_train(&t, 1e-7);
    for (size_t i = 0; i < t.data.rows; i++)
        same += svm_predict(o.model, o.problem.x[i]) ==
                sh_svm_predict(&t.model, &rbf, t.data.x + i * t.data.width);
    assert_true(same >= t.data.rows - 1);  // a decision of zero may fall either way
    assert_int_equal(t.model.vectors, o.model->l);
    oracle_fini(&o);
    trial_fini(&t);
}

static void expect_same_bits(trial *t) {
    static const int counts[] = {1, 2, 3, 5};
    sh_svm_model first = {0};
    for (size_t i = 0; i < SH_COUNT(counts); i++) {
        CHECK_OK(rig_run(counts[i], 1 + (int)(i % 2), fit, t));
        if (i == 0) {
            first = t->model;
            t->model = (sh_svm_model){0};
            continue;
        }
        const sh_svm_model *m = &t->model;
        size_t outputs = m->parts * m->outputs;
        assert_int_equal(first.vectors, m->vectors);
        assert_memory_equal(first.x, m->x, m->vectors * m->width * sizeof *m->x);
        assert_memory_equal(first.factor, m->factor, outputs * m->vectors * sizeof *m->factor);
        assert_memory_equal(first.rho, m->rho, outputs * sizeof *m->rho);
        assert_true(first.objective == m->objective);
    }
    sh_svm_model_fini(&first);
}

TEST(svm, has_the_same_bits_at_any_worker_count) {
    trial t = {.data = rig_mixture(1300, 6, 3, 1, 8), .options = exact(rbf)};
    t.options.tolerance = 1e-3;
    t.options.cache_bytes = 40 * 1300 * sizeof(float);  // rows leave it
    expect_same_bits(&t);
    trial_fini(&t);
    trial r = {.data = wave(900), .options = exact(rbf)};
    r.options.tolerance = 1e-3;
    expect_same_bits(&r);
    trial_fini(&r);
}

TEST(svm, cut_into_parts_has_too) {
    for (int solver = SH_SVM_CASCADE; solver < SH_SVM_SOLVERS; solver++) {
        trial t = {.data = rig_mixture(900, 6, 3, 1, 8), .options = exact(rbf)};
        t.options.tolerance = 1e-3;
        t.options.solver = (sh_svm_solver)solver;
        t.options.parts = 4;
        t.options.ratio = solver % 2 == 0;
        expect_same_bits(&t);
        trial_fini(&t);
    }
}

static double accuracy(const trial *t, const rig_data *on) {
    size_t right = 0;
    for (size_t i = 0; i < on->rows; i++)
        right +=
            sh_svm_predict(&t->model, &t->options.kernel, on->x + i * on->width) == on->target[i];
    return (double)right / (double)on->rows;
}

/* Data in lumps, two classes spread over all of them. */
static rig_data lumps(size_t rows, uint64_t seed) {
    rig_data data = rig_mixture(rows, 4, 6, 4, 3);
    sh_rng draws = sh_rng_stream(seed, SH_RNG_TEST, 5, 0);
    data.classes = 2;
    for (size_t i = 0; i < rows; i++)
        data.target[i] =
            sin((double)data.x[i * 4]) + 0.2 * (double)sh_rng_normal(&draws) > 0 ? 1 : 0;
    return data;
}

TEST(svm, of_every_solver_is_near_the_exact_one_and_parts_send_nothing) {
    trial t = {.data = lumps(2400, 1), .options = exact(rbf)};
    t.options.tolerance = 1e-3;
    CHECK_OK(rig_run(2, 1, fit, &t));
    double wanted = accuracy(&t, &t.data), objective = t.model.objective;
    t.options.parts = 4;
    for (int solver = SH_SVM_CASCADE; solver < SH_SVM_SOLVERS; solver++) {
        t.options.solver = (sh_svm_solver)solver;
        CHECK_OK(rig_run(2, 1, fit, &t));
        double found = accuracy(&t, &t.data);
        if (found < wanted - 0.03)
            fail_msg("%s: accuracy %.3f of %.3f", sh_svm_solver_name(t.options.solver), found,
                     wanted);
        bool apart = solver >= SH_SVM_CP;
        for (int rank = 0; rank < 2; rank++) assert_int_equal(t.training_bytes[rank] == 0, apart);
        if (solver == SH_SVM_DC) assert_true(fabs(t.model.objective / objective - 1) < 1e-4);
    }
    trial_fini(&t);
}

TEST(svm, parts_keep_the_proportion_of_classes_where_asked) {
    enum { PARTS = 5 };
    trial t = {.data = lumps(1003, 2), .options = exact(rbf)};
    for (size_t i = 0; i < t.data.rows; i++) t.data.target[i] = i % 10 == 0;
    sh_learn_team alone = sh_learn_alone(1);
    sh_rows all = rig_rows(&t.data, &alone, false);
    int32_t *part = sh_alloc(all.count, sizeof *part);
    float centre[PARTS * 4];
    t.options.ratio = true;
    const sh_svm_solver solvers[] = {SH_SVM_CA_BKM, SH_SVM_CA_FCFS, SH_SVM_CA_RANDOM};
    for (size_t s = 0; s < SH_COUNT(solvers); s++) {
        int rows[PARTS] = {0}, ones[PARTS] = {0};
        t.options.solver = solvers[s];
        CHECK_OK(sh_svm_part(&t.options, &all, PARTS, 1, part, centre));
        for (size_t i = 0; i < all.count; i++) {
            rows[part[i]]++;
            ones[part[i]] += all.target[i] > 0;
        }
        for (int p = 0; p < PARTS; p++) {
            assert_in_range(rows[p], 195, 202);
            assert_in_range(ones[p], 17, 21);
        }
    }
    sh_free(part);
    sh_rows_fini(&all);
    trial_fini(&t);
}

/* Clusters of one class each: every part has one class, and says so. */
TEST(svm, answers_where_a_part_has_one_class) {
    trial t = {.data = rig_mixture(400, 3, 2, 30, 3), .options = exact(rbf)};
    t.options.solver = SH_SVM_CP;
    t.options.parts = 2;
    CHECK_OK(rig_run(2, 1, fit, &t));
    assert_true(accuracy(&t, &t.data) == 1);
    assert_int_equal(t.model.vectors, 0);
    trial_fini(&t);
}

TEST(svm, refuses_one_class_alone) {
    trial t = {.data = rig_mixture(300, 3, 2, 1, 3), .options = exact(rbf)};
    for (size_t i = 0; i < 300; i++) t.data.target[i] = 1;
    for (int workers = 1; workers < 3; workers++)
        CHECK_FAILS(SH_E_USAGE, "one class", rig_run(workers, 1, fit, &t));
    trial_fini(&t);
}
