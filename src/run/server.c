#include "run/server.h"

#include <string.h>

#include "base/hash.h"
#include "run/exact.h"
#include "run/server_snapshots.h"

/* Tags of mail; a scheme's own are below these. */
enum { TAG_SETUP = 1, TAG_WEIGHTS, TAG_SLOT, TAG_COUNTS };
#define TAG(number) ((UINT64_C(1) << 39) + (number))

/* What worker 0 tells a server before it serves. Weights follow where there are any, and the
 * optimizer's state where the run goes on from a checkpoint. */
typedef struct server_setup {
    char settings[SH_BLAKE2_HEX];  // a hash of the options
    bool works;                    // false: there is nothing to do
    bool computes;                 // false: timing only
    int64_t step, steps, steps_per_epoch;
    sh_net_input input;
    void *snapshot;  // where it keeps one, in memory that it shares with the workers; NULL: nowhere
} server_setup;

/* 0 for a scheme that is not known, too: sh_config_check refuses that name. */
int sh_servers_apart(const sh_config *config, int workers) {
    sh_scheme scheme;
    if (!sh_sync_apart(&config->scheme)) return 0;
    if (sh_scheme_parse(config->scheme.name, &scheme) != SH_OK) return 0;
    return sh_scheme_services(scheme, &config->scheme, workers);
}

void sh_servers_settle(sh_config *config) {
    int apart = sh_servers_apart(config, (int)config->workers);
    if (apart > 0) config->scheme.servers = apart;
}

/* Of what is done, as a run has it in its options from its start on: the optimizer's usual values
 * are filled in. The loss is the workers' alone. */
static sh_status hash_settings(const sh_config *config, char hex_out[SH_BLAKE2_HEX]) {
    sh_config done = *config;
    sh_optim optim = {0};
    SH_TRY(sh_optim_init(&optim, &config->optim, 0));
    sh_optim_resolve(&optim, &done.optim);
    sh_optim_fini(&optim);
    done.loss.name = NULL;
    char *text = sh_options_print(sh_config_table(), &done);
    if (text == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for options");
    sh_blake2_hex(text, strlen(text), hex_out);
    sh_free(text);
    return SH_OK;
}

/* ---- worker 0's side ---- */

/* Messages go in the order in which take_values receives them. */
static sh_status set_up_one(const shoal_run *run, sh_mail *mail, int endpoint,
                            const server_setup *setup) {
    size_t bytes = run->model.net->params.total * sizeof(float);
    SH_TRY(sh_mail_put(mail, endpoint, TAG(TAG_SETUP), setup, sizeof *setup, "setup"));
    if (!setup->computes) return SH_OK;
    SH_TRY(
        sh_mail_put(mail, endpoint, TAG(TAG_WEIGHTS), run->model.blocks.weights, bytes, "setup"));
    for (int i = 0; setup->step > 0 && i < run->optim.slot_count; i++)
        SH_TRY(sh_mail_put(mail, endpoint, TAG(TAG_SLOT), run->optim.slots[i], bytes, "setup"));
    return SH_OK;
}

sh_status sh_servers_set_up(shoal_run *run, sh_mail *mail, int count) {
    server_setup setup = {.works = true,
                          .computes = run->model.blocks.weights != NULL,
                          .step = run->at.step,
                          .steps = run->length.steps,
                          .steps_per_epoch = run->length.steps_per_epoch,
                          .input = run->model.net->input};
    SH_TRY(hash_settings(&run->config, setup.settings));
    run->servers_set_up = true;
    for (int i = 0; i < count; i++) {
        // An address that is the same in all processes (sh_regroup_ops.keep).
        setup.snapshot = sh_server_snapshots_at(&run->team.snapshots, i);
        SH_TRY(set_up_one(run, mail, mail->workers + i, &setup));
    }
    return SH_OK;
}

sh_status sh_server_read_counts(sh_mail *mail, sh_service *service) {
    return sh_mail_take(mail, mail->workers + service->index, TAG(TAG_COUNTS), &service->counts,
                        sizeof service->counts, "counts");
}

sh_status sh_servers_release(shoal_run *run) {
    const sh_worker_env *env = &run->team.env;
    int count = sh_servers_apart(&run->config, run->team.ranks);
    if (count == 0 || run->servers_set_up || run->team.rank != 0 || env->open_mail == NULL)
        return SH_OK;
    sh_mail mail = {.workers = run->team.ranks, .apart = true};
    SH_TRY(env->open_mail(env->self, 0, &mail.transport));
    // Without this word a server would wait for its set-up for ever.
    const server_setup setup = {0};
    sh_status status = SH_OK;
    for (int i = 0; status == SH_OK && i < count; i++)
        status =
            sh_mail_put(&mail, mail.workers + i, TAG(TAG_SETUP), &setup, sizeof setup, "setup");
    sh_transport_close(mail.transport);
    return status;
}

/* ---- a server ---- */

/* What a service looks at, and its owner. */
typedef struct served {
    const sh_server *server;
    server_setup setup;
    sh_net *net;
    float *weights;
    sh_optim optim;
    bool has_optim;
    sh_schedule schedule;
    sh_codec codec;
    sh_mail mail;
    sh_service service;
} served;

/* Under MPI every rank reads a run file of its own, so a server may have been started with
 * another one. */
static sh_status check_settings(const served *s) {
    char own[SH_BLAKE2_HEX];
    SH_TRY(hash_settings(s->server->config, own));
    if (memcmp(own, s->setup.settings, sizeof own) == 0) return SH_OK;
    SH_FAIL(SH_E_USAGE, "server %d has other settings than rank 0", s->server->index);
    return sh_error_hint("start all ranks with the same program and run file");
}

/* Net, optimizer and schedule follow from the options, so that of the model only numbers
 * travel. */
static sh_status make_parts(served *s) {
    const sh_config *config = s->server->config;
    SH_TRY(check_settings(s));
    SH_TRY(sh_net_from_node(config->model, &s->setup.input, &s->net));
    size_t total = s->net->params.total;
    SH_TRY(sh_optim_init(&s->optim, &config->optim, total));
    s->has_optim = true;
    SH_TRY(sh_codec_make(&config->codec, &s->codec));
    SH_TRY(sh_schedule_init(&s->schedule, &config->schedule, s->optim.options.lr, config->batch,
                            s->setup.steps, s->setup.steps_per_epoch));
    if (!s->setup.computes) return SH_OK;
    s->weights = sh_alloc(total + 1, sizeof *s->weights);
    return s->weights != NULL ? SH_OK
                              : SH_FAIL(SH_E_MEMORY, "out of memory for %zu weights", total);
}

/* In the order of set_up_one. A run that begins has no optimizer state worth sending. */
static sh_status take_values(served *s) {
    size_t bytes = s->net->params.total * sizeof(float);
    SH_TRY(sh_mail_take(&s->mail, 0, TAG(TAG_WEIGHTS), s->weights, bytes, "setup"));
    for (int i = 0; s->setup.step > 0 && i < s->optim.slot_count; i++)
        SH_TRY(sh_mail_take(&s->mail, 0, TAG(TAG_SLOT), s->optim.slots[i], bytes, "setup"));
    return SH_OK;
}

static sh_status serve(served *s) {
    const sh_server *server = s->server;
    const sh_config *config = server->config;
    bool shares = server->quits != NULL;  // memory with the workers
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(config->scheme.name, &scheme));
    s->service = (sh_service){.index = server->index,
                              .count = sh_servers_apart(config, server->workers),
                              .workers = server->workers,
                              .mail = s->mail,
                              .scheme = scheme,
                              .options = &config->scheme,
                              .params = &s->net->params,
                              .weights = s->weights,
                              .optim = &s->optim,
                              .schedule = &s->schedule,
                              .codec = &s->codec,
                              .seed = (uint64_t)config->seed,
                              .step = s->setup.step,
                              .combined_most = sh_exact_combined_most(config, s->net),
                              .stops = server->stops,
                              .quits = server->quits,
                              .user = server->user,
                              .snapshot = shares ? s->setup.snapshot : NULL};
    const sh_transport *transport = s->mail.transport;
    // On the board the whole service is one operation, so that a report can say what this process
    // does.
    sh_operation *operation = sh_board_begin(transport->board, sh_clock_now_ns(transport->clock),
                                             "service", s->setup.step, -1, -1, 0);
    SH_TRY(scheme.kind->family->serve(&s->service));
    sh_board_end(transport->board, operation, sh_clock_now_ns(transport->clock));
    return sh_mail_put(&s->mail, 0, TAG(TAG_COUNTS), &s->service.counts, sizeof s->service.counts,
                       "counts");
}

/* One server's life in the order of its messages: set-up, values, service, counts. Waits for
 * worker 0 first, which may have nothing to do. */
static sh_status run(served *s) {
    const sh_transport *transport = s->mail.transport;
    SH_TRY(sh_mail_take(&s->mail, 0, TAG(TAG_SETUP), &s->setup, sizeof s->setup, "setup"));
    if (!s->setup.works) return SH_OK;
    SH_TRY(make_parts(s));
    if (s->setup.computes) SH_TRY(take_values(s));
    sh_board_phase(transport->board, SH_PHASE_STEP, sh_clock_now_ns(transport->clock));
    return serve(s);
}

sh_status sh_server_run(const sh_server *server) {
    SH_TRY(sh_config_check(server->config));
    served s = {.server = server,
                .mail = {.transport = server->mail, .workers = server->workers, .apart = true}};
    sh_status status = run(&s);
    const sh_error error = *sh_error_last();
    if (s.has_optim) sh_optim_fini(&s.optim);
    sh_net_destroy(s.net);
    sh_free(s.weights);
    return status == SH_OK ? SH_OK : sh_error_adopt(&error);
}
