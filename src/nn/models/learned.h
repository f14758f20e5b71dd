/* Options of the models that src/learn trains by solvers of its own, as a run file gives them. Each
 * model is a net as well, which evaluates, predicts and is saved like any other. The option tables
 * and their limits are in learned.c. */
#ifndef SH_NN_MODELS_LEARNED_H
#define SH_NN_MODELS_LEARNED_H

#include "nn/spec.h"

typedef struct sh_kmeans_model {
    int64_t k;
    char *seeds;        // k-means||, k-means++, random, given
    char *centres;      // given: a file
    char *solver;       // lloyd, plain, minibatch, sgd
    double oversample;  // k-means||: expected candidates of a round, as a multiple of k
    int64_t rounds, iterations,
        batch;         // k-means|| rounds; Lloyd iterations at most; rows of minibatch
    double tolerance;  // relative fall of inertia that ends it; 0: until no centre moves
} sh_kmeans_model;

typedef struct sh_linear_model {
    char *solver;
    double l2, l1;   // penalties l2/2 |w|^2 and l1 |w|_1
    bool intercept;  // a constant term, never penalised
    double tolerance;
    int64_t iterations;
} sh_linear_model;

/* Of the models logistic and l2svm, which separate classes by one linear function each. */
typedef struct sh_separator_model {
    char *solver;
    double c;  // 1/2 |w|^2 + c sum of losses: large c, weak penalty
    bool intercept;
    double tolerance;
    int64_t iterations;
} sh_separator_model;

typedef struct sh_svm_spec {
    char *solver, *kernel;
    double c, epsilon, gamma, coef0;  // price of losses; width of the tube without loss; kernel
    int64_t degree;                   // of the polynomial kernel
    double tolerance, cache_mb;       // greatest violation that may remain; kernel rows of a worker
    int64_t parts;                    // parts that rows are cut into; 0: as many as workers
    bool ratio;                // parts of equal size have the classes in the proportion of all rows
    int64_t vectors, experts;  // what training found
} sh_svm_spec;

/* The option gamma; 0: 1 / features. */
static inline double sh_svm_gamma(const sh_svm_spec *options, int64_t width) {
    return options->gamma > 0 ? options->gamma : 1.0 / (double)width;
}

extern const sh_model_kind sh_model_kind_svm, sh_model_kind_kmeans, sh_model_kind_linear,
    sh_model_kind_logistic, sh_model_kind_l2svm;

#endif
