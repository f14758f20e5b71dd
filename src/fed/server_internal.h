/* Between the files of the server's state machine: server.c owns it and answers questions,
 * server_take.c judges updates, server_round.c opens and closes rounds. */
#ifndef SH_FED_SERVER_INTERNAL_H
#define SH_FED_SERVER_INTERNAL_H

#include "fed/server.h"

typedef struct sh_fed_member {
    int64_t seen_ms;   // -1: has not asked since this process began
    uint64_t counted;  // the last round whose model its update went into
    uint64_t base;     // while `folded`: the round that its update was trained in
    bool revoked, selected, folded;
    bool told;         // that the training is over
    uint64_t samples;  // of the folded update, like the next three
    double loss, accuracy;
    float *held;  // robust rules: the update itself
} sh_fed_member;

/* The round that is open. */
typedef struct sh_fed_open_round {
    bool collecting;  // false: none is, the rest is empty
    int64_t opened_ms, deadline_ms;
    size_t selected, target, folded, late;
    sh_fed_sum sum;
    unsigned __int128 weights;         // of the folded updates
    unsigned __int128 weighted_steps;  // in units of 2^-16
    double expected;  // with privacy: the clients that the sum is divided by, whoever answers
} sh_fed_open_round;

struct sh_fed_server {
    sh_fed_options options;
    size_t params, count, vectors;
    sh_fed_commit commit;
    void *self;
    float *model, *mean, *slots[SH_FED_SLOTS_MOST];
    sh_fed_member *members;
    size_t member_count, member_capacity;
    uint64_t round;  // that is open, or comes next; from 1
    uint32_t attempt;
    bool over;
    sh_status failed;  // a commit failed: nothing goes on
    uint64_t restarted;
    sh_fed_open_round open;
    sh_fed_accountant spent, cost;  // so far, and of a round
    /* Hashes of the models of the last rounds: that of round r at r % size. */
    unsigned char hashes[SH_FED_LATE_MOST + 1][SH_FED_HASH];
    bool known[SH_FED_LATE_MOST + 1];
};

static inline unsigned char *sh_fed_hash_of(sh_fed_server *server, uint64_t round) {
    return server->hashes[round % (SH_FED_LATE_MOST + 1)];
}
static inline bool sh_fed_buffered(const sh_fed_server *server) {
    return server->options.rule.rule->buffered;
}
static inline bool sh_fed_present(const sh_fed_server *server, const sh_fed_member *member,
                                  int64_t now_ms) {
    return !member->revoked && member->seen_ms >= 0 &&
           now_ms - member->seen_ms <= server->options.presence_ms;
}
size_t sh_fed_count_present(const sh_fed_server *server, int64_t now_ms);

/* Begins a round when enough clients are present; closes or restarts the open one when it is due.
 */
sh_status sh_fed_advance(sh_fed_server *server, int64_t now_ms);
/* The probability with which a present client is in a round. */
static inline double sh_fed_rate(const sh_fed_server *server) {
    return server->options.fraction < 1 ? server->options.fraction : 1;
}
/* Epsilon so far; 0 without a budget. */
static inline double sh_fed_spent(const sh_fed_server *server) {
    const sh_fed_privacy *privacy = &server->options.privacy;
    return privacy->on ? sh_fed_accountant_epsilon(&server->spent, privacy->delta) : 0;
}
/* The hash of the model becomes that of the round to come. */
void sh_fed_hash_model(sh_fed_server *server);

#endif
