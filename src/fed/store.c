/* The store of a federated server on SQLite. Statements are short and prepared anew, as they run
 * once per request or round. Values are bound, never printed into SQL. */
#include "fed/store.h"

#include <math.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

struct sh_fed_store {
    sqlite3 *db;
    char *path;
};

/* WAL lets `shoal fed status` read while the server writes; FULL syncs every commit. Tokens and
 * requests are kept as hashes. `model` has one row, the newest. */
static const char schema[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"
    "CREATE TABLE IF NOT EXISTS settings(name TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS clients(number INTEGER PRIMARY KEY, joined INTEGER NOT NULL,"
    " revoked INTEGER NOT NULL DEFAULT 0, counted INTEGER NOT NULL DEFAULT 0,"
    " rounds INTEGER NOT NULL DEFAULT 0);"
    "CREATE TABLE IF NOT EXISTS invitations(token BLOB PRIMARY KEY, expires INTEGER NOT NULL,"
    " client INTEGER REFERENCES clients(number), request BLOB);"
    "CREATE TABLE IF NOT EXISTS rounds(round INTEGER PRIMARY KEY, clients INTEGER NOT NULL,"
    " samples INTEGER NOT NULL, loss REAL, seconds REAL, closed INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS charges(id INTEGER PRIMARY KEY, round INTEGER NOT NULL,"
    " rate REAL NOT NULL, noise REAL NOT NULL);"
    "CREATE TABLE IF NOT EXISTS hashes(round INTEGER PRIMARY KEY, hash BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS model(id INTEGER PRIMARY KEY CHECK (id = 1),"
    " round INTEGER NOT NULL, params INTEGER NOT NULL, weights BLOB NOT NULL, slot0 BLOB,"
    " slot1 BLOB);";

/* The message of SQLite, with the file it is about. */
static sh_status fail(const sh_fed_store *store) {
    SH_FAIL(SH_E_IO, "'%s': %s", store->path, sqlite3_errmsg(store->db));
    return sh_error_hint("is the disk full, or the file of another program?");
}

/* Runs SQL without parameters; never text from outside. */
static sh_status run(sh_fed_store *store, const char *sql) {
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK ? SH_OK : fail(store);
}

/* Waits up to 10 s for another process that writes. */
sh_status sh_fed_store_open(const char *folder, bool create, sh_fed_store **store_out) {
    sh_fed_store *store = sh_alloc(1, sizeof *store);
    if (store == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a store");
    store->path = sh_path_join(folder, "federated.db");
    sh_status status = SH_OK;
    if (store->path == NULL) {
        status = SH_FAIL(SH_E_MEMORY, "out of memory for a path");
    } else if (!create && !sh_file_exists(store->path)) {
        SH_FAIL(SH_E_USAGE, "'%s' holds no federated training", folder);
        status = sh_error_hint("name the folder that 'shoal fed serve' told");
    } else {
        // Several HTTP threads share the connection.
        int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
        if (sqlite3_open_v2(store->path, &store->db, flags, NULL) != SQLITE_OK)
            status = fail(store);
        else
            sqlite3_busy_timeout(store->db, 10000);
        if (status == SH_OK) status = run(store, schema);
    }
    if (status != SH_OK)
        sh_fed_store_close(store);
    else
        *store_out = store;
    return status;
}

/* Closing ends a transaction that was not committed, without its changes. */
void sh_fed_store_close(sh_fed_store *store) {
    if (store == NULL) return;
    sqlite3_close(store->db);
    sh_free(store->path);
    sh_free(store);
}

static sh_status prepare(sh_fed_store *store, const char *sql, sqlite3_stmt **statement_out) {
    return sqlite3_prepare_v2(store->db, sql, -1, statement_out, NULL) == SQLITE_OK ? SH_OK
                                                                                    : fail(store);
}

/* Steps a statement that gives no rows, and ends it. */
static sh_status finish(sh_fed_store *store, sqlite3_stmt *statement) {
    int code = sqlite3_step(statement);
    sh_status status = code == SQLITE_DONE ? SH_OK : fail(store);
    sqlite3_finalize(statement);
    return status;
}

/* Small texts by name that other processes may ask for. */
sh_status sh_fed_store_set(sh_fed_store *store, const char *name, const char *value) {
    sqlite3_stmt *statement;
    SH_TRY(prepare(store,
                   "INSERT INTO settings VALUES(?1, ?2) ON CONFLICT(name) DO UPDATE SET value = ?2",
                   &statement));
    sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, value, -1, SQLITE_STATIC);
    return finish(store, statement);
}

/* Empty text where there is none, cut off at `size`. */
sh_status sh_fed_store_get(sh_fed_store *store, const char *name, char *value_out, size_t size) {
    sqlite3_stmt *statement;
    SH_TRY(prepare(store, "SELECT value FROM settings WHERE name = ?1", &statement));
    sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    bool found = sqlite3_step(statement) == SQLITE_ROW;
    const char *value = found ? (const char *)sqlite3_column_text(statement, 0) : NULL;
    sh_snprintf(value_out, size, "%s", value != NULL ? value : "");
    sqlite3_finalize(statement);
    return SH_OK;
}

/* Numbers processes on this store; attempts are numbered by it (serve.c). */
sh_status sh_fed_store_boot(sh_fed_store *store, int64_t *boots_out) {
    char text[32];  // "" is 0
    SH_TRY(sh_fed_store_get(store, "boots", text, sizeof text));
    int64_t boots = atoll(text) + 1;
    snprintf(text, sizeof text, "%lld", (long long)boots);
    SH_TRY(sh_fed_store_set(store, "boots", text));
    *boots_out = boots;
    return SH_OK;
}

/* A column of exactly `count` floats, where there are any. */
static sh_status take_floats(sqlite3_stmt *statement, int column, float *values, size_t count) {
    size_t bytes = (size_t)sqlite3_column_bytes(statement, column);
    if (values == NULL) return SH_OK;
    if (bytes != count * sizeof *values) {
        SH_FAIL(SH_E_USAGE, "the training in this folder has a model of %zu values, this one %zu",
                bytes / sizeof *values, count);
        return sh_error_hint("take the run file and the rule that it began with, or another --out");
    }
    memcpy(values, sqlite3_column_blob(statement, column), bytes);
    return SH_OK;
}

/* Nothing to restore before the first round has closed. */
static sh_status restore_model(sh_fed_store *store, sh_fed_server *server, size_t params) {
    sqlite3_stmt *statement;
    SH_TRY(prepare(store, "SELECT round, weights, slot0, slot1 FROM model", &statement));
    sh_status status = SH_OK;
    if (sqlite3_step(statement) == SQLITE_ROW) {
        sh_fed_server_restore_round(server, (uint64_t)sqlite3_column_int64(statement, 0));
        status =
            take_floats(statement, 1, sh_fed_server_model(server), sh_fed_server_values(server));
        for (int i = 0; i < SH_FED_SLOTS_MOST && status == SH_OK; i++)
            status = take_floats(statement, 2 + i, sh_fed_server_slot(server, i), params);
    }
    sqlite3_finalize(statement);
    return status;
}

/* So that late updates of earlier rounds are still recognised after a restart. */
static sh_status restore_hashes(sh_fed_store *store, sh_fed_server *server) {
    sqlite3_stmt *statement;
    SH_TRY(prepare(store, "SELECT round, hash FROM hashes ORDER BY round", &statement));
    while (sqlite3_step(statement) == SQLITE_ROW)
        if (sqlite3_column_bytes(statement, 1) == SH_FED_HASH)
            sh_fed_server_restore_hash(server, (uint64_t)sqlite3_column_int64(statement, 0),
                                       sqlite3_column_blob(statement, 1));
    sqlite3_finalize(statement);
    return SH_OK;
}

/* A row for each round that spent privacy, committed before the sum is used. */
sh_status sh_fed_store_charge(sh_fed_store *store, uint64_t round, double rate, double noise) {
    sqlite3_stmt *statement;
    SH_TRY(
        prepare(store, "INSERT INTO charges(round, rate, noise) VALUES(?1, ?2, ?3)", &statement));
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)round);
    sqlite3_bind_double(statement, 2, rate);
    sqlite3_bind_double(statement, 3, noise);
    return finish(store, statement);
}

/* Charges in the order of time. */
sh_status sh_fed_store_charges(sh_fed_store *store,
                               void (*row)(void *self, double rate, double noise), void *self) {
    sqlite3_stmt *statement;
    SH_TRY(prepare(store, "SELECT rate, noise FROM charges ORDER BY id", &statement));
    while (sqlite3_step(statement) == SQLITE_ROW)
        row(self, sqlite3_column_double(statement, 0), sqlite3_column_double(statement, 1));
    sqlite3_finalize(statement);
    return SH_OK;
}

static void restore_charge(void *self, double rate, double noise) {
    sh_fed_server_restore_charge(self, rate, noise);
}

typedef struct restoring {
    sh_fed_server *server;
    sh_status status;
} restoring;

/* Numbers of clients are places in the state machine: a gap would mix clients up. */
static void restore_client(void *self, const sh_fed_client_row *row) {
    restoring *r = self;
    int64_t index = sh_fed_server_add(r->server);
    if (index != row->number - 1) {
        r->status = SH_FAIL(SH_E_FORMAT, "client %lld stands at place %lld", (long long)row->number,
                            (long long)index + 1);
        return;
    }
    sh_fed_server_restore_counted(r->server, (size_t)index, row->counted);
    if (row->revoked) sh_fed_server_revoke(r->server, (size_t)index);
}

sh_status sh_fed_store_restore(sh_fed_store *store, sh_fed_server *server, size_t params) {
    restoring r = {.server = server};
    SH_TRY(restore_model(store, server, params));
    SH_TRY(restore_hashes(store, server));
    SH_TRY(sh_fed_store_charges(store, restore_charge, server));
    SH_TRY(sh_fed_store_clients(store, restore_client, &r));
    return r.status;  // an error of any row
}

/* Slots that the rule does not have stay NULL. */
static sh_status write_model(sh_fed_store *store, sh_fed_server *server, size_t params,
                             const sh_fed_report *report) {
    sqlite3_stmt *statement;
    SH_TRY(
        prepare(store, "INSERT OR REPLACE INTO model VALUES(1, ?1, ?2, ?3, ?4, ?5)", &statement));
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)report->round);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)params);
    sqlite3_bind_blob64(statement, 3, sh_fed_server_model(server),
                        sh_fed_server_values(server) * sizeof(float), SQLITE_STATIC);
    for (int i = 0; i < SH_FED_SLOTS_MOST; i++)
        if (sh_fed_server_slot(server, i) != NULL)
            sqlite3_bind_blob64(statement, 4 + i, sh_fed_server_slot(server, i),
                                params * sizeof(float), SQLITE_STATIC);
    return finish(store, statement);
}

/* Also the hash of the new model, and forgets those too old to be taken. */
static sh_status write_round(sh_fed_store *store, const sh_fed_server *server,
                             const sh_fed_report *report, int64_t unix_s) {
    sqlite3_stmt *statement;
    SH_TRY(prepare(store, "INSERT INTO rounds VALUES(?1, ?2, ?3, ?4, ?5, ?6)", &statement));
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)report->round);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)report->counted);
    sqlite3_bind_int64(statement, 3, (sqlite3_int64)report->samples);
    if (isfinite(report->loss)) sqlite3_bind_double(statement, 4, report->loss);  // unbound is NULL
    sqlite3_bind_double(statement, 5, (report->closed_ms - report->opened_ms) * 1e-3);
    sqlite3_bind_int64(statement, 6, unix_s);
    SH_TRY(finish(store, statement));
    SH_TRY(prepare(store, "INSERT OR REPLACE INTO hashes VALUES(?1, ?2)", &statement));
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)report->round + 1);
    sqlite3_bind_blob(statement, 2, sh_fed_server_hash(server), SH_FED_HASH, SQLITE_STATIC);
    SH_TRY(finish(store, statement));
    SH_TRY(prepare(store, "DELETE FROM hashes WHERE round < ?1", &statement));
    // Late updates of older rounds are refused.
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)report->round + 1 - SH_FED_LATE_MOST);
    return finish(store, statement);
}

/* Only rows whose number rose change; one statement serves all clients. */
static sh_status write_counted(sh_fed_store *store, const sh_fed_server *server) {
    sqlite3_stmt *statement;
    SH_TRY(prepare(store,
                   "UPDATE clients SET counted = ?2, rounds = rounds + 1 WHERE number = ?1 AND "
                   "counted < ?2",
                   &statement));
    int code = SQLITE_DONE;
    for (size_t c = 0; c < sh_fed_server_clients(server) && code == SQLITE_DONE; c++) {
        sqlite3_bind_int64(statement, 1, (sqlite3_int64)c + 1);
        sqlite3_bind_int64(statement, 2, (sqlite3_int64)sh_fed_server_counted(server, c));
        code = sqlite3_step(statement);
        sqlite3_reset(statement);
    }
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SH_OK : fail(store);
}

/* One transaction for model, round and clients: a crash leaves the round before, or this one. */
sh_status sh_fed_store_commit(sh_fed_store *store, const sh_fed_server *server, size_t params,
                              const sh_fed_report *report, int64_t unix_s) {
    sh_fed_server *same = (sh_fed_server *)(uintptr_t)server;  // its model is only read
    SH_TRY(run(store, "BEGIN IMMEDIATE"));
    sh_status status = write_model(store, same, params, report);
    if (status == SH_OK) status = write_round(store, server, report, unix_s);
    if (status == SH_OK) status = write_counted(store, server);
    if (status == SH_OK) status = run(store, "COMMIT");
    // Nothing of the round stays.
    if (status != SH_OK) sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

static void hash_text(const char *text, unsigned char hash_out[SH_FED_HASH]) {
    crypto_hash_sha256(hash_out, (const unsigned char *)text, strlen(text));
}

/* 128 random bits; the database has only their hash, so that reading it lets nobody in. */
sh_status sh_fed_store_invite(sh_fed_store *store, int64_t unix_s, int64_t seconds,
                              char token_out[SH_FED_TOKEN]) {
    unsigned char drawn[16], hash[SH_FED_HASH];
    sqlite3_stmt *statement;
    if (sodium_init() < 0) return SH_FAIL(SH_E_UNSUPPORTED, "libsodium does not start");
    randombytes_buf(drawn, sizeof drawn);
    sodium_bin2hex(token_out, SH_FED_TOKEN, drawn, sizeof drawn);
    hash_text(token_out, hash);
    SH_TRY(prepare(store, "INSERT INTO invitations(token, expires) VALUES(?1, ?2)", &statement));
    sqlite3_bind_blob(statement, 1, hash, sizeof hash, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 2, unix_s + seconds);
    return finish(store, statement);
}

/* Invitations that can still be redeemed; 0 also where the store fails, as it is only shown. */
int64_t sh_fed_store_open_invitations(sh_fed_store *store, int64_t unix_s) {
    sqlite3_stmt *statement;
    int64_t count = 0;
    if (prepare(store, "SELECT count(*) FROM invitations WHERE client IS NULL AND expires > ?1",
                &statement) != SH_OK)
        return 0;
    sqlite3_bind_int64(statement, 1, unix_s);
    if (sqlite3_step(statement) == SQLITE_ROW) count = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return count;
}

typedef struct invitation {
    bool found;
    int64_t expires, client;  // 0: unused
    unsigned char request[SH_FED_HASH];
} invitation;

static sh_status find_invitation(sh_fed_store *store, const unsigned char token[SH_FED_HASH],
                                 invitation *out) {
    sqlite3_stmt *statement;
    *out = (invitation){0};
    SH_TRY(prepare(store, "SELECT expires, client, request FROM invitations WHERE token = ?1",
                   &statement));
    sqlite3_bind_blob(statement, 1, token, SH_FED_HASH, SQLITE_STATIC);
    if (sqlite3_step(statement) == SQLITE_ROW) {
        out->found = true;
        out->expires = sqlite3_column_int64(statement, 0);
        out->client = sqlite3_column_int64(statement, 1);
        if (sqlite3_column_bytes(statement, 2) == SH_FED_HASH)
            memcpy(out->request, sqlite3_column_blob(statement, 2), SH_FED_HASH);
    }
    sqlite3_finalize(statement);
    return SH_OK;
}

/* Inside the transaction of sh_fed_store_redeem: a token makes one client. */
static sh_status use_invitation(sh_fed_store *store, const unsigned char token[SH_FED_HASH],
                                const unsigned char request[SH_FED_HASH], int64_t unix_s,
                                int64_t *client_out) {
    sqlite3_stmt *statement;
    SH_TRY(prepare(store, "INSERT INTO clients(joined) VALUES(?1)", &statement));
    sqlite3_bind_int64(statement, 1, unix_s);
    SH_TRY(finish(store, statement));
    int64_t client = sqlite3_last_insert_rowid(store->db);
    SH_TRY(prepare(store, "UPDATE invitations SET client = ?1, request = ?2 WHERE token = ?3",
                   &statement));
    sqlite3_bind_int64(statement, 1, client);
    sqlite3_bind_blob(statement, 2, request, SH_FED_HASH, SQLITE_STATIC);
    sqlite3_bind_blob(statement, 3, token, SH_FED_HASH, SQLITE_STATIC);
    *client_out = client;
    return finish(store, statement);
}

/* BEGIN IMMEDIATE takes the write lock before the token is looked at: two requests cannot both use
 * it. */
sh_status sh_fed_store_redeem(sh_fed_store *store, const char *token, const char *request,
                              int64_t unix_s, int64_t *client_out) {
    unsigned char token_hash[SH_FED_HASH], request_hash[SH_FED_HASH];
    invitation found;
    hash_text(token, token_hash);
    hash_text(request, request_hash);
    SH_TRY(run(store, "BEGIN IMMEDIATE"));
    sh_status status = find_invitation(store, token_hash, &found);
    if (status == SH_OK && !found.found) {
        status = SH_FAIL(SH_E_USAGE, "this token is not known here");
    } else if (status == SH_OK && found.client != 0) {
        *client_out = found.client;
        // The same request again: its answer was lost.
        if (memcmp(found.request, request_hash, SH_FED_HASH) != 0)
            status = SH_FAIL(SH_E_USAGE, "this token has been used");
    } else if (status == SH_OK && found.expires <= unix_s) {
        status = SH_FAIL(SH_E_USAGE, "this token has expired");
    } else if (status == SH_OK) {
        status = use_invitation(store, token_hash, request_hash, unix_s, client_out);
    }
    if (status == SH_OK) return run(store, "COMMIT");
    sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

/* All clients by number, revoked ones too. */
sh_status sh_fed_store_clients(sh_fed_store *store,
                               void (*row)(void *self, const sh_fed_client_row *client),
                               void *self) {
    sqlite3_stmt *statement;
    SH_TRY(prepare(store,
                   "SELECT number, revoked, counted, joined, rounds FROM clients ORDER BY number",
                   &statement));
    while (sqlite3_step(statement) == SQLITE_ROW) {
        const sh_fed_client_row client = {
            .number = sqlite3_column_int64(statement, 0),
            .revoked = sqlite3_column_int(statement, 1) != 0,
            .counted = (uint64_t)sqlite3_column_int64(statement, 2),
            .joined_unix_s = sqlite3_column_int64(statement, 3),
            .rounds = sqlite3_column_int64(statement, 4),
        };
        row(self, &client);
    }
    sqlite3_finalize(statement);
    return SH_OK;
}

/* The row stays: numbers are never given again. */
sh_status sh_fed_store_revoke(sh_fed_store *store, int64_t number) {
    sqlite3_stmt *statement;
    SH_TRY(prepare(store, "UPDATE clients SET revoked = 1 WHERE number = ?1", &statement));
    sqlite3_bind_int64(statement, 1, number);
    SH_TRY(finish(store, statement));
    if (sqlite3_changes(store->db) > 0) return SH_OK;
    SH_FAIL(SH_E_USAGE, "there is no client %lld", (long long)number);
    return sh_error_hint("shoal fed clients DIR");
}

bool sh_fed_store_is_revoked(sh_fed_store *store, int64_t number) {
    sqlite3_stmt *statement;
    bool revoked = true;  // what cannot be read is not let in
    if (prepare(store, "SELECT revoked FROM clients WHERE number = ?1", &statement) != SH_OK)
        return true;
    sqlite3_bind_int64(statement, 1, number);
    if (sqlite3_step(statement) == SQLITE_ROW) revoked = sqlite3_column_int(statement, 0) != 0;
    sqlite3_finalize(statement);
    return revoked;
}

/* The newest `last` rounds, oldest of them first. A loss of NULL is NAN. */
sh_status sh_fed_store_rounds(sh_fed_store *store, int64_t last,
                              void (*row)(void *self, const sh_fed_round_row *round), void *self) {
    sqlite3_stmt *statement;
    SH_TRY(prepare(store,
                   "SELECT * FROM (SELECT round, clients, samples, closed, loss, seconds FROM "
                   "rounds ORDER BY round DESC LIMIT ?1) ORDER BY round",
                   &statement));
    sqlite3_bind_int64(statement, 1, last);
    while (sqlite3_step(statement) == SQLITE_ROW) {
        bool known = sqlite3_column_type(statement, 4) != SQLITE_NULL;
        const sh_fed_round_row round = {
            .round = sqlite3_column_int64(statement, 0),
            .clients = sqlite3_column_int64(statement, 1),
            .samples = sqlite3_column_int64(statement, 2),
            .closed_unix_s = sqlite3_column_int64(statement, 3),
            .loss = known ? sqlite3_column_double(statement, 4) : NAN,
            .seconds = sqlite3_column_double(statement, 5),
        };
        row(self, &round);
    }
    sqlite3_finalize(statement);
    return SH_OK;
}
