/* Rounds of simulated clients in virtual time. Dropout, durations and choices are drawn from the
 * seed, so that a simulation repeats exactly. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "fed/simulate_internal.h"

enum { DRAW_DROPOUT = 1, DRAW_TIME, DRAW_CLIENT };  // streams of one seed

/* `use` keeps the streams of one seed apart, `at` is the round or the event. */
static sh_rng draw(const sh_fed_simulation *s, uint32_t use, uint64_t at) {
    return sh_rng_stream((uint64_t)s->run->config.seed, SH_RNG_FED_SELECT, use << 28, at);
}

/* A client's data: the first part is held out, the rest is trained on. */
static size_t held_out(const sh_fed_simulation *s, size_t client) {
    size_t size = sh_fed_partition_size(&s->partition, client);
    size_t held = (size_t)(s->settings.held_out * (double)size);
    return held < size ? held : size - 1;  // at least one sample to train on
}

/* Accuracy of the received model on what the client holds out; NaN: it holds out nothing. */
static sh_status test_received(sh_fed_simulation *s, size_t client, const float *model,
                               double *accuracy_out) {
    size_t held = held_out(s, client);
    shoal_result result;
    *accuracy_out = NAN;
    if (held == 0) return SH_OK;
    sh_dataset *data = NULL;
    SH_TRY(sh_fed_partition_open(&s->partition, &s->run->data, client, 0, held, &data));
    sh_fed_local_set(s->run, model);
    sh_status status = sh_run_evaluate(s->run, data, &result);
    sh_dataset_destroy(data);
    if (status == SH_OK) *accuracy_out = result.accuracy;
    return status;
}

/* Zero at first (alloc clears), as in the paper. NULL: the rule has none. */
static sh_status control_of(sh_fed_simulation *s, size_t client, const float **control_out) {
    *control_out = NULL;
    if (!s->settings.server.rule.rule->controls) return SH_OK;
    if (s->controls[client] == NULL)  // when the client is first asked
        s->controls[client] = sh_alloc(s->run->model.net->params.total, sizeof(float));
    if (s->controls[client] == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for the control variates of client %zu", client);
    *control_out = s->controls[client];
    return SH_OK;
}

/* Scaffold's server control variates follow the model in its second vector. */
static sh_status train_on(sh_fed_simulation *s, const sh_dataset *data, const sh_fed_task *task,
                          size_t client, float *values_out, sh_fed_trained *trained_out) {
    const float *model = sh_fed_server_model(s->server), *control;
    SH_TRY(control_of(s, client, &control));
    sh_fed_local_options options = {.epochs = s->settings.local_epochs,
                                    .steps = s->settings.local_steps,
                                    .round = task->round,
                                    .client = client,
                                    .proximal = task->proximal,
                                    .own_control = control};
    if (control != NULL) options.server_control = model + sh_fed_count(s->run);
    return sh_fed_local_train(s->run, data, &options, model, values_out, trained_out);
}

/* Bytes are counted as HTTPS would carry them: the model there, the message back. */
sh_status sh_fed_simulate_train(sh_fed_simulation *s, const sh_fed_task *task, size_t client,
                                float *values_out, sh_fed_update *update_out) {
    size_t held = held_out(s, client), size = sh_fed_partition_size(&s->partition, client);
    const float *model = sh_fed_server_model(s->server);
    double accuracy;
    sh_fed_trained trained;
    sh_dataset *data = NULL;
    SH_TRY(test_received(s, client, model, &accuracy));
    SH_TRY(sh_fed_partition_open(&s->partition, &s->run->data, client, held, size - held, &data));
    sh_status status = train_on(s, data, task, client, values_out, &trained);
    sh_dataset_destroy(data);
    SH_TRY(status);
    *update_out = (sh_fed_update){.round = task->round,
                                  .attempt = task->attempt,
                                  .samples = trained.samples,
                                  .steps = trained.effective_steps,
                                  .loss = trained.loss,
                                  .accuracy = accuracy,
                                  .vectors = task->vectors,
                                  .count = sh_fed_count(s->run),
                                  .values = values_out};
    memcpy(update_out->model, task->model, SH_FED_HASH);
    size_t values = sh_fed_server_values(s->server);
    s->result.sent_bytes += (int64_t)(values * sizeof(float) + sh_fed_update_bytes(values));
    return SH_OK;
}

/* The change of the client's control variates waits until its round closes. */
static sh_status keep_change(sh_fed_simulation *s, size_t client, const sh_fed_update *update) {
    size_t params = s->run->model.net->params.total;
    if (update->vectors < 2) return SH_OK;  // one vector: the rule has no control variates
    if (s->changes[client] == NULL) s->changes[client] = sh_alloc(params, sizeof(float));
    if (s->changes[client] == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for the control variates of client %zu", client);
    memcpy(s->changes[client], update->values + update->count, params * sizeof(float));
    return SH_OK;
}

/* A refused update is an error here: simulated clients are honest, so it diverged. */
static sh_status deliver(sh_fed_simulation *s, size_t client, const sh_fed_update *update) {
    sh_fed_receipt receipt;
    SH_TRY(keep_change(s, client, update));
    SH_TRY(sh_fed_server_take(s->server, s->now_ms, client, update, &receipt));
    if (receipt.verdict == SH_FED_REFUSED) {
        SH_FAIL(SH_E_NUMERIC, "round %llu: the update of client %zu is refused: %s",
                (unsigned long long)update->round, client, receipt.reason);
        return sh_error_hint("lower --lr, or clip gradients (--clip-norm 1)");
    }
    return SH_OK;
}

/* A function of (seed, round, attempt, client): another try of a round draws anew. */
static bool drops_out(const sh_fed_simulation *s, const sh_fed_task *task, size_t client) {
    // A prime keeps rounds and attempts apart.
    sh_rng rng = draw(s, DRAW_DROPOUT, task->round * 1000003 + task->attempt);
    rng.next = client;  // by client: the order of asking does not matter
    return (double)sh_rng_uniform(&rng) < s->settings.dropout;
}

/* A round that did not close by answers closes, or begins again, by its deadline. */
sh_status sh_fed_simulate_round(sh_fed_simulation *s) {
    uint64_t closed = sh_fed_server_view(s->server, s->now_ms).closed;
    s->now_ms++;
    // Everybody stays present.
    for (size_t c = 0; c < s->settings.clients; c++) sh_fed_server_heard(s->server, s->now_ms, c);
    for (size_t c = 0; c < s->settings.clients; c++) {
        sh_fed_task task;
        sh_fed_update update;
        SH_TRY(sh_fed_server_ask(s->server, s->now_ms, c, &task));
        if (task.round != closed + 1) return SH_OK;  // enough have answered
        if (task.action != SH_FED_TRAIN || drops_out(s, &task, c)) continue;
        SH_TRY(sh_fed_simulate_train(s, &task, c, s->values, &update));
        SH_TRY(deliver(s, c, &update));
    }
    if (sh_fed_server_view(s->server, s->now_ms).closed != closed) return SH_OK;
    // Past the deadline: stragglers are not waited for.
    s->now_ms += s->settings.server.deadline_ms;
    return sh_fed_server_tick(s->server, s->now_ms);
}

/* A client that nothing is expected from begins to train; a training takes about a second. */
static sh_status begin_flight(sh_fed_simulation *s, sh_fed_flight *flight, uint64_t number) {
    sh_rng rng = draw(s, DRAW_CLIENT, number);
    sh_fed_task task = {.action = SH_FED_WAIT};
    size_t client = 0;
    for (int tries = 0; tries < 1000 && task.action != SH_FED_TRAIN; tries++) {
        client = (size_t)sh_rng_below(&rng, s->settings.clients);
        bool flies = false;
        for (size_t i = 0; i < s->flight_count; i++)  // one training at a time on each client
            flies = flies || (s->flights[i].used && s->flights[i].client == client);
        if (!flies) SH_TRY(sh_fed_server_ask(s->server, s->now_ms, client, &task));
    }
    if (task.action != SH_FED_TRAIN) return SH_OK;  // all have answered since the newest model
    SH_TRY(sh_fed_simulate_train(s, &task, client, flight->values, &flight->update));
    rng = draw(s, DRAW_TIME, number);
    // log-normal, median one second.
    flight->arrives_ms = s->now_ms + 1 + (int64_t)(1000 * exp(0.5 * (double)sh_rng_normal(&rng)));
    flight->client = client;
    flight->used = true;
    return SH_OK;
}

/* An event-driven step: free places begin to train, the earliest update arrives, the clock moves
 * there. */
sh_status sh_fed_simulate_arrival(sh_fed_simulation *s) {
    sh_fed_flight *first = NULL;
    for (size_t c = 0; c < s->settings.clients; c++) sh_fed_server_heard(s->server, s->now_ms, c);
    for (size_t i = 0; i < s->flight_count; i++) {
        sh_fed_flight *flight = &s->flights[i];
        uint64_t number = (uint64_t)s->now_ms * s->flight_count + i;
        if (!flight->used) SH_TRY(begin_flight(s, flight, number));
        if (flight->used && (first == NULL || flight->arrives_ms < first->arrives_ms))
            first = flight;
    }
    if (first == NULL)
        return SH_FAIL(SH_E_USAGE, "fedbuff:%g waits for more updates than %zu clients have",
                       s->settings.server.rule.amount, s->settings.clients);
    s->now_ms = first->arrives_ms;
    first->used = false;
    sh_rng rng = draw(s, DRAW_DROPOUT, (uint64_t)s->now_ms);
    if ((double)sh_rng_uniform(&rng) < s->settings.dropout) return SH_OK;
    return deliver(s, first->client, &first->update);
}

/* The first part of a client's samples is held out, the rest trained on, as in rounds. */
static sh_status personalise_one(sh_fed_simulation *s, size_t client, sh_fed_personal *out) {
    size_t held = held_out(s, client), size = sh_fed_partition_size(&s->partition, client);
    sh_fed_local_options options = {.epochs = s->settings.local_epochs,
                                    .steps = s->settings.local_steps,
                                    .round = (uint64_t)s->settings.server.rounds,
                                    .client = client};
    sh_dataset *train = NULL, *test = NULL;
    SH_TRY(sh_fed_partition_open(&s->partition, &s->run->data, client, held, size - held, &train));
    sh_status status = sh_fed_partition_open(&s->partition, &s->run->data, client, 0, held, &test);
    if (status == SH_OK)
        status = sh_fed_personal_make(s->run, s->settings.personalise, train, test, &options,
                                      sh_fed_server_model(s->server), s->values, out);
    sh_dataset_destroy(train);
    sh_dataset_destroy(test);
    return status;
}

/* Means over clients are weighted by held-out samples. */
sh_status sh_fed_simulate_personal(sh_fed_simulation *s) {
    double shared = 0, personal = 0, weights = 0;
    for (size_t c = 0; c < s->settings.clients; c++) {
        sh_fed_personal own;
        double weight = (double)held_out(s, c);  // weight: samples held out
        if (weight == 0) continue;               // it holds nothing out to measure on
        SH_TRY(personalise_one(s, c, &own));
        shared += weight * own.shared;
        personal += weight * own.personal;
        weights += weight;
    }
    s->result.shared_accuracy = shared / weights;
    s->result.personal_accuracy = personal / weights;
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = s->run->at.step},
        {"shared_accuracy", SH_METRIC_REAL, .r = s->result.shared_accuracy},
        {"personal_accuracy", SH_METRIC_REAL, .r = s->result.personal_accuracy},
    };
    return sh_metrics_write(s->run->files.metrics, "personal", fields, SH_COUNT(fields));
}
