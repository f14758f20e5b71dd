/* Least squares, exactly:
 *
 *   minimise  1/2 sum over rows of s_i (w.x_i + b - y_i)^2 + l2/2 |w|^2 + l1 |w|_1
 *
 * with s_i the row's weight; the intercept b is never penalised. Everything follows from the Gram
 * matrix of the columns, the intercept's ones and the target, which the workers add up in one sum
 * of (width + 2)(width + 3)/2 numbers: tile by tile, as integers, so that the result has the same
 * bits at any number of workers.
 *
 *   gram   Cholesky of the Gram matrix. It squares the condition number, so that it is for
 *          conditions up to 1e6.
 *   tsqr   the R of a tall and skinny QR, by Cholesky QR in three turns, the first one shifted
 *          (Fukaya et al., 2020): as good as Householder's, up to conditions of 1e15. Each turn is
 *          one more pass over the rows and one more such sum.
 *   l1     coordinate descent on the Gram matrix (Friedman et al., 2010), by every worker alone. */
#ifndef SH_LEARN_LEAST_SQUARES_H
#define SH_LEARN_LEAST_SQUARES_H

#include "learn/rows.h"

typedef enum sh_ls_solver { SH_LS_AUTO, SH_LS_GRAM, SH_LS_TSQR } sh_ls_solver;

typedef struct sh_ls_options {
    double l2, l1;
    bool intercept;
    sh_ls_solver solver;  // AUTO: by the condition number
    double tolerance;     // l1: of the greatest change of a coefficient, in deviations; 0: 1e-9
    int64_t rounds;       // l1: over all coefficients, at most; 0: 10000
} sh_ls_options;

typedef struct sh_ls_result {
    double *w;          // (width + 1), the intercept last
    double *deviation;  // (width + 1) standard errors; NULL: with penalties there are none
    size_t width;
    double objective;      // what is minimised
    double residual;       // sum of s_i (w.x_i + b - y_i)^2
    double r2;             // 1 - residual / that of the mean; NAN: the target is constant
    double condition;      // of the columns scaled to length 1, intercept included: an estimate
    size_t dropped;        // columns that others make up, whose coefficient is 0
    size_t dropped_first;  // the first of them
    size_t kept;           // coefficients that are not 0, without the intercept
    bool by_tsqr;
    int64_t rounds;  // l1: that it took
} sh_ls_result;

enum { SH_LS_WIDTH_MOST = 8192 };  // the Gram matrix takes 8 width^2 bytes

/* Collective; every worker gets the same bits. Finish the result. */
sh_status sh_least_squares(const sh_ls_options *options, const sh_rows *rows, sh_learn_team *team,
                           sh_ls_result *result_out);
void sh_ls_result_fini(sh_ls_result *result);

#endif
