/* The federated server as a pure state machine: questions and updates of clients and the time go
 * in, tasks and receipts come out. It does no input or output, so the simulator and the tests run
 * the very code that serves HTTPS.
 *
 *            enough clients are present             target reached, or deadline with quorum
 *   WAITING ----------------------------> COLLECTING ------------------------------> WAITING
 *      ^                                      |           (the round closes: a new model)   |
 *      +--------------------------------------+                               last round -> OVER
 *        deadline without quorum: the sum is dropped and the round begins again
 *
 * An update is added to an integer sum as it arrives and is not kept (but by robust rules). What is
 * durable is a closed round: its model and which clients were counted. A server that dies loses the
 * sum of the open round alone; clients hold their update until the round closes and send it again
 * when the server's task tells that it has none of them.
 *
 * Every client is counted at most once for a round, by one number per client: the last round that
 * its update was counted for. */
#ifndef SH_FED_SERVER_H
#define SH_FED_SERVER_H

#include "fed/exact_sum.h"
#include "fed/message.h"
#include "fed/privacy.h"
#include "fed/rule.h"

enum { SH_FED_LATE_MOST = 63, SH_FED_CLIENTS_MOST = SH_FED_UPDATES_MOST };

/* Makes it durable that a round's sum is about to be used; the sum is touched only after that. */
typedef sh_status (*sh_fed_charge)(void *self, uint64_t round, double rate, double noise);

typedef struct sh_fed_options {
    sh_fed_rule_options rule;
    int64_t rounds;
    double fraction;       // of the present clients, to be counted in a round
    int64_t clients_min;   // present before a round begins, and counted at least by the target
    double over;           // clients asked, as a multiple of the target
    double quorum;         // part of the target that suffices at the deadline
    int64_t deadline_ms;   // from the beginning of a round
    int64_t presence_ms;   // who has not asked for so long is absent
    int64_t poll_ms;       // waiting clients ask again after this
    int64_t late_rounds;   // updates of so many closed rounds are still taken; fedbuff: the most
    bool equal_weights;    // every client counts alike, whatever its samples
    int64_t samples_most;  // a client's weight is cut here; 0: no limit
    uint64_t seed;
    uint32_t attempt;  // number of the first attempt: above those of earlier processes
    sh_fed_privacy privacy;
    sh_fed_charge charge;  // with the server's `self`; NULL: nothing is to be made durable
} sh_fed_options;

/* What came of a round that closed. */
typedef struct sh_fed_report {
    uint64_t round;
    uint32_t attempt;
    size_t selected, counted, late;
    uint64_t samples;
    double loss;                                     // of local training, weighted by samples
    double accuracy, accuracy_least, accuracy_most;  // on held-out data of clients; NaN: unknown
    double opened_ms, closed_ms;
    double epsilon;  // spent so far, this round included; 0: there is no budget
} sh_fed_report;

typedef struct sh_fed_server sh_fed_server;

/* Makes what a closed round left durable, before any client learns of it: model, slots and the
 * numbers of sh_fed_server_counted. A failure ends the server. */
typedef sh_status (*sh_fed_commit)(void *self, const sh_fed_server *server,
                                   const sh_fed_report *report);

/* `params` trained elements of `count`. Keeps `self`. The model is zero until it is set. */
sh_status sh_fed_server_create(const sh_fed_options *options, size_t params, size_t count,
                               sh_fed_commit commit, void *self, sh_fed_server **server_out);
void sh_fed_server_destroy(sh_fed_server *server);

/* A new client's number, from 0 on; -1: there are too many. */
int64_t sh_fed_server_add(sh_fed_server *server);
void sh_fed_server_revoke(sh_fed_server *server, size_t client);

/* Before the first question: the model (vectors x count floats), the rule's state, and what an
 * earlier process made durable. */
float *sh_fed_server_model(sh_fed_server *server);
float *sh_fed_server_slot(sh_fed_server *server, int slot);
void sh_fed_server_restore_round(sh_fed_server *server, uint64_t closed);
void sh_fed_server_restore_counted(sh_fed_server *server, size_t client, uint64_t round);
void sh_fed_server_restore_hash(sh_fed_server *server, uint64_t round,
                                const unsigned char hash[SH_FED_HASH]);
/* A round that was charged before, whether or not it closed. */
void sh_fed_server_restore_charge(sh_fed_server *server, double rate, double noise);
void sh_fed_server_begin(sh_fed_server *server);

/* A client is there, whatever it does at the moment. */
void sh_fed_server_heard(sh_fed_server *server, int64_t now_ms, size_t client);
/* A client asks what to do. */
sh_status sh_fed_server_ask(sh_fed_server *server, int64_t now_ms, size_t client,
                            sh_fed_task *task_out);
/* A client's update. A fault of the update is a receipt; a failure is the server's. */
sh_status sh_fed_server_take(sh_fed_server *server, int64_t now_ms, size_t client,
                             const sh_fed_update *update, sh_fed_receipt *receipt_out);
/* The sum of the updates of those in `came` (a flag for each client, all of them asked), of which
 * secure aggregation told nothing else: integers, in units of `unit`. Every client counts alike. */
void sh_fed_server_take_sum(sh_fed_server *server, const bool *came, const int32_t *sum,
                            double unit);
/* Lets time pass: closes or restarts a round whose deadline is over. */
sh_status sh_fed_server_tick(sh_fed_server *server, int64_t now_ms);

/* What can be seen from outside. */
typedef struct sh_fed_view {
    uint64_t closed;  // rounds
    uint32_t attempt;
    bool collecting, over;
    size_t clients, present, selected, target, counted;
    uint64_t restarted;  // rounds begun again
    double epsilon;      // spent so far
    size_t untold;       // present clients that have not heard that it is over
} sh_fed_view;

sh_fed_view sh_fed_server_view(const sh_fed_server *server, int64_t now_ms);
const sh_fed_options *sh_fed_server_options(const sh_fed_server *server);
size_t sh_fed_server_clients(const sh_fed_server *server);
uint64_t sh_fed_server_counted(const sh_fed_server *server, size_t client);
const unsigned char *sh_fed_server_hash(const sh_fed_server *server);
size_t sh_fed_server_values(const sh_fed_server *server);  // floats of the model: vectors x count

#endif
