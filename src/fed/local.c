/* Local training of a federated client, shared by real and simulated ones. Optimizer slots start at
 * zero in each round: a client keeps no state between rounds but scaffold's control variates. */
#include "fed/local.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"

/* Rounds take the place of steps in the schedule. */
sh_status sh_fed_local_prepare(shoal_run *run, int64_t rounds) {
    SH_TRY(sh_run_make_optimizer(run));  // slots and update rule; zeroed by each round
    // one "epoch" is the whole training
    run->length = (sh_length){.steps = rounds, .steps_per_epoch = rounds, .eval_every = 1};
    if (run->config.eval_every >= 1) run->length.eval_every = (int64_t)run->config.eval_every;
    return sh_schedule_init(&run->schedule, &run->config.schedule, run->optim.options.lr,
                            run->config.batch, rounds, 1);
}

/* A federated vector is parameters, then states. */
void sh_fed_local_set(shoal_run *run, const float *model) {
    size_t params = run->model.net->params.total, states = run->model.net->states.total;
    memcpy(run->model.blocks.weights, model, params * sizeof *model);
    if (states > 0) memcpy(run->model.blocks.states, model + params, states * sizeof *model);
}

/* Inverse of sh_fed_local_set. */
void sh_fed_local_get(const shoal_run *run, float *model_out) {
    size_t params = run->model.net->params.total, states = run->model.net->states.total;
    memcpy(model_out, run->model.blocks.weights, params * sizeof *model_out);
    if (states > 0)
        memcpy(model_out + params, run->model.blocks.states, states * sizeof *model_out);
}

/* FedProx adds the gradient of amount / 2 |w - received|^2; SCAFFOLD adds c - c_i, the difference
 * of the control variates of server and client. */
static void correct_gradient(shoal_run *run, const sh_fed_local_options *options,
                             const float *model) {
    size_t params = run->model.net->params.total;
    float *gradients = run->model.blocks.gradients;
    const float *weights = run->model.blocks.weights;
    const float pull = (float)options->proximal;
    if (pull > 0)
        for (size_t i = 0; i < params; i++) gradients[i] += pull * (weights[i] - model[i]);
    if (options->own_control == NULL) return;  // not scaffold
    for (size_t i = 0; i < params; i++)
        gradients[i] += options->server_control[i] - options->own_control[i];
}

/* Clips values in place; the norm by a factor that the optimizer multiplies in. After the
 * corrections. */
static double clip(shoal_run *run) {
    size_t params = run->model.net->params.total;
    float *gradients = run->model.blocks.gradients;
    if (run->config.clip_value > 0) sh_clip_value(gradients, params, (float)run->config.clip_value);
    if (run->config.clip_norm <= 0) return 1;
    // A factor of at most 1.
    return sh_clip_norm(gradients, params, run->config.clip_norm, &run->stats.grad_norm);
}

/* What the optimizer leaves as it is: a flag for each parameter, or NULL for none. */
static sh_status find_frozen(const shoal_run *run, bool **frozen_out) {
    const sh_net *net = run->model.net;
    bool *frozen = sh_alloc(net->params.count + 1, sizeof *frozen);
    if (frozen == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a client");
    for (size_t i = 0; i < net->params.count; i++) frozen[i] = true;  // all but the head
    size_t last = net->layer_count;
    // The last layer that has parameters.
    while (last > 0 && net->layers[last - 1]->param_count == 0) last--;
    // The head alone is trained.
    for (int i = 0; last > 0 && i < net->layers[last - 1]->param_count; i++)
        frozen[net->layers[last - 1]->params[i]] = false;
    *frozen_out = frozen;
    return SH_OK;
}

/* Gradient of the mean loss of one batch, corrections, clipping, the run's optimizer. */
static sh_status take_step(shoal_run *run, const sh_batch *batch,
                           const sh_fed_local_options *options, const float *model,
                           const bool *frozen, double lr, int64_t step, sh_loss_result *total) {
    sh_loss_result result;
    // A client is a team of one.
    sh_replica alone = {.ranks = 1, .params = &run->model.net->params};
    SH_TRY(sh_run_gradient(run, &alone, batch, SH_MEAN_GLOBAL, &result));
    total->sum += result.sum;
    total->counted += result.counted;  // samples that count, without ignored labels
    correct_gradient(run, options, model);
    const sh_param_list *params = &run->model.net->params;
    sh_optim_step update = {.params = params,
                            .count = params->count,
                            .high = params->total,
                            // Skips what is frozen, or what no path used.
                            .unused = frozen != NULL     ? frozen
                                      : run->drops_paths ? run->model.param_unused
                                                         : NULL,
                            .weights = run->model.blocks.weights,
                            .gradients = run->model.blocks.gradients,
                            .gradient_scale = (float)clip(run),
                            .lr = lr,
                            .step = step};
    sh_optim_apply(&run->optim, &update);
    return SH_OK;
}

/* Batches until epochs or steps are done. */
static sh_status train(shoal_run *run, sh_loader *loader, const sh_fed_local_options *options,
                       const float *model, const bool *frozen, double lr, sh_fed_trained *trained) {
    sh_loss_result total = {0};
    while (options->steps == 0 || trained->steps < options->steps) {
        const sh_batch *batch;
        SH_TRY(sh_loader_next(loader, &batch));
        if (batch == NULL) break;  // end of the epochs
        trained->steps++;
        sh_status status =
            take_step(run, batch, options, model, frozen, lr, trained->steps, &total);
        sh_loader_release(loader, batch);  // before the status is looked at: batches are borrowed
        SH_TRY(status);
        run->at.samples_here += (int64_t)batch->count;
        if (run->hooks.stop != NULL && run->hooks.stop(run->hooks.user))
            return SH_FAIL(SH_E_INTERRUPTED, "stopped in round %llu",
                           (unsigned long long)options->round);
    }
    // Mean over all steps, while the model moves.
    trained->loss = total.counted > 0 ? total.sum / (double)total.counted : NAN;
    return SH_OK;
}

/* With momentum m, tau steps move the model as far as these many without (Wang et al. 2020). */
static double effective_steps(const shoal_run *run, int64_t steps) {
    double m = run->optim.options.momentum, tau = (double)steps;
    if (isnan(m) || m <= 0 || m >= 1) return tau;  // plain SGD, or an optimizer without momentum
    return (tau - m * (1 - pow(m, tau)) / (1 - m)) / (1 - m);
}

/* The order of samples is a function of (seed, client, round); a client with few samples has one
 * batch. */
static sh_loader_options loader_options(const shoal_run *run, const sh_dataset *data,
                                        const sh_fed_local_options *options) {
    sh_rng rng = sh_rng_stream((uint64_t)run->config.seed, SH_RNG_FED_LOCAL,
                               (uint32_t)options->client, options->round);
    size_t batch = (size_t)run->config.batch;  // at least one step for everybody
    return (sh_loader_options){.batch = batch < data->info.count ? batch : data->info.count,
                               .seed = sh_rng_u64(&rng),
                               .shuffle = true,
                               .crop = run->config.data.crop,
                               .flip = run->config.data.flip,
                               // Steps given: the loader never ends.
                               .epochs = options->steps > 0 ? 0 : options->epochs,
                               .ignore = &run->config.loss.ignore_index};
}

/* y - x, and of the control variates -c - (y - x) / (steps lr) (option II of the paper). */
static void take_difference(const shoal_run *run, const sh_fed_local_options *options,
                            const float *model, double moved, float *update_out) {
    size_t params = run->model.net->params.total, count = sh_fed_count(run);
    sh_fed_local_get(run, update_out);
    // States, too: running means move by differences.
    for (size_t i = 0; i < count; i++) update_out[i] -= model[i];
    if (options->own_control == NULL) return;
    memset(update_out + count, 0, count * sizeof *update_out);  // states have no control variates
    for (size_t i = 0; i < params; i++)
        update_out[count + i] =
            -options->server_control[i] - (float)((double)update_out[i] / moved);
}

/* The learning rate is that of the round: schedules run over rounds, not over local steps. */
sh_status sh_fed_local_train(shoal_run *run, const sh_dataset *data,
                             const sh_fed_local_options *options, const float *model,
                             float *update_out, sh_fed_trained *trained_out) {
    sh_loader *loader = NULL;
    sh_fed_trained trained = {.samples = data->info.count};
    sh_loader_options loading = loader_options(run, data, options);
    // Rounds count from 1, schedules from 0.
    double lr = sh_schedule_lr(&run->schedule, (int64_t)options->round - 1);
    sh_fed_local_set(run, model);
    for (int i = 0; i < run->optim.slot_count; i++)
        // Slots of the client before in a simulation.
        memset(run->optim.slots[i], 0, run->optim.total * sizeof(float));
    SH_TRY(sh_loader_create(data, &loading, &loader));
    bool *frozen = NULL;
    sh_status status = options->head_only ? find_frozen(run, &frozen) : SH_OK;
    if (status == SH_OK) status = train(run, loader, options, model, frozen, lr, &trained);
    sh_loader_destroy(loader);
    sh_free(frozen);
    SH_TRY(status);
    trained.effective_steps = effective_steps(run, trained.steps);
    take_difference(run, options, model, trained.effective_steps * lr, update_out);
    *trained_out = trained;
    return SH_OK;
}
