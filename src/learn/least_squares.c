/* Exact least squares from the Gram matrix of all workers' rows (least_squares.h). Columns are
 * scaled by powers of two, which round nothing, and coefficients are scaled back at the end. Rows
 * never travel, only maxima and sums over them; every worker then solves the small problem alike.
 */
#include "learn/least_squares.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/memory.h"
#include "learn/exact_sum.h"
#include "tensor/kernels/gram.h"

/* The columns are those of the rows, then the intercept's ones, then the target: n of them are
 * solved for. */
typedef struct problem {
    const sh_ls_options *options;
    const sh_rows *rows;
    sh_learn_team *team;
    size_t n, columns;  // n = width, and 1 with an intercept; columns = n + 1
    double *scale;      // (columns): a power of two near 1 / a column's length
    double *gram;       // (columns, columns) of the scaled columns, both triangles
    double *r;          // (n, n) upper: R^T R = X^T X + penalty, scaled
    double *qy;         // (n): Q^T y
    bool *dropped;      // (n)
    double condition;
    bool by_tsqr;
} problem;

/* ---- Gram matrices of all workers ---- */

/* Row `index` with intercept and target, times the root of its weight. */
static void fill_row(const problem *p, size_t index, float *buffer, double *row_out) {
    const sh_rows *rows = p->rows;
    // Weighted least squares: rows times sqrt(weight).
    double s = rows->weight != NULL ? sqrt(rows->weight[index]) : 1;
    const float *x = sh_rows_at(rows, index, buffer);
    for (size_t i = 0; i < rows->width; i++) row_out[i] = s * (double)x[i] * p->scale[i];
    // The column of ones.
    if (p->options->intercept) row_out[rows->width] = s * p->scale[rows->width];
    row_out[p->n] = s * rows->target[index] * p->scale[p->n];
}

/* One tile's share of the Gram matrix, after its columns went through R^-1 (NULL: as they are). */
static void add_tile(const problem *p, size_t tile, const double *r, double *x, double *g,
                     float *buffer, sh_exact_sum *sum) {
    size_t first = tile * SH_TILE_ROWS, left = p->rows->count - first;
    size_t rows = left < SH_TILE_ROWS ? left : SH_TILE_ROWS, at = 0;
    for (size_t i = 0; i < rows; i++) fill_row(p, first + i, buffer, x + i * p->columns);
    if (r != NULL) sh_gram_divide(x, rows, p->columns, r, p->n, p->n);
    sh_gram(x, rows, p->columns, g);
    for (size_t i = 0; i < p->columns; i++)
        for (size_t j = i; j < p->columns; j++)  // upper triangle by rows, the order of `pairs`
            sh_exact_sum_add_one(sum, at++, g[i * p->columns + j]);
}

/* Columns went through R^-1 (NULL: as they are). */
static sh_status sum_gram(problem *p, const double *r) {
    // Products of two values of at most 1, over a tile.
    const double bound = 4 * SH_TILE_ROWS;  // columns are at most 1
    size_t pairs = p->columns * (p->columns + 1) / 2;
    sh_exact_sum all;
    SH_TRY(sh_exact_sum_init(&all, pairs, bound));
    bool failed = false;
#pragma omp parallel num_threads(p->team->threads)
    {
        sh_exact_sum own = {0};
        double *x = sh_alloc(SH_TILE_ROWS * p->columns, sizeof *x);
        double *g = sh_alloc(p->columns * p->columns, sizeof *g);
        float *buffer = sh_alloc(p->rows->width, sizeof *buffer);
        bool ready = x != NULL && g != NULL && buffer != NULL &&
                     sh_exact_sum_init(&own, pairs, bound) == SH_OK;
#pragma omp for schedule(dynamic)
        for (size_t tile = 0; tile < sh_rows_tiles(p->rows); tile++)
            if (ready) add_tile(p, tile, r, x, g, buffer, &own);
#pragma omp critical(learn_sum)
        {  // integers: threads join in any order with the same bits
            if (ready) sh_exact_sum_join(&all, &own);
            failed |= !ready;
        }
        sh_exact_sum_fini(&own);
        sh_free(x);
        sh_free(g);
        sh_free(buffer);
    }
    double *values = sh_alloc(pairs, sizeof *values);
    sh_status status = failed || values == NULL
                           ? SH_FAIL(SH_E_MEMORY, "out of memory for %zu columns", p->columns)
                           : SH_OK;
    status = sh_learn_agree(p->team, status);
    if (status == SH_OK) status = sh_exact_sum_meet(&all, p->team, values);
    size_t at = 0;
    for (size_t i = 0; status == SH_OK && i < p->columns; i++)
        for (size_t j = i; j < p->columns; j++)
            // Both triangles.
            p->gram[i * p->columns + j] = p->gram[j * p->columns + i] = values[at++];
    sh_free(values);
    sh_exact_sum_fini(&all);
    return status;
}

/* Columns whose greatest value is near 1, by powers of two, which round nothing: so the entries of
 * a tile's Gram matrix have a bound that fits all of them. */
static sh_status scale_by_greatest(problem *p) {
    float *buffer = sh_alloc(p->rows->width, sizeof *buffer);
    double *row = sh_alloc(p->columns, sizeof *row), *most = sh_alloc(p->columns, sizeof *most);
    sh_status status = SH_OK;
    if (buffer == NULL || row == NULL || most == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for %zu columns", p->columns);
    for (size_t i = 0; status == SH_OK && i < p->rows->count; i++) {
        fill_row(p, i, buffer, row);
        for (size_t j = 0; j < p->columns; j++)
            // NaN becomes infinite, which the maximum keeps.
            if (!(fabs(row[j]) <= most[j])) most[j] = isfinite(row[j]) ? fabs(row[j]) : INFINITY;
    }
    status = sh_learn_agree(p->team, status);
    if (status == SH_OK) status = sh_learn_max(p->team, most, p->columns);
    for (size_t j = 0; status == SH_OK && j < p->columns; j++) {
        int exponent;
        frexp(most[j], &exponent);
        if (isinf(most[j])) {
            SH_FAIL(SH_E_NUMERIC, "a %s is not finite", j < p->rows->width ? "value" : "target");
            status = sh_error_hint("shoal data check FILE names the first");
        }
        if (most[j] > 0) p->scale[j] = ldexp(1.0, -exponent);  // a column of zeros keeps scale 1
    }
    sh_free(buffer);
    sh_free(row);
    sh_free(most);
    return status;
}

/* ---- Cholesky ---- */

/* R (n, n) upper with R^T R = A, row by row. A column that those before it make up, up to
 * rounding, is dropped: its row of R is zero but for a 1 on the diagonal. */
static void cholesky(const double *a, size_t stride, size_t n, double least, double *r,
                     bool *dropped) {
    memset(r, 0, n * n * sizeof *r);
    for (size_t i = 0; i < n; i++) {
        double *row = r + i * n;
        for (size_t j = i; j < n; j++) row[j] = dropped[i] ? 0 : a[i * stride + j];
        for (size_t k = 0; k < i && !dropped[i]; k++) {
            const double *above = r + k * n;
            double factor = above[i];
            if (factor == 0) continue;
            for (size_t j = i; j < n; j++) row[j] -= factor * above[j];
        }
        // Nothing but rounding is left of the column.
        if (!dropped[i] && !(row[i] > least * a[i * stride + i])) dropped[i] = true;
        if (dropped[i]) {
            memset(row, 0, n * sizeof *row);
            // No other column refers to the dropped one.
            for (size_t k = 0; k < i; k++) r[k * n + i] = 0;
            row[i] = 1;
            continue;
        }
        double root = sqrt(row[i]);
        for (size_t j = i; j < n; j++) row[j] /= root;
        row[i] = root;
    }
}

/* x := R^-T x */
static void forward(const double *r, size_t n, double *x) {
    for (size_t i = 0; i < n; i++) {
        x[i] /= r[i * n + i];
        for (size_t j = i + 1; j < n; j++) x[j] -= r[i * n + j] * x[i];
    }
}

/* x := R^-1 x */
static void backward(const double *r, size_t n, double *x) {
    for (size_t i = n; i-- > 0;) {
        double sum = x[i];
        for (size_t j = i + 1; j < n; j++) sum -= r[i * n + j] * x[j];
        x[i] = sum / r[i * n + i];
    }
}

/* a := b a, both upper (n, n). */
static void multiply_upper(double *a, const double *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double *row = a + i * n;  // row i of the product needs rows i.. of a, which are still whole
        double diagonal = b[i * n + i];
        for (size_t j = i; j < n; j++) row[j] *= diagonal;
        for (size_t k = i + 1; k < n; k++)
            for (size_t j = k; j < n; j++) row[j] += b[i * n + k] * a[k * n + j];
    }
}

/* The greatest over the least singular value, by power iterations on R and R^-1. */
static sh_status estimate_condition(problem *p) {
    enum { TURNS = 30 };
    size_t n = p->n;
    double *x = sh_alloc(2 * n, sizeof *x), most = 0, least = 0;
    if (x == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu columns", n);
    double *y = x + n;
    for (int inverse = 0; inverse < 2; inverse++) {
        // A start with a share of every direction.
        for (size_t i = 0; i < n; i++) x[i] = p->dropped[i] ? 0 : 1 + 0.1 * (double)(i % 7);
        double norm = 1;
        for (int turn = 0; turn < TURNS; turn++) {
            if (inverse) {
                // (R^T R)^-1 x, without forming the matrix.
                forward(p->r, n, x);
                backward(p->r, n, x);
            } else {
                for (size_t i = 0; i < n; i++) {
                    y[i] = 0;
                    for (size_t j = i; j < n; j++) y[i] += p->r[i * n + j] * x[j];
                }
                for (size_t j = 0; j < n; j++) {
                    x[j] = 0;
                    for (size_t i = 0; i <= j; i++) x[j] += p->r[i * n + j] * y[i];
                }
            }
            norm = 0;
            for (size_t i = 0; i < n; i++) {
                if (p->dropped[i]) x[i] = 0;
                norm += x[i] * x[i];
            }
            norm = sqrt(norm);
            for (size_t i = 0; i < n && norm > 0; i++) x[i] /= norm;
        }
        // Eigenvalues of R^T R are squares of R's singular values.
        *(inverse ? &least : &most) = sqrt(norm);
    }
    p->condition = most * least;
    sh_free(x);
    return SH_OK;
}

/* ---- Solvers without l1 ---- */

/* In the scale of the columns. The intercept is not penalised. */
static double penalty_at(const problem *p, size_t i) {
    return i < p->rows->width ? p->options->l2 * p->scale[i] * p->scale[i] : 0;
}

/* Normal equations: R^T R = X^T X + penalty, then R^-T X^T y. */
static sh_status factor_gram(problem *p) {
    size_t n = p->n;
    double *a = sh_alloc(n * n, sizeof *a);
    if (a == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu columns", n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            a[i * n + j] = p->gram[i * p->columns + j] + (i == j ? penalty_at(p, i) : 0);
    // Pivot, relative to the column's square, below which it is dropped.
    cholesky(a, n, n, 4 * (double)n * 0x1p-52, p->r, p->dropped);
    for (size_t i = 0; i < n; i++) p->qy[i] = p->dropped[i] ? 0 : p->gram[i * p->columns + n];
    forward(p->r, n, p->qy);
    sh_free(a);
    return estimate_condition(p);
}

/* R^-T diag(penalty) R^-1, added to what the rows gave: the penalty is l2 more rows. */
static sh_status add_penalty(const problem *p, double *a) {
    size_t n = p->n;
    if (p->options->l2 == 0) return SH_OK;
    double *rows = sh_alloc(n * n, sizeof *rows), *g = sh_alloc(n * n, sizeof *g);
    if (rows == NULL || g == NULL) {
        sh_free(rows);
        sh_free(g);
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu columns", n);
    }
    for (size_t i = 0; i < n; i++) rows[i * n + i] = sqrt(penalty_at(p, i));
    sh_gram_divide(rows, n, n, p->r, n, n);
    sh_gram(rows, n, n, g);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) {
            a[i * n + j] += g[i * n + j];
            if (i != j) a[j * n + i] += g[i * n + j];
        }
    sh_free(rows);
    sh_free(g);
    return SH_OK;
}

/* One turn of Cholesky QR: the Gram matrix of X R^-1, and the factor of that. */
static sh_status cholesky_turn(problem *p, double shift, double *factor_out) {
    size_t n = p->n;
    double *a = sh_alloc(n * n, sizeof *a);
    if (a == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu columns", n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) a[i * n + j] = p->gram[i * p->columns + j];
    sh_status status = SH_OK;
    if (shift > 0)
        // First turn: the shift keeps pivots positive.
        for (size_t i = 0; i < n; i++) a[i * n + i] += penalty_at(p, i) + shift;
    else
        status = add_penalty(p, a);
    if (status == SH_OK) cholesky(a, n, n, 0, factor_out, p->dropped);
    sh_free(a);
    return status;
}

/* The diagonal of R is a column's distance from those before it, which have length 1: what is
 * within rounding of them is made up by them. True: some were found. */
static bool drop_dependent(problem *p) {
    bool found = false;
    for (size_t i = 0; i < p->n; i++) {
        // Within rounding, n operations on numbers of at most 1.
        if (p->dropped[i] || p->r[i * p->n + i] >= 16 * (double)p->n * 0x1p-52) continue;
        p->dropped[i] = found = true;
    }
    return found;
}

/* `plain` is the Gram matrix of the columns as they are. The first factor is that of the matrix
 * with its diagonal shifted, so that there is one whatever the condition. */
static sh_status factor_tsqr(problem *p, const double *plain, double *next) {
    enum { TURNS = 3 };
    size_t n = p->n;
    // After Fukaya et al. (2020), "Shifted Cholesky QR".
    double shift = 11 * (double)n * (double)(n + 1) * 0x1p-53;
    memcpy(p->gram, plain, p->columns * p->columns * sizeof *plain);
    SH_TRY(cholesky_turn(p, shift, p->r));
    for (int turn = 1; turn < TURNS; turn++) {
        SH_TRY(sum_gram(p, p->r));
        // Columns of X R^-1 are nearly orthonormal: well conditioned.
        SH_TRY(cholesky_turn(p, 0, next));
        multiply_upper(p->r, next, n);
    }
    for (size_t i = 0; i < n; i++) p->qy[i] = p->dropped[i] ? 0 : p->gram[i * p->columns + n];
    forward(next, n, p->qy);
    return SH_OK;
}

/* Dependent columns show only in the final R: they are dropped, and the factorisation is repeated
 * without them. */
static sh_status solve_tsqr(problem *p) {
    size_t n = p->n, cells = p->columns * p->columns;
    double *next = sh_alloc(n * n, sizeof *next), *plain = sh_alloc(cells, sizeof *plain);
    sh_status status = SH_OK;
    if (next == NULL || plain == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for %zu columns", n);
    if (status == SH_OK) memcpy(plain, p->gram, cells * sizeof *plain);
    memset(p->dropped, 0, n * sizeof *p->dropped);
    status = sh_learn_agree(p->team, status);
    // Ends: each repetition drops one column more, at least.
    do {
        if (status == SH_OK) status = factor_tsqr(p, plain, next);
    } while (status == SH_OK && drop_dependent(p));
    sh_free(next);
    sh_free(plain);
    p->by_tsqr = true;
    return status == SH_OK ? estimate_condition(p) : status;
}

/* ---- l1 ---- */

/* Soft thresholding: the minimum of 1/2 (x - u)^2 + by |u|. */
static double shrink(double x, double by) { return x > by ? x - by : x < -by ? x + by : 0; }

/* The intercept is found last, so columns and target count without their means. */
static void centre_gram(const problem *p, double *g) {
    size_t stride = p->columns, ones = p->rows->width;
    memcpy(g, p->gram, stride * stride * sizeof *g);
    if (!p->options->intercept) return;
    // The ones' row of the Gram matrix: sums of columns.
    const double *mean = p->gram + ones * stride;
    for (size_t i = 0; i < stride; i++)
        for (size_t j = 0; j < stride; j++) g[i * stride + j] -= mean[i] * mean[j] / mean[ones];
}

/* Cyclic coordinate descent (Friedman et al. 2010) on the centred Gram matrix: each coefficient
 * goes to its exact minimum, the others fixed, in O(width). `slack` is X^T (y - X w), kept up to
 * date. Ends when no coefficient changed the prediction by more than the tolerance, in lengths of
 * the target. */
static sh_status descend(const problem *p, double *w, int64_t *rounds_out) {
    size_t width = p->rows->width, stride = p->columns;
    double tolerance = p->options->tolerance > 0 ? p->options->tolerance : 1e-9;
    int64_t most = p->options->rounds > 0 ? p->options->rounds : 10000;
    double *g = sh_alloc(stride * (stride + 1), sizeof *g);
    if (g == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu columns", stride);
    double *slack = g + stride * stride;
    centre_gram(p, g);
    double size = sqrt(fmax(g[stride * stride - 1], 0));  // length of the centred target
    for (size_t j = 0; j < width; j++) slack[j] = g[j * stride + p->n];
    for (*rounds_out = 1; *rounds_out <= most; ++*rounds_out) {
        double changed = 0;
        for (size_t j = 0; j < width; j++) {
            double own = g[j * stride + j];
            if (own <= 0x1p-40 * p->gram[j * stride + j]) continue;  // constant
            // in units of scaled columns and target
            double l1 = p->options->l1 * p->scale[j] * p->scale[p->n];
            double to = shrink(slack[j] + own * w[j], l1) / (own + penalty_at(p, j));
            double by = to - w[j];
            if (by == 0) continue;
            w[j] = to;
            // O(width) keeps slack = X^T (y - X w).
            for (size_t i = 0; i < width; i++) slack[i] -= by * g[j * stride + i];
            changed = fmax(changed, fabs(by) * sqrt(own));
        }
        if (changed <= tolerance * size) break;
    }
    const double *mean = p->gram + width * stride;
    if (p->options->intercept) {
        w[width] = mean[p->n] / mean[width];  // mean of the target minus that of the prediction
        for (size_t j = 0; j < width; j++) w[width] -= w[j] * mean[j] / mean[width];
    }
    sh_free(g);
    return SH_OK;
}

/* ---- The result ---- */

/* The squares of the residuals, from the rows: the Gram matrix would cancel. */
static sh_status sum_residuals(const problem *p, const double *w, double *residual_out,
                               double *total_out) {
    const sh_rows *rows = p->rows;
    double length = 0, bounds[2] = {sh_rows_square_most(rows), 0}, sums[4];
    for (size_t i = 0; i <= rows->width; i++) length += w[i] * w[i];
    for (size_t i = 0; i < rows->count; i++) {
        bounds[1] = fmax(bounds[1], fabs(rows->target[i]));
        double s = rows->weight != NULL ? rows->weight[i] : 1;
        bounds[1] = fmax(bounds[1], fmax(1, s) * fmax(1, fabs(rows->target[i])));
    }
    SH_TRY(sh_learn_max(p->team, bounds, SH_COUNT(bounds)));
    // Bounds |x.w + b - y| (Cauchy and Schwarz).
    double gap = sqrt(length * (bounds[0] + 1)) + bounds[1];
    sh_exact_sum sum;
    SH_TRY(sh_exact_sum_init(&sum, SH_COUNT(sums), fmax(gap, 1) * gap * fmax(bounds[1], 1) * 1.01));
    for (size_t i = 0; i < rows->count; i++) {
        double s = rows->weight != NULL ? rows->weight[i] : 1, y = rows->target[i];
        double off = sh_rows_dot(rows, i, w) + w[rows->width] - y;
        // All four sums in one message.
        sh_exact_sum_add(&sum, (const double[]){s * off * off, s * y, s * y * y, s});
    }
    sh_status status = sh_exact_sum_meet(&sum, p->team, sums);
    sh_exact_sum_fini(&sum);
    *residual_out = sums[0];
    // About the mean only with an intercept.
    *total_out = sums[2] - (p->options->intercept ? sums[1] * sums[1] / sums[3] : 0);
    return status;
}

/* Variances are those of the residuals times the diagonal of (X^T X)^-1 = R^-1 R^-T. */
static sh_status find_deviations(const problem *p, sh_ls_result *result) {
    size_t n = p->n;
    // Penalised estimates are biased: standard errors would mislead, so there are none.
    bool penalised = p->options->l1 > 0 || p->options->l2 > 0;
    double freedom = (double)p->rows->total - (double)(n - result->dropped);
    if (penalised || freedom <= 0) return SH_OK;  // degrees of freedom: rows less coefficients
    double *row = sh_alloc(n, sizeof *row);
    result->deviation = sh_alloc(p->rows->width + 1, sizeof *result->deviation);
    if (row == NULL || result->deviation == NULL) {
        sh_free(row);
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu standard errors", n);
    }
    for (size_t j = 0; j < n; j++) {  // column j of R^-1, added up by rows
        memset(row, 0, n * sizeof *row);
        row[j] = 1;
        for (size_t i = j + 1; i-- > 0 && !p->dropped[j];) {
            double sum = row[i];
            for (size_t k = i + 1; k <= j; k++) sum -= p->r[i * n + k] * row[k];
            row[i] = sum / p->r[i * n + i];
            result->deviation[i] += row[i] * row[i];
        }
    }
    double variance = result->residual / freedom;
    for (size_t j = 0; j < n; j++)
        result->deviation[j] =
            p->dropped[j] ? 0 : p->scale[j] * sqrt(variance * result->deviation[j]);
    sh_free(row);
    return SH_OK;
}

/* From the scaled problem to the user's units. Residuals are summed over the rows once more, with
 * the final coefficients. */
static sh_status finish(const problem *p, const double *w, sh_ls_result *result) {
    size_t width = p->rows->width;
    double total = 0, l1 = 0, l2 = 0;
    result->width = width;
    result->w = sh_alloc(width + 1, sizeof *result->w);
    if (result->w == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu weights", width);
    for (size_t i = 0; i < p->n; i++) {
        // Columns were multiplied by `scale`, so coefficients are, too.
        result->w[i] = w[i] * p->scale[i] / p->scale[p->n];
        if (p->dropped[i] && result->dropped++ == 0) result->dropped_first = i;
    }
    for (size_t i = 0; i < width; i++) {
        l1 += fabs(result->w[i]);
        l2 += result->w[i] * result->w[i];
        result->kept += result->w[i] != 0;
    }
    SH_TRY(sum_residuals(p, result->w, &result->residual, &total));
    result->objective = result->residual / 2 + p->options->l2 / 2 * l2 + p->options->l1 * l1;
    result->r2 = total > 0 ? 1 - result->residual / total : NAN;  // a constant target has no R2
    result->condition = p->condition;
    result->by_tsqr = p->by_tsqr;
    return find_deviations(p, result);
}

/* ---- All of it ---- */

static void problem_fini(problem *p) {
    sh_free(p->scale);
    sh_free(p->gram);
    sh_free(p->r);
    sh_free(p->qy);
    sh_free(p->dropped);
}

static sh_status problem_init(problem *p) {
    p->n = p->rows->width + (p->options->intercept ? 1 : 0);
    p->columns = p->n + 1;
    p->scale = sh_alloc(p->columns, sizeof *p->scale);
    p->gram = sh_alloc(p->columns * p->columns, sizeof *p->gram);
    p->r = sh_alloc(p->n * p->n, sizeof *p->r);
    p->qy = sh_alloc(p->n, sizeof *p->qy);
    p->dropped = sh_alloc(p->n, sizeof *p->dropped);
    if (!p->scale || !p->gram || !p->r || !p->qy || !p->dropped)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu columns", p->columns);
    for (size_t i = 0; i < p->columns; i++) p->scale[i] = 1;
    return SH_OK;
}

/* From a greatest value near 1 to a length near 1. */
static void scale_by_length(problem *p) {
    size_t stride = p->columns;
    double *by = p->qy;  // not in use yet; the target's comes last
    double target = 1;
    for (size_t i = 0; i < stride; i++) {
        int exponent;
        double square = p->gram[i * stride + i];
        frexp(sqrt(square), &exponent);
        double factor = square > 0 ? ldexp(1.0, -exponent) : 1;
        *(i < p->n ? &by[i] : &target) = factor;
        p->scale[i] *= factor;
    }
    for (size_t i = 0; i < stride; i++)
        for (size_t j = 0; j < stride; j++)
            p->gram[i * stride + j] *= (i < p->n ? by[i] : target) * (j < p->n ? by[j] : target);
}

static sh_status solve(problem *p, sh_ls_result *result) {
    SH_TRY(scale_by_greatest(p));
    SH_TRY(sum_gram(p, NULL));
    scale_by_length(p);
    SH_TRY(factor_gram(p));
    double *w = p->qy;
    // A Gram matrix squares the condition: few digits would be left.
    bool doubtful = p->condition > 1e6;
    for (size_t i = 0; i < p->n; i++) doubtful |= p->dropped[i];
    if (p->options->l1 > 0) {
        memset(w, 0, p->n * sizeof *w);  // the factor was needed for the condition alone
        memset(p->dropped, 0, p->n * sizeof *p->dropped);
        SH_TRY(descend(p, w, &result->rounds));
        return finish(p, w, result);
    }
    if (p->options->solver == SH_LS_TSQR || (p->options->solver == SH_LS_AUTO && doubtful))
        SH_TRY(solve_tsqr(p));
    backward(p->r, p->n, w);
    for (size_t i = 0; i < p->n; i++)
        if (p->dropped[i]) w[i] = 0;
    return finish(p, w, result);
}

static sh_status check(const sh_ls_options *options, const sh_rows *rows) {
    if (rows->target == NULL) return SH_FAIL(SH_E_USAGE, "the data has no targets to learn from");
    if (rows->total == 0) return SH_FAIL(SH_E_USAGE, "the data has no rows");
    if (!(options->l1 >= 0 && options->l2 >= 0))
        return SH_FAIL(SH_E_USAGE, "penalties are 0 or more");
    if (rows->width <= SH_LS_WIDTH_MOST) return SH_OK;  // O(columns^2) memory and messages
    SH_FAIL(SH_E_UNSUPPORTED, "%zu columns: the Gram matrix is for %d at most", rows->width,
            SH_LS_WIDTH_MOST);
    return sh_error_hint("take solver newton, which needs no matrix");
}

sh_status sh_least_squares(const sh_ls_options *options, const sh_rows *rows, sh_learn_team *team,
                           sh_ls_result *result_out) {
    SH_TRY(check(options, rows));
    problem p = {.options = options, .rows = rows, .team = team};
    sh_ls_result result = {0};
    sh_status status = sh_learn_agree(team, problem_init(&p));
    if (status == SH_OK) status = solve(&p, &result);
    problem_fini(&p);
    if (status != SH_OK) {
        sh_ls_result_fini(&result);
        return status;
    }
    *result_out = result;
    return SH_OK;
}

void sh_ls_result_fini(sh_ls_result *result) {
    sh_free(result->w);
    sh_free(result->deviation);
    *result = (sh_ls_result){0};
}
