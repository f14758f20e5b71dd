/* shoal fed serve: the process around the server's state machine. The HTTPS threads answer clients
 * under one lock; the main task lets time pass, evaluates and writes. A server that is started
 * again on its folder goes on with the last closed round. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/facts.h"
#include "fed/admin.h"
#include "fed/secret.h"
#include "fed/serve_internal.h"
#include "fed/shared_config.h"
#include "run/need.h"

enum {
    TICK_MS = 50,
    LINGER_MS = 60000,
    REVOKED_MS = 1000,
    UPLOAD_IDLE_MS = 300000
};  // pace of the main loop; patience at the end; looks for revocations; stalled uploads

/* sh_fed_commit, called under the lock by whichever thread closed the round. Durable first, then
 * told and handed out: no client can learn of a round that a crash would undo. */
static sh_status commit(void *self, const sh_fed_server *server, const sh_fed_report *report) {
    sh_fed_serving *s = self;
    SH_TRY(sh_fed_store_commit(s->store, server, s->params, report, sh_fed_unix_s()));
    // Bounds memory while an evaluation takes long.
    if (s->report_count == SH_FED_REPORTS) {  // the oldest is not told
        memmove(s->reports, s->reports + 1, (SH_FED_REPORTS - 1) * sizeof *s->reports);
        s->report_count--;
    }
    s->reports[s->report_count++] = *report;
    return sh_fed_hand_out(s);
}

/* sh_fed_charge, under the lock: the budget is charged on disk before the sum is used. */
static sh_status charge(void *self, uint64_t round, double rate, double noise) {
    sh_fed_serving *s = self;
    return sh_fed_store_charge(s->store, round, rate, noise);
}

/* A path in the run's folder; the caller frees it. */
static sh_status in_folder(const sh_fed_serving *s, const char *name, char **path_out) {
    *path_out = sh_path_join(s->run->files.folder, name);
    return *path_out != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for a path");
}

/* The authority is made once and kept; its key is readable by the owner alone. */
static sh_status take_authority(sh_fed_serving *s) {
    char *path, *text = NULL;
    SH_TRY(in_folder(s, "authority.pem", &path));
    sh_status status = SH_OK;
    if (sh_file_exists(path)) {
        status = sh_secret_read(path, &text);
        char *second = text != NULL ? strstr(text, "-----BEGIN CERTIFICATE") : NULL;
        if (status == SH_OK && second == NULL)
            status = SH_FAIL(SH_E_FORMAT, "'%s' holds no certificate", path);
        if (status == SH_OK) {
            s->authority.certificate = sh_strdup(second);
            *second = '\0';  // split in place: key, then certificate
            s->authority.key = sh_strdup(text);
        }
    } else {
        status = sh_authority_make(&s->authority);
        if (status == SH_OK) text = sh_format("%s%s", s->authority.key, s->authority.certificate);
        if (status == SH_OK && text != NULL) status = sh_secret_write(path, text);
    }
    if (text != NULL) memset(text, 0, strlen(text));  // the authority's key
    sh_free(text);
    sh_free(path);
    return status;
}

/* "[HOST]:PORT" as --listen has it. */
static sh_status read_listen(const char *text, char address_out[64], uint16_t *port_out) {
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    long port = colon != NULL ? strtol(colon + 1, &end, 10) : -1;  // port 0: the system chooses one
    size_t length = colon != NULL ? (size_t)(colon - text) : 0;
    if (colon == NULL || end == colon + 1 || *end != '\0' || port < 0 || port > 65535 ||
        length >= 64) {
        SH_FAIL(SH_E_USAGE, "'%.60s' is no address to listen on", text);
        return sh_error_hint("for example --listen :8443 or --listen 127.0.0.1:8443");
    }
    memcpy(address_out, text, length);
    address_out[length] = '\0';
    *port_out = (uint16_t)port;
    return SH_OK;
}

/* The certificate names every way in which this host is likely to be addressed. */
static sh_status start_http(sh_fed_serving *s, char host_out[256]) {
    char address[64] = "", own[256] = "localhost";
    uint16_t port = 0;
    sh_credentials credentials = {0};
    SH_TRY(read_listen(s->options->listen, address, &port));
    (void)gethostname(own, sizeof own - 1);  // a host without a name is localhost
    const char *named = s->options->host != NULL ? s->options->host : own;
    const char *hosts[] = {named, own, "localhost", "127.0.0.1", address};
    size_t count = SH_COUNT(hosts) - (address[0] == '\0' ? 1 : 0);  // an empty address is none
    SH_TRY(sh_certificate_make_server(&s->authority, hosts, count, &credentials));
    sh_http_server_options options = {
        .address = address[0] != '\0' ? address : NULL,
        .port = port,
        .credentials = &credentials,
        .authority = s->authority.certificate,
        .threads = 2,
        .connections_most = 8192,  // bounds sockets that strangers can hold
        .idle_s_most = 120,        // a silent connection is closed
        .handler = {.body_most = sh_fed_body_most, .handle = sh_fed_handle, .self = s}};
    sh_status status = sh_http_server_start(&options, &s->http);
    sh_credentials_fini(&credentials);
    snprintf(host_out, 256, "%s", named);
    return status;
}

/* Kept in the store for `shoal fed invite`, which runs as another process. */
static sh_status tell_address(sh_fed_serving *s, const char *host) {
    char url[300], fingerprint[SH_FINGERPRINT];
    bool six = strchr(host, ':') != NULL;  // IPv6 literals need brackets in a URL
    snprintf(url, sizeof url, six ? "https://[%s]:%d" : "https://%s:%d", host,
             sh_http_server_port(s->http));
    SH_TRY(sh_certificate_fingerprint(s->authority.certificate, fingerprint));
    pthread_mutex_lock(&s->lock);
    sh_status status = sh_fed_store_set(s->store, "url", url);
    if (status == SH_OK) status = sh_fed_store_set(s->store, "fingerprint", fingerprint);
    char rounds[32];
    snprintf(rounds, sizeof rounds, "%lld", (long long)s->settings.server.rounds);
    if (status == SH_OK) status = sh_fed_store_set(s->store, "rounds", rounds);
    if (status == SH_OK && s->options->fed.privacy != NULL)
        // For `shoal fed status`, which computes epsilon.
        status = sh_fed_store_set(s->store, "privacy", s->options->fed.privacy);
    pthread_mutex_unlock(&s->lock);
    SH_INFO(&s->run->log, "listening on %s, in %s", url, s->run->files.folder);
    return status;
}

/* As many invitations as clients are wanted, less those who are there or invited already. */
static sh_status invite(sh_fed_serving *s) {
    pthread_mutex_lock(&s->lock);
    int64_t there = (int64_t)sh_fed_server_clients(s->server);
    sh_status status = SH_OK;
    for (; there < s->options->invitations && status == SH_OK; there++) {
        char line[SH_FED_LINE];
        // A secret: shown once, stored as a hash.
        status = sh_fed_invitation(s->store, sh_fed_unix_s(), s->options->token_hours, line);
        if (status == SH_OK && s->options->invited != NULL)
            s->options->invited(s->run->hooks.user, line);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* Attempts begin above those of all earlier processes, so that an update for a lost attempt is
 * recognised. */
static sh_status make_server(sh_fed_serving *s) {
    int64_t boots;
    SH_TRY(sh_fed_store_boot(s->store, &boots));  // durable before the first task is given
    // 4096 attempts for each start
    s->settings.server.attempt = (uint32_t)boots << 12;  // above all attempts before
    s->settings.server.charge = charge;
    if (s->settings.server.privacy.on) SH_TRY(sh_fed_privacy_draw_key(&s->settings.server.privacy));
    // `commit` runs under the lock.
    SH_TRY(sh_fed_server_create(&s->settings.server, s->params, s->count, commit, s, &s->server));
    sh_fed_local_get(s->run, sh_fed_server_model(s->server));
    // The last closed round, if there is one.
    SH_TRY(sh_fed_store_restore(s->store, s->server, s->params));
    sh_fed_server_begin(s->server);
    size_t values = sh_fed_server_values(s->server);
    s->uploads.each_most = sh_fed_update_bytes(values);
    s->uploads.bytes_most = (size_t)256 << 20;  // 256 MiB: what uploads may take in memory
    if (s->uploads.bytes_most < 2 * s->uploads.each_most)
        s->uploads.bytes_most = 2 * s->uploads.each_most;
    s->values = sh_alloc(values, sizeof *s->values);
    if (s->values == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an update");
    return sh_fed_hand_out(s);
}

/* --overwrite begins anew, with other clients and another authority. */
static void forget_before(const char *folder) {
    // With SQLite's journal: a new database must not replay it.
    static const char *const names[] = {"federated.db", "federated.db-wal", "federated.db-shm",
                                        "authority.pem"};
    for (size_t i = 0; i < SH_COUNT(names) && folder != NULL; i++) {
        char *path = sh_path_join(folder, names[i]);
        if (path != NULL) unlink(path);  // absent is fine
        sh_free(path);
    }
}

/* A folder that holds a federated training goes on; another run's is refused as always. */
static sh_status open_folder(sh_fed_serving *s) {
    shoal_run *run = s->run;
    char *path = run->config.out != NULL ? sh_path_join(run->config.out, "federated.db") : NULL;
    // --overwrite means another training.
    bool goes_on = path != NULL && sh_file_exists(path) && !run->config.overwrite;
    sh_free(path);
    if (run->config.overwrite) forget_before(run->config.out);
    bool before = run->config.overwrite;
    run->config.overwrite = before || goes_on;  // its run file is there, and is written anew
    sh_status status = sh_run_open_folder(run);
    run->config.overwrite = before;
    SH_TRY(status);
    SH_TRY(sh_fed_store_open(run->files.folder, true, &s->store));
    return take_authority(s);
}

/* A folder that goes on keeps its metrics, as a resumed run does. */
static sh_status begin_files(sh_fed_serving *s) {
    shoal_run *run = s->run;
    run->at.step = (int64_t)sh_fed_server_view(s->server, 0).closed;
    static char newest[] = "newest";
    if (run->at.step > 0) run->config.resume = newest;  // the metrics so far stay
    sh_status status = sh_run_begin_files(run);
    run->config.resume = NULL;
    return status;
}

/* HTTPS starts after the store and the state machine: clients never meet half a server. */
static sh_status begin(sh_fed_serving *s) {
    shoal_run *run = s->run;
    char host[256];
    run->stats.start_ns = run->stats.loop_ns = sh_run_now(run);
    SH_TRY(sh_data_need_targets(run->data.test, "test"));
    SH_TRY(sh_fed_local_prepare(run, s->settings.server.rounds));
    s->params = run->model.net->params.total;
    s->count = sh_fed_count(run);
    SH_TRY(sh_fed_config_print(&run->config, s->settings.local_epochs, s->settings.local_steps,
                               &s->shared_text));
    SH_TRY(sh_facts_print(&run->data, &s->facts));
    if (s->facts == NULL)  // clients could not scale their data alike
        return SH_FAIL(SH_E_UNSUPPORTED, "this data's normalisation is too wide to be shared");
    SH_TRY(open_folder(s));
    SH_TRY(make_server(s));
    SH_TRY(begin_files(s));
    SH_TRY(start_http(s, host));
    SH_TRY(tell_address(s, host));
    if (run->at.step > 0)
        SH_INFO(&run->log, "%lld rounds are closed: going on", (long long)run->at.step);
    return invite(s);
}

/* Clients are numbered from 1 in the store, from 0 in the state machine. */
static void take_revoked(void *self, const sh_fed_client_row *client) {
    sh_fed_serving *s = self;
    bool known = (size_t)client->number <= sh_fed_server_clients(s->server);
    if (client->revoked && known) sh_fed_server_revoke(s->server, (size_t)client->number - 1);
}

/* Another process may have revoked somebody: no round waits for it any longer. */
static sh_status look_for_revoked(sh_fed_serving *s, int64_t now_ms) {
    if (now_ms < s->looked_ms + REVOKED_MS) return SH_OK;
    s->looked_ms = now_ms;
    return sh_fed_store_clients(s->store, take_revoked, s);
}

/* One look at the clock. True in `*over_out`: the last round is closed; in `*told_out`: all who are
 * present know it. */
static sh_status tick(sh_fed_serving *s, bool *over_out, bool *told_out) {
    int64_t now = sh_fed_now_ms();
    pthread_mutex_lock(&s->lock);
    sh_status status = s->failed.code;  // set by a request that found the store broken
    if (status == SH_OK)
        status = sh_fed_server_tick(s->server, now);
    else
        sh_error_adopt(&s->failed);
    if (status == SH_OK) status = look_for_revoked(s, now);
    // Stalled uploads give their budget back.
    sh_fed_uploads_expire(&s->uploads, now - UPLOAD_IDLE_MS);
    sh_fed_view view = sh_fed_server_view(s->server, now);
    *over_out = view.over;
    *told_out = view.untold == 0;  // present clients that do not know yet that it is over
    bool news = s->report_count > 0;
    pthread_mutex_unlock(&s->lock);
    // Outside the lock: evaluation takes long.
    if (status == SH_OK && news) status = sh_fed_serve_report(s);
    return status;
}

static bool stops(const shoal_run *run) {
    return run->hooks.stop != NULL && run->hooks.stop(run->hooks.user);
}

/* After the last round the server stays until all who are present have heard that it is over, and
 * then as long as they may take to fetch the last model. */
static sh_status loop(sh_fed_serving *s) {
    bool over = false, told = false;
    int64_t over_ms = 0, told_ms = 0;
    for (;;) {
        SH_TRY(tick(s, &over, &told));  // every TICK_MS
        int64_t now = sh_fed_now_ms();
        if (!over && stops(s->run))
            return SH_FAIL(SH_E_INTERRUPTED, "stopped; the same command goes on");
        if (!over || over_ms == 0) over_ms = now;  // over can only become true
        // told can become false: a client may come back
        if (!over || !told || told_ms == 0) told_ms = now;
        // Two seconds more than a poll: time to fetch.
        bool fetched = now - told_ms >= 2000 + s->settings.server.poll_ms;
        if (over && (fetched || now - over_ms >= LINGER_MS || stops(s->run))) return SH_OK;
        usleep(TICK_MS * 1000);
    }
}

/* The model of the last round, as a training run saves its own. */
static sh_status save(sh_fed_serving *s) {
    sh_fed_local_set(s->run, sh_fed_server_model(s->server));
    return sh_run_save(s->run);
}

/* HTTPS stops before the model is saved, so that no thread touches the state any more. */
static sh_status serve(sh_fed_serving *s) {
    SH_TRY(begin(s));
    sh_status status = loop(s);
    const sh_error error = *sh_error_last();  // stopping HTTP may overwrite it
    sh_http_server_stop(s->http);             // waits for its threads
    s->http = NULL;
    if (status == SH_OK) return save(s);
    return status == SH_E_INTERRUPTED ? sh_error_adopt(&error) : status;
}

static void fini(sh_fed_serving *s) {
    sh_http_server_stop(s->http);  // NULL once it was stopped
    if (s->handout != NULL) sh_fed_release_handout(s->handout);
    sh_fed_uploads_fini(&s->uploads);
    sh_fed_store_close(s->store);
    sh_fed_server_destroy(s->server);
    sh_credentials_fini(&s->authority);
    sh_free(s->shared_text);
    sh_free(s->facts);
    sh_free(s->values);
    pthread_mutex_destroy(&s->lock);
}

/* A client counts as present for ten polls and five seconds after its last request. */
shoal_status shoal_fed_serve(const shoal_config *config, const shoal_hooks *hooks,
                             const shoal_fed_serve_options *options, char **folder_out) {
    SHOAL_NEED(config);
    SHOAL_NEED(options);
    SHOAL_NEED(options->listen);
    if (folder_out != NULL) *folder_out = NULL;
    sh_fed_serving s = {.options = options};
    SHOAL_TRY(sh_fed_settings_make(&options->fed, (uint64_t)config->config.seed, &s.settings));
    s.settings.server.deadline_ms = (int64_t)(options->deadline_s * 1000);
    s.settings.server.presence_ms = 5000 + 10 * options->poll_ms;
    s.settings.server.poll_ms = options->poll_ms;
    s.settings.server.late_rounds = options->late_rounds;
    if (options->late_rounds > 0 && s.settings.server.privacy.on)
        return (shoal_status)SH_FAIL(SH_E_USAGE, "--private does not go with --late-rounds");
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    SHOAL_TRY(sh_run_open(&config->config, &whole, NULL, &s.run));
    pthread_mutex_init(&s.lock, NULL);
    sh_status status = serve(&s);
    if (folder_out != NULL && s.run->files.folder != NULL)
        *folder_out = sh_strdup(s.run->files.folder);
    const sh_error error = *sh_error_last();
    fini(&s);
    if (status != SH_OK) sh_error_adopt(&error);
    shoal_run_close(s.run);
    return (shoal_status)status;
}
