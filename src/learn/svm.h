/* Support vector machines with kernels: C-SVC, one class against each other one, and epsilon-SVR.
 *
 * `smo` solves each problem exactly, on rows that lie with several workers (smo.h). The other
 * solvers are the ladder of CA-SVM (You et al., 2015), which cut the rows into parts:
 *
 *   cascade    parts in file order; support vectors of two parts are trained together, up a tree
 *   dc         k-means parts; their solutions are the start of the whole problem, solved exactly
 *   dc-filter  k-means parts; their support vectors are trained together
 *   cp         k-means parts; a model each
 *   ca-bkm     parts of equal size around k-means centres; a model each
 *   ca-fcfs    parts of equal size around rows drawn by chance, first come, first served
 *   ca-random  parts of equal size by chance
 *
 * Where there is a model for each part, a sample goes to that of the nearest centre, and training
 * sends nothing. */
#ifndef SH_LEARN_SVM_H
#define SH_LEARN_SVM_H

#include "learn/smo.h"

typedef enum sh_svm_solver {
    SH_SVM_SMO,
    SH_SVM_CASCADE,
    SH_SVM_DC,
    SH_SVM_DC_FILTER,
    SH_SVM_CP,
    SH_SVM_CA_BKM,
    SH_SVM_CA_FCFS,
    SH_SVM_CA_RANDOM,
    SH_SVM_SOLVERS
} sh_svm_solver;

typedef struct sh_svm_options {
    sh_kernel kernel;
    double c, epsilon;   // epsilon: of the tube, in regression
    double tolerance;    // of the greatest violation
    size_t cache_bytes;  // of kernel rows, on each worker
    sh_svm_solver solver;
    int64_t parts;  // 0: as many as workers
    bool ratio;     // parts hold the classes in the proportion of all rows
    uint64_t seed;
    bool (*beat)(void *user);  // called now and then while it is solved; false: go on; or NULL
    void *user;
} sh_svm_options;

/* Output o decides between two classes a < b, in the order (0,1), (0,2), ... (1,2), ...: positive
 * is a. In regression there is one output, the value. With parts, each has such outputs. */
typedef struct sh_svm_model {
    size_t width, classes;  // classes 0: regression
    size_t parts, outputs;  // of each part
    size_t vectors;
    float *x;        // (vectors, width)
    double *factor;  // (parts * outputs, vectors)
    double *rho;     // (parts * outputs): output = sum of factor K(x, .) - rho
    float *centre;   // (parts, width); NULL: one part
    // What it took, over all workers:
    double objective;                                         // sum over the problems, parts too
    int64_t steps;                                            // of all problems, of this worker
    uint64_t parting_bytes, training_bytes, gathering_bytes;  // sent by this worker
} sh_svm_model;

const char *sh_svm_solver_name(sh_svm_solver solver);
/* Outputs of so many classes. */
size_t sh_svm_outputs(size_t classes);

/* Collective. `all` are the rows of all workers, which every worker can see, for the solvers that
 * cut them into parts; NULL for smo. Every worker gets the same model; finish it. */
sh_status sh_svm_train(const sh_svm_options *options, const sh_rows *rows, const sh_rows *all,
                       sh_learn_team *team, sh_svm_model *model_out);
void sh_svm_model_fini(sh_svm_model *model);

/* The outputs for a sample, (outputs). */
void sh_svm_decide(const sh_svm_model *model, const sh_kernel *kernel, const float *x,
                   double *outputs_out);
/* The class with most votes, of equal ones the first; in regression the value. */
double sh_svm_predict(const sh_svm_model *model, const sh_kernel *kernel, const float *x);

/* Cuts rows into parts, without a message: part_out (rows), centre_out (parts, width). */
sh_status sh_svm_part(const sh_svm_options *options, const sh_rows *all, size_t parts, int threads,
                      int32_t *part_out, float *centre_out);

#endif
