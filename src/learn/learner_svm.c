/* The learner `svm`: support vector machines with kernels, solved in one step. How many vectors its
 * net has is known only then, so the run gets another net; the model file tells of it. */
#include <math.h>
#include <string.h>

#include "learn/learner.h"
#include "learn/svm.h"
#include "nn/models/learned.h"

typedef struct own {
    sh_svm_spec *options;
    sh_learn_team team;
    sh_rows rows, all;   // `all`: of every worker, for solvers that cut rows into parts
    sh_svm_model model;  // in doubles, as trained; the net's are floats
    bool trained;
} own;

/* Also after a failed open: what was not reached is zero, which every fini takes. */
static void svm_close(sh_learner *learner) {
    own *o = learner->own;
    if (o == NULL) return;
    sh_svm_model_fini(&o->model);
    sh_rows_fini(&o->rows);
    sh_rows_fini(&o->all);
    sh_learner_options_free(learner->run, o->options);
    sh_free(o);
    learner->own = NULL;
}

/* Classes, or one value: several values would be several machines. */
static sh_status svm_open(sh_learner *learner) {
    own *o = learner->own = sh_alloc(1, sizeof *o);
    if (o == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a support vector machine");
    const sh_data_info *info = &learner->run->data.info;
    void *options;
    SH_TRY(sh_learner_options(learner->run, &options));
    o->options = options;
    if (info->target != SH_TARGET_VALUES || info->values == 1) return SH_OK;
    return SH_FAIL(SH_E_USAGE, "model 'svm' learns one value for each row, the data has %ld",
                   (long)info->values);
}

/* The dual is solved to its tolerance in one step of the run. */
static int64_t svm_steps(const sh_learner *learner) {
    (void)learner;
    return 1;
}

/* ---- Training ---- */

/* `auto` is exact, whatever the size of the data. */
static sh_svm_solver solver_of(const sh_svm_spec *options) {
    if (strcmp(options->solver, "auto") == 0) return SH_SVM_SMO;
    int solver = 0;
    while (strcmp(sh_svm_solver_name((sh_svm_solver)solver), options->solver) != 0) solver++;
    return (sh_svm_solver)solver;
}

/* `auto` for gamma becomes a number here, as the net needs one. */
static sh_kernel kernel_of(const sh_svm_spec *options, size_t width) {
    int kind = 0;
    while (strcmp(sh_kernel_name((sh_kernel_kind)kind), options->kernel) != 0) kind++;
    return (sh_kernel){.kind = (sh_kernel_kind)kind,
                       .gamma = sh_svm_gamma(options, (int64_t)width),
                       .coef0 = options->coef0,
                       .degree = (int)options->degree};
}

/* Solvers that cut rows need all rows on every worker (svm_part.c). */
static sh_status svm_begin(sh_learner *learner) {
    shoal_run *run = learner->run;
    own *o = learner->own;
    if (run->config.load != NULL || run->at.step > 0) {
        SH_FAIL(SH_E_USAGE,
                "a support vector machine is solved in one step: there is nothing to "
                "go on from");
        return sh_error_hint("leave --load and --resume out");
    }
    o->team = sh_learner_team(run);
    SH_TRY(sh_learner_begin(run, &o->team, &o->rows));
    if (solver_of(o->options) == SH_SVM_SMO) return SH_OK;
    if (run->data.train->parts.ranks > 0) {
        SH_FAIL(SH_E_UNSUPPORTED,
                "solver %s cuts all rows into parts, but each worker has its own "
                "part of the data",
                o->options->solver);
        return sh_error_hint("take solver smo, or data in one file");
    }
    return sh_learn_agree(&o->team, sh_rows_open_all(run->data.train, &o->all));
}

/* Serves as `stop` of the solver, which takes long: tells that this worker lives. False lets the
 * solver go on. */
static bool beat(void *user) {
    const shoal_run *run = user;
    sh_team_beat(&run->team);
    return false;
}

/* The run's net becomes one with so many vectors and experts. */
static sh_status grow_net(shoal_run *run, const own *o) {
    const sh_svm_spec *s = o->options;
    // A layer has one vector at least; its factor is then 0.
    size_t vectors = o->model.vectors > 0 ? o->model.vectors : 1;
    char *text = sh_format(
        "{name: svm, solver: %s, kernel: %s, c: %.17g, epsilon: %.17g, gamma: %.17g, coef0: %.17g, "
        "degree: %ld, tolerance: %.17g, cache_mb: %.17g, parts: %ld, ratio: %s, vectors: %zu, "
        "experts: %zu}",
        s->solver, s->kernel, s->c, s->epsilon, sh_svm_gamma(s, (int64_t)o->model.width), s->coef0,
        (long)s->degree, s->tolerance, s->cache_mb, (long)s->parts, s->ratio ? "true" : "false",
        // %.17g keeps all bits of a double: the model file makes the same net.
        vectors, o->model.parts);
    sh_node *node = NULL;
    if (text == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a model");
    sh_status status = sh_node_parse("model", text, strlen(text), &node);
    sh_free(text);
    SH_TRY(status);
    sh_node_destroy(run->config.model);
    run->config.model = node;
    return sh_run_rebuild(run);
}

/* The memory of a parameter of the rebuilt net, which must have room for what was found. */
static float *place_of(const shoal_run *run, const char *name, size_t count) {
    const sh_param *param = sh_param_list_find(&run->model.net->params, name);
    SH_ASSERT(param != NULL && param->count >= count);
    return run->model.blocks.weights + param->offset;
}

/* The decision is sum of factor K - rho: a dense layer whose bias is -rho. */
static void put_model(shoal_run *run, const sh_svm_model *m) {
    size_t outputs = m->parts * m->outputs, vectors = m->vectors;
    memset(run->model.blocks.weights, 0, run->model.net->params.total * sizeof(float));
    memcpy(place_of(run, "kernel.vector", vectors * m->width), m->x,
           vectors * m->width * sizeof(float));
    float *factor = place_of(run, "decision.weight", outputs * vectors);
    float *bias = place_of(run, "decision.bias", outputs);
    for (size_t i = 0; i < outputs * vectors; i++) factor[i] = (float)m->factor[i];
    for (size_t i = 0; i < outputs; i++) bias[i] = (float)-m->rho[i];
    if (m->centre != NULL)
        memcpy(place_of(run, "centre.centre", m->parts * m->width), m->centre,
               m->parts * m->width * sizeof(float));
}

/* The whole training is one step of the run. */
static sh_status svm_step(sh_learner *learner, int64_t to, sh_learner_step *step_out) {
    (void)to;
    shoal_run *run = learner->run;
    own *o = learner->own;
    const sh_svm_spec *s = o->options;
    int64_t begin = sh_run_now(run);
    sh_svm_options asked = {.kernel = kernel_of(s, o->rows.width),
                            .c = s->c,
                            .epsilon = s->epsilon,
                            .tolerance = s->tolerance,
                            .cache_bytes = (size_t)(s->cache_mb * 0x1p20),  // MiB
                            .solver = solver_of(s),
                            .parts = s->parts,
                            .ratio = s->ratio,
                            .seed = (uint64_t)run->config.seed,
                            .beat = beat,
                            .user = run};
    SH_TRY(sh_svm_train(&asked, &o->rows, &o->all, &o->team, &o->model));
    run->stats.spent.compute_ns += sh_run_now(run) - begin;
    SH_TRY(grow_net(run, o));
    put_model(run, &o->model);
    const sh_svm_model *m = &o->model;
    if (sh_team_leads(&run->team))
        SH_INFO(&run->log,
                "svm: %zu support vectors, objective %.9g, %ld steps; worker 0 sent %lu bytes to "
                "cut rows, %lu in training, %lu for the model",
                m->vectors, m->objective, (long)m->steps, (unsigned long)m->parting_bytes,
                (unsigned long)m->training_bytes, (unsigned long)m->gathering_bytes);
    o->trained = true;
    return sh_learner_stepped(run, &o->team, true, m->objective, step_out);
}

/* Bytes are those that this worker sent. */
static size_t svm_metrics(const sh_learner *learner, const sh_loss_result *since,
                          sh_metric *fields) {
    const own *o = learner->own;
    const sh_svm_model *m = &o->model;
    (void)since;
    size_t count = 0;
    fields[count++] = (sh_metric){"objective", SH_METRIC_REAL, .r = m->objective};
    fields[count++] = (sh_metric){"vectors", SH_METRIC_INT, .i = (int64_t)m->vectors};
    fields[count++] = (sh_metric){"smo_steps", SH_METRIC_INT, .i = m->steps};
    fields[count++] = (sh_metric){"training_bytes", SH_METRIC_INT, .i = (int64_t)m->training_bytes};
    fields[count++] =
        (sh_metric){"gathering_bytes", SH_METRIC_INT, .i = (int64_t)m->gathering_bytes};
    return count;
}

/* The rebuilt net is all of the model: no slots. */
static sh_checkpoint svm_blocks(const sh_learner *learner, sh_checkpoint_slot *slots) {
    (void)slots;
    return sh_learner_net_blocks(learner);
}

const sh_learner_kind sh_learner_svm = {
    .name = "svm",
    .help = "support vector machines with kernels, exactly or in parts",
    .open = svm_open,
    .close = svm_close,
    .steps = svm_steps,
    .begin = svm_begin,
    .step = svm_step,
    .evaluate = sh_learner_evaluate,
    .save = sh_learner_save,
    .blocks = svm_blocks,
    .metrics = svm_metrics,
    .cost = sh_learner_net_cost,
    .finish = sh_learner_finish,
};
