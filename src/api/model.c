/* shoal_model: a net that the caller feeds with arrays of its own, without files, folders or
 * workers. It is built by the same parts as a run's model (spec, loss, tuner, executors), and its
 * options are read by the run's option table, so texts mean the same here as in a run file.
 *
 * Arrays come straight from the caller: labels and tokens are checked before a kernel uses them as
 * indices. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "api/model.h"
#include "base/signals.h"
#include "ckpt/checkpoint.h"
#include "ckpt/safetensors.h"
#include "export/export.h"
#include "optim/optim.h"
#include "shoal/tools.h"
#include "tensor/kernels/loss.h"
#include "run/config.h"
#include "run/run.h"
#include "run/need.h"

/* Options of the optimizer, from a map as in a run file, read through the run's own option rows.
 * The caller frees the config, also on failure. */
static sh_status read_optimizer(const char *text, sh_config *config) {
    SH_TRY(sh_config_init(config));
    if (text == NULL) text = "{name: sgd, lr: 0.01}";
    char *whole = sh_format("optimizer: %s", text);
    if (whole == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for options");
    sh_node *node = NULL;
    sh_status status = sh_node_parse("optimizer", whole, strlen(whole), &node);
    if (status == SH_OK) status = sh_options_apply(sh_config_table(), node, config, NULL);
    sh_node_destroy(node);
    sh_free(whole);
    return status;
}

/* What a data set would tell: shape, kind of target and number of classes, from the caller's
 * options. */
static sh_status describe_data(const shoal_model_options *options, sh_data_info *info) {
    if (options->sample_rank < 1 || options->sample_rank > 3)
        return SH_FAIL(SH_E_USAGE, "a sample has 1 to 3 dimensions, not %d", options->sample_rank);
    if (options->sample == NULL) return SH_FAIL(SH_E_USAGE, "a sample's dimensions are missing");
    if (options->outputs < 1) return SH_FAIL(SH_E_USAGE, "a model needs at least one output");
    *info = (sh_data_info){.sample = {.rank = options->sample_rank}, .tokens = options->tokens};
    for (int i = 0; i < options->sample_rank; i++) info->sample.dim[i] = options->sample[i];
    // The loss decides the kind of target: classes, or values. An unknown one is refused later, by
    // sh_loss_init.
    const sh_loss_kind *loss =
        sh_loss_find(options->loss != NULL ? options->loss : "cross-entropy");
    bool values = loss != NULL && !loss->classes;
    info->target = options->tokens ? SH_TARGET_TOKENS : values ? SH_TARGET_VALUES : SH_TARGET_CLASS;
    info->classes = values ? 0 : options->outputs;
    info->values = values ? options->outputs : 0;
    return SH_OK;
}

/* Builds net, loss and kernels for the described data. Kernels are the default ones: nothing is
 * measured, as there is no cache folder to remember it in. Until sh_model_init has taken the net,
 * a failure destroys it here; afterwards shoal_model_destroy does. */
static sh_status make_model(shoal_model *model, const shoal_model_options *options,
                            const char *text) {
    const sh_data_info *info = &model->data.info;
    sh_net_input input = sh_model_input(info);
    sh_node *node = NULL;
    sh_net *net = NULL;
    SH_TRY(sh_node_parse("model", text, strlen(text), &node));
    sh_status status = sh_net_from_node(node, &input, &net);
    sh_node_destroy(node);
    SH_TRY(status);

    // The options want a char *, which they do not change; "auto" chooses by the kind of target.
    static char usual[] = "auto";
    char *name = options->loss != NULL ? (char *)(uintptr_t)options->loss : usual;
    sh_loss_options loss_options = {.name = name, .ignore_index = -100, .delta = 1.0};
    sh_loss loss;
    sh_tuner *tuner = NULL;
    // 0 is all cores, as OpenMP counts them for this process.
    int threads = options->threads > 0 ? options->threads : omp_get_max_threads();
    sh_tuner_options tuning = {.clock = &sh_clock_real, .threads = threads};
    status = sh_loss_init(&loss, &loss_options, &model->data.info, sh_net_output(net));
    if (status == SH_OK) status = sh_tuner_create(&tuning, &tuner);
    if (status != SH_OK) {
        sh_net_destroy(net);
        return status;
    }
    sh_signals_start_team(threads);
    SH_TRY(sh_model_init(&model->model, net, &loss, tuner, options->seed));
    // Nobody else touches the gradients between forward and backward.
    model->model.gradients_idle = true;
    return SH_OK;
}

/* Model of `text` (a name, a map or a list of layers) with its optimizer, for the data that
 * `model` describes. */
static sh_status fill_model(shoal_model *model, const shoal_model_options *options,
                            const char *text) {
    model->seed = options->seed;
    sh_config config;
    sh_status status = read_optimizer(options->optimizer, &config);
    if (status == SH_OK) status = make_model(model, options, text);
    if (status == SH_OK)
        status = sh_optim_init(&model->optim, &config.optim, model->model.net->params.total);
    sh_config_fini(&config);
    return status;
}

/* On failure what there is gets destroyed: every member is valid or zero. */
shoal_status shoal_model_create(const shoal_model_options *options, shoal_model **model_out) {
    SHOAL_NEED(options);
    SHOAL_NEED(model_out);
    SHOAL_TAKE(shoal_model_options, whole, options);
    shoal_model *model = sh_alloc(1, sizeof *model);
    if (model == NULL) return (shoal_status)SH_FAIL(SH_E_MEMORY, "out of memory for a model");
    sh_status status = describe_data(&whole, &model->data.info);
    if (status == SH_OK)
        status = fill_model(model, &whole, whole.model != NULL ? whole.model : "mlp");
    if (status != SH_OK)
        shoal_model_destroy(model);
    else
        *model_out = model;
    return (shoal_status)status;
}

/* Model, data description and parameters of a checkpoint. Files that tell no data cannot be opened
 * so: their samples might need a scale that nobody knows. */
static sh_status open_model(shoal_model *model, const char *path,
                            const shoal_model_options *options) {
    bool has = false;
    char *text = NULL;
    SH_TRY(sh_model_known(path, NULL, &has, &model->data));
    // A safetensors file of another program has tensors, but no description of data.
    if (!has) {
        SH_FAIL(SH_E_FORMAT, "'%s' does not tell which data its model takes", path);
        return sh_error_hint("make the model with shoal_model_create, then shoal_model_load it");
    }
    SH_TRY(sh_checkpoint_model_text(path, NULL, &text));
    sh_status status = fill_model(model, options, text);
    sh_free(text);
    SH_TRY(status);
    return (sh_status)shoal_model_load(model, path);
}

/* Owns the model until it is complete, as shoal_model_create does. */
shoal_status shoal_model_open(const char *path, const shoal_model_options *options,
                              shoal_model **model_out) {
    SHOAL_NEED(path);
    SHOAL_NEED(model_out);
    SHOAL_TAKE(shoal_model_options, whole, options);
    shoal_model *model = sh_alloc(1, sizeof *model);
    if (model == NULL) return (shoal_status)SH_FAIL(SH_E_MEMORY, "out of memory for a model");
    sh_status status = open_model(model, path, &whole);
    if (status != SH_OK)
        shoal_model_destroy(model);
    else
        *model_out = model;
    return (shoal_status)status;
}

/* `data` has no open part, but a vocabulary and a normalisation. */
void shoal_model_destroy(shoal_model *model) {
    if (model == NULL) return;
    sh_model_fini(&model->model);
    sh_optim_fini(&model->optim);
    sh_data_close(&model->data);
    sh_free(model->scaled);
    sh_free(model);
}

/* At most three dimensions, the room that the header asks of sample_out. */
int shoal_model_sample(const shoal_model *model, int64_t sample_out[3]) {
    SHOAL_NEED_OR(model, 0);
    const sh_shape *sample = &model->data.info.sample;
    for (int i = 0; sample_out != NULL && i < sample->rank; i++) sample_out[i] = sample->dim[i];
    return sample->rank;
}

/* Of text: positions times vocabulary. */
int64_t shoal_model_outputs(const shoal_model *model) {
    SHOAL_NEED_OR(model, 0);
    const sh_net *net = model->model.net;
    return (int64_t)sh_shape_count(sh_net_output(net));
}

/* Belongs to the model. */
const char *shoal_model_vocabulary(const shoal_model *model) {
    SHOAL_NEED_OR(model, NULL);
    return model->data.vocabulary;
}

int64_t shoal_model_param_count(const shoal_model *model) {
    SHOAL_NEED_OR(model, 0);
    return (int64_t)model->model.net->params.total;
}

/* Refuses values outside [0, most), naming the first: labels and tokens come straight from the
 * caller, and one outside would make a kernel read past its table. `ignore`: a label that is
 * allowed besides; NULL: none. */
static sh_status check_range(const char *what, const int32_t *values, int64_t count, int64_t most,
                             const int64_t *ignore) {
    for (int64_t i = 0; i < count; i++) {
        bool ignored = ignore != NULL && values[i] == *ignore;
        if (!ignored && (values[i] < 0 || values[i] >= most))
            return SH_FAIL(SH_E_USAGE, "%s %ld is %d, not from 0 to %ld", what, (long)i, values[i],
                           (long)most - 1);
    }
    return SH_OK;
}

/* Scales the caller's samples as the training data was, into memory of the model; `*x` then points
 * there. Without normalisation `*x` stays the caller's array, and nothing is copied. */
static sh_status scale_batch(shoal_model *model, const void **x, int64_t count) {
    const sh_normal *normal = &model->data.normal;
    if (normal->count == 0) return SH_OK;
    size_t cells = sh_shape_count(&model->data.info.sample), all = cells * (size_t)count;
    SH_TRY(sh_grow((void **)&model->scaled, &model->scaled_room, all, sizeof *model->scaled));
    // Channels lie one behind the other: cell i of a sample belongs to channel i / (cells /
    // channels).
    const float *from = *x;
    for (size_t i = 0; i < all; i++) {
        // The channel of the cell: a sample has normal->count channels of equal size.
        size_t c = i % cells / (cells / normal->count);
        model->scaled[i] = (from[i] - normal->mean[c]) * normal->scale[c];
    }
    *x = model->scaled;
    return SH_OK;
}

/* Refuses what would be read out of bounds. `y` NULL: there are no labels. */
static sh_status check_batch(const shoal_model *model, const void *x, const void *y,
                             int64_t count) {
    const sh_data_info *info = &model->data.info;
    // Text has a label per token, other data one per sample.
    int64_t tokens = count * (int64_t)sh_shape_count(&info->sample);
    if (count < 1) return SH_FAIL(SH_E_USAGE, "a batch needs at least one sample");
    if (info->tokens) SH_TRY(check_range("token", x, tokens, info->classes, NULL));
    if (y == NULL || info->target == SH_TARGET_VALUES) return SH_OK;
    return check_range("label", y, info->tokens ? tokens : count, info->classes,
                       &model->model.loss.options.ignore_index);
}

/* One step: forward, loss, backward, update. A loss that is no finite number fails before the
 * update, and the error names the first layer to blame. */
shoal_status shoal_model_step(shoal_model *model, const void *x, const void *y, int64_t count,
                              double *loss_out) {
    SHOAL_NEED(model);
    SHOAL_NEED(x);
    SHOAL_NEED(y);
    SHOAL_TRY(check_batch(model, x, y, count));
    SHOAL_TRY(scale_batch(model, &x, count));
    sh_executor *executor;
    SHOAL_TRY(sh_model_executor(&model->model, count, true, &executor));
    // The step number chooses the masks of dropout, so that repeated steps draw new ones.
    sh_step_context context = {.training = true, .seed = model->seed, .step = model->step};
    // The mean divides by rows that count: labels to ignore do not.
    int64_t rows = model->data.info.tokens ? count * model->data.info.sample.dim[0] : count;
    // A batch whose labels are all ignored has no mean; it is refused instead of dividing by 0.
    int64_t ignore = model->model.loss.options.ignore_index;
    if (model->data.info.target != SH_TARGET_VALUES)
        rows = (int64_t)sh_loss_counted(y, (size_t)rows, (int32_t)ignore);
    if (rows == 0)
        return (shoal_status)SH_FAIL(
            SH_E_USAGE, "every label of the batch is %ld, which does not count", (long)ignore);
    SHOAL_TRY(sh_executor_forward(executor, &context, x));
    sh_loss_result result = sh_executor_loss(executor, y, 1.0 / (double)rows);
    double loss = result.sum / (double)result.counted;
    if (!isfinite(loss))
        return (shoal_status)sh_model_explain_bad(&model->model, executor, &context, x, loss);
    SHOAL_TRY(sh_executor_backward(executor, NULL, NULL));
    // Steps count from 1 for the optimizer, as bias corrections need.
    sh_optim_apply(&model->optim, &(sh_optim_step){.params = &model->model.net->params,
                                                   .unused = executor->param_unused,
                                                   .count = model->model.net->params.count,
                                                   .weights = model->model.blocks.weights,
                                                   .gradients = model->model.blocks.gradients,
                                                   .gradient_scale = 1.0f,
                                                   .lr = model->optim.options.lr,
                                                   .step = ++model->step});
    if (loss_out != NULL) *loss_out = loss;
    return SHOAL_OK;
}

/* Forward pass without training, which changes neither parameters nor running statistics; `y` is
 * only checked, NULL: there is none. Results lie in `*executor_out` until the next call. */
static shoal_status look(shoal_model *model, const void *x, const void *y, int64_t count,
                         sh_executor **executor_out) {
    SHOAL_TRY(check_batch(model, x, y, count));
    SHOAL_TRY(scale_batch(model, &x, count));
    return (shoal_status)sh_model_forward(&model->model, model->seed, x, count, executor_out);
}

/* The caller's result must say its size, as versions may differ. */
shoal_status shoal_model_evaluate(shoal_model *model, const void *x, const void *y, int64_t count,
                                  shoal_result *result_out) {
    SHOAL_NEED(model);
    SHOAL_NEED(x);
    SHOAL_NEED(y);
    SHOAL_NEED(result_out);
    SHOAL_TRY(sh_struct_check(result_out, "shoal_result"));
    sh_executor *executor;
    SHOAL_TRY(look(model, x, y, count, &executor));
    sh_loss_result result = sh_executor_loss(executor, y, 1.0);
    const shoal_result found = sh_result_of(&model->model.loss, result.sum, (double)result.counted,
                                            (double)result.correct, count);
    sh_struct_give(&found, sizeof found, result_out);
    return SHOAL_OK;
}

/* The output is copied: the executor's own memory is overwritten by the next call. */
shoal_status shoal_model_predict(shoal_model *model, const void *x, int64_t count,
                                 float *output_out) {
    SHOAL_NEED(model);
    SHOAL_NEED(x);
    SHOAL_NEED(output_out);
    sh_executor *executor;
    SHOAL_TRY(look(model, x, NULL, count, &executor));
    memcpy(output_out, executor->output->data, executor->output->count * sizeof(float));
    return SHOAL_OK;
}

/* With the description of the data, so that shoal_model_open can read it. */
shoal_status shoal_model_save(shoal_model *model, const char *path) {
    SHOAL_NEED(model);
    SHOAL_NEED(path);
    return (shoal_status)sh_model_save(&model->model, &model->data, path);
}

/* Parameters and running statistics; the optimizer's state stays. */
shoal_status shoal_model_load(shoal_model *model, const char *path) {
    SHOAL_NEED(model);
    SHOAL_NEED(path);
    const sh_net *net = model->model.net;
    return (shoal_status)sh_checkpoint_load_model(path, NULL, &net->params,
                                                  model->model.blocks.weights, &net->states,
                                                  model->model.blocks.states);
}

/* What exporting needs of a model. Borrows it. */
static sh_trained trained_of(const shoal_model *model) {
    return (sh_trained){.net = model->model.net,
                        .weights = model->model.blocks.weights,
                        .states = model->model.blocks.states,
                        .normal = &model->data.normal};
}

shoal_status shoal_model_export_c(const shoal_model *model, const char *name, const char *path) {
    SHOAL_NEED(model);
    SHOAL_NEED(path);
    sh_trained trained = trained_of(model);
    return (shoal_status)sh_export_c(&trained, name != NULL ? name : "model", path);
}

shoal_status shoal_model_export_onnx(const shoal_model *model, const char *name, const char *path) {
    SHOAL_NEED(model);
    SHOAL_NEED(path);
    sh_trained trained = trained_of(model);
    return (shoal_status)sh_export_onnx(&trained, name != NULL ? name : "model", path);
}
