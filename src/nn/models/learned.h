/* Models that are not learnt by gradients alone (src/learn), as options of the run file. Each is a
 * net too, which evaluates and predicts. */
#ifndef SH_NN_MODELS_LEARNED_H
#define SH_NN_MODELS_LEARNED_H

#include "nn/spec.h"

typedef struct sh_kmeans_model {
    int64_t k;
    char *seeds;    // k-means||, k-means++, random, given
    char *centres;  // given: a file
    char *solver;   // lloyd, plain, minibatch, sgd
    double oversample;
    int64_t rounds, iterations, batch;
    double tolerance;
} sh_kmeans_model;

typedef struct sh_linear_model {
    char *solver;
    double l2, l1;
    bool intercept;
    double tolerance;
    int64_t iterations;
} sh_linear_model;

/* logistic and l2svm */
typedef struct sh_separator_model {
    char *solver;
    double c;
    bool intercept;
    double tolerance;
    int64_t iterations;
} sh_separator_model;

typedef struct sh_svm_spec {
    char *solver, *kernel;
    double c, epsilon, gamma, coef0;
    int64_t degree;
    double tolerance, cache_mb;
    int64_t parts;
    bool ratio;
    int64_t vectors, experts;  // what training found
} sh_svm_spec;

/* The option gamma; 0: 1 / features. */
static inline double sh_svm_gamma(const sh_svm_spec *options, int64_t width) {
    return options->gamma > 0 ? options->gamma : 1.0 / (double)width;
}

extern const sh_model_kind sh_model_kind_svm, sh_model_kind_kmeans, sh_model_kind_linear,
    sh_model_kind_logistic, sh_model_kind_l2svm;

#endif
