#include "run/model.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/checkpoint.h"
#include "data/facts.h"
#include "tensor/kernels/reduce.h"
#include "run/split.h"

sh_status sh_memory_check(const char *what, size_t bytes) {
    double have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if ((double)bytes <= have) return SH_OK;
    SH_FAIL(SH_E_MEMORY, "%s needs %.1f GiB, this machine has %.1f GiB", what,
            (double)bytes / 0x1p30, have / 0x1p30);
    return sh_error_hint("take a smaller model or batch, or cut the batch with --accumulate");
}

/* Weights and running statistics lie in one arena, the statistics behind the weights; both are
 * drawn from the seed, so all ranks have the same. */
sh_status sh_model_init(sh_model *model, sh_net *net, const sh_loss *loss, sh_tuner *tuner,
                        uint64_t seed) {
    *model = (sh_model){.net = net, .tuner = tuner};
    if (loss != NULL) model->loss = *loss;
    size_t weights = sh_round_up(net->params.total * sizeof(float), SH_ALIGN);
    size_t bytes = weights + net->states.total * sizeof(float) + SH_ALIGN;
    SH_TRY(sh_memory_check("the model", bytes));
    SH_TRY(sh_arena_init(&model->weights, "parameters", bytes));
    model->own_weights = sh_arena_take(&model->weights, weights);
    model->blocks.weights = model->own_weights;
    model->blocks.states = sh_arena_take(&model->weights, net->states.total * sizeof(float));
    sh_net_init(net, seed, model->blocks.weights, model->blocks.states);
    return SH_OK;
}

/* Executors go before the blocks that they point into. */
void sh_model_fini(sh_model *model) {
    for (int i = 0; i < model->executor_count; i++) sh_executor_destroy(model->executors[i]);
    sh_arena_fini(&model->work);
    sh_arena_fini(&model->gradients);
    sh_arena_fini(&model->weights);
    sh_net_destroy(model->net);
    sh_tuner_destroy(model->tuner);
    *model = (sh_model){0};
}

/* Executors hold pointers into the blocks and the work memory: whoever moves one of them must
 * bind anew. */
static void bind_executors(sh_model *model) {
    for (int i = 0; i < model->executor_count; i++)
        sh_executor_bind(model->executors[i], &model->blocks, model->work.base);
}

sh_status sh_model_take_gradients(sh_model *model) {
    if (model->blocks.gradients != NULL) return SH_OK;
    size_t bytes = model->net->params.total * sizeof(float);
    SH_TRY(sh_memory_check("the gradient", bytes));
    if (model->gradient_source.take != NULL) {
        void *memory = NULL;
        SH_TRY(model->gradient_source.take(model->gradient_source.self, bytes, &memory));
        model->blocks.gradients = memory;
    } else {
        SH_TRY(sh_arena_init(&model->gradients, "gradients", bytes + SH_ALIGN));
        model->blocks.gradients = sh_arena_take(&model->gradients, bytes);
    }
    bind_executors(model);
    return SH_OK;
}

void sh_model_place_weights(sh_model *model, float *memory) {
    model->blocks.weights = memory != NULL ? memory : model->own_weights;
    bind_executors(model);
}

void sh_model_move_weights(sh_model *model, float *memory) {
    size_t bytes = model->net->params.total * sizeof(float);
    memcpy(memory, model->blocks.weights, bytes);
    sh_model_place_weights(model, memory);
    // Only the pages are given back: the address stays valid for weights that move home again.
    sh_arena_drop(model->own_weights, bytes);
}

void sh_model_place_gradients(sh_model *model, float *memory) {
    sh_arena_fini(&model->gradients);
    model->blocks.gradients = memory;
    bind_executors(model);
}

/* A larger executor needs a larger block; the older executors move along. */
static sh_status grow_work(sh_model *model, size_t bytes) {
    if (bytes <= model->work.size_bytes) return SH_OK;
    SH_TRY(sh_memory_check("a step", bytes));
    sh_arena_fini(&model->work);
    SH_TRY(sh_arena_init(&model->work, "activations", bytes));
    bind_executors(model);
    return SH_OK;
}

/* Shares that follow the workers' speed bring ever new batch sizes. */
static void forget_oldest(sh_model *model) {
    sh_executor_destroy(model->executors[0]);
    model->executor_count--;
    memmove(model->executors, model->executors + 1,
            (size_t)model->executor_count * sizeof *model->executors);
}

sh_status sh_model_executor(sh_model *model, int64_t batch, bool training,
                            sh_executor **executor_out) {
    for (int i = 0; i < model->executor_count; i++) {
        sh_executor *known = model->executors[i];
        if (known->batch != batch || known->training != training) continue;
        // The one used last is forgotten last: what a step left in it is still read.
        size_t later = (size_t)(model->executor_count - 1 - i);
        memmove(model->executors + i, model->executors + i + 1, later * sizeof *model->executors);
        model->executors[model->executor_count - 1] = *executor_out = known;
        return SH_OK;
    }
    if (model->executor_count == SH_EXECUTORS_MOST) forget_oldest(model);
    if (training) SH_TRY(sh_model_take_gradients(model));
    sh_executor_options options = {
        .batch = batch,
        .training = training,
        .loss = model->loss.kind != NULL ? &model->loss : NULL,
        .tuner = model->tuner,
        .trace = model->trace,
        .gradients_idle = model->gradients_idle,
    };
    sh_executor *executor = NULL;
    // The first training executor is the one that runs most; the others take the usual kernels.
    sh_tuner_pause(model->tuner, !training || model->executor_count > 0);
    SH_TRY(sh_executor_create(model->net, &options, &executor));
    sh_status status = grow_work(model, executor->memory_bytes);
    if (status != SH_OK) {
        sh_executor_destroy(executor);
        return status;
    }
    sh_executor_bind(executor, &model->blocks, model->work.base);
    model->executors[model->executor_count++] = executor;
    *executor_out = executor;
    return SH_OK;
}

sh_status sh_model_forward(sh_model *model, uint64_t seed, const void *x, int64_t count,
                           sh_executor **executor_out) {
    SH_TRY(sh_model_executor(model, count, false, executor_out));
    sh_step_context step = {.seed = seed};
    // Ops of a split model exchange values with the other workers: then every forward is
    // collective.
    if (model->layout != NULL) step.peers = &model->layout->peers;
    return sh_executor_forward(*executor_out, &step, x);
}

sh_status sh_model_forward_all(sh_model *model, uint64_t seed, sh_loader *loader,
                               void (*visit)(void *user, const sh_batch *batch,
                                             sh_executor *executor),
                               void *user) {
    for (;;) {
        const sh_batch *batch;
        sh_executor *executor = NULL;
        SH_TRY(sh_loader_next(loader, &batch));
        if (batch == NULL) return SH_OK;
        sh_status status = SH_OK;
        // A worker without samples of the batch visits it all the same, since visitors count those
        // of all workers.
        if (batch->count > 0)
            status = sh_model_forward(model, seed, batch->x, (int64_t)batch->count, &executor);
        if (status == SH_OK) visit(user, batch, executor);
        sh_loader_release(loader, batch);
        SH_TRY(status);
    }
}

/* With no row counted the loss is NaN: nothing was measured. */
shoal_result sh_result_of(const sh_loss *loss, double sum, double counted, double correct,
                          int64_t samples) {
    return (shoal_result){.loss = sum / counted,
                          .accuracy = loss->kind->classes ? correct / counted : NAN,
                          .samples = samples};
}

/* Computes the forward of the step once more to find the first op to blame, which only a run
 * that fails anyway can afford. */
sh_status sh_model_explain_bad(const sh_model *model, sh_executor *executor,
                               const sh_step_context *step, const void *x, double loss) {
    const sh_op *op = sh_executor_first_bad(executor, step, x);
    const char *layer = op != NULL ? sh_op_name(op) : "the loss";
    bool bad_weights = false;
    for (int i = 0; op != NULL && op->layer != NULL && i < op->layer->param_count; i++) {
        size_t count = model->net->params.items[op->layer->params[i]].count;
        bad_weights = bad_weights || !sh_reduce()->all_finite(op->param[i], count);
    }
    SH_FAIL(SH_E_NUMERIC, "step %ld: the loss is %g; first in layer '%s', %s", (long)step->step + 1,
            isnan(loss) ? NAN : loss, layer,  // no sign on a NaN
            bad_weights ? "whose parameters are not finite since the last update"
                        : "whose output is not finite");
    return sh_error_hint(
        "take a lower learning rate, or look for values in the data that are "
        "not finite");
}

/* The facts of the data travel in the file, so that the model can be evaluated without the
 * training set. */
sh_status sh_model_save(const sh_model *model, const sh_data *data, const char *path) {
    const sh_net *net = model->net;
    sh_checkpoint checkpoint = {.params = &net->params,
                                .weights = model->blocks.weights,
                                .state = &net->states,
                                .state_values = model->blocks.states,
                                .info = {.model = net->text}};
    SH_TRY(sh_facts_print(data, &checkpoint.info.facts));
    sh_status status = sh_checkpoint_save_model(path, &checkpoint);
    sh_free(checkpoint.info.facts);
    return status;
}

sh_status sh_model_known(const char *path, const sh_log *log, bool *has_out, sh_data *data_out) {
    char *text = NULL, *file = NULL;
    SH_TRY(sh_checkpoint_facts_text(path, log, &text, &file));
    sh_status status = SH_OK;
    if (text != NULL) status = sh_facts_parse(file, text, strlen(text), data_out);
    *has_out = text != NULL;
    sh_free(text);
    sh_free(file);
    return status;
}
