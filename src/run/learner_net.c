/* The learner `net`: a net with a loss and an optimizer. How its workers agree on the parameters is
 * the run's scheme. */
#include <math.h>
#include <string.h>

#include "tensor/kernels/reduce.h"
#include "run/learner.h"
#include "run/loop.h"
#include "run/regroup.h"
#include "run/run.h"
#include "run/scheme.h"
#include "run/sparse.h"

/* The scheme begins last: its services look at the model and the plan of steps from then on. */
static sh_status net_begin(sh_learner *learner) {
    shoal_run *run = learner->run;
    SH_TRY(sh_run_begin_sparse(run));
    SH_TRY(sh_run_loader(run, 0, &run->loader));
    SH_TRY(sh_run_prepare_team(run, true));
    SH_TRY(sh_regroup_prepare(run));
    return sh_scheme_begin(run);
}

static sh_status net_step(sh_learner *learner, int64_t to, sh_learner_step *step_out) {
    shoal_run *run = learner->run;
    *step_out = (sh_learner_step){0};
    sh_scheme_aim(run, to);
    // The counts of a free worker's step arrive with the permit for the next one.
    step_out->late = sh_scheme_is_free(run);
    return sh_scheme_step(run, &step_out->loss, &step_out->meets);
}

/* Where workers meet, the loss is that of all of them: in a free scheme rank 0 may have done no
 * step since it last told. */
static sh_status net_merge(sh_learner *learner, sh_learner_merge *merge) {
    shoal_run *run = learner->run;
    if (sh_scheme_is_together(run)) return SH_OK;
    SH_TRY(sh_scheme_meet(run, &merge->used));
    sh_loss_result *since = &merge->since;
    double sums[] = {since->sum, (double)since->counted, (double)since->correct};
    SH_TRY(sh_team_sum(&run->team, sums, SH_COUNT(sums)));
    if (sums[1] > 0) merge->loss = sums[0] / sums[1];
    bool tells = sh_team_leads(&run->team);  // the others begin anew
    *since = (sh_loss_result){.sum = tells ? sums[0] : 0,
                              .counted = tells ? (int64_t)sums[1] : 0,
                              .correct = tells ? (int64_t)sums[2] : 0};
    return SH_OK;
}

static sh_status net_evaluate(sh_learner *learner, const sh_dataset *dataset,
                              shoal_result *result_out) {
    return sh_run_evaluate(learner->run, dataset, result_out);
}

static sh_status refuse_weights(const shoal_run *run) {
    SH_FAIL(SH_E_NUMERIC, "step %ld: parameters are not finite; no checkpoint is written",
            (long)run->at.step);
    return sh_error_hint("lower --lr, add a warm-up, or clip gradients (--clip-norm 1)");
}

/* Where the model is split, rank 0 has memory for the whole of it only between gather and drop. */
static sh_status net_save(sh_learner *learner) {
    shoal_run *run = learner->run;
    if (!sh_reduce()->all_finite(run->model.blocks.weights, run->model.net->params.total))
        return refuse_weights(run);
    SH_TRY(sh_scheme_save(run));
    SH_TRY(sh_run_layout_gather(run));
    SH_TRY(sh_run_save_together(run));
    sh_run_layout_drop(run);
    sh_scheme_saved(run);
    return SH_OK;
}

static bool is_momentum(const char *slot) { return strcmp(slot, "momentum") == 0; }

/* Of a model that is split over workers: as one worker would have it. */
static sh_checkpoint whole_blocks(const shoal_run *run, sh_checkpoint_slot *slots) {
    static const char *const of_codecs[] = {"residual", "velocity", "factors", NULL};
    const sh_run_layout *layout = run->model.layout;
    const sh_whole_blocks *whole = &layout->blocks;
    for (int i = 0; i < whole->slot_count; i++)
        slots[i] =
            (sh_checkpoint_slot){.name = run->optim.kind->slot_names[i], .values = whole->slots[i]};
    return (sh_checkpoint){.params = &layout->whole->params,
                           .weights = whole->weights,
                           .state = &layout->whole->states,
                           .state_values = whole->states,
                           .slots = slots,
                           .slot_count = (size_t)whole->slot_count,
                           .left_out = of_codecs,
                           .info = {.model = layout->whole->text}};
}

/* What a codec keeps comes and goes with it and with the workers: a single one has none. A codec
 * that applies momentum itself keeps a velocity in its place. */
static sh_checkpoint net_blocks(const sh_learner *learner, sh_checkpoint_slot *slots) {
    const shoal_run *run = learner->run;
    size_t count = 0;
    bool has_velocity = false;
    for (int i = 0; i < run->optim.slot_count; i++) {
        const char *name = run->optim.kind->slot_names[i];
        slots[count++] = (sh_checkpoint_slot){.name = name,
                                              .values = run->optim.slots[i],
                                              .instead = is_momentum(name) ? "velocity" : NULL};
    }
    sh_exchange_state states[SH_EXCHANGE_STATES];
    size_t state_count = sh_scheme_blocks(run, states);
    for (size_t i = 0; i < state_count; i++) {
        slots[count++] = (sh_checkpoint_slot){.name = states[i].name,
                                              .values = states[i].block,
                                              .params = states[i].params,
                                              .optional = true};
        has_velocity = has_velocity || strcmp(states[i].name, "velocity") == 0;
    }
    for (size_t i = 0; i < run->scheme_state.count; i++)
        slots[count++] = run->scheme_state.slots[i];
    if (run->model.layout != NULL) return whole_blocks(run, slots);
    return (sh_checkpoint){
        .params = &run->model.net->params,
        .weights = run->model.blocks.weights,
        .state = &run->model.net->states,
        .state_values = run->model.blocks.states,
        .slots = slots,
        .slot_count = count,
        .left_out = sh_codec_state_names(has_velocity),
        .info = {.workers = state_count > 0 ? run->team.ranks : 0, .model = run->model.net->text},
    };
}

/* State of a codec belongs to the workers that made it, hence their number. */
static void net_adopt(sh_learner *learner, int64_t workers) {
    sh_scheme_adopt(learner->run, workers);
}

_Static_assert(2 + SH_EXCHANGE_STATES + SH_SYNC_STATES <= SH_LEARNER_SLOTS, "too few slots");

static size_t net_metrics(const sh_learner *learner, const sh_loss_result *since,
                          sh_metric *fields) {
    const shoal_run *run = learner->run;
    bool classes = run->model.loss.kind->classes && since->counted > 0;
    double counted = (double)since->counted;
    size_t count = 0;
    fields[count++] = (sh_metric){"train_loss", SH_METRIC_REAL, .r = since->sum / counted};
    fields[count++] = (sh_metric){"train_accuracy", SH_METRIC_REAL,
                                  .r = classes ? (double)since->correct / counted : NAN};
    fields[count++] =
        (sh_metric){"lr", SH_METRIC_REAL, .r = sh_schedule_lr(&run->schedule, run->at.step - 1)};
    if (run->config.clip_norm > 0)  // otherwise nobody computes it
        fields[count++] = (sh_metric){"grad_norm", SH_METRIC_REAL, .r = run->stats.grad_norm};
    return count;
}

/* Estimates for planning: backward takes twice as many operations as forward. */
static sh_learner_cost net_cost(const sh_learner *learner) {
    const sh_net *net = learner->run->model.net;
    double flops = 0, bytes = (double)net->params.total * sizeof(float);
    for (size_t i = 0; i < net->layer_count; i++) flops += net->layers[i]->flops;
    return (sh_learner_cost){.forward_flops = flops,
                             .flops = 3 * flops,  // backward: by input, and by parameters
                             .parameter_bytes = bytes,
                             .exchanged_bytes = bytes};
}

static sh_status net_finish(sh_learner *learner) { return sh_scheme_finish(learner->run); }

const sh_learner_kind sh_learner_net = {
    .name = "net",
    .help = "a net with a loss, trained by gradients",
    .begin = net_begin,
    .step = net_step,
    .merge = net_merge,
    .evaluate = net_evaluate,
    .save = net_save,
    .blocks = net_blocks,
    .adopt = net_adopt,
    .metrics = net_metrics,
    .cost = net_cost,
    .finish = net_finish,
};
