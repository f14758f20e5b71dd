/* Attention as its definition reads; see reference_attention.h. */
#include "tensor/kernels/reference_attention.h"

#include <math.h>
#include <string.h>

/* B batch, T tokens, H heads, D head size, C = H D channels. */

typedef struct head {
    size_t T, D, C;
    bool causal;
    size_t at;  // where q of token 0 stands in qkv; k is C further, v 2C
} head;

/* Where the columns of one head begin. */
static head head_at(const sh_attention_shape *s, size_t b, size_t h) {
    size_t C = s->H * s->D;
    return (head){
        .T = s->T, .D = s->D, .C = C, .causal = s->causal, .at = b * s->T * 3 * C + h * s->D};
}

/* In double. */
static double dot(const float *x, const float *y, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

/* row (keys seen by query t) = softmax(q_t . k_j / sqrt(D)); returns its log-sum-exp. */
static double softmax_row(const head *x, const float *qkv, size_t t, double *row) {
    size_t seen = x->causal ? t + 1 : x->T;
    const float *q = qkv + x->at + t * 3 * x->C, *k = qkv + x->at + x->C;
    double most = -INFINITY, sum = 0;
    for (size_t j = 0; j < seen; j++) {
        row[j] = dot(q, k + j * 3 * x->C, x->D) / sqrt((double)x->D);
        if (row[j] > most) most = row[j];
    }
    for (size_t j = 0; j < seen; j++) sum += exp(row[j] - most);
    double lse = most + log(sum);
    for (size_t j = 0; j < seen; j++) row[j] = exp(row[j] - lse);
    return lse;
}

/* y_t = sum_j P_tj v_j */
static void forward_row(const head *x, const float *qkv, size_t t, const double *row, float *y) {
    size_t seen = x->causal ? t + 1 : x->T;
    const float *v = qkv + x->at + 2 * x->C;
    for (size_t d = 0; d < x->D; d++) {
        double sum = 0;
        for (size_t j = 0; j < seen; j++) sum += row[j] * (double)v[j * 3 * x->C + d];
        y[d] = (float)sum;
    }
}

void sh_reference_attention_forward(const sh_attention_shape *s, const float *qkv, float *y,
                                    float *lse, double *row) {
    for (size_t b = 0; b < s->B; b++)
        for (size_t h = 0; h < s->H; h++) {
            head x = head_at(s, b, h);
            for (size_t t = 0; t < s->T; t++) {
                lse[(b * s->H + h) * s->T + t] = (float)softmax_row(&x, qkv, t, row);
                forward_row(&x, qkv, t, row, y + (b * s->T + t) * x.C + h * s->D);
            }
        }
}

/* What query t adds: dv_j += P_j dy, dS_j = P_j (dP_j - sum P dP), dq += dS_j k_j, dk_j += dS_j q.
 * `sum` (B, T, 3C) holds the gradients. */
static void backward_row(const head *x, const float *qkv, size_t t, const double *row,
                         const float *dy, double *sum) {
    size_t seen = x->causal ? t + 1 : x->T, step = 3 * x->C, query = x->at + t * step;
    double delta = 0, scale = 1 / sqrt((double)x->D);
    for (size_t j = 0; j < seen; j++)
        delta += row[j] * dot(dy, qkv + x->at + j * step + 2 * x->C, x->D);
    for (size_t j = 0; j < seen; j++) {
        size_t key = x->at + j * step + x->C, value = key + x->C;
        double ds = row[j] * (dot(dy, qkv + value, x->D) - delta) * scale;
        for (size_t d = 0; d < x->D; d++) {
            sum[value + d] += row[j] * (double)dy[d];
            sum[query + d] += ds * (double)qkv[key + d];
            sum[key + d] += ds * (double)qkv[query + d];
        }
    }
}

void sh_reference_attention_backward(const sh_attention_shape *s, const float *qkv, const float *dy,
                                     float *dqkv, double *row) {
    size_t count = s->B * s->T * 3 * s->H * s->D;
    double *sum = row + s->T;
    memset(sum, 0, count * sizeof *sum);
    for (size_t b = 0; b < s->B; b++)
        for (size_t h = 0; h < s->H; h++) {
            head x = head_at(s, b, h);
            for (size_t t = 0; t < s->T; t++) {
                softmax_row(&x, qkv, t, row);
                backward_row(&x, qkv, t, row, dy + (b * s->T + t) * x.C + h * s->D, sum);
            }
        }
    for (size_t i = 0; i < count; i++) dqkv[i] = (float)sum[i];
}
