/* OpenBLAS on one thread, see gram.h; the thread count of the caller is put back. */
#include "tensor/kernels/gram.h"

#include <cblas.h>
#include <omp.h>

/* Symmetric rank-k update: half the work of a product. */
void sh_gram(const double *x, size_t rows, size_t columns, double *g) {
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, (int)columns, (int)rows, 1.0, x,
                (int)columns, 0.0, g, (int)columns);
    omp_set_num_threads(threads);
}

/* A triangular solve from the right. */
void sh_gram_divide(double *x, size_t rows, size_t columns, const double *r, size_t order,
                    size_t stride) {
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    cblas_dtrsm(CblasRowMajor, CblasRight, CblasUpper, CblasNoTrans, CblasNonUnit, (int)rows,
                (int)order, 1.0, r, (int)stride, x, (int)columns);
    omp_set_num_threads(threads);
}
