/* k-means, the linear models and the support vector machine as nets of a few layers, so that
 * evaluation, prediction, checkpoints and export need nothing of their own:
 *
 *   kmeans                  [flatten] ─ centres                                    (N, k)
 *   linear, logistic, l2svm [flatten] ─ dense                                      (N, outputs)
 *   svm                     [flatten] ─ kernel ─ dense ─ [route] ─ [votes]         (N, classes)
 *                                 └──── centres ──────────┘
 *
 * Who fills in the parameters is the option `solver`: a learner of src/learn, or `sgd`, which
 * trains the net by gradients like any other. */
#include "nn/models/learned.h"

#include "nn/models/common.h"

/* Images are rows of pixels to all of these models. */
static void flatten(sh_net_spec *net, sh_status *status) {
    if (net->input.sample.rank > 1)
        sh_model_layer(net, status, &sh_layer_kind_flatten, SH_AFTER, NULL, "flatten");
}

/* ---- k-means ---- */

/* Bahmani et al. 2012 (k-means||, few passes over the data), Arthur and Vassilvitskii 2007
 * (k-means++, one exchange per centre), rows drawn at random, or centres from a file. */
static const char *seeds_choice(size_t index) {
    static const char *const names[] = {"k-means||", "k-means++", "random", "given"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

/* lloyd and plain give the same bits; lloyd keeps bounds (Hamerly 2010) that spare most distances.
 * minibatch (Sculley 2010) trades inertia for cheap steps. */
static const char *kmeans_solver(size_t index) {
    static const char *const names[] = {"lloyd", "plain", "minibatch", "sgd"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

#define AT(field) .at = offsetof(sh_kmeans_model, field)
/* oversample and rounds act with k-means|| alone, centres with seeds given, batch with solver
 * minibatch. A limit in this table is the least or greatest value that the code can take, not
 * advice. */
static const sh_option kmeans_rows[] = {
    {.key = "k",
     .type = SH_OPTION_INT,
     AT(k),
     .initial = "8",
     .least = 1,
     .most = 1 << 24,
     .help = "clusters"},
    {.key = "solver",
     .type = SH_OPTION_STRING,
     AT(solver),
     .initial = "lloyd",
     .choices = kmeans_solver,
     .help = "lloyd: with bounds that skip rows; plain: without; minibatch; sgd"},
    {.key = "seeds",
     .type = SH_OPTION_STRING,
     AT(seeds),
     .initial = "k-means||",
     .choices = seeds_choice,
     .help = "where the centres begin"},
    {.key = "centres",
     .type = SH_OPTION_STRING,
     AT(centres),
     .value = "FILE",
     .help = "seeds given: a data file of k rows"},
    {.key = "oversample",
     .type = SH_OPTION_REAL,
     AT(oversample),
     .initial = "2",
     .least = 0.01,
     .most = 100,
     .help = "k-means||: candidates of a round, as a multiple of k"},
    {.key = "rounds",
     .type = SH_OPTION_INT,
     AT(rounds),
     .initial = "5",
     .least = 1,
     .most = 1000,
     .help = "k-means||: rounds"},
    {.key = "iterations",
     .type = SH_OPTION_INT,
     AT(iterations),
     .initial = "300",
     .least = 1,
     .most = 1 << 30,
     .help = "at most; it ends when no centre moves"},
    {.key = "batch",
     .type = SH_OPTION_INT,
     AT(batch),
     .initial = "1024",
     .least = 1,
     .most = 1 << 30,
     .help = "minibatch: rows of an iteration"},
    {.key = "tolerance",
     .type = SH_OPTION_REAL,
     AT(tolerance),
     .initial = "0",
     .least = 0,
     .most = 1,
     .help = "it also ends when inertia falls by less, as a part of itself"},
};
#undef AT

/* One layer: the greatest output is the nearest centre. Loss `nearest` makes the mean loss the
 * inertia per row. */
static sh_status describe_kmeans(sh_net_spec *net, const void *options) {
    const sh_kmeans_model *o = options;
    sh_status status = SH_OK;
    flatten(net, &status);
    sh_model_layer(net, &status, &sh_layer_kind_centres, SH_AFTER,
                   &(sh_centres_spec){.count = o->k}, "kmeans");
    return status;
}

const sh_model_kind sh_model_kind_kmeans = {
    .name = "kmeans",
    .help = "k-means clusters (k: 8), by Lloyd's iteration",
    .options = {kmeans_rows, SH_COUNT(kmeans_rows)},
    .options_bytes = sizeof(sh_kmeans_model),
    .describe = describe_kmeans,
    .loss = "nearest",
    .learner = "kmeans",
    .typical = {.sample = {.rank = 3, .dim = {1, 28, 28}}, .outputs = 8},
};

/* ---- Linear models ---- */

/* y = W x + b, with one row of W per class or target value. The loss makes the model: mse for least
 * squares, cross-entropy for logistic regression, hinge for the SVM. */
static sh_status describe_single(sh_net_spec *net, const void *options) {
    (void)options;
    sh_status status = SH_OK;
    flatten(net, &status);
    sh_model_layer(net, &status, &sh_layer_kind_dense, SH_AFTER, SH_DENSE(.init = "xavier"), "fc");
    return status;
}

/* gram: normal equations, one pass and F^2 memory, which squares the condition number. tsqr: QR of
 * stacked parts, twice the flops, for ill-conditioned data. auto looks at the condition number.
 * newton needs products with the data alone, so it serves wide sparse data. */
static const char *linear_solver(size_t index) {
    static const char *const names[] = {"sgd", "auto", "gram", "tsqr", "newton"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

#define AT(field) .at = offsetof(sh_linear_model, field)
/* Penalties default to 0: plain least squares. sgd has weight decay of its own, in the optimizer.
 */
static const sh_option linear_rows[] = {
    {.key = "solver",
     .type = SH_OPTION_STRING,
     AT(solver),
     .initial = "sgd",
     .choices = linear_solver,
     .help = "auto: exactly, gram or tsqr by the condition number; newton: wide and sparse"},
    {.key = "l2",
     .type = SH_OPTION_REAL,
     AT(l2),
     .initial = "0",
     .least = 0,
     .most = 1e300,
     .help = "ridge: minimise 1/2 sum of squares + l2/2 |w|^2; not with sgd"},
    {.key = "l1",
     .type = SH_OPTION_REAL,
     AT(l1),
     .initial = "0",
     .least = 0,
     .most = 1e300,
     .help = "lasso, with l2 elastic net: + l1 |w|_1; solver auto"},
    {.key = "intercept",
     .type = SH_OPTION_BOOL,
     AT(intercept),
     .initial = "true",
     .help = "learn a constant, which is never penalised"},
    {.key = "tolerance",
     .type = SH_OPTION_REAL,
     AT(tolerance),
     .initial = "1e-9",
     .least = 0,
     .most = 1,
     .help = "l1 and newton: when to end"},
    {.key = "iterations",
     .type = SH_OPTION_INT,
     AT(iterations),
     .initial = "10000",
     .least = 1,
     .most = 1 << 30,
     .help = "l1 and newton: at most"},
};
#undef AT

const sh_model_kind sh_model_kind_linear = {
    .name = "linear",
    .help = "one dense layer; with loss mse: linear regression (solver: auto is exact)",
    .options = {linear_rows, SH_COUNT(linear_rows)},
    .options_bytes = sizeof(sh_linear_model),
    .describe = describe_single,
    .learner = "linear",
    .typical = {.sample = {.rank = 1, .dim = {13}}, .outputs = 1},
};

#define AT(field) .at = offsetof(sh_separator_model, field)
/* The rows that logistic and l2svm share after their `solver`. c and tolerance mean what they mean
 * in LIBLINEAR, so that its users find the same model; here the intercept is never penalised. */
#define SEPARATOR_ROWS                                                                             \
    {.key = "c",                                                                                   \
     .type = SH_OPTION_REAL,                                                                       \
     AT(c),                                                                                        \
     .initial = "1",                                                                               \
     .least = 1e-300,                                                                              \
     .most = 1e300,                                                                                \
     .help = "newton: minimise 1/2 |w|^2 + c sum of losses"},                                      \
        {.key = "intercept",                                                                       \
         .type = SH_OPTION_BOOL,                                                                   \
         AT(intercept),                                                                            \
         .initial = "true",                                                                        \
         .help = "newton: learn a constant, which is never penalised"},                            \
        {.key = "tolerance",                                                                       \
         .type = SH_OPTION_REAL,                                                                   \
         AT(tolerance),                                                                            \
         .initial = "0.01",                                                                        \
         .least = 0,                                                                               \
         .most = 1,                                                                                \
         .help = "newton: of the gradient, as liblinear's -e"},                                    \
    {                                                                                              \
        .key = "iterations", .type = SH_OPTION_INT, AT(iterations), .initial = "1000", .least = 1, \
        .most = 1 << 30, .help = "newton: steps of the trust region, at most"                      \
    }

/* sgd is the default of logistic, newton that of l2svm: cross-entropy is a loss that nets have, and
 * the squared hinge is not. */
static const char *logistic_solver(size_t index) {
    static const char *const names[] = {"sgd", "newton"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

/* newton minimises 1/2 |w|^2 + c sum log(1 + exp(-y w.x)) for two classes, the multinomial
 * likelihood for more. */
static const sh_option logistic_rows[] = {
    {.key = "solver",
     .type = SH_OPTION_STRING,
     AT(solver),
     .initial = "sgd",
     .choices = logistic_solver,
     .help = "newton: in a trust region, as liblinear"},
    SEPARATOR_ROWS,
};

const sh_model_kind sh_model_kind_logistic = {
    .name = "logistic",
    .help = "one dense layer with cross-entropy: logistic regression (solver: newton)",
    .options = {logistic_rows, SH_COUNT(logistic_rows)},
    .options_bytes = sizeof(sh_separator_model),
    .describe = describe_single,
    .learner = "linear",
    .typical = {.sample = {.rank = 3, .dim = {1, 28, 28}}, .outputs = 10},
};

static const char *l2svm_solver(size_t index) {
    static const char *const names[] = {"newton", "sgd"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

/* newton minimises 1/2 |w|^2 + c sum max(0, 1 - y w.x)^2. With sgd the loss is the plain hinge. */
static const sh_option l2svm_rows[] = {
    {.key = "solver",
     .type = SH_OPTION_STRING,
     AT(solver),
     .initial = "newton",
     .choices = l2svm_solver,
     .help = "newton: one class against the others, as liblinear"},
    SEPARATOR_ROWS,
};
#undef AT

const sh_model_kind sh_model_kind_l2svm = {
    .name = "l2svm",
    .help = "one dense layer: a linear SVM with squared hinge loss",
    .options = {l2svm_rows, SH_COUNT(l2svm_rows)},
    .options_bytes = sizeof(sh_separator_model),
    .describe = describe_single,
    .loss = "hinge",
    .learner = "linear",
    .typical = {.sample = {.rank = 3, .dim = {1, 28, 28}}, .outputs = 10},
};

/* ---- Support vector machine ---- */

/* smo is exact (Fan, Chen, Lin 2005). The others are the ladder of CA-SVM (You et al. 2015): from
 * cascade to ca-random each sends less and gives up more of the whole problem (docs/svm.md). */
static const char *svm_solver(size_t index) {
    static const char *const names[] = {"auto", "smo",    "cascade", "dc",       "dc-filter",
                                        "cp",   "ca-bkm", "ca-fcfs", "ca-random"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

/* The names of the layer `kernel`, which computes them (layers/kernel.c). */
static const char *svm_kernel(size_t index) {
    static const char *const names[] = {"rbf", "linear", "polynomial"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

#define AT(field) .at = offsetof(sh_svm_spec, field)
/* `vectors` and `experts` are sizes of the net, not wishes: training sets them, and a checkpoint
 * brings them back, so that the loaded net has the trained shape. */
static const sh_option svm_rows[] = {
    {.key = "solver",
     .type = SH_OPTION_STRING,
     AT(solver),
     .initial = "auto",
     .choices = svm_solver,
     .help = "auto, smo: exact; the others cut the rows into parts (docs/svm.md)"},
    {.key = "kernel",
     .type = SH_OPTION_STRING,
     AT(kernel),
     .initial = "rbf",
     .choices = svm_kernel,
     .help = "exp(-gamma |a - b|^2), a.b, or (gamma a.b + coef0)^degree"},
    {.key = "c",
     .type = SH_OPTION_REAL,
     AT(c),
     .initial = "1",
     .least = 1e-300,
     .most = 1e300,
     .help = "minimise 1/2 |w|^2 + c sum of losses"},
    {.key = "epsilon",
     .type = SH_OPTION_REAL,
     AT(epsilon),
     .initial = "0.1",
     .least = 0,
     .most = 1e300,
     .help = "regression: what deviates less is no loss"},
    {.key = "gamma",
     .type = SH_OPTION_REAL,
     AT(gamma),
     .initial = "0",
     .least = 0,
     .most = 1e300,
     .help = "of the kernel; 0: 1 / features"},
    {.key = "coef0",
     .type = SH_OPTION_REAL,
     AT(coef0),
     .initial = "0",
     .least = -1e300,
     .most = 1e300,
     .help = "of the polynomial"},
    {.key = "degree",
     .type = SH_OPTION_INT,
     AT(degree),
     .initial = "3",
     .least = 1,
     .most = 64,
     .help = "of the polynomial"},
    {.key = "tolerance",
     .type = SH_OPTION_REAL,
     AT(tolerance),
     .initial = "0.001",
     .least = 1e-15,
     .most = 1,
     .help = "of the greatest violation, as libsvm's -e"},
    {.key = "cache_mb",
     .type = SH_OPTION_REAL,
     AT(cache_mb),
     .initial = "512",
     .least = 1,
     .most = 1e9,
     .help = "kernel rows kept by each worker"},
    {.key = "parts",
     .type = SH_OPTION_INT,
     AT(parts),
     .initial = "0",
     .least = 0,
     .most = 1 << 20,
     .help = "that rows are cut into; 0: as many as workers"},
    {.key = "ratio",
     .type = SH_OPTION_BOOL,
     AT(ratio),
     .initial = "true",
     .help = "parts of equal size hold the classes as all rows do"},
    {.key = "vectors",
     .type = SH_OPTION_INT,
     AT(vectors),
     .initial = "1",
     .least = 1,
     .most = 1 << 24,
     .help = "support vectors; training sets it"},
    {.key = "experts",
     .type = SH_OPTION_INT,
     AT(experts),
     .initial = "1",
     .least = 1,
     .most = 1 << 20,
     .help = "parts with a model each; training sets it"},
};
#undef AT

/* `kernel` gives K(x, v_j) of all support vectors; `decision` weighs them: one decision for each
 * pair of classes (one against one, as libsvm), or one value in regression. With E experts there
 * are E times as many, of which `route` takes those of the part whose centre is nearest. `votes`
 * turns decisions into scores of classes. */
static sh_status describe_svm(sh_net_spec *net, const void *options) {
    const sh_svm_spec *o = options;
    sh_status status = SH_OK;
    flatten(net, &status);
    SH_TRY(status);
    int input = sh_net_spec_last(net);
    // Regression has one output. Kernels read the flattened sample, `width` features.
    int64_t classes = net->input.outputs, pairs = classes > 1 ? classes * (classes - 1) / 2 : 1;
    int64_t width = (int64_t)sh_shape_count(&net->input.sample);
    sh_kernel_spec kernel = {.count = o->vectors,
                             .kernel = o->kernel,
                             .gamma = sh_svm_gamma(o, width),
                             .coef0 = o->coef0,
                             .degree = o->degree};
    sh_model_layer(net, &status, &sh_layer_kind_kernel, input, &kernel, "kernel");
    int decision = sh_model_layer(net, &status, &sh_layer_kind_dense, SH_AFTER,
                                  SH_DENSE(.units = pairs * o->experts), "decision");
    if (o->experts > 1) {
        int centre = sh_model_layer(net, &status, &sh_layer_kind_centres, input,
                                    &(sh_centres_spec){.count = o->experts}, "centre");
        SH_TRY(status);
        SH_TRY(sh_net_spec_add(net, &sh_layer_kind_route, "route", (int[]){centre, decision}, 2,
                               NULL, NULL));
    }
    if (classes > 1) sh_model_layer(net, &status, &sh_layer_kind_votes, SH_AFTER, NULL, "votes");
    return status;
}

/* The loss only evaluates: every solver minimises its own objective. */
const sh_model_kind sh_model_kind_svm = {
    .name = "svm",
    .help = "support vector machine with a kernel (kernel: rbf, c: 1)",
    .options = {svm_rows, SH_COUNT(svm_rows)},
    .options_bytes = sizeof(sh_svm_spec),
    .describe = describe_svm,
    .loss = "hinge",
    .learner = "svm",
    .typical = {.sample = {.rank = 3, .dim = {1, 28, 28}}, .outputs = 10},
};
