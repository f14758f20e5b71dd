#include "learn/newton.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/memory.h"
#include "learn/exact_sum.h"

struct sh_newton {
    sh_newton_options options;
    const sh_rows *rows;
    sh_learn_team *team;
    // stride: one output's weights and intercept.
    size_t stride, count;  // width + 1; of all weights
    double *w, *gradient, *step, *trial, *residual, *direction, *product;  // (count) each
    double *z, *trial_z;  // (rows, outputs): at w, and at the trial weights
    int64_t *words;       // (threads, count): sums as integers
    double square_most;   // of all rows, with the 1 of the intercept
    double weight_most;   // C times the greatest weight of a row
    double target_most;
    double objective, norm, first_norm, radius;
    double stop_scale;  // min(positives, negatives) / rows
};

/* ---- Losses of one row ---- */

/* Labels of two classes as 1 and -1: `positive` against all others. */
static double sign_of(const sh_newton *n, size_t row) {
    return (int64_t)n->rows->target[row] == n->options.positive ? 1 : -1;
}

/* C times the row's own weight. */
static double weight_of(const sh_newton *n, size_t row) {
    return n->options.c * (n->rows->weight != NULL ? n->rows->weight[row] : 1);
}

/* Cross-entropy of a softmax and its probabilities (outputs). The greatest z is taken off first,
 * so that exp cannot overflow. */
static double multinomial(const double *z, size_t outputs, size_t label, double *chance_out) {
    double most = z[0], sum = 0;
    for (size_t k = 1; k < outputs; k++) most = z[k] > most ? z[k] : most;
    for (size_t k = 0; k < outputs; k++) sum += chance_out[k] = exp(z[k] - most);
    for (size_t k = 0; k < outputs; k++) chance_out[k] /= sum;
    return most + log(sum) - z[label];
}

/* Loss of one row from its outputs `z`; `chance` (outputs) is scratch of the multinomial loss. */
static double row_loss(const sh_newton *n, size_t row, const double *z, double *chance) {
    double y, gap;
    switch (n->options.loss) {
        case SH_GLM_SQUARE:
            gap = z[0] - n->rows->target[row];
            return gap * gap / 2;
        case SH_GLM_LOGISTIC:
            y = sign_of(n, row) * z[0];
            // Either branch takes exp of a negative number: no overflow.
            return y > 0 ? log1p(exp(-y)) : log1p(exp(y)) - y;
        case SH_GLM_SQUARED_HINGE:
            gap = 1 - sign_of(n, row) * z[0];
            return gap > 0 ? gap * gap : 0;
        default:
            return multinomial(z, n->options.outputs, (size_t)n->rows->target[row], chance);
    }
}

/* The loss's derivative by each output. */
static void row_slope(const sh_newton *n, size_t row, const double *z, double *slope_out) {
    double y, gap;
    switch (n->options.loss) {
        case SH_GLM_SQUARE:
            slope_out[0] = z[0] - n->rows->target[row];
            return;
        case SH_GLM_LOGISTIC:
            y = sign_of(n, row);
            slope_out[0] = -y / (1 + exp(y * z[0]));
            return;
        case SH_GLM_SQUARED_HINGE:
            y = sign_of(n, row);
            gap = 1 - y * z[0];
            slope_out[0] = gap > 0 ? -2 * y * gap : 0;
            return;
        default:
            multinomial(z, n->options.outputs, (size_t)n->rows->target[row], slope_out);
            slope_out[(size_t)n->rows->target[row]] -= 1;  // softmax minus the one-hot label
    }
}

/* The second derivative times `u`, in place. */
static void row_curve(const sh_newton *n, size_t row, const double *z, double *u, double *chance) {
    double y, mean = 0;
    switch (n->options.loss) {
        case SH_GLM_SQUARE:
            return;
        case SH_GLM_LOGISTIC:
            y = 1 / (1 + exp(-fabs(z[0])));  // symmetric in z: exp of a negative number
            u[0] *= y * (1 - y);
            return;
        case SH_GLM_SQUARED_HINGE:
            // Generalised derivative: 0 outside the margin.
            u[0] = 1 - sign_of(n, row) * z[0] > 0 ? 2 * u[0] : 0;
            return;
        default:
            multinomial(z, n->options.outputs, (size_t)n->rows->target[row], chance);
            for (size_t k = 0; k < n->options.outputs; k++) mean += chance[k] * u[k];
            // (diag(p) - p p^T) u without the matrix.
            for (size_t k = 0; k < n->options.outputs; k++) u[k] = chance[k] * (u[k] - mean);
    }
}

/* ---- Sums over rows ---- */

/* In one order, on one thread: all workers get the same bits from the same vectors. */
static double dot(const double *a, const double *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

/* z (outputs) = W x + b of one row. */
static void outputs_of(const sh_newton *n, size_t row, const double *w, double *z_out) {
    for (size_t k = 0; k < n->options.outputs; k++) {
        const double *own = w + k * n->stride;
        z_out[k] = sh_rows_dot(n->rows, row, own);
        if (n->options.intercept) z_out[k] += own[n->rows->width];
    }
}

/* At most |z| of any row under weights of this length. */
static double z_most(const sh_newton *n, const double *w) {
    // Cauchy and Schwarz, and room for rounding.
    return sqrt(dot(w, w, n->count) * n->square_most) * (1 + 1e-12);
}

/* A bound of one row's loss, from |z| alone: the scale of the exact sum follows from it without a
 * pass over rows. */
static double loss_most(const sh_newton *n, const double *w) {
    double z = z_most(n, w), gap = 1 + z;
    switch (n->options.loss) {
        case SH_GLM_SQUARE:
            gap = z + n->target_most;
            return gap * gap;
        case SH_GLM_SQUARED_HINGE:
            return gap * gap;
        default:
            return 2 * z + log((double)n->options.outputs + 1) + 1;
    }
}

/* f at `w`; `z` keeps the outputs. */
static sh_status sum_losses(sh_newton *n, const double *w, double *z, double *objective_out) {
    sh_exact_sum all;
    size_t outputs = n->options.outputs;
    // Equal on all workers, as every part of it is.
    double bound = n->weight_most * loss_most(n, w);
    SH_TRY(sh_exact_sum_init(&all, 1, bound));
    bool failed = false;
#pragma omp parallel num_threads(n->team->threads)
    {
        sh_exact_sum own = {0};
        double *chance = sh_alloc(outputs, sizeof *chance);
        bool ready = chance != NULL && sh_exact_sum_init(&own, 1, bound) == SH_OK;
#pragma omp for schedule(static)
        for (size_t row = 0; row < n->rows->count; row++) {
            if (!ready) continue;
            outputs_of(n, row, w, z + row * outputs);
            sh_exact_sum_add_one(&own, 0,
                                 weight_of(n, row) * row_loss(n, row, z + row * outputs, chance));
        }
#pragma omp critical(learn_sum)
        {
            if (ready) sh_exact_sum_join(&all, &own);
            failed |= !ready;
        }
        sh_exact_sum_fini(&own);
        sh_free(chance);
    }
    sh_status status = failed ? SH_FAIL(SH_E_MEMORY, "out of memory for losses") : SH_OK;
    if (status == SH_OK) status = sh_exact_sum_meet(&all, n->team, objective_out);
    sh_exact_sum_fini(&all);
    for (size_t k = 0; k < outputs; k++)
        // The intercept is not penalised: width weights of each output.
        *objective_out +=
            n->options.l2 / 2 * dot(w + k * n->stride, w + k * n->stride, n->rows->width);
    return status;
}

/* Adds factor_k x to the integers of output k, skipping zeros of sparse rows. */
static void add_row(const sh_newton *n, size_t row, const double *factor, double scale,
                    int64_t *words) {
    const sh_rows *rows = n->rows;
    for (size_t k = 0; k < n->options.outputs; k++) {
        int64_t *into = words + k * n->stride;
        double f = factor[k] * scale;
        if (f == 0) continue;
        if (n->options.intercept) into[rows->width] += sh_to_whole(f);  // the ones' column
        if (rows->x != NULL) {
            const float *x = rows->x + row * rows->width;
            for (size_t i = 0; i < rows->width; i++) into[i] += sh_to_whole(f * (double)x[i]);
            continue;
        }
        const sh_sparse *sparse = &rows->sparse;
        for (size_t i = sparse->start[row]; i < sparse->start[row + 1]; i++)
            into[sparse->index[i]] += sh_to_whole(f * (double)sparse->value[i]);
    }
}

/* The gradient, or a product with the Hessian: out = l2 v (without intercepts) + sum over rows of C
 * s_i factor_i x_i. The factor is the loss's derivative at z_i; with `curved` its second derivative
 * at z_i times x_i.v. `bound`: the greatest magnitude of a factor. */
static sh_status sum_rows(sh_newton *n, const double *v, bool curved, double bound, double *out) {
    size_t outputs = n->options.outputs, count = n->count;
    // The greatest entry of a row.
    double cell = n->rows->greatest > 1 ? n->rows->greatest : 1;  // the intercept's is 1
    // sums over all rows fit 64 bits
    double scale = sh_whole_scale(bound * n->weight_most * cell, n->rows->total);
    bool failed = false;
#pragma omp parallel num_threads(n->team->threads)
    {
        int64_t *words = n->words + (size_t)omp_get_thread_num() * count;
        memset(words, 0, count * sizeof *words);
        // Factors and scratch of row_curve, (outputs) each.
        double *factor = sh_alloc(2 * outputs, sizeof *factor);
#pragma omp for schedule(static)
        for (size_t row = 0; row < n->rows->count; row++) {
            if (factor == NULL) continue;
            const double *z = n->z + row * outputs;
            if (curved) {
                outputs_of(n, row, v, factor);
                row_curve(n, row, z, factor, factor + outputs);
            } else {
                row_slope(n, row, z, factor);
            }
            add_row(n, row, factor, scale * weight_of(n, row), words);
        }
        if (factor == NULL) {
#pragma omp atomic write
            failed = true;
        }
        sh_free(factor);
    }
    if (failed) return SH_FAIL(SH_E_MEMORY, "out of memory for a gradient");
    // Integers: the order of threads changes no bit.
    for (int thread = 1; thread < n->team->threads; thread++)
        for (size_t i = 0; i < count; i++) n->words[i] += n->words[(size_t)thread * count + i];
    SH_TRY(sh_learn_sum(n->team, n->words, count));  // collective: the only message
    for (size_t i = 0; i < count; i++) {
        bool intercept = i % n->stride == n->rows->width;
        out[i] = (double)n->words[i] / scale + (intercept ? 0 : n->options.l2 * v[i]);
    }
    return SH_OK;
}

/* A bound of the loss's derivative: 1 for logistic losses, else by the greatest output. */
static double slope_most(const sh_newton *n) {
    switch (n->options.loss) {
        case SH_GLM_SQUARE:
            return z_most(n, n->w) + n->target_most;
        case SH_GLM_SQUARED_HINGE:
            return 2 * (1 + z_most(n, n->w));
        default:
            return 1;
    }
}

/* A bound of the second derivative times x.v; the factor 2 covers the mean that multinomial
 * subtracts. */
static double curve_most(const sh_newton *n, const double *v) {
    // By loss: square, logistic, squared hinge, multinomial.
    static const double most[] = {1, 0.25, 2, 1};
    return most[n->options.loss] * 2 * z_most(n, v);
}

/* One sum over workers of (width + 1) outputs numbers. */
static sh_status find_gradient(sh_newton *n) {
    SH_TRY(sum_rows(n, n->w, false, slope_most(n), n->gradient));
    n->norm = sqrt(dot(n->gradient, n->gradient, n->count));
    return SH_OK;
}

/* ---- The trust region ---- */

/* From s along d to the rim |s + t d| = radius. */
static double to_rim(const sh_newton *n) {
    double sd = dot(n->step, n->direction, n->count),
           dd = dot(n->direction, n->direction, n->count);
    double ss = dot(n->step, n->step, n->count), gap = n->radius * n->radius - ss;
    double root = sqrt(sd * sd + dd * gap);  // positive root, without cancellation in either branch
    return sd >= 0 ? gap / (sd + root) : (root - sd) / dd;
}

/* y += factor x. */
static void axpy(double factor, const double *x, double *y, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] += factor * x[i];
}

/* Steihaug's conjugate gradients: H step = -gradient, until the residual is a tenth of it or the
 * rim is reached. */
static sh_status solve_inside(sh_newton *n, int64_t *products_out) {
    const size_t count = n->count;
    // Starts at step 0, where the residual is minus the gradient.
    for (size_t i = 0; i < count; i++) {
        n->step[i] = 0;
        n->residual[i] = n->direction[i] = -n->gradient[i];
    }
    // Inexact Newton: a tenth of the gradient is enough.
    double rr = dot(n->residual, n->residual, count), goal = 0.1 * n->norm;
    size_t most = count > 50 ? count : 50;
    for (size_t turn = 0; turn < most && sqrt(rr) > goal; turn++) {
        // One sum over workers.
        SH_TRY(sum_rows(n, n->direction, true, curve_most(n, n->direction), n->product));
        ++*products_out;
        double curve = dot(n->direction, n->product, count);
        if (curve <= 0) break;  // flat to the last bit
        double t = rr / curve;
        axpy(t, n->direction, n->step, count);
        // Crossed the rim: step back and stop on it.
        if (sqrt(dot(n->step, n->step, count)) > n->radius) {
            axpy(-t, n->direction, n->step, count);
            t = to_rim(n);
            axpy(t, n->direction, n->step, count);
            // Keeps residual = -gradient - H step, for `predicted`.
            axpy(-t, n->product, n->residual, count);
            return SH_OK;
        }
        axpy(-t, n->product, n->residual, count);
        double next = dot(n->residual, n->residual, count);
        for (size_t i = 0; i < count; i++)
            n->direction[i] = n->residual[i] + next / rr * n->direction[i];
        rr = next;
    }
    return SH_OK;
}

/* Lin and More's rules for the radius, given how good the model of f was. */
static void change_radius(sh_newton *n, double actual, double predicted, double slope,
                          double length) {
    // Minimum of the parabola through f, slope and trial.
    double alpha = -actual - slope <= 0 ? 4 : fmax(0.25, -0.5 * (slope / (-actual - slope)));
    if (actual < 1e-4 * predicted)
        n->radius = fmin(fmax(alpha, 0.25) * length, 0.5 * n->radius);
    else if (actual < 0.25 * predicted)
        n->radius = fmax(0.25 * n->radius, fmin(alpha * length, 0.5 * n->radius));
    else if (actual < 0.75 * predicted)
        n->radius = fmax(0.25 * n->radius, fmin(alpha * length, 4 * n->radius));
    else
        n->radius = fmax(n->radius, fmin(alpha * length, 4 * n->radius));
    // As checkpoints hold it, so that resuming changes nothing.
    n->radius = (double)(float)n->radius;
}

/* What a checkpoint can hold: the sum of two floats. */
static double as_pair(double x) {
    float high = (float)x;
    return (double)high + (double)(float)(x - (double)high);
}

/* One step of the trust region: an approximate Newton step inside it, the loss there, then the
 * radius. A step is taken only if f falls by 1e-4 of what the quadratic model promised. */
sh_status sh_newton_iterate(sh_newton *n, sh_newton_step *step_out) {
    *step_out = (sh_newton_step){0};
    SH_TRY(solve_inside(n, &step_out->products));
    for (size_t i = 0; i < n->count; i++) n->trial[i] = as_pair(n->w[i] + n->step[i]);
    double slope = dot(n->gradient, n->step, n->count), trial;
    // Fall of the quadratic model, without another product.
    double predicted = -0.5 * (slope - dot(n->step, n->residual, n->count));
    SH_TRY(sum_losses(n, n->trial, n->trial_z, &trial));
    double actual = n->objective - trial, length = sqrt(dot(n->step, n->step, n->count));
    change_radius(n, actual, predicted, slope, length);
    step_out->accepted = actual > 1e-4 * predicted && actual > 0;
    if (step_out->accepted) {
        double *w = n->w, *z = n->z;  // swapped, not copied: trial memory serves the next step
        n->w = n->trial;
        n->trial = w;
        n->z = n->trial_z;
        n->trial_z = z;
        n->objective = trial;
        SH_TRY(find_gradient(n));  // collective; a rejected step keeps its gradient
    }
    step_out->objective = n->objective;
    step_out->gradient = n->norm;
    return SH_OK;
}

/* Where nothing is left to gain in doubles, too. */
bool sh_newton_is_done(const sh_newton *n, double epsilon) {
    // LIBLINEAR's rule, relative to the first gradient.
    return n->norm <= epsilon * n->stop_scale * n->first_norm || n->norm == 0 ||
           n->radius < 1e-14 * sqrt(dot(n->w, n->w, n->count));
}

/* ---- Life ---- */

/* Bounds of sums, and how many rows are positive. */
static sh_status measure(sh_newton *n) {
    double most[] = {sh_rows_square_most(n->rows), 0, 0};
    int64_t positives = 0;
    for (size_t i = 0; i < n->rows->count; i++) {
        most[1] = fmax(most[1], weight_of(n, i));
        most[2] = fmax(most[2], fabs(n->rows->target[i]));
        positives += (int64_t)n->rows->target[i] == n->options.positive;
    }
    SH_TRY(sh_learn_max(n->team, most, SH_COUNT(most)));
    SH_TRY(sh_learn_sum(n->team, &positives, 1));
    n->square_most = most[0] + 1;  // and 1: the intercept's column
    n->weight_most = most[1];
    n->target_most = most[2];
    bool signs = n->options.loss == SH_GLM_LOGISTIC || n->options.loss == SH_GLM_SQUARED_HINGE;
    double total = (double)n->rows->total, ones = (double)positives;
    // LIBLINEAR's scale: rare classes need a smaller gradient.
    n->stop_scale = signs ? fmax(fmin(ones, total - ones), 1) / total : 1;
    return SH_OK;
}

/* All or nothing: sh_newton_destroy frees what there is. */
static sh_status take_memory(sh_newton *n) {
    size_t rows = n->rows->count * n->options.outputs + 1;  // never empty
    double **each[] = {&n->w,        &n->gradient,  &n->step,   &n->trial,
                       &n->residual, &n->direction, &n->product};
    bool all = true;
    for (size_t i = 0; i < SH_COUNT(each); i++)
        all = (*each[i] = sh_alloc(n->count, sizeof(double))) != NULL && all;
    n->z = sh_alloc(rows, sizeof *n->z);
    n->trial_z = sh_alloc(rows, sizeof *n->trial_z);
    n->words = sh_alloc(n->count * (size_t)n->team->threads, sizeof *n->words);
    return all && n->z && n->trial_z && n->words
               ? SH_OK
               : SH_FAIL(SH_E_MEMORY, "out of memory for %zu weights", n->count);
}

void sh_newton_destroy(sh_newton *n) {
    if (n == NULL) return;
    double *each[] = {n->w,         n->gradient, n->step, n->trial,  n->residual,
                      n->direction, n->product,  n->z,    n->trial_z};
    for (size_t i = 0; i < SH_COUNT(each); i++) sh_free(each[i]);
    sh_free(n->words);
    sh_free(n);
}

/* LIBLINEAR's start: the radius is the norm of the first gradient. */
static sh_status begin(sh_newton *n) {
    SH_TRY(sh_learn_agree(n->team, take_memory(n)));
    SH_TRY(measure(n));
    SH_TRY(sum_losses(n, n->w, n->z, &n->objective));
    SH_TRY(find_gradient(n));
    n->first_norm = n->norm;
    n->radius = (double)(float)n->norm;
    return SH_OK;
}

sh_status sh_newton_create(const sh_newton_options *options, const sh_rows *rows,
                           sh_learn_team *team, sh_newton **newton_out) {
    sh_newton *n = sh_alloc(1, sizeof *n);
    if (n == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a linear model");
    // stride: one more for the intercept, used or not.
    *n = (sh_newton){.options = *options, .rows = rows, .team = team, .stride = rows->width + 1};
    n->count = n->stride * options->outputs;
    sh_status status = begin(n);
    if (status != SH_OK) {
        sh_newton_destroy(n);
        return status;
    }
    *newton_out = n;
    return SH_OK;
}

/* Objective and gradient are computed anew from the weights, with the same bits. */
sh_status sh_newton_restore(sh_newton *n, const double *weights, double radius) {
    memcpy(n->w, weights, n->count * sizeof *n->w);
    SH_TRY(sum_losses(n, n->w, n->z, &n->objective));
    SH_TRY(find_gradient(n));
    n->radius = radius;
    return SH_OK;
}

const double *sh_newton_weights(const sh_newton *n) { return n->w; }
double sh_newton_radius(const sh_newton *n) { return n->radius; }
