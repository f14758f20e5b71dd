/* shoal join: a client that trains on its own data, step by step as its state machine says
 * (client.h). One thread. A network failure is retried until the server has been silent for
 * `patience_ms`; everything else ends the program. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/facts.h"
#include "fed/join_internal.h"
#include "fed/shared_config.h"
#include "run/need.h"

/* Updates refused in a row, after which the client gives up: its data or options do not fit. */
enum { REFUSALS_MOST = 3 };

/* Monotonic: back-off does not notice a changed clock. */
static int64_t now_ms(void) { return sh_clock_now_ns(&sh_clock_real) / 1000000; }

/* Adapter of the run's stop hook for the HTTP session. */
static bool stops(void *self) {
    const shoal_hooks *hooks = self;
    return hooks->stop != NULL && hooks->stop(hooks->user);
}

/* Adapter of the line hook for the log. */
static void pass_line(void *self, sh_log_level level, const char *text) {
    const shoal_hooks *hooks = self;
    if (hooks->line != NULL) hooks->line(hooks->user, (shoal_log_level)level, text);
}

/* Waits until the next step is due; false: it was stopped. */
static bool wait_until(const sh_fed_joining *j, int64_t at_ms) {
    while (now_ms() < at_ms) {
        if (stops((void *)(uintptr_t)j->hooks)) return false;
        usleep(20000);  // 20 ms: the bound of the delay of a stop
    }
    return !stops((void *)(uintptr_t)j->hooks);
}

/* Patience counts from the last answer, whatever it said. */
static bool is_patience_over(const sh_fed_joining *j) {
    return now_ms() - j->heard_ms > j->patience_ms;
}

/* The server may not be up yet, or be started again: asked until it answers. */
static sh_status text_patiently(sh_fed_joining *j, const char *path, char **text_out) {
    for (int64_t pause = 500;; pause = pause < 30000 ? 2 * pause : pause) {
        sh_status status = sh_fed_join_text(j, path, text_out);
        // Anything but the network is not cured by waiting.
        if (status != SH_E_IO || is_patience_over(j)) return status;
        SH_WARN(&j->log, "%s; trying again", sh_error_last()->text);
        if (!wait_until(j, now_ms() + pause)) return SH_FAIL(SH_E_INTERRUPTED, "stopped");
    }
}

/* Model and data of this client, as the server wants them and the user has them. */
static sh_status open_run(sh_fed_joining *j, const sh_config *config) {
    char *text = NULL, *facts = NULL;
    sh_config mine;
    sh_data known;
    SH_TRY(sh_config_copy(config, &mine));
    sh_status status = text_patiently(j, "/v1/run", &text);
    if (status == SH_OK) status = text_patiently(j, "/v1/facts", &facts);
    // The server's text meets the same limits as a run file.
    if (status == SH_OK) status = sh_fed_config_take(text, strlen(text), &mine);
    if (status == SH_OK)
        // Normalisation of the server, so that all clients train on the same scale.
        status = sh_facts_parse("the server's facts", facts, strlen(facts), &known);
    if (status == SH_OK) status = sh_run_open_known(&mine, j->hooks, &known, &j->run);
    sh_config_fini(&mine);
    sh_free(text);
    sh_free(facts);
    SH_TRY(status);
    SH_TRY(sh_run_part(j->run, "train", &j->train));
    // Else clients have nothing to measure on.
    if (j->run->config.data.hold_out > 0) j->held_out = j->run->data.validation;
    return SH_OK;
}

/* The schedule of learning rates counts rounds, whose number only the server knows: INT32_MAX
 * stands for it. */
static sh_status make_room(sh_fed_joining *j) {
    j->params = j->run->model.net->params.total;
    j->count = sh_fed_count(j->run);
    j->received = sh_alloc(SH_FED_VECTORS_MOST * j->count, sizeof *j->received);
    j->update = sh_alloc(SH_FED_VECTORS_MOST * j->count, sizeof *j->update);
    if (j->received == NULL || j->update == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a model");
    return sh_fed_local_prepare(j->run, INT32_MAX);
}

/* Raw floats (params) in native order: a private file of this machine. */
static char *control_path(const sh_fed_joining *j) {
    return sh_path_join(j->folder, "control.f32");
}

/* Scaffold: the client's control variates outlive it; zero where there are none yet. */
static sh_status load_control(sh_fed_joining *j) {
    sh_mapped file;
    char *path = control_path(j);
    // Zeros: a client's first control variates.
    if (j->control == NULL) j->control = sh_alloc(j->params, sizeof *j->control);
    sh_status status = path != NULL && j->control != NULL
                           ? SH_OK
                           : SH_FAIL(SH_E_MEMORY, "out of memory for control variates");
    if (status == SH_OK && sh_file_exists(path)) {
        status = sh_file_map(path, &file);
        if (status == SH_OK) {
            if (file.bytes == j->params * sizeof *j->control)  // a file of another model is ignored
                memcpy(j->control, file.data, file.bytes);
            sh_file_unmap(&file);
        }
    }
    sh_free(path);
    return status;
}

/* The update is part of a closed round: so are the new control variates. */
static sh_status keep_control(sh_fed_joining *j) {
    char *path = control_path(j);
    if (path == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a path");
    // Behind the update: the change of the control variates.
    for (size_t i = 0; i < j->params; i++) j->control[i] += j->update[j->count + i];
    sh_status status = sh_file_write(path, j->control, j->params * sizeof *j->control);
    sh_free(path);
    return status;
}

/* Only a counted update changes the control variates: server and client must agree on them. */
static sh_status note_fate(sh_fed_joining *j, sh_fed_fate fate) {
    if (fate == SH_FED_DROPPED) j->result.dropped++;
    if (fate != SH_FED_SERVED) return SH_OK;
    j->result.counted++;
    j->refused = 0;  // REFUSALS_MOST counts refusals in a row
    return j->control != NULL ? keep_control(j) : SH_OK;
}

/* A task of two vectors means scaffold, which needs the control variates of earlier sessions. */
static sh_status ask(sh_fed_joining *j) {
    sh_fed_task task;
    SH_TRY(sh_fed_join_ask(j, &task));
    j->vectors = task.vectors;
    if (task.vectors > 1 && j->control == NULL) SH_TRY(load_control(j));
    return note_fate(j, sh_fed_client_on_task(&j->client, now_ms(), &task));
}

/* A download that was cut fails with SH_E_IO, and goes on where it was at the next try. */
static sh_status fetch(sh_fed_joining *j) {
    SH_TRY(sh_fed_join_fetch(j));
    sh_fed_client_on_model(&j->client, now_ms());
    return SH_OK;
}

/* Reports a round as a step of the run. */
static void tell(const sh_fed_joining *j, const sh_fed_trained *trained) {
    shoal_progress progress = {.step = (int64_t)j->client.task.round,
                               .epoch = 1,
                               .epochs = 1,
                               .samples = j->run->at.samples_here,
                               .train_loss = trained->loss,
                               .test_loss = NAN,
                               .test_accuracy = j->made.accuracy};
    if (j->hooks->progress != NULL) j->hooks->progress(j->hooks->user, &progress);
}

/* The received model is evaluated before training, so that accuracies of clients are of one model.
 */
static sh_status learn(sh_fed_joining *j) {
    const sh_fed_task *task = &j->client.task;
    sh_fed_local_options options = {.epochs = j->run->config.epochs,
                                    .steps = j->run->config.steps,
                                    .round = task->round,
                                    .client = j->drawn,
                                    .proximal = task->proximal,
                                    // Scaffold: second vector, behind the model.
                                    .server_control = j->received + j->count,
                                    .own_control = task->vectors > 1 ? j->control : NULL};
    sh_fed_trained trained;
    shoal_result result = {.accuracy = NAN};
    if (j->held_out != NULL) {
        sh_fed_local_set(j->run, j->received);
        SH_TRY(sh_run_evaluate(j->run, j->held_out, &result));
    }
    SH_TRY(sh_fed_local_train(j->run, j->train, &options, j->received, j->update, &trained));
    j->made = (sh_fed_update){.round = task->round,
                              .samples = trained.samples,
                              .steps = trained.effective_steps,
                              .loss = trained.loss,
                              .accuracy = result.accuracy,
                              .vectors = task->vectors,
                              .count = j->count,
                              .values = j->update};
    memcpy(j->made.model, task->model, SH_FED_HASH);
    sh_fed_client_on_trained(&j->client, now_ms());
    tell(j, &trained);
    return SH_OK;
}

/* A refusal is a verdict about the update, not a failure of the network: it is not retried. */
static sh_status send_update(sh_fed_joining *j) {
    sh_fed_receipt receipt;
    SH_TRY(sh_fed_join_send(j, &receipt));
    if (receipt.verdict == SH_FED_REFUSED) {
        SH_WARN(&j->log, "round %llu: the server refuses the update: %s",
                (unsigned long long)receipt.round, receipt.reason);
        // The reason comes from the server: shown, never interpreted.
        if (++j->refused == REFUSALS_MOST)
            return SH_FAIL(SH_E_NUMERIC, "the server refused %d updates in a row: %s",
                           REFUSALS_MOST, receipt.reason);
    }
    return note_fate(j, sh_fed_client_on_receipt(&j->client, now_ms(), &receipt));
}

/* One step of the state machine; each calls back what came of it. */
static sh_status step(sh_fed_joining *j) {
    switch (j->client.step) {
        case SH_FED_ASK:
            return ask(j);
        case SH_FED_FETCH:
            return fetch(j);
        case SH_FED_LEARN:
            return learn(j);
        case SH_FED_SEND:
            return send_update(j);
        default:
            return SH_OK;
    }
}

/* SH_E_IO goes back to asking, with a growing pause; the held update stays. */
static sh_status loop(sh_fed_joining *j) {
    while (j->client.step != SH_FED_FINISH) {
        // A stop between steps loses nothing that is held.
        if (!wait_until(j, j->client.at_ms)) return SH_FAIL(SH_E_INTERRUPTED, "stopped");
        sh_status status = step(j);
        if (status == SH_OK) j->heard_ms = now_ms();  // any answer
        if (status == SH_E_IO && is_patience_over(j))
            return sh_error_hint(
                "the server has not answered for %.0f minutes; the same command "
                "goes on when it is back",
                (double)j->patience_ms / 60000);
        if (status == SH_E_IO) {
            SH_WARN(&j->log, "%s; trying again", sh_error_last()->text);
            sh_fed_client_on_failure(&j->client, now_ms());
        } else {  // verdicts and broken data are final
            SH_TRY(status);
        }
    }
    return SH_OK;
}

/* The model of the last round, for the client's own use. */
static sh_status keep_model(sh_fed_joining *j) {
    char *path = sh_path_join(j->folder, "model.safetensors");
    if (path == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a path");
    sh_status status = sh_fed_join_fetch(j);
    if (status == SH_OK) {
        sh_fed_local_set(j->run, j->received);
        status = shoal_run_save(j->run, path) == SHOAL_OK ? SH_OK : sh_error_last()->code;
    } else {
        SH_WARN(&j->log, "the last model did not come: %s", sh_error_last()->text);
        status = SH_OK;  // the training counts; its last model is a convenience
    }
    sh_free(path);
    return status;
}

/* The client's own model, beside the shared one. */
static sh_status make_personal(sh_fed_joining *j, sh_fed_personalise way) {
    sh_fed_local_options options = {.epochs = j->run->config.epochs,
                                    .steps = j->run->config.steps,
                                    .round = j->client.task.round,
                                    .client = j->drawn};
    sh_fed_personal own;
    if (way == SH_FED_SHARED_ONLY) return SH_OK;  // no personal model is wanted
    SH_TRY(sh_fed_personal_make(j->run, way, j->train, j->held_out, &options, j->received,
                                j->update, &own));
    j->result.shared_accuracy = own.shared;
    j->result.personal_accuracy = own.personal;
    char *path = sh_path_join(j->folder, "personal.safetensors");
    if (path == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a path");
    sh_status status = (sh_status)shoal_run_save(j->run, path);
    sh_free(path);
    return status;
}

/* A certificate that cannot be renewed is a warning: it may be valid for days yet. */
static sh_status join(sh_fed_joining *j, const sh_config *config,
                      const shoal_fed_join_options *options) {
    sh_http_session_options server = {
        .base = options->url, .stop = stops, .stop_self = (void *)(uintptr_t)j->hooks};
    sh_fed_personalise way;
    SH_TRY(sh_fed_personalise_parse(options->personalise, &way));
    SH_TRY(sh_fed_enrol(j->folder, &server, options->token, options->ca, &j->identity));
    server.authority = j->identity.authority;
    server.certificate = server.key = j->identity.client;  // one file holds both
    SH_TRY(sh_http_session_open(&server, &j->session));
    sh_status renewed = sh_fed_renew(&j->identity, j->session);
    if (renewed != SH_OK)
        SH_WARN(&j->log, "the certificate is not renewed: %s", sh_error_last()->text);
    SH_TRY(open_run(j, config));
    SH_TRY(make_room(j));
    SH_INFO(&j->log, "joined %s with %zu samples, model of %zu parameters", options->url,
            j->train->info.count, j->params);
    // Time and process: clients on one host must not stay in step.
    sh_fed_client_init(&j->client, (uint64_t)now_ms(), (uint64_t)getpid());
    j->drawn = sh_rng_u32(&j->client.rng);  // names this client in draws of its samples
    SH_TRY(loop(j));
    SH_TRY(keep_model(j));
    return make_personal(j, way);
}

shoal_status shoal_fed_join(const shoal_config *config, const shoal_hooks *hooks,
                            const shoal_fed_join_options *options, shoal_fed_joined *joined_out) {
    SHOAL_NEED(config);
    SHOAL_NEED(options);
    SHOAL_NEED(options->url);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    sh_fed_joining j = {.hooks = &whole};
    j.log = (sh_log){.line = pass_line, .self = (void *)(uintptr_t)j.hooks};
    j.patience_ms =
        (int64_t)(60000 * (options->patience_minutes > 0 ? options->patience_minutes : 60));
    j.heard_ms = now_ms();
    j.result.shared_accuracy = j.result.personal_accuracy = NAN;
    j.folder = config->config.out != NULL ? config->config.out : "federated";
    sh_status status = join(&j, &config->config, options);
    const sh_error error = *sh_error_last();  // freeing below may overwrite the last error
    if (joined_out != NULL) *joined_out = j.result;
    sh_http_session_close(j.session);
    sh_http_answer_fini(&j.model);
    sh_fed_identity_fini(&j.identity);
    shoal_run_close(j.run);
    sh_free(j.received);
    sh_free(j.update);
    sh_free(j.control);
    if (status != SH_OK) sh_error_adopt(&error);
    return (shoal_status)status;
}
