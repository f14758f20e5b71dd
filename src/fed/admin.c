/* What the owner of a server's folder may ask and do, also while the server runs. */
#include "fed/admin.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/text.h"
#include "fed/privacy.h"

/* The line holds all that a client needs to trust the server: address, one-time token, fingerprint.
 */
sh_status sh_fed_invitation(sh_fed_store *store, int64_t unix_s, double hours,
                            char line_out[SH_FED_LINE]) {
    char url[300], fingerprint[80], token[SH_FED_TOKEN];
    SH_TRY(sh_fed_store_get(store, "url", url, sizeof url));
    SH_TRY(sh_fed_store_get(store, "fingerprint", fingerprint, sizeof fingerprint));
    if (url[0] == '\0') {  // the address is known once the server has listened
        SH_FAIL(SH_E_USAGE, "this server has not been started yet");
        return sh_error_hint("shoal fed serve");
    }
    SH_TRY(sh_fed_store_invite(store, unix_s, (int64_t)(hours * 3600), token));
    snprintf(line_out, SH_FED_LINE, "shoal join %s %s --ca sha256:%s", url, token, fingerprint);
    return SH_OK;
}

/* Works while the server runs: both are processes on one SQLite database. */
sh_status sh_fed_invite(const char *folder, int64_t count, double hours,
                        void (*line)(void *user, const char *line), void *user) {
    sh_fed_store *store = NULL;
    SH_TRY(sh_fed_store_open(folder, false, &store));
    sh_status status = SH_OK;
    for (int64_t i = 0; i < count && status == SH_OK; i++) {
        char text[SH_FED_LINE];  // holds a secret until it is redeemed
        status = sh_fed_invitation(store, (int64_t)time(NULL), hours, text);
        if (status == SH_OK) line(user, text);
    }
    sh_fed_store_close(store);
    return status;
}

/* The running server looks for revocations once a second (serve.c). */
sh_status sh_fed_revoke(const char *folder, int64_t client) {
    sh_fed_store *store = NULL;
    SH_TRY(sh_fed_store_open(folder, false, &store));
    sh_status status = sh_fed_store_revoke(store, client);
    sh_fed_store_close(store);
    return status;
}

/* What a pass over rows prints, and what it counts on the way. */
typedef struct printing {
    FILE *file;  // NULL: count only
    bool json;
    int64_t rows, revoked, closed;
} printing;

/* UTC, so that logs of servers in several places compare. */
static void print_day(FILE *file, int64_t unix_s) {
    char text[32] = "";
    time_t time_s = (time_t)unix_s;
    struct tm day;
    if (gmtime_r(&time_s, &day) != NULL) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%SZ", &day);
    fputs(text, file);
}

/* One JSON object per line, or one line of text. */
static void print_client(void *self, const sh_fed_client_row *client) {
    printing *p = self;
    p->rows++;
    p->revoked += client->revoked;
    if (p->file == NULL) return;
    if (p->json) {
        fprintf(p->file,
                "{\"client\":%lld,\"joined\":%lld,\"rounds\":%lld,\"last_round\":%llu,\"revoked\":%"
                "s}\n",
                (long long)client->number, (long long)client->joined_unix_s,
                (long long)client->rounds, (unsigned long long)client->counted,
                client->revoked ? "true" : "false");
        return;
    }
    fprintf(p->file, "client %-6lld joined ", (long long)client->number);
    print_day(p->file, client->joined_unix_s);
    fprintf(p->file, "  counted in %lld rounds, last in round %llu%s\n", (long long)client->rounds,
            (unsigned long long)client->counted, client->revoked ? "  revoked" : "");
}

/* Safe while the server runs: SQLite serves readers beside its writer. */
sh_status sh_fed_print_clients(const char *folder, bool json, FILE *file) {
    sh_fed_store *store = NULL;
    printing p = {.file = file, .json = json};
    SH_TRY(sh_fed_store_open(folder, false, &store));
    sh_status status = sh_fed_store_clients(store, print_client, &p);
    sh_fed_store_close(store);
    return status;
}

static void count_round(void *self, const sh_fed_round_row *round) {
    printing *p = self;
    p->closed = round->round;  // rows come in ascending order: the last one stays
}

/* A round without a loss (secure or private aggregation) prints null, as NaN is no JSON. */
static void print_round(void *self, const sh_fed_round_row *round) {
    printing *p = self;
    if (p->json) {
        char loss[40] = "null";
        if (isfinite(round->loss)) sh_snprintf(loss, sizeof loss, "%.9g", round->loss);
        sh_fprintf(
            p->file,
            "%s{\"round\":%lld,\"clients\":%lld,\"samples\":%lld,\"loss\":%s,\"seconds\":%.3f}",
            p->rows++ > 0 ? "," : "", (long long)round->round, (long long)round->clients,
            (long long)round->samples, loss, round->seconds);
        return;
    }
    sh_fprintf(p->file, "round %-6lld %lld clients, ", (long long)round->round,
               (long long)round->clients);
    if (isfinite(round->loss))
        sh_fprintf(p->file, "%lld samples, loss %.4f, ", (long long)round->samples, round->loss);
    sh_fprintf(p->file, "%.1f s, closed ", round->seconds);
    print_day(p->file, round->closed_unix_s);
    fputc('\n', p->file);
}

/* Charges are kept one by one, so that epsilon can be computed for any delta. */
static void add_charge(void *self, double rate, double noise) {
    sh_fed_accountant_add(self, rate, noise, 1);
}

/* What the rounds so far have spent; NaN: there is no budget. */
static sh_status spent_privacy(sh_fed_store *store, double *epsilon_out, double *of_out) {
    char text[200];
    sh_fed_privacy privacy;
    sh_fed_accountant spent = {0};
    *epsilon_out = *of_out = NAN;
    SH_TRY(sh_fed_store_get(store, "privacy", text, sizeof text));
    if (text[0] == '\0') return SH_OK;
    // Rate and rounds serve the noise alone, which is not used here.
    SH_TRY(sh_fed_privacy_parse(text, 1, 1, &privacy));
    SH_TRY(sh_fed_store_charges(store, add_charge, &spent));
    *epsilon_out = sh_fed_accountant_epsilon(&spent, privacy.delta);
    *of_out = privacy.epsilon;
    return SH_OK;
}

/* Reads only what is durable: the open round is in the memory of the server. */
static sh_status print_status(sh_fed_store *store, bool json, FILE *file) {
    char url[300], rounds[32];
    printing seen = {0}, shown = {.file = file, .json = json};
    SH_TRY(sh_fed_store_get(store, "url", url, sizeof url));
    SH_TRY(sh_fed_store_get(store, "rounds", rounds, sizeof rounds));
    SH_TRY(sh_fed_store_clients(store, print_client, &seen));
    // The newest round suffices to tell how many are closed.
    SH_TRY(sh_fed_store_rounds(store, 1, count_round, &seen));
    int64_t open = sh_fed_store_open_invitations(store, (int64_t)time(NULL));
    double epsilon, budget;
    SH_TRY(spent_privacy(store, &epsilon, &budget));
    const char *of = rounds[0] != '\0' ? rounds : "0";
    if (json)
        fprintf(file,
                "{\"url\":\"%s\",\"closed\":%lld,\"rounds\":%s,\"clients\":%lld,\"revoked\":%lld,"
                "\"invitations\":%lld,",
                url, (long long)seen.closed, of, (long long)seen.rows, (long long)seen.revoked,
                (long long)open);
    else
        fprintf(file,
                "server         %s\nrounds         %lld of %s\nclients        %lld, %lld revoked, "
                "%lld invited\n",
                url, (long long)seen.closed, of, (long long)seen.rows, (long long)seen.revoked,
                (long long)open);
    if (json) sh_fprintf(file, "\"last\":[");
    if (!json && !isnan(epsilon))
        sh_fprintf(file, "privacy        epsilon %.4f of %g spent\n", epsilon, budget);
    SH_TRY(sh_fed_store_rounds(store, 5, print_round, &shown));
    if (json && !isnan(epsilon))
        sh_fprintf(file, "],\"epsilon\":%.9g,\"budget\":%g}\n", epsilon, budget);
    if (json && isnan(epsilon)) fputs("]}\n", file);
    return SH_OK;
}

/* Opens without creating: a wrong folder is an error, not a new store. */
sh_status sh_fed_print_status(const char *folder, bool json, FILE *file) {
    sh_fed_store *store = NULL;
    SH_TRY(sh_fed_store_open(folder, false, &store));
    sh_status status = print_status(store, json, file);
    sh_fed_store_close(store);
    return status;
}
