/* Sequential minimal optimisation of a support vector machine's dual, on rows that lie with several
 * workers:
 *
 *   minimise  1/2 a^T Q a + p^T a   with  0 <= a_t <= C_t,  sum of y_t a_t = constant
 *
 * where Q_st = y_s y_t K(x_s, x_t). In each step two variables move: i, which violates its
 * condition most, and the j that with i promises most by a second-order estimate (Fan, Chen and
 * Lin, 2005), as libsvm chooses them, without its shrinking. A step sends two gathers of a few
 * numbers, and a row of the data where its row of the kernel matrix is not in the cache, which all
 * workers fill alike. Among equals the lowest row is taken, so that variables, and thus all bits,
 * are the same at any number of workers. */
#ifndef SH_LEARN_SMO_H
#define SH_LEARN_SMO_H

#include "learn/kernel.h"

typedef struct sh_smo_problem {
    const sh_rows *rows;
    const uint32_t *list;  // rows of this worker that take part; NULL: all
    size_t count;          // of them
    /* Variables of this worker: (count), or (2 count) with `twice`, where variable count + i is the
     * second one of row i, as in regression. */
    bool twice;
    const double *y;       // 1 or -1
    const double *linear;  // p
    const double *most;    // C
    double *a;             // the solution; on entry a feasible start
    bool warm;             // it is not all zeros
    sh_kernel kernel;
    double tolerance;          // of the greatest violation; 0: 1e-3
    size_t cache_bytes;        // of kernel rows, on each worker
    int64_t steps_most;        // 0: no end
    bool (*stop)(void *user);  // asked now and then, by all workers at the same steps; it must be
                               // true on all or on none; NULL: never
    void *user;
} sh_smo_problem;

typedef struct sh_smo_result {
    double rho;             // the decision is sum of y_t a_t K(x_t, x) - rho
    double objective;       // of the dual
    double violation;       // the greatest that is left
    int64_t steps, misses;  // rows of the kernel matrix that were computed
    bool stopped;           // before the tolerance was met
} sh_smo_result;

/* Collective. */
sh_status sh_smo_solve(sh_smo_problem *problem, sh_learn_team *team, sh_smo_result *result_out);

#endif
