/* A simulated federation: the real state machines of a server and its clients, a network that
 * delays, loses, doubles and reorders, clients that die, and a server that crashes and comes back
 * with what it had committed. Everything follows from one seed. */
#ifndef SH_TESTS_FED_WORLD_H
#define SH_TESTS_FED_WORLD_H

#include "fed/client.h"
#include "fed/server.h"

enum { WORLD_VALUES = 6, WORLD_PARAMS = 5, WORLD_CLIENTS_MOST = 64 };

typedef struct world_options {
    const char *rule;
    const char *privacy;  // a budget; NULL: none
    int clients, clients_min;
    int64_t rounds, late_rounds;
    double fraction, over, quorum;
    double lost, doubled;  // of all messages
    double dies, crashes;  // per message that arrives: its client, or the server
    int64_t delay_ms_most, train_ms_most;
    uint64_t seed;
} world_options;

typedef struct world_result {
    uint64_t closed, charged, restarted, crashes, served;
    int64_t end_ms;
    float model[2 * WORLD_VALUES];
    char fault[256];  // "": none
} world_result;

/* Runs until the training is over, or for 48 hours of virtual time. */
world_result world_run(const world_options *options);

#endif
