/* Plain C versions of the kernels: naive loops, sums in double, one thread. They are the tests'
 * oracle and the place to read what a kernel means; nothing calls them in a run. */
#ifndef SH_TENSOR_KERNELS_REFERENCE_H
#define SH_TENSOR_KERNELS_REFERENCE_H

#include "tensor/kernels/activation.h"
#include "tensor/kernels/loss.h"
#include "tensor/kernels/norm.h"
#include "tensor/kernels/pool.h"

double sh_ref_activation(sh_activation_kind kind, double x);
double sh_ref_activation_slope(sh_activation_kind kind, double x);

void sh_ref_softmax(const float *x, float *y, size_t rows, size_t cols);

sh_class_loss_sum sh_ref_softmax_cross_entropy(const float *logits, const int32_t *labels,
                                               size_t rows, size_t classes,
                                               const sh_class_loss_options *options,
                                               float *dlogits);
sh_class_loss_sum sh_ref_hinge(const float *scores, const int32_t *labels, size_t rows,
                               size_t classes, const sh_class_loss_options *options,
                               float *dscores);
/* Of one element; the slope goes to *slope_out. */
double sh_ref_mse(double pred, double target, double *slope_out);
double sh_ref_bce_logits(double logit, double target, double *slope_out);
double sh_ref_huber(double pred, double target, double delta, double *slope_out);

void sh_ref_layernorm_forward(const float *x, const float *gamma, const float *beta, float eps,
                              size_t rows, size_t C, float *y, float *mean, float *rstd);
void sh_ref_layernorm_backward(const sh_layernorm_backward *args);  // needs no scratch
void sh_ref_batchnorm_train(const sh_batchnorm_forward *args);
void sh_ref_batchnorm_infer(const sh_batchnorm_forward *args);
void sh_ref_batchnorm_backward(const sh_batchnorm_backward *args);

void sh_ref_max_forward(const sh_pool_shape *shape, const float *x, float *y, uint8_t *index);
void sh_ref_max_backward(const sh_pool_shape *shape, const float *dy, const float *y,
                         const uint8_t *index, float *dx);
void sh_ref_average_forward(const sh_pool_shape *shape, const float *x, float *y);
void sh_ref_average_backward(const sh_pool_shape *shape, const float *dy, float *dx);

#endif
