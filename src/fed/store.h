/* What a federated server keeps: closed rounds with the newest model, clients, and invitations, in
 * one SQLite database (WAL, every commit synced), `federated.db` in the run's folder. Other
 * processes may read it and invite or revoke at the same time. No update of a client is ever
 * written to it. One task at a time. */
#ifndef SH_FED_STORE_H
#define SH_FED_STORE_H

#include "fed/server.h"

enum { SH_FED_TOKEN = 33, SH_FED_NAME = 64 };  // characters, with the final zero

typedef struct sh_fed_store sh_fed_store;

/* `create`: makes it where there is none; otherwise that fails. */
sh_status sh_fed_store_open(const char *folder, bool create, sh_fed_store **store_out);
void sh_fed_store_close(sh_fed_store *store);

/* A short text by its name, "" when there is none: the address of the server, its fingerprint. */
sh_status sh_fed_store_set(sh_fed_store *store, const char *name, const char *value);
sh_status sh_fed_store_get(sh_fed_store *store, const char *name, char *value_out, size_t size);
/* How often a server began with this store, this time included. */
sh_status sh_fed_store_boot(sh_fed_store *store, int64_t *boots_out);

/* Fills a server that was just created: clients, and if a round has closed, model, rule state,
 * counters and hashes. */
sh_status sh_fed_store_restore(sh_fed_store *store, sh_fed_server *server, size_t params);
/* sh_fed_commit: everything that a closed round left, in one transaction. */
sh_status sh_fed_store_commit(sh_fed_store *store, const sh_fed_server *server, size_t params,
                              const sh_fed_report *report, int64_t unix_s);

/* Rounds whose privacy was charged. */
sh_status sh_fed_store_charge(sh_fed_store *store, uint64_t round, double rate, double noise);
sh_status sh_fed_store_charges(sh_fed_store *store,
                               void (*row)(void *self, double rate, double noise), void *self);

/* A one-time token, of which only the hash is kept. */
sh_status sh_fed_store_invite(sh_fed_store *store, int64_t unix_s, int64_t seconds,
                              char token_out[SH_FED_TOKEN]);
int64_t sh_fed_store_open_invitations(sh_fed_store *store, int64_t unix_s);
/* Makes the token's client, from 1 on. The same request may come again, when its answer was lost;
 * another one for a used token is refused with SH_E_USAGE, as is an expired or unknown token. */
sh_status sh_fed_store_redeem(sh_fed_store *store, const char *token, const char *request,
                              int64_t unix_s, int64_t *client_out);

typedef struct sh_fed_client_row {
    int64_t number;  // from 1
    bool revoked;
    uint64_t counted;  // the last round its update went into
    int64_t joined_unix_s, rounds;
} sh_fed_client_row;

sh_status sh_fed_store_clients(sh_fed_store *store,
                               void (*row)(void *self, const sh_fed_client_row *client),
                               void *self);
/* SH_E_USAGE: there is no such client. */
sh_status sh_fed_store_revoke(sh_fed_store *store, int64_t number);
bool sh_fed_store_is_revoked(sh_fed_store *store, int64_t number);

typedef struct sh_fed_round_row {
    int64_t round, clients, samples, closed_unix_s;
    double loss, seconds;
} sh_fed_round_row;

sh_status sh_fed_store_rounds(sh_fed_store *store, int64_t last,
                              void (*row)(void *self, const sh_fed_round_row *round), void *self);

#endif
