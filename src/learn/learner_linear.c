/* The learner `linear`: least squares in one step, logistic regression and linear SVMs by steps of
 * a trust region. Its net is one dense layer: weight (outputs, width) and bias (outputs). */
#include <math.h>
#include <string.h>

#include "learn/least_squares.h"
#include "learn/learner.h"
#include "learn/newton.h"
#include "nn/models/learned.h"

/* What is minimised. L2SVM: the squared hinge, which has a derivative everywhere, as Newton
 * needs. */
typedef enum task { TASK_SQUARES, TASK_SQUARE_NEWTON, TASK_LOGISTIC, TASK_L2SVM } task;

typedef struct own {
    task task;
    sh_linear_model *linear;        // options of TASK_SQUARES and TASK_SQUARE_NEWTON
    sh_separator_model *separator;  // of the others
    sh_learn_team team;
    sh_rows rows;
    size_t outputs;     // of the net
    int64_t problem;    // L2SVM of several classes: the class against the others
    sh_newton *newton;  // NULL: training has not begun
    float *low;         // (all weights): what floats leave of the weights
    float radius[2];    // of the trust region, and the problem it is of
    sh_param_list radius_params;
    sh_newton_step last;
    sh_ls_result squares;
} own;

/* Of `linear` and `separator` one is NULL. */
static void linear_close(sh_learner *learner) {
    own *o = learner->own;
    if (o == NULL) return;
    sh_newton_destroy(o->newton);
    sh_rows_fini(&o->rows);
    sh_ls_result_fini(&o->squares);
    sh_param_list_fini(&o->radius_params);
    sh_learner_options_free(learner->run, o->linear);
    sh_learner_options_free(learner->run, o->separator);
    sh_free(o->low);
    sh_free(o);
    learner->own = NULL;
}

/* Refuses data whose targets do not fit the model before any row is read. */
static sh_status linear_open(sh_learner *learner) {
    own *o = learner->own = sh_alloc(1, sizeof *o);
    if (o == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a linear model");
    const shoal_run *run = learner->run;
    const sh_model_kind *kind = sh_model_kind_of(run->config.model);
    void *options;
    SH_TRY(sh_learner_options(run, &options));
    if (kind == &sh_model_kind_linear) {
        o->linear = options;
        o->task = strcmp(o->linear->solver, "newton") == 0 ? TASK_SQUARE_NEWTON : TASK_SQUARES;
    } else {
        o->separator = options;
        o->task = kind == &sh_model_kind_l2svm ? TASK_L2SVM : TASK_LOGISTIC;
    }
    const sh_data_info *info = &run->data.info;
    bool classes = info->target == SH_TARGET_CLASS;
    if (o->separator != NULL && !classes) {
        SH_FAIL(SH_E_USAGE, "model '%s' wants class labels, but the data has values", kind->name);
        return sh_error_hint("--targets classes takes whole numbers as classes");
    }
    if (o->linear != NULL && (classes || info->values != 1)) {
        SH_FAIL(SH_E_USAGE, "model '%s' wants one value for each row, but the data has %s",
                kind->name, classes ? "class labels" : "several");
        return sh_error_hint(classes ? "--targets values takes whole numbers as values"
                                     : "learn them one by one, or take solver: sgd");
    }
    o->outputs = classes ? (size_t)info->classes : 1;
    o->low = sh_alloc(run->model.net->params.total, sizeof *o->low);
    if (o->low == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a linear model");
    return sh_param_list_add(&o->radius_params, "region", SH_SHAPE(2), false, NULL);
}

/* Upper limit of steps over all problems; least squares are solved directly, in one. */
static int64_t linear_steps(const sh_learner *learner) {
    const own *o = learner->own;
    if (o->task == TASK_SQUARES) return 1;
    return o->linear != NULL ? o->linear->iterations : o->separator->iterations;
}

/* ---- The net's parameters ---- */

/* Output k of the net: weights w (width + 1, the intercept last) times `sign`, as floats; `low`
 * keeps what rounding to floats leaves, so that a resumed run has the doubles. */
static void put_output(shoal_run *run, own *o, size_t k, const double *w, double sign) {
    size_t width = o->rows.width;
    for (size_t i = 0; i <= width; i++) {
        // Weights (outputs, width), behind them biases (outputs).
        size_t at = i < width ? k * width + i : o->outputs * width + k;
        double value = sign * w[i];
        run->model.blocks.weights[at] = (float)value;
        o->low[at] = (float)(value - (double)(float)value);
    }
}

/* Inverse of put_output with sign 1: float plus what rounding left. */
static void get_output(const shoal_run *run, const own *o, size_t k, double *w_out) {
    size_t width = o->rows.width;
    for (size_t i = 0; i <= width; i++) {
        size_t at = i < width ? k * width + i : o->outputs * width + k;
        w_out[i] = (double)run->model.blocks.weights[at] + (double)o->low[at];
    }
}

/* Two classes share one weight vector; more have one each in logistic regression. */
static bool is_binary(const own *o) { return o->outputs == 2; }
static bool is_multinomial(const own *o) { return o->task == TASK_LOGISTIC && o->outputs > 2; }

/* Two classes have one weight vector: output 1 is x.w, output 0 is 0, so that their softmax is the
 * logistic function of x.w. */
static void put_weights(shoal_run *run, own *o) {
    const double *w = sh_newton_weights(o->newton);
    size_t stride = o->rows.width + 1;
    if (is_multinomial(o))
        for (size_t k = 0; k < o->outputs; k++) put_output(run, o, k, w + k * stride, 1);
    else if (o->task == TASK_L2SVM && !is_binary(o))
        put_output(run, o, (size_t)o->problem, w, 1);
    else if (is_binary(o)) {
        put_output(run, o, 0, w, 0);  // class 0: zeros
        put_output(run, o, 1, w, 1);
    } else {
        put_output(run, o, 0, w, 1);
    }
}

/* The doubles of an interrupted run, as the sum of two floats each. */
static sh_status take_weights(shoal_run *run, own *o) {
    size_t stride = o->rows.width + 1, outputs = is_multinomial(o) ? o->outputs : 1;
    double *w = sh_alloc(outputs * stride, sizeof *w);
    if (w == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for weights");
    // The net's output that holds this problem's weights.
    size_t first = is_binary(o) ? 1 : is_multinomial(o) ? 0 : (size_t)o->problem;
    for (size_t k = 0; k < outputs; k++) get_output(run, o, first + k, w + k * stride);
    sh_status status = sh_newton_restore(o->newton, w, (double)o->radius[0]);
    sh_free(w);
    return status;
}

/* ---- Begin ---- */

/* LIBLINEAR weighs losses by c and the penalty by 1; ridge regression weighs the squares by 1 and
 * the penalty by l2. L2SVM with several classes solves one problem per class, in turn. */
static sh_status open_problem(own *o) {
    static const sh_glm_loss losses[] = {[TASK_SQUARE_NEWTON] = SH_GLM_SQUARE,
                                         [TASK_LOGISTIC] = SH_GLM_LOGISTIC,
                                         [TASK_L2SVM] = SH_GLM_SQUARED_HINGE};
    bool square = o->task == TASK_SQUARE_NEWTON;
    sh_newton_options asked = {
        .loss = is_multinomial(o) ? SH_GLM_MULTINOMIAL : losses[o->task],
        .c = square ? 1 : o->separator->c,
        .l2 = square ? o->linear->l2 : 1,
        .intercept = square ? o->linear->intercept : o->separator->intercept,
        .outputs = is_multinomial(o) ? o->outputs : 1,
        .positive = is_binary(o) ? 1 : o->problem,  // the class that counts as +1
    };
    sh_newton_destroy(o->newton);  // that of the class before
    o->newton = NULL;
    return sh_newton_create(&asked, &o->rows, &o->team, &o->newton);
}

/* Labels are classes, and there is something to tell apart. Collective. */
static sh_status check_classes(own *o) {
    sh_status status = SH_OK;
    int64_t *rows = sh_alloc(o->outputs, sizeof *rows);
    if (rows == NULL) status = SH_FAIL(SH_E_MEMORY, "out of memory for classes");
    for (size_t i = 0; status == SH_OK && i < o->rows.count; i++) {
        double label = o->rows.target[i];
        if (label >= 0 && label < (double)o->outputs) {  // false for NaN, too
            rows[(size_t)label]++;
            continue;
        }
        SH_FAIL(SH_E_USAGE, "row %zu has label %g, which is no class", o->rows.first + i, label);
        status = sh_error_hint("leave rows without a class out of the data");
    }
    status = sh_learn_agree(&o->team, status);
    if (status == SH_OK) status = sh_learn_sum(&o->team, rows, o->outputs);
    size_t present = 0;
    for (size_t k = 0; status == SH_OK && k < o->outputs; k++) present += rows[k] > 0;
    sh_free(rows);
    SH_TRY(status);
    if (present > 1) return SH_OK;
    SH_FAIL(SH_E_USAGE, "all rows are of one class: there is nothing to tell apart");
    return sh_error_hint("look at the labels: shoal data info FILE");
}

/* Newton starts at zero weights; exact least squares need no start. */
static sh_status linear_begin(sh_learner *learner) {
    shoal_run *run = learner->run;
    own *o = learner->own;
    o->team = sh_learner_team(run);
    SH_TRY(sh_learner_begin(run, &o->team, &o->rows));
    if (o->separator != NULL) SH_TRY(check_classes(o));
    if (o->task == TASK_SQUARES) return SH_OK;
    if (o->linear != NULL && o->linear->l1 > 0)
        return SH_FAIL(SH_E_USAGE, "solver newton has no l1: take solver auto");
    bool goes_on = run->at.step > 0;
    // radius[1]: the class that the run was interrupted at.
    o->problem = goes_on ? (int64_t)o->radius[1] : 0;
    SH_TRY(open_problem(o));
    if (goes_on) return take_weights(run, o);
    memset(run->model.blocks.weights, 0, run->model.net->params.total * sizeof(float));
    return SH_OK;
}

/* ---- Steps ---- */

/* Worker 0 alone writes the summary; standard errors of the first 20 coefficients. */
static void tell_squares(const shoal_run *run, const own *o) {
    const sh_ls_result *r = &o->squares;
    if (!sh_team_leads(&run->team)) return;
    SH_INFO(&run->log,
            "least squares by %s: R2 %.6f, sum of squares %.6g, condition %.3g, %zu coefficients "
            "not 0",
            r->rounds > 0 ? "coordinate descent"
            : r->by_tsqr  ? "tsqr"
                          : "gram",
            r->r2, r->residual, r->condition, r->kept);
    if (r->dropped > 0)
        SH_WARN(&run->log,
                "%zu column%s (first: %zu) are made up of others, or constant: their coefficients "
                "are 0",
                r->dropped, r->dropped == 1 ? "" : "s", r->dropped_first);
    enum { SHOWN = 20 };
    for (size_t i = 0; r->deviation != NULL && i <= r->width && i < SHOWN; i++) {
        size_t at = i < r->width ? i : r->width;
        char name[32];
        snprintf(name, sizeof name, "feature %zu", at);
        SH_INFO(&run->log, "  %-12s %14.6g  standard error %.3g",
                at < r->width ? name : "intercept", r->w[at], r->deviation[at]);
    }
}

/* The whole training is this step. Collective. */
static sh_status step_squares(shoal_run *run, own *o, sh_learner_step *step_out) {
    static const char *const names[] = {"auto", "gram", "tsqr"};
    int solver = 0;
    while (strcmp(names[solver], o->linear->solver) != 0) {
        solver++;
        SH_ASSERT(solver < (int)SH_COUNT(names));
    }
    sh_ls_options asked = {.l2 = o->linear->l2,
                           .l1 = o->linear->l1,
                           .intercept = o->linear->intercept,
                           .solver = (sh_ls_solver)solver,
                           .tolerance = o->linear->tolerance,
                           .rounds = o->linear->iterations};
    sh_ls_result_fini(&o->squares);
    SH_TRY(sh_least_squares(&asked, &o->rows, &o->team, &o->squares));
    put_output(run, o, 0, o->squares.w, 1);
    tell_squares(run, o);
    return sh_learner_stepped(run, &o->team, true, o->squares.residual, step_out);
}

/* Of several classes, each against the others in turn. */
static sh_status next_problem(own *o, bool *done_inout) {
    // Classes left, one against the others.
    bool more = o->task == TASK_L2SVM && !is_binary(o) && o->problem + 1 < (int64_t)o->outputs;
    if (!*done_inout || !more) return SH_OK;
    o->problem++;
    *done_inout = false;
    return open_problem(o);  // from zero weights
}

/* One step of the trust region. The radius is saved with the weights: without it a resumed run
 * would take other steps. */
static sh_status linear_step(sh_learner *learner, int64_t to, sh_learner_step *step_out) {
    (void)to;
    shoal_run *run = learner->run;
    own *o = learner->own;
    int64_t begin = sh_run_now(run);
    if (o->task == TASK_SQUARES) return step_squares(run, o, step_out);
    double tolerance = o->linear != NULL ? o->linear->tolerance : o->separator->tolerance;
    SH_TRY(sh_newton_iterate(o->newton, &o->last));
    put_weights(run, o);  // before next_problem, which destroys the solver
    bool done = sh_newton_is_done(o->newton, tolerance);
    SH_TRY(next_problem(o, &done));
    o->radius[0] = (float)sh_newton_radius(o->newton);
    o->radius[1] = (float)o->problem;
    run->stats.spent.compute_ns += sh_run_now(run) - begin;
    return sh_learner_stepped(run, &o->team, done, o->last.objective, step_out);
}

/* Figures of the last step; `problem` is the class that is told from the others. */
static size_t linear_metrics(const sh_learner *learner, const sh_loss_result *since,
                             sh_metric *fields) {
    const own *o = learner->own;
    size_t count = 0;
    fields[count++] =
        (sh_metric){"train_loss", SH_METRIC_REAL, .r = since->sum / (double)since->counted};
    if (o->task == TASK_SQUARES) {
        fields[count++] = (sh_metric){"objective", SH_METRIC_REAL, .r = o->squares.objective};
        fields[count++] = (sh_metric){"r2", SH_METRIC_REAL, .r = o->squares.r2};
        fields[count++] = (sh_metric){"condition", SH_METRIC_REAL, .r = o->squares.condition};
        fields[count++] = (sh_metric){"coefficients", SH_METRIC_INT, .i = (int64_t)o->squares.kept};
        return count;
    }
    fields[count++] = (sh_metric){"objective", SH_METRIC_REAL, .r = o->last.objective};
    fields[count++] = (sh_metric){"gradient", SH_METRIC_REAL, .r = o->last.gradient};
    fields[count++] = (sh_metric){"products", SH_METRIC_INT, .i = o->last.products};
    fields[count++] = (sh_metric){"problem", SH_METRIC_INT, .i = o->problem};
    return count;
}

/* Slots that Newton resumes from: low halves of the weights, radius and problem. */
static sh_checkpoint linear_blocks(const sh_learner *learner, sh_checkpoint_slot *slots) {
    own *o = learner->own;
    sh_checkpoint checkpoint = sh_learner_net_blocks(learner);
    slots[0] = (sh_checkpoint_slot){.name = "low", .values = o->low};
    slots[1] =
        (sh_checkpoint_slot){.name = "region", .values = o->radius, .params = &o->radius_params};
    checkpoint.slots = slots;
    checkpoint.slot_count = o->task == TASK_SQUARES ? 0 : 2;
    return checkpoint;
}

/* Figures of one step, for the planner. */
static sh_learner_cost linear_cost(const sh_learner *learner) {
    sh_learner_cost cost = sh_learner_net_cost(learner);
    const own *o = learner->own;
    double columns = cost.parameter_bytes / sizeof(float) + 1;
    if (o->task == TASK_SQUARES) {
        cost.flops = columns * columns;  // of the Gram matrix
        // exact sums of half the matrix: 16 bytes for each of columns (columns + 1) / 2 pairs
        cost.exchanged_bytes = 8 * columns * (columns + 1);
    } else {
        cost.flops = 2 * cost.forward_flops;              // of one product with the Hessian
        cost.exchanged_bytes = 2 * cost.parameter_bytes;  // the gradient as 64-bit integers
    }
    return cost;
}

const sh_learner_kind sh_learner_linear = {
    .name = "linear",
    .help =
        "least squares, logistic regression and linear SVMs, with the same bits at any worker "
        "count",
    .open = linear_open,
    .close = linear_close,
    .steps = linear_steps,
    .begin = linear_begin,
    .step = linear_step,
    .evaluate = sh_learner_evaluate,
    .save = sh_learner_save,
    .blocks = linear_blocks,
    .metrics = linear_metrics,
    .cost = linear_cost,
    .finish = sh_learner_finish,
};
